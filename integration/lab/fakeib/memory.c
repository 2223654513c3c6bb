// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions, and copying between what scatter/gather lists name.
 */
#include "fakeib.h"

#ifdef CONFIG_HIGHMEM
#error pages of user space are read by page_address()
#endif

static DEFINE_XARRAY_ALLOC1(mrs);	/* by key >> 8; erased with fib_lock, so that a copy never loses its region */
static u32 next_mr;
static u8 next_key;			/* the rest of the key: the next region of a number has another key */

struct ib_mr *fib_get_dma_mr(struct ib_pd *pd, int acc)
{
	struct fib_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);

	return mr ? &mr->ib : ERR_PTR(-ENOMEM);
}

int fib_dereg_mr(struct ib_mr *ibmr, struct ib_udata *u)
{
	struct fib_mr *mr = container_of(ibmr, struct fib_mr, ib);

	if (mr->umem) {
		mutex_lock(&fib_lock);
		xa_erase(&mrs, ibmr->lkey >> 8);
		mutex_unlock(&fib_lock);
		ib_umem_release(mr->umem);
		kvfree(mr->pages);
		fib_give(ibmr->device, FIB_MR);
	}
	kfree(mr);
	return 0;
}

#define FIB_MR_ACCESS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ | \
		       IB_ACCESS_REMOTE_ATOMIC | IB_ZERO_BASED | IB_ACCESS_OPTIONAL)

struct ib_mr *fib_reg_user_mr(struct ib_pd *pd, u64 start, u64 len, u64 iova, int access,
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
			      struct ib_dmah *dmah,
#endif
			      struct ib_udata *u)
{
	struct fib_mr *mr;
	struct sg_page_iter it;
	size_t n = 0;
	u32 id;
	int r;

	if (access & ~FIB_MR_ACCESS)
		return ERR_PTR(-EOPNOTSUPP);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
	if (dmah)
		return ERR_PTR(-EOPNOTSUPP);
#endif
	r = fib_take(pd->device, FIB_MR);
	if (r)
		return ERR_PTR(r);
	r = -ENOMEM;
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		goto give;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
	mr->umem = ib_umem_get_va(pd->device, start, len, access);
#else
	mr->umem = ib_umem_get(pd->device, start, len, access);
#endif
	if (IS_ERR(mr->umem)) {
		r = PTR_ERR(mr->umem);
		goto free;
	}
	mr->pages = kvcalloc(ib_umem_num_pages(mr->umem), sizeof(*mr->pages), GFP_KERNEL);
	if (!mr->pages)
		goto release;
	for_each_sgtable_page(&mr->umem->sgt_append.sgt, &it, 0)
		mr->pages[n++] = sg_page_iter_page(&it);
	mr->iova = iova;
	mr->len = len;
	mr->off = ib_umem_offset(mr->umem);
	mr->access = access;
	mr->ib.pd = pd;
	mutex_lock(&fib_lock);
	r = xa_alloc_cyclic(&mrs, &id, mr, XA_LIMIT(1, 0xffffff), &next_mr, GFP_KERNEL);
	if (r >= 0)
		mr->ib.lkey = mr->ib.rkey = id << 8 | ++next_key;
	mutex_unlock(&fib_lock);
	if (r < 0)
		goto release;
	return &mr->ib;
release:
	kvfree(mr->pages);
	ib_umem_release(mr->umem);
free:
	kfree(mr);
give:
	fib_give(pd->device, FIB_MR);
	return ERR_PTR(r);
}

void fib_io_init(struct fib_io *io)
{
	io->n = io->i = io->off = 0;
	io->len = 0;
}

void fib_io_flat(struct fib_io *io, void *p, u32 len)
{
	if (!len)
		return;
	io->span[io->n++] = (struct fib_span){ .flat = p, .len = len };
	io->len += len;
}

/* Adds what a key names. The whole range is checked here, so copying can't fail half-way. */
int fib_io_key(struct fib_io *io, struct ib_pd *pd, u32 key, int access, u64 addr, u32 len)
{
	struct fib_mr *mr;

	if (!len)
		return 0;	/* no key is looked at, as the InfiniBand specification says of empty messages */
	mr = xa_load(&mrs, key >> 8);
	if (!mr || mr->ib.lkey != key || mr->ib.pd != pd || (mr->access & access) != access ||
	    addr < mr->iova || len > mr->len || addr - mr->iova > mr->len - len)
		return -EACCES;
	io->span[io->n++] = (struct fib_span){ .mr = mr, .off = addr - mr->iova + mr->off, .len = len };
	io->len += len;
	return 0;
}

/* Adds the list of a work request, which lies in a ring: each word is read once. At most max entries fit in there. */
int fib_io_list(struct fib_io *io, struct ib_pd *pd, const struct rxe_dma_info *d, u32 max, int access)
{
	u32 i, n = READ_ONCE(d->num_sge);
	int r = 0;

	if (n > max || n > FIB_SGE)
		return -EINVAL;
	for (i = 0; i < n && !r; i++)
		r = fib_io_key(io, pd, READ_ONCE(d->sge[i].lkey), access, READ_ONCE(d->sge[i].addr),
			       READ_ONCE(d->sge[i].length));
	return r;
}

/* What lies in one piece at the present place, at most *n bytes. */
static u8 *here(struct fib_io *io, u32 *n)
{
	struct fib_span *s = &io->span[io->i];
	u64 off = s->off + io->off;

	*n = min(*n, s->len - io->off);
	if (s->flat)
		return s->flat + io->off;
	*n = min_t(u32, *n, PAGE_SIZE - offset_in_page(off));
	return (u8 *)page_address(s->mr->pages[off >> PAGE_SHIFT]) + offset_in_page(off);
}

static void advance(struct fib_io *io, u32 n)
{
	io->off += n;
	if (io->off == io->span[io->i].len) {
		io->i++;
		io->off = 0;
	}
}

/* Both have at least len bytes. They may overlap, as buffers of one process may. */
void fib_io_copy(struct fib_io *to, struct fib_io *from, u32 len)
{
	u32 n, since = 0;
	u8 *t, *f;

	for (; len; len -= n) {
		n = len;
		t = here(to, &n);
		f = here(from, &n);
		if (t + n <= f || f + n <= t)
			memcpy(t, f, n);	/* several times faster, in emulation */
		else
			memmove(t, f, n);
		advance(to, n);
		advance(from, n);
		since += n;
		if (since >= SZ_1M) {
			since = 0;
			cond_resched();
		}
	}
}
