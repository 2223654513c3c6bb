// SPDX-License-Identifier: GPL-2.0
/*
 * Queues that user space maps: the layout is rxe's (struct rxe_queue_buf), so that rdma-core's provider fills and
 * empties them.
 */
#include "fakeib.h"

static LIST_HEAD(rings);
static DEFINE_MUTEX(rings_lock);
static u64 next_offset = PAGE_SIZE;

int ring_make(struct fib_ring *r, struct ib_ucontext *ctx, u32 *n, u32 elem, struct mminfo *mi)
{
	u32 slots = roundup_pow_of_two(*n + 1);

	elem = roundup_pow_of_two(max_t(u32, elem, 64));
	r->size = PAGE_ALIGN(sizeof(*r->buf) + (size_t)slots * elem);
	r->buf = vmalloc_user(r->size);
	if (!r->buf)
		return -ENOMEM;
	r->shift = r->buf->log2_elem_size = ilog2(elem);
	r->mask = r->buf->index_mask = slots - 1;
	r->ctx = ctx;
	mutex_lock(&rings_lock);
	r->offset = next_offset;
	next_offset += r->size;
	list_add(&r->list, &rings);
	mutex_unlock(&rings_lock);
	*mi = (struct mminfo){ .offset = r->offset, .size = r->size };
	*n = slots - 1;
	return 0;
}

void ring_free(struct fib_ring *r)	/* what is mapped keeps its pages */
{
	if (!r->buf)
		return;
	mutex_lock(&rings_lock);
	list_del(&r->list);
	mutex_unlock(&rings_lock);
	vfree(r->buf);
	r->buf = NULL;
}

int fib_mmap(struct ib_ucontext *c, struct vm_area_struct *v)
{
	struct fib_ring *r;
	int err = -EINVAL;

	mutex_lock(&rings_lock);
	list_for_each_entry(r, &rings, list)
		if (r->ctx == c && r->offset == (u64)v->vm_pgoff << PAGE_SHIFT && v->vm_end - v->vm_start <= r->size)
			err = remap_vmalloc_range(v, r->buf, 0);
	mutex_unlock(&rings_lock);
	return err;
}

void *ring_peek(struct fib_ring *r)
{
	u32 prod = smp_load_acquire(&r->buf->producer_index) & r->mask;

	return prod == r->idx ? NULL : r->buf->data + ((size_t)r->idx << r->shift);
}
void ring_pop(struct fib_ring *r)
{
	r->idx = (r->idx + 1) & r->mask;
	smp_store_release(&r->buf->consumer_index, r->idx);
}
bool ring_push_wc(struct fib_ring *r, const struct ib_wc *wc)
{
	struct ib_uverbs_wc *u = (void *)r->buf->data + ((size_t)r->idx << r->shift);
	u32 next = (r->idx + 1) & r->mask;

	if (next == (smp_load_acquire(&r->buf->consumer_index) & r->mask))
		return false;
	*u = (struct ib_uverbs_wc){ .wr_id = wc->wr_id, .status = wc->status, .opcode = wc->opcode, .byte_len = wc->byte_len,
		.ex.imm_data = wc->ex.imm_data, .qp_num = wc->qp->qp_num, .src_qp = wc->src_qp, .wc_flags = wc->wc_flags,
		.pkey_index = wc->pkey_index, .slid = wc->slid, .sl = wc->sl, .port_num = wc->port_num };
	r->idx = next;
	smp_store_release(&r->buf->producer_index, next);
	return true;
}
