// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues, address handles, protection domains, contexts.
 */
#include "fakeib.h"

static u32 recv_size(u32 sges)
{
	return sizeof(struct rxe_recv_wqe) + sges * sizeof(struct rxe_sge);
}

int fib_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init, struct ib_udata *u)
{
	struct fib_srq *s = to_srq(ibsrq);
	struct rxe_create_srq_resp resp = {};
	int r;

	if (!u || init->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	if (!init->attr.max_wr || init->attr.max_wr > FIB_MAX_WR || init->attr.max_sge > FIB_SGE ||
	    init->attr.srq_limit > init->attr.max_wr || u->outlen < sizeof(resp))
		return -EINVAL;
	r = fib_take(ibsrq->device, FIB_SRQ);
	if (r)
		return r;
	r = fib_ring_make(&s->rq, fib_ctx(u), &init->attr.max_wr, recv_size(init->attr.max_sge), &resp.mi);
	if (r)
		goto give;
	s->attr = init->attr;
	r = ib_copy_to_udata(u, &resp, sizeof(resp));
	if (!r)
		return 0;
	fib_ring_free(&s->rq);
give:
	fib_give(ibsrq->device, FIB_SRQ);
	return r;
}

/* What is posted moves along. The provider holds its lock, so nothing is posted meanwhile. */
static int resize_srq(struct fib_srq *s, u32 n, struct ib_udata *u)
{
	struct rxe_modify_srq_cmd cmd = {};
	struct fib_ring new = {}, *old = &s->rq;
	struct mminfo mi;
	u32 i, used;
	int r;

	if (!u || u->inlen < sizeof(cmd) || !n || n > FIB_MAX_WR || n < s->attr.srq_limit)
		return -EINVAL;
	r = ib_copy_from_udata(&cmd, u, sizeof(cmd));
	if (r)
		return r;
	r = fib_ring_make(&new, fib_ctx(u), &n, recv_size(s->attr.max_sge), &mi);
	if (r)
		return r;
	if (copy_to_user(u64_to_user_ptr(cmd.mmap_info_addr), &mi, sizeof(mi)))
		r = -EFAULT;
	mutex_lock(&fib_lock);
	used = fib_ring_used(old);
	if (!r && used > n)
		r = -EINVAL;
	if (!r) {
		for (i = 0; i < used; i++)	/* the kernel takes out of this one: it begins where that is empty */
			memcpy(new.buf->data + ((size_t)i << new.shift),
			       old->buf->data + ((size_t)((old->idx + i) & old->mask) << old->shift), 1 << new.shift);
		new.buf->producer_index = used;
		fib_ring_replace(old, &new);
		s->attr.max_wr = n;
	}
	mutex_unlock(&fib_lock);
	fib_ring_free(&new);
	return r;
}

int fib_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *a, enum ib_srq_attr_mask mask, struct ib_udata *u)
{
	struct fib_srq *s = to_srq(ibsrq);
	int r = 0;

	if (mask & IB_SRQ_MAX_WR)
		r = resize_srq(s, a->max_wr, u);
	if (r || !(mask & IB_SRQ_LIMIT))
		return r;
	mutex_lock(&fib_lock);
	if (a->srq_limit > s->attr.max_wr)
		r = -EINVAL;
	else
		s->attr.srq_limit = a->srq_limit;
	mutex_unlock(&fib_lock);
	return r;
}

int fib_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *a)
{
	mutex_lock(&fib_lock);
	*a = to_srq(ibsrq)->attr;
	mutex_unlock(&fib_lock);
	return 0;
}

int fib_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *u)
{
	mutex_lock(&fib_lock);		/* its QPs are gone; this waits for who took from it last */
	mutex_unlock(&fib_lock);
	fib_ring_free(&to_srq(ibsrq)->rq);
	fib_give(ibsrq->device, FIB_SRQ);
	return 0;
}

int fib_create_user_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init, struct ib_udata *u)
{
	struct fib_ah *ah = to_ah(ibah);
	struct rxe_create_ah_resp resp = {};
	int r;

	if (u->outlen < sizeof(resp))
		return -EINVAL;		/* it would not know the number to send with */
	r = fib_take(ibah->device, FIB_AH);
	if (r)
		return r;
	ah->attr = *init->ah_attr;
	mutex_lock(&fib_lock);
	r = xa_alloc(&fib_ahs, &ah->num, ah, XA_LIMIT(1, 0xffffff), GFP_KERNEL);
	mutex_unlock(&fib_lock);
	if (r) {
		fib_give(ibah->device, FIB_AH);
		return r;
	}
	resp.ah_num = ah->num;
	r = ib_copy_to_udata(u, &resp, sizeof(resp));
	if (r)
		fib_destroy_ah(ibah, 0);
	return r;
}

int fib_create_ah(struct ib_ah *ah, struct rdma_ah_init_attr *init, struct ib_udata *u)
{
	to_ah(ah)->attr = *init->ah_attr;
	return 0;
}

int fib_query_ah(struct ib_ah *ah, struct rdma_ah_attr *a)
{
	*a = to_ah(ah)->attr;
	return 0;
}

/* The kernel's may be destroyed in any context, and have no number. */
int fib_destroy_ah(struct ib_ah *ah, u32 flags)
{
	if (!to_ah(ah)->num)
		return 0;
	mutex_lock(&fib_lock);
	xa_erase(&fib_ahs, to_ah(ah)->num);
	mutex_unlock(&fib_lock);
	fib_give(ah->device, FIB_AH);
	return 0;
}

int fib_alloc_pd(struct ib_pd *pd, struct ib_udata *u)
{
	return fib_take(pd->device, FIB_PD);
}

int fib_dealloc_pd(struct ib_pd *pd, struct ib_udata *u)
{
	fib_give(pd->device, FIB_PD);
	return 0;
}

int fib_alloc_uctx(struct ib_ucontext *c, struct ib_udata *u)
{
	return 0;
}

void fib_dealloc_uctx(struct ib_ucontext *c)
{
}

/* Nothing that is mapped is a device's: the core destroys the objects, and the pages of rings are memory like any. */
void fib_disassociate(struct ib_ucontext *c)
{
}
