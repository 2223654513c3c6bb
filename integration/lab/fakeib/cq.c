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
	unsigned long f;
	int r;

	spin_lock_irqsave(&cq->lock, f);
	cq->armed = true;
	r = (flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->head != cq->tail;
	spin_unlock_irqrestore(&cq->lock, f);
	return r;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#define CQ_ARG struct uverbs_attr_bundle *u
#else
#define CQ_ARG struct ib_udata *u
#endif
int fib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr, CQ_ARG)
{
	struct fib_cq *cq = to_cq(ibcq);

	spin_lock_init(&cq->lock);
	if (u) {
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
		struct ib_udata *ud = &u->driver_udata;
#else
		struct ib_udata *ud = u;
#endif
		struct rxe_create_cq_resp resp = {};
		u32 n = attr->cqe;
		int r = ring_make(&cq->uring, &rdma_udata_to_drv_context(ud, struct fib_uctx, ib)->ib, &n,
				  max(sizeof(struct ib_wc), sizeof(struct ib_uverbs_wc)), &resp.mi);

		if (!r)
			r = ib_copy_to_udata(ud, &resp, min(ud->outlen, sizeof(resp)));
		if (r) {
			ring_free(&cq->uring);
			return r;
		}
		cq->user = true;
		ibcq->cqe = n;
	} else {
		cq->size = attr->cqe + 16;
		cq->ring = vzalloc(array_size(cq->size, sizeof(*cq->ring)));
		if (!cq->ring)
			return -ENOMEM;
		ibcq->cqe = attr->cqe;
	}
	mutex_lock(&fib_lock);
	list_add_tail(&cq->list, &fib_cqs);
	mutex_unlock(&fib_lock);
	return 0;
}

int fib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *u)
{
	mutex_lock(&fib_lock);
	list_del(&to_cq(ibcq)->list);
	mutex_unlock(&fib_lock);
	ring_free(&to_cq(ibcq)->uring);
	vfree(to_cq(ibcq)->ring);
	return 0;
}
