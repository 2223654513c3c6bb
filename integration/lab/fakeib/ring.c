// SPDX-License-Identifier: GPL-2.0
/*
 * Queues that user space maps: the layout is rxe's (struct rxe_queue_buf), so that rdma-core's provider fills and
 * empties them.
 *
 * Whoever has mapped a ring can write all of it at any time. So sizes and the kernel's own index are kept in struct
 * fib_ring; of the shared part only the other side's index is read, and masked.
 */
#include "fakeib.h"

static LIST_HEAD(rings);
static DEFINE_MUTEX(rings_lock);
static u64 next_offset = PAGE_SIZE;	/* never used twice: an old one maps nothing */

int fib_ring_make(struct fib_ring *r, struct ib_ucontext *ctx, u32 *n, u32 elem, struct mminfo *mi)
{
	u32 slots = roundup_pow_of_two(*n + 1);	/* one stays free: a full ring is not an empty one */

	if (!ctx)
		return -EINVAL;
	elem = roundup_pow_of_two(max_t(u32, elem, 64));
	r->size = PAGE_ALIGN(sizeof(*r->buf) + (size_t)slots * elem);
	r->buf = vmalloc_user(r->size);
	if (!r->buf)
		return -ENOMEM;
	r->shift = r->buf->log2_elem_size = ilog2(elem);
	r->mask = r->buf->index_mask = slots - 1;
	r->idx = 0;
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

/* Whoever has mapped it keeps the pages, by their reference counts. */
void fib_ring_free(struct fib_ring *r)
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
		if (r->ctx == c && r->offset == (u64)v->vm_pgoff << PAGE_SHIFT && v->vm_end - v->vm_start <= r->size) {
			err = remap_vmalloc_range(v, r->buf, 0);
			break;
		}
	mutex_unlock(&rings_lock);
	return err;
}

static void *slot(struct fib_ring *r, u32 i)
{
	return r->buf->data + ((size_t)i << r->shift);
}

/* The oldest element that user space has put in, or NULL. */
void *fib_ring_peek(struct fib_ring *r)
{
	u32 prod = smp_load_acquire(&r->buf->producer_index) & r->mask;

	return prod == r->idx ? NULL : slot(r, r->idx);
}

void fib_ring_pop(struct fib_ring *r)
{
	r->idx = (r->idx + 1) & r->mask;
	smp_store_release(&r->buf->consumer_index, r->idx);
}

/* How many elements user space has put in. */
u32 fib_ring_used(struct fib_ring *r)
{
	return (smp_load_acquire(&r->buf->producer_index) - r->idx) & r->mask;
}

/* All that has been put in till now; user space may go on. */
void fib_ring_drop(struct fib_ring *r)
{
	r->idx = (r->idx + fib_ring_used(r)) & r->mask;
	smp_store_release(&r->buf->consumer_index, r->idx);
}

/* For user space to take out; false if it is full. */
bool fib_ring_push(struct fib_ring *r, const void *elem, u32 len)
{
	u32 next = (r->idx + 1) & r->mask;

	if (next == (smp_load_acquire(&r->buf->consumer_index) & r->mask))
		return false;
	memcpy(slot(r, r->idx), elem, len);
	r->idx = next;
	smp_store_release(&r->buf->producer_index, next);
	return true;
}

/* new takes the place of old, which is freed. What it held must have been moved. */
void fib_ring_replace(struct fib_ring *old, struct fib_ring *new)
{
	struct rxe_queue_buf *buf = old->buf;

	mutex_lock(&rings_lock);
	list_del(&old->list);
	list_replace(&new->list, &old->list);
	old->buf = new->buf;
	old->offset = new->offset;
	old->size = new->size;
	old->mask = new->mask;
	old->shift = new->shift;
	old->idx = new->idx;
	mutex_unlock(&rings_lock);
	new->buf = NULL;
	vfree(buf);
}
