// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs: objects and states; what they send is in send.c, connected.c and datagram.c.
 */
#include "fakeib.h"

static u32 next_qpn;

/* A kill within a move has ib_mad fail so: kernel/kthread.c, __kthread_create_on_node. */
static int mad_fail;
module_param(mad_fail, int, 0644);
MODULE_PARM_DESC(mad_fail, "how many of the next queue pairs 1 can't be made");

static int create_user_qp(struct fib_qp *qp, struct ib_qp_init_attr *init, struct ib_udata *u)
{
	struct rxe_create_qp_resp resp = {};
	struct ib_qp_cap *cap = &init->cap;
	u32 inl = cap->max_inline_data;
	int r;

	if (init->qp_type != IB_QPT_RC && init->qp_type != IB_QPT_UC && init->qp_type != IB_QPT_UD)
		return -EOPNOTSUPP;
	if (init->create_flags)
		return -EOPNOTSUPP;
	if (cap->max_send_sge > FIB_SGE || cap->max_recv_sge > FIB_SGE || inl > FIB_INLINE ||
	    cap->max_send_wr > FIB_MAX_WR || cap->max_recv_wr > FIB_MAX_WR || u->outlen < sizeof(resp))
		return -EINVAL;
	/* inline data and the list share their place */
	cap->max_send_sge = max_t(u32, cap->max_send_sge, 1);
	inl = max_t(u32, inl, cap->max_send_sge * sizeof(struct rxe_sge));
	cap->max_inline_data = inl;
	r = fib_ring_make(&qp->sring, fib_ctx(u), &cap->max_send_wr, sizeof(struct rxe_send_wqe) + inl, &resp.sq_mi);
	if (r)
		return r;
	if (init->srq) {
		qp->srq = to_srq(init->srq);
		cap->max_recv_wr = cap->max_recv_sge = 0;
	} else {
		r = fib_ring_make(&qp->rring, fib_ctx(u), &cap->max_recv_wr,
				  sizeof(struct rxe_recv_wqe) + cap->max_recv_sge * sizeof(struct rxe_sge), &resp.rq_mi);
		if (r)
			goto free;
	}
	r = ib_copy_to_udata(u, &resp, sizeof(resp));
	if (!r)
		return 0;
	fib_ring_free(&qp->rring);
free:
	fib_ring_free(&qp->sring);
	return r;
}

static int create_kernel_qp(struct fib_qp *qp, struct ib_qp_init_attr *init)
{
	if (init->qp_type != IB_QPT_UD && init->qp_type != IB_QPT_GSI && init->qp_type != IB_QPT_SMI)
		return -EOPNOTSUPP;	/* IPoIB's connected mode does without */
	if (init->cap.max_recv_sge > FIB_KSGE)
		return -EINVAL;
	qp->size = init->cap.max_recv_wr + 1;
	qp->rq = vzalloc(array_size(qp->size, sizeof(*qp->rq)));
	return qp->rq ? 0 : -ENOMEM;
}

/* Its number, and its place on the fabric. */
static int enlist(struct fib_qp *qp)
{
	int r = 0;
	u32 n;

	mutex_lock(&fib_lock);
	if (qp->ib.qp_type == IB_QPT_SMI) {
		qp->ib.qp_num = 0;
	} else if (qp->ib.qp_type == IB_QPT_GSI) {
		qp->ib.qp_num = 1;
		dev_of(qp)->gsi[qp->attr.port_num - 1] = qp;
	} else {
		r = xa_alloc_cyclic(&fib_qpns, &n, qp, XA_LIMIT(0x11, 0xfffffe), &next_qpn, GFP_KERNEL);
		if (r >= 0)
			qp->ib.qp_num = n;
	}
	if (r >= 0)
		list_add_tail(&qp->list, &fib_qps);
	mutex_unlock(&fib_lock);
	return min(r, 0);
}

