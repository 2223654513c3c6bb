// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs: objects and fib_states; what they send is in send.c.
 */
#include "fakeib.h"

static atomic_t next_qpn = ATOMIC_INIT(0x10);

static int create_user_qp(struct fib_qp *qp, struct ib_qp_init_attr *init, struct ib_udata *u)
{
	struct ib_ucontext *c = rdma_udata_to_drv_context(u, struct fib_uctx, ib) ? &rdma_udata_to_drv_context(u, struct fib_uctx, ib)->ib : NULL;
	struct rxe_create_qp_resp resp = {};
	u32 inl = init->cap.max_inline_data, sges = init->cap.max_send_sge;
	int r;

	if ((init->qp_type != IB_QPT_RC && init->qp_type != IB_QPT_UC && init->qp_type != IB_QPT_UD) || sges > FIB_SGE ||
	    inl > FIB_INLINE || init->cap.max_recv_sge > FIB_SGE || u->outlen < sizeof(resp))
		return -EINVAL;
	inl = max_t(u32, inl, sges * sizeof(struct rxe_sge));
	init->cap.max_inline_data = inl;
	init->cap.max_send_sge = max_t(u32, sges, 1);
	r = ring_make(&qp->sring, c, &init->cap.max_send_wr, sizeof(struct rxe_send_wqe) + inl, &resp.sq_mi);
	if (r)
		return r;
	if (init->srq) {
		qp->srq = container_of(init->srq, struct fib_srq, ib);
	} else {
		r = ring_make(&qp->rring, c, &init->cap.max_recv_wr,
			      sizeof(struct rxe_recv_wqe) + init->cap.max_recv_sge * sizeof(struct rxe_sge), &resp.rq_mi);
		if (r) {
			ring_free(&qp->sring);
			return r;
		}
	}
	qp->cap = init->cap;
	qp->sig_all = init->sq_sig_type == IB_SIGNAL_ALL_WR;
	qp->user = true;
	return ib_copy_to_udata(u, &resp, sizeof(resp));
}

int fib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	struct fib_qp *qp = to_qp(ibqp);

	if (qp->user) {			/* a doorbell: what to send is in its queue */
		fib_ring_doorbell(qp);
		return 0;
	}
	for (; wr; wr = wr->next) {
		struct ib_wc wc = { .wr_id = wr->wr_id, .opcode = IB_WC_SEND, .qp = ibqp, .port_num = 1 };
		const struct rdma_ah_attr *a = &container_of(ud_wr(wr)->ah, struct fib_ah, ib)->attr;
		struct fib_pkt *p;
		u32 len = 0;
		int i;

		for (i = 0; i < wr->num_sge; i++)
			len += wr->sg_list[i].length;
		p = qp->state == IB_QPS_RTS && ibqp->qp_type != IB_QPT_SMI ? kzalloc(sizeof(*p) + len, GFP_ATOMIC) : NULL;
		if (p) {
			for (i = 0; i < wr->num_sge; p->len += wr->sg_list[i++].length)
				memcpy(p->data + p->len, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
			fib_transmit(p, qp, a, ud_wr(wr)->remote_qpn, ud_wr(wr)->remote_qkey);
		}
		wc.status = qp->state == IB_QPS_ERR ? IB_WC_WR_FLUSH_ERR : IB_WC_SUCCESS;
		fib_push_wc(ibqp->send_cq, &wc);
	}
	return 0;
}

int fib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	struct fib_qp *qp = to_qp(ibqp);
	unsigned long f;

	for (; wr; wr = wr->next) {
		struct ib_wc wc = { .wr_id = wr->wr_id, .status = IB_WC_WR_FLUSH_ERR, .opcode = IB_WC_RECV, .qp = ibqp };
		struct fib_rwr *r;

		spin_lock_irqsave(&qp->lock, f);
		if (qp->state == IB_QPS_ERR) {
			spin_unlock_irqrestore(&qp->lock, f);
			fib_push_wc(ibqp->recv_cq, &wc);
			continue;
		}
		if (qp->tail - qp->head >= qp->size || wr->num_sge > ARRAY_SIZE(r->sge)) {
			spin_unlock_irqrestore(&qp->lock, f);
			*bad = wr;
			return -ENOMEM;
		}
		r = &qp->rq[qp->tail++ % qp->size];
		r->wr_id = wr->wr_id;
		r->n = wr->num_sge;
		memcpy(r->sge, wr->sg_list, wr->num_sge * sizeof(*wr->sg_list));
		spin_unlock_irqrestore(&qp->lock, f);
	}
	return 0;
}

