// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues.
 */
#include "fakeib.h"

int fib_poll_cq(struct ib_cq *ibcq, int n, struct ib_wc *wc)
{
	struct fib_cq *cq = to_cq(ibcq);
	unsigned long f;
	int i;

	spin_lock_irqsave(&cq->lock, f);
	for (i = 0; i < n && cq->head != cq->tail; i++)
		wc[i] = cq->ring[cq->head++ % cq->size];
	spin_unlock_irqrestore(&cq->lock, f);
	return i;
}

int fib_req_notify(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct fib_cq *cq = to_cq(ibcq);
	bool solicited = (flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED;
	unsigned long f;
	int r;

	spin_lock_irqsave(&cq->lock, f);
	/* who waits for any completion is not made to wait for a solicited one by a second call */
	cq->solicited_only = solicited && (!cq->armed || cq->solicited_only);
	cq->armed = true;
	r = (flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->head != cq->tail;
	spin_unlock_irqrestore(&cq->lock, f);
	return r;
}

static u32 cqe_size(void)
{
	return max(sizeof(struct ib_wc), sizeof(struct ib_uverbs_wc));
}

static int create_user_cq(struct fib_cq *cq, u32 n, struct ib_udata *u)
{
	struct rxe_create_cq_resp resp = {};
	int r;

	if (u->outlen < sizeof(resp))
		return -EINVAL;
	r = fib_ring_make(&cq->uring, fib_ctx(u), &n, cqe_size(), &resp.mi);
	if (r)
		return r;
	r = ib_copy_to_udata(u, &resp, sizeof(resp));
	if (r)
		fib_ring_free(&cq->uring);
	cq->user = true;
	cq->ib.cqe = n;
	return r;
}

int fib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr, CQ_ARG)
{
	struct fib_cq *cq = to_cq(ibcq);
	int r;

	if (attr->flags)
		return -EOPNOTSUPP;
	if (attr->cqe < 1 || attr->cqe > FIB_MAX_CQE)
		return -EINVAL;
	spin_lock_init(&cq->lock);
	INIT_LIST_HEAD(&cq->pending);
	r = fib_take(ibcq->device, FIB_CQ);
	if (r)
		return r;
	if (u) {
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
		r = create_user_cq(cq, attr->cqe, &u->driver_udata);
#else
		r = create_user_cq(cq, attr->cqe, u);
#endif
	} else {
		cq->size = attr->cqe + 16;
		cq->ring = vzalloc(array_size(cq->size, sizeof(*cq->ring)));
		if (!cq->ring)
			r = -ENOMEM;
		ibcq->cqe = attr->cqe;
	}
	if (r)
		fib_give(ibcq->device, FIB_CQ);
	return r;
}

/* What user space has not yet polled moves along. It does not poll meanwhile: the provider holds its lock. */
int fib_resize_cq(struct ib_cq *ibcq, CQE_ARG, struct ib_udata *u)
{
	struct fib_cq *cq = to_cq(ibcq);
	struct fib_ring new = {}, *old = &cq->uring;
	struct rxe_resize_cq_resp resp = {};
	u32 n = cqe, i, cons;
	int r;

	if (!u || !cq->user || u->outlen < sizeof(resp))
		return -EINVAL;
	if (n < 1 || n > FIB_MAX_CQE)
		return -EINVAL;
	r = fib_ring_make(&new, fib_ctx(u), &n, cqe_size(), &resp.mi);
	if (r)
		return r;
	/* not with the lock: the page of user space may take as long as it likes */
	r = ib_copy_to_udata(u, &resp, sizeof(resp));
	mutex_lock(&fib_lock);		/* nothing is pushed */
	cons = READ_ONCE(old->buf->consumer_index) & old->mask;
	if (((old->idx - cons) & old->mask) > n)
		r = -EINVAL;
	if (!r) {
		for (i = cons; i != old->idx; i = (i + 1) & old->mask)
			fib_ring_push(&new, old->buf->data + ((size_t)i << old->shift), 1 << old->shift);
		fib_ring_replace(old, &new);
		ibcq->cqe = n;
	}
	mutex_unlock(&fib_lock);
	fib_ring_free(&new);
	return r;
}

int fib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *u)
{
	struct fib_cq *cq = to_cq(ibcq);

	fib_cq_forget(cq);
	fib_ring_free(&cq->uring);
	vfree(cq->ring);
	fib_give(ibcq->device, FIB_CQ);
	return 0;
}