static void free_queues(struct fib_qp *qp)
{
	fib_ring_free(&qp->sring);
	fib_ring_free(&qp->rring);
	vfree(qp->rq);
}

int fib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init, struct ib_udata *u)
{
	struct fib_qp *qp = to_qp(ibqp);
	int r;

	if (init->qp_type == IB_QPT_GSI && mad_fail > 0) {
		mad_fail--;
		return -EINTR;
	}
	r = fib_take(ibqp->device, FIB_QP);
	if (r)
		return r;
	spin_lock_init(&qp->lock);
	INIT_LIST_HEAD(&qp->mcs);
	INIT_LIST_HEAD(&qp->ready);
	INIT_DELAYED_WORK(&qp->timer, fib_retry_timer);
	qp->user = u;
	r = u ? create_user_qp(qp, init, u) : create_kernel_qp(qp, init);
	if (r)
		goto give;
	qp->cap = init->cap;
	qp->sig = init->sq_sig_type;
	qp->attr.path_mtu = IB_MTU_4096;
	qp->attr.port_num = init->qp_type == IB_QPT_GSI ? init->port_num : 1;
	r = enlist(qp);
	if (!r)
		return 0;
	free_queues(qp);
give:
	fib_give(ibqp->device, FIB_QP);
	return r;
}

