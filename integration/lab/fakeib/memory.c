// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions, and reading and writing what a scatter/gather list names.
 */
#include "fakeib.h"

static DEFINE_XARRAY_ALLOC1(mrs);
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
	}
	kfree(mr);
	return 0;
}

struct ib_mr *fib_reg_user_mr(struct ib_pd *pd, u64 start, u64 len, u64 iova, int access,
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
				     struct ib_dmah *dmah,
#endif
				     struct ib_udata *u)
{
	struct fib_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	struct sg_page_iter it;
	size_t n = 0;
	u32 id;
	int r = -ENOMEM;

	if (!mr)
		return ERR_PTR(r);
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
	r = xa_alloc(&mrs, &id, mr, XA_LIMIT(1, 0xffffff), GFP_KERNEL);
	if (r)
		goto release;
	mr->ib.lkey = mr->ib.rkey = id << 8 | 0x5a;
	mr->ib.pd = pd;
	return &mr->ib;
release:
	kvfree(mr->pages);
	ib_umem_release(mr->umem);
free:
	kfree(mr);
	return ERR_PTR(r);
}

int mr_io(u32 key, struct ib_pd *pd, int access, u64 addr, void *buf, u32 len, bool to)
{
	struct fib_mr *mr = xa_load(&mrs, key >> 8);
	u64 off;

	if (!mr || mr->ib.lkey != key || mr->ib.pd != pd || (mr->access & access) != access ||
	    addr < mr->iova || len > mr->len || addr - mr->iova > mr->len - len)
		return -EACCES;
	off = addr - mr->iova + mr->off;
	while (len) {
		u32 n = min_t(u32, len, PAGE_SIZE - offset_in_page(off));
		u8 *va = (u8 *)kmap_local_page(mr->pages[off >> PAGE_SHIFT]) + offset_in_page(off);

		if (to)
			memcpy(va, buf, n);
		else
			memcpy(buf, va, n);
		kunmap_local(va);
		off += n; buf += n; len -= n;
	}
	return 0;
}

int io_open(struct fib_io *io, struct ib_pd *pd, const struct rxe_dma_info *d)
{
	io->pd = pd;
	io->n = READ_ONCE(d->num_sge);
	io->i = io->off = 0;
	io->inl = NULL;
	if (io->n > FIB_SGE)
		return -EINVAL;
	memcpy(io->sge, d->sge, io->n * sizeof(io->sge[0]));
	return 0;
}
u32 io_len(const struct fib_io *io)
{
	u32 i, len = 0;

	for (i = 0; i < io->n; i++)
		len += io->sge[i].length;
	return len;
}
int io_copy(struct fib_io *io, void *buf, u32 len, bool to)
{
	if (io->inl) {
		memcpy(buf, io->inl + io->off, len);
		io->off += len;
		return 0;
	}
	while (len) {
		struct rxe_sge *s = &io->sge[io->i];
		u32 n;

		if (io->i >= io->n)
			return -EMSGSIZE;
		n = min(len, s->length - io->off);
		if (n && mr_io(s->lkey, io->pd, to ? IB_ACCESS_LOCAL_WRITE : 0, s->addr + io->off, buf, n, to))
			return -EACCES;
		buf += n; len -= n; io->off += n;
		if (io->off == s->length) {
			io->i++;
			io->off = 0;
		}
	}
	return 0;
}