int fib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init, struct ib_udata *u)
{
	struct fib_qp *qp = to_qp(ibqp);

	if (!u && init->qp_type != IB_QPT_UD && init->qp_type != IB_QPT_GSI && init->qp_type != IB_QPT_SMI)
		return -EOPNOTSUPP;
	spin_lock_init(&qp->lock);
	if (u) {
		int r = create_user_qp(qp, init, u);

		if (r)
			return r;
	} else {
		qp->size = init->cap.max_recv_wr + 1;
		qp->rq = vzalloc(array_size(qp->size, sizeof(*qp->rq)));
		if (!qp->rq)
			return -ENOMEM;
	}
	INIT_LIST_HEAD(&qp->mcs);
	ibqp->qp_num = init->qp_type == IB_QPT_SMI ? 0 : init->qp_type == IB_QPT_GSI ? 1 :
		       atomic_inc_return(&next_qpn) & 0xffffff;
	mutex_lock(&fib_lock);
	list_add_tail(&qp->list, &fib_qps);
	mutex_unlock(&fib_lock);
	return 0;
}

int fib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *a, int mask, struct ib_udata *u)
{
	struct ib_wc wc = { .status = IB_WC_WR_FLUSH_ERR, .opcode = IB_WC_RECV, .qp = ibqp };
	struct fib_qp *qp = to_qp(ibqp);
	unsigned long f;

	if (qp->user) {
		mutex_lock(&fib_lock);
		if ((mask & IB_QP_PKEY_INDEX) && a->pkey_index < fib_npkeys)
			qp->pkey_index = a->pkey_index;
		if (mask & IB_QP_QKEY)
			qp->qkey = a->qkey;
		if (mask & IB_QP_AV) {
			qp->av = a->ah_attr;
			qp->dlid = rdma_ah_get_dlid(&a->ah_attr);
		}
		if (mask & IB_QP_DEST_QPN)
			qp->dqpn = a->dest_qp_num;
		if (mask & IB_QP_STATE)
			qp->state = a->qp_state;
		if (qp->state == IB_QPS_RESET) {
			while (ring_peek(&qp->sring))
				ring_pop(&qp->sring);
			while (!qp->srq && ring_peek(&qp->rring))
				ring_pop(&qp->rring);
		}
		mutex_unlock(&fib_lock);
		fib_ring_doorbell(qp);
		return 0;
	}
	spin_lock_irqsave(&qp->lock, f);
	if ((mask & IB_QP_PKEY_INDEX) && a->pkey_index < fib_npkeys)
		qp->pkey_index = a->pkey_index;
	if (mask & IB_QP_QKEY)
		qp->qkey = a->qkey;
	if (mask & IB_QP_STATE)
		qp->state = a->qp_state;
	if (qp->state == IB_QPS_RESET)
		qp->head = qp->tail;
	while (qp->state == IB_QPS_ERR && qp->head != qp->tail) {
		wc.wr_id = qp->rq[qp->head++ % qp->size].wr_id;
		fib_push_wc(ibqp->recv_cq, &wc);
	}
	spin_unlock_irqrestore(&qp->lock, f);
	return 0;
}

int fib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *a, int mask, struct ib_qp_init_attr *init)
{
	memset(a, 0, sizeof(*a));
	a->qp_state = a->cur_qp_state = to_qp(ibqp)->state;
	a->pkey_index = to_qp(ibqp)->pkey_index;
	a->qkey = to_qp(ibqp)->qkey;
	a->port_num = 1;
	a->dest_qp_num = to_qp(ibqp)->dqpn;
	a->cap = init->cap = to_qp(ibqp)->cap;
	a->path_mtu = IB_MTU_4096;
	if (to_qp(ibqp)->user && ibqp->qp_type != IB_QPT_UD)
		a->ah_attr = to_qp(ibqp)->av;
	return 0;
}

int fib_detach(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct fib_mc *mc, *t;

	mutex_lock(&fib_lock);
	list_for_each_entry_safe(mc, t, &to_qp(ibqp)->mcs, list)
		if (!gid || !memcmp(&mc->gid, gid, sizeof(*gid))) {
			list_del(&mc->list);
			kfree(mc);
		}
	mutex_unlock(&fib_lock);
	return 0;
}

int fib_attach(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct fib_mc *mc = kzalloc(sizeof(*mc), GFP_KERNEL);

	if (!mc)
		return -ENOMEM;
	mc->gid = *gid;
	mutex_lock(&fib_lock);
	list_add(&mc->list, &to_qp(ibqp)->mcs);
	mutex_unlock(&fib_lock);
	return 0;
}

int fib_destroy_qp(struct ib_qp *ibqp, struct ib_udata *u)
{
	fib_detach(ibqp, NULL, 0);
	mutex_lock(&fib_lock);
	list_del(&to_qp(ibqp)->list);
	mutex_unlock(&fib_lock);
	ring_free(&to_qp(ibqp)->sring);
	ring_free(&to_qp(ibqp)->rring);
	vfree(to_qp(ibqp)->rq);
	return 0;
}