/* What ib_modify_qp_is_ok() does not look at. */
static int check_attr(struct fib_qp *qp, const struct ib_qp_attr *a, int mask)
{
	if (mask & ~IB_QP_ATTR_STANDARD_BITS || mask & (IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE))
		return -EOPNOTSUPP;
	if ((mask & IB_QP_PORT) && (!a->port_num || a->port_num > qp->ib.device->phys_port_cnt))
		return -EINVAL;
	if ((mask & IB_QP_PKEY_INDEX) && a->pkey_index >= fib_npkeys)
		return -EINVAL;
	if ((mask & IB_QP_PATH_MTU) && (a->path_mtu < IB_MTU_256 || a->path_mtu > IB_MTU_4096))
		return -EINVAL;
	if ((mask & IB_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > FIB_MAX_RD)
		return -EINVAL;
	if ((mask & IB_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > FIB_MAX_RD)
		return -EINVAL;
	if (((mask & IB_QP_TIMEOUT) && a->timeout > 31) || ((mask & IB_QP_RETRY_CNT) && a->retry_cnt > 7) ||
	    ((mask & IB_QP_RNR_RETRY) && a->rnr_retry > 7) || ((mask & IB_QP_MIN_RNR_TIMER) && a->min_rnr_timer > 31))
		return -EINVAL;
	return 0;
}

static void keep_attr(struct fib_qp *qp, const struct ib_qp_attr *a, int mask)
{
	struct ib_qp_attr *to = &qp->attr;

#define KEEP(bit, field) do { if (mask & (bit)) to->field = a->field; } while (0)
	KEEP(IB_QP_ACCESS_FLAGS, qp_access_flags);
	KEEP(IB_QP_PKEY_INDEX, pkey_index);
	KEEP(IB_QP_PORT, port_num);
	KEEP(IB_QP_QKEY, qkey);
	KEEP(IB_QP_AV, ah_attr);
	KEEP(IB_QP_PATH_MTU, path_mtu);
	KEEP(IB_QP_TIMEOUT, timeout);
	KEEP(IB_QP_RETRY_CNT, retry_cnt);
	KEEP(IB_QP_RNR_RETRY, rnr_retry);
	KEEP(IB_QP_RQ_PSN, rq_psn);
	KEEP(IB_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	KEEP(IB_QP_MIN_RNR_TIMER, min_rnr_timer);
	KEEP(IB_QP_SQ_PSN, sq_psn);
	KEEP(IB_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	KEEP(IB_QP_DEST_QPN, dest_qp_num);
#undef KEEP
}

static void reset(struct fib_qp *qp)
{
	struct ib_qp_attr clean = { .path_mtu = IB_MTU_4096, .port_num = qp->attr.port_num };

	qp->attr = clean;
	if (!qp->user) {
		qp->head = qp->tail;
		return;
	}
	fib_ring_drop(&qp->sring);
	if (!qp->srq)
		fib_ring_drop(&qp->rring);
	WRITE_ONCE(qp->waiting, false);
}

static void flush_kernel(struct fib_qp *qp)
{
	struct ib_wc wc = { .status = IB_WC_WR_FLUSH_ERR, .opcode = IB_WC_RECV, .qp = &qp->ib };
	unsigned long f;

	spin_lock_irqsave(&qp->lock, f);
	while (qp->head != qp->tail) {
		wc.wr_id = qp->rq[qp->head++ % qp->size].wr_id;
		fib_push_wc(qp->ib.recv_cq, &wc, true);
	}
	spin_unlock_irqrestore(&qp->lock, f);
}

static void enter(struct fib_qp *qp, enum ib_qp_state to, const struct ib_qp_attr *a, int mask)
{
	enum ib_qp_state from = qp->attr.qp_state;

	if (to == IB_QPS_ERR) {
		if (qp->user)
			fib_qp_error(qp, IB_EVENT_QP_LAST_WQE_REACHED);
		qp->attr.qp_state = to;
		if (!qp->user)
			flush_kernel(qp);
		return;
	}
	if (to == IB_QPS_RESET)
		reset(qp);
	if (to == IB_QPS_RTS) {
		qp->retries = qp->attr.retry_cnt;
		qp->rnr_retries = qp->attr.rnr_retry;
	}
	qp->attr.qp_state = to;
	/* messages are whole: none is under way when this returns */
	if (to == IB_QPS_SQD && from == IB_QPS_RTS && (mask & IB_QP_EN_SQD_ASYNC_NOTIFY) && a->en_sqd_async_notify &&
	    qp->ib.event_handler) {
		struct ib_event ev = { .device = qp->ib.device, .element.qp = &qp->ib, .event = IB_EVENT_SQ_DRAINED };

		qp->ib.event_handler(&ev, qp->ib.qp_context);
	}
}

int fib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *a, int mask, struct ib_udata *u)
{
	struct fib_qp *qp = to_qp(ibqp);
	enum ib_qp_state from, to;
	int r;

	r = check_attr(qp, a, mask);
	if (r)
		return r;
	mutex_lock(&fib_lock);
	from = qp->attr.qp_state;
	to = mask & IB_QP_STATE ? a->qp_state : from;
	if (((mask & IB_QP_CUR_STATE) && a->cur_qp_state != from && !(from == IB_QPS_SQE && a->cur_qp_state == IB_QPS_RTS)) ||
	    !ib_modify_qp_is_ok(from, to, ibqp->qp_type, mask)) {
		r = -EINVAL;
	} else {
		keep_attr(qp, a, mask);
		if (mask & IB_QP_STATE)
			enter(qp, to, a, mask);
	}
	mutex_unlock(&fib_lock);
	if (qp->user)
		fib_ready(qp);
	fib_wake();
	return r;
}

int fib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *a, int mask, struct ib_qp_init_attr *init)
{
	struct fib_qp *qp = to_qp(ibqp);

	mutex_lock(&fib_lock);
	*a = qp->attr;
	a->cur_qp_state = a->qp_state;
	a->sq_draining = 0;
	a->cap = qp->cap;
	a->path_mig_state = IB_MIG_MIGRATED;
	if (ibqp->qp_type != IB_QPT_RC && ibqp->qp_type != IB_QPT_UC)
		memset(&a->ah_attr, 0, sizeof(a->ah_attr));
	a->ah_attr.grh.sgid_attr = NULL;	/* the reference is the QP's */
	mutex_unlock(&fib_lock);
	memset(init, 0, sizeof(*init));
	init->cap = qp->cap;
	init->sq_sig_type = qp->sig;
	init->qp_type = ibqp->qp_type;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->port_num = qp->attr.port_num;
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
	struct fib_qp *qp = to_qp(ibqp);

	fib_detach(ibqp, NULL, 0);
	fib_not_ready(qp);
	mutex_lock(&fib_lock);		/* it is not running, and not sent to */
	list_del(&qp->list);
	if (ibqp->qp_type == IB_QPT_GSI)
		dev_of(qp)->gsi[qp->attr.port_num - 1] = NULL;
	else if (ibqp->qp_type != IB_QPT_SMI)
		xa_erase(&fib_qpns, ibqp->qp_num);
	mutex_unlock(&fib_lock);
	cancel_delayed_work_sync(&qp->timer);	/* nobody sets it now */
	free_queues(qp);
	fib_give(ibqp->device, FIB_QP);
	return 0;
}

/* Of the kernel, in any context: a datagram is on its way when this returns, and its buffer is free. */
static void post_one(struct fib_qp *qp, const struct ib_send_wr *wr)
{
	struct ib_wc wc = { .wr_id = wr->wr_id, .opcode = IB_WC_SEND, .qp = &qp->ib, .port_num = 1 };
	enum ib_qp_state state = READ_ONCE(qp->attr.qp_state);
	struct fib_pkt *p = NULL;
	u32 len = 0;
	u16 pkey;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	if (state == IB_QPS_RTS && qp->ib.qp_type != IB_QPT_SMI)
		p = kzalloc(sizeof(*p) + len, GFP_ATOMIC);
	if (p) {
		for (i = 0; i < wr->num_sge; p->len += wr->sg_list[i++].length)
			memcpy(p->data + p->len, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		p->solicited = wr->send_flags & IB_SEND_SOLICITED;
		/* management names the PKey with each request, others with the QP */
		pkey = qp->ib.qp_type == IB_QPT_GSI ? ud_wr(wr)->pkey_index : qp->attr.pkey_index;
		fib_transmit(p, qp, &to_ah(ud_wr(wr)->ah)->attr, ud_wr(wr)->remote_qpn, ud_wr(wr)->remote_qkey,
			     fib_pkey(dev_of(qp), pkey));
	}
	wc.status = state == IB_QPS_ERR ? IB_WC_WR_FLUSH_ERR : IB_WC_SUCCESS;
	fib_push_wc(qp->ib.send_cq, &wc, true);
}

int fib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	struct fib_qp *qp = to_qp(ibqp);

	if (qp->user) {
		if (READ_ONCE(qp->attr.qp_state) < IB_QPS_RTS)
			return -EINVAL;
		fib_doorbell(qp);
		return 0;
	}
	for (; wr; wr = wr->next)
		post_one(qp, wr);
	fib_wake();
	return 0;
}

int fib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	struct fib_qp *qp = to_qp(ibqp);
	int r = 0;
	unsigned long f;

	*bad = wr;
	if (qp->user)
		return -EINVAL;		/* its buffers are in the ring */
	for (; wr && !r; wr = wr->next) {
		struct ib_wc wc = { .wr_id = wr->wr_id, .status = IB_WC_WR_FLUSH_ERR, .opcode = IB_WC_RECV, .qp = ibqp };
		struct fib_rwr *rwr;

		*bad = wr;
		spin_lock_irqsave(&qp->lock, f);
		if (qp->attr.qp_state == IB_QPS_ERR) {
			fib_push_wc(ibqp->recv_cq, &wc, true);
		} else if (qp->tail - qp->head >= qp->size || wr->num_sge > FIB_KSGE) {
			r = -ENOMEM;
		} else {
			rwr = &qp->rq[qp->tail++ % qp->size];
			rwr->wr_id = wr->wr_id;
			rwr->n = wr->num_sge;
			memcpy(rwr->sge, wr->sg_list, wr->num_sge * sizeof(*wr->sg_list));
		}
		spin_unlock_irqrestore(&qp->lock, f);
	}
	fib_wake();
	return r;
}
