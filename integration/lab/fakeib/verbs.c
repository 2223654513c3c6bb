// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues, address handles, protection domains, contexts.
 */
#include "fakeib.h"

DEFINE_XARRAY_ALLOC1(fib_ahs);

int fib_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init, struct ib_udata *u)
{
	struct fib_srq *s = container_of(ibsrq, struct fib_srq, ib);
	struct rxe_create_srq_resp resp = {};
	int r;

	if (!u || init->srq_type != IB_SRQT_BASIC || init->attr.max_sge > FIB_SGE)
		return -EOPNOTSUPP;
	r = ring_make(&s->rq, &rdma_udata_to_drv_context(u, struct fib_uctx, ib)->ib, &init->attr.max_wr,
		      sizeof(struct rxe_recv_wqe) + init->attr.max_sge * sizeof(struct rxe_sge), &resp.mi);
	if (r)
		return r;
	s->attr = init->attr;
	return ib_copy_to_udata(u, &resp, min(u->outlen, sizeof(resp)));
}
int fib_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *a, enum ib_srq_attr_mask mask, struct ib_udata *u)
{
	if (mask & IB_SRQ_MAX_WR)
		return -EOPNOTSUPP;
	container_of(ibsrq, struct fib_srq, ib)->attr.srq_limit = a->srq_limit;
	return 0;
}
int fib_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *a)
{
	*a = container_of(ibsrq, struct fib_srq, ib)->attr;
	return 0;
}
int fib_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *u)
{
	ring_free(&container_of(ibsrq, struct fib_srq, ib)->rq);
	return 0;
}

int fib_create_user_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init, struct ib_udata *u)
{
	struct fib_ah *ah = container_of(ibah, struct fib_ah, ib);
	struct rxe_create_ah_resp resp = {};
	int r;

	ah->attr = *init->ah_attr;
	r = xa_alloc(&fib_ahs, &ah->num, ah, XA_LIMIT(1, 0xffffff), GFP_KERNEL);
	if (r)
		return r;
	resp.ah_num = ah->num;
	return ib_copy_to_udata(u, &resp, min(u->outlen, sizeof(resp)));
}

int fib_create_ah(struct ib_ah *ah, struct rdma_ah_init_attr *init, struct ib_udata *u)
{
	container_of(ah, struct fib_ah, ib)->attr = *init->ah_attr;
	return 0;
}
int fib_query_ah(struct ib_ah *ah, struct rdma_ah_attr *a)
{
	*a = container_of(ah, struct fib_ah, ib)->attr;
	return 0;
}
int fib_destroy_ah(struct ib_ah *ah, u32 flags)
{
	u32 num = container_of(ah, struct fib_ah, ib)->num;

	if (num) {
		mutex_lock(&fib_lock);
		xa_erase(&fib_ahs, num);
		mutex_unlock(&fib_lock);
	}
	return 0;
}
int fib_alloc_pd(struct ib_pd *pd, struct ib_udata *u) { return 0; }
int fib_dealloc_pd(struct ib_pd *pd, struct ib_udata *u) { return 0; }
int fib_alloc_uctx(struct ib_ucontext *c, struct ib_udata *u) { return 0; }
void fib_dealloc_uctx(struct ib_ucontext *c) { }
void fib_disassociate(struct ib_ucontext *c) { }
