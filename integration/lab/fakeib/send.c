// SPDX-License-Identifier: GPL-2.0
/*
 * The send queues of user space: RC, UC and UD messages. fib_lock is held.
 */
#include "fakeib.h"

static u8 bounce[PAGE_SIZE];

static struct fib_ring *rq_of(struct fib_qp *qp) { return qp->srq ? &qp->srq->rq : &qp->rring; }

/* one received message: from a buffer or from the sender's list */
static enum ib_wc_status receive(struct fib_qp *qp, struct ib_wc *wc, struct fib_io *from, const void *head, u32 headlen, u32 len)
{
	struct rxe_recv_wqe *w = ring_peek(rq_of(qp));
	struct fib_io io;
	enum ib_wc_status st = IB_WC_SUCCESS;

	wc->wr_id = w->wr_id;
	if (io_open(&io, qp->srq ? qp->srq->ib.pd : qp->ib.pd, &w->dma) || io_len(&io) < headlen + len)
		st = IB_WC_LOC_LEN_ERR;
	else if (headlen && io_copy(&io, (void *)head, headlen, true))
		st = IB_WC_LOC_PROT_ERR;
	while (st == IB_WC_SUCCESS && len) {
		u32 n = min_t(u32, len, sizeof(bounce));

		if (io_copy(from, bounce, n, false))
			return IB_WC_LOC_PROT_ERR;	/* the sender's own mistake: nothing is received */
		if (io_copy(&io, bounce, n, true))
			st = IB_WC_LOC_PROT_ERR;
		len -= n;
	}
	ring_pop(rq_of(qp));
	wc->status = st;
	fib_push_wc(qp->ib.recv_cq, wc);
	return st == IB_WC_SUCCESS ? st : st == IB_WC_LOC_LEN_ERR ? IB_WC_REM_INV_REQ_ERR : IB_WC_REM_OP_ERR;
}

void fib_deliver_user(struct fib_qp *qp, struct fib_pkt *p, u16 slid)
{
	struct ib_wc wc = { .opcode = IB_WC_RECV, .qp = &qp->ib, .src_qp = p->sqpn, .slid = slid, .sl = p->sl, .port_num = 1,
			    .byte_len = p->len + 40, .ex.imm_data = p->imm,
			    .wc_flags = (p->grh ? IB_WC_GRH : 0) | (p->has_imm ? IB_WC_WITH_IMM : 0) };
	struct fib_io from = { .inl = p->data };

	if (qp->state < IB_QPS_RTR || qp->state == IB_QPS_ERR || p->qkey != qp->qkey || !ring_peek(rq_of(qp)))
		return;
	receive(qp, &wc, &from, &p->hdr, 40, p->len);
}

static bool fib_joined(struct fib_qp *qp)	/* to an active fabric */
{
	return fib_state(to_dev(qp->ib.device)) == IB_PORT_ACTIVE;
}

static bool connected_to(const struct fib_qp *qp, const struct fib_dev *d)
{
	const struct fib_dev *own = to_dev(qp->ib.device);
	struct roce_dst dst;

	if (own->is_roce)
		return roce_dst(&dst, &qp->av) && roce_leads_to(own, &dst, d);
	return !d->is_roce && d->lid == qp->dlid;
}

static struct fib_qp *peer_of(struct fib_qp *qp)
{
	struct fib_qp *p;

	list_for_each_entry(p, &fib_qps, list)
		if (p->user && p->ib.qp_num == qp->dqpn && p->ib.qp_type == qp->ib.qp_type && p->dqpn == qp->ib.qp_num &&
		    connected_to(qp, to_dev(p->ib.device)) && p->state >= IB_QPS_RTR && p->state != IB_QPS_ERR &&
		    !((fib_pkeys[p->pkey_index] ^ fib_pkeys[qp->pkey_index]) & 0x7fff) && fib_joined(p) && fib_joined(qp))
			return p;
	return NULL;
}

#define RNR ((enum ib_wc_status)-1)

static enum ib_wc_status send_rc(struct fib_qp *qp, struct rxe_send_wqe *w, struct fib_io *io, u32 len, struct ib_wc *done)
{
	struct ib_wc wc = { .opcode = IB_WC_RECV, .src_qp = qp->ib.qp_num, .slid = to_dev(qp->ib.device)->lid, .port_num = 1,
			    .byte_len = len, .ex.imm_data = w->wr.ex.imm_data };
	struct fib_qp *to = peer_of(qp);
	u32 op = w->wr.opcode, key = w->wr.wr.rdma.rkey, left = len;
	u64 addr = w->wr.wr.rdma.remote_addr, old;
	int access;

	if (!to)
		return IB_WC_RETRY_EXC_ERR;
	wc.qp = &to->ib;
	if (op == IB_WR_SEND_WITH_IMM || op == IB_WR_RDMA_WRITE_WITH_IMM)
		wc.wc_flags = IB_WC_WITH_IMM;
	switch (op) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
		done->opcode = IB_WC_SEND;
		return ring_peek(rq_of(to)) ? receive(to, &wc, io, NULL, 0, len) : RNR;
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_RDMA_READ:
		done->opcode = op == IB_WR_RDMA_READ ? IB_WC_RDMA_READ : IB_WC_RDMA_WRITE;
		access = op == IB_WR_RDMA_READ ? IB_ACCESS_REMOTE_READ : IB_ACCESS_REMOTE_WRITE;
		if (op == IB_WR_RDMA_WRITE_WITH_IMM && !ring_peek(rq_of(to)))
			return RNR;
		for (; left; left -= min_t(u32, left, sizeof(bounce)), addr += sizeof(bounce)) {
			u32 n = min_t(u32, left, sizeof(bounce));

			if (op != IB_WR_RDMA_READ && io_copy(io, bounce, n, false))
				return IB_WC_LOC_PROT_ERR;
			if (mr_io(key, to->ib.pd, access, addr, bounce, n, op != IB_WR_RDMA_READ))
				return IB_WC_REM_ACCESS_ERR;
			if (op == IB_WR_RDMA_READ && io_copy(io, bounce, n, true))
				return IB_WC_LOC_PROT_ERR;
		}
		if (op != IB_WR_RDMA_WRITE_WITH_IMM)
			return IB_WC_SUCCESS;
		wc.opcode = IB_WC_RECV_RDMA_WITH_IMM;
		wc.wr_id = ((struct rxe_recv_wqe *)ring_peek(rq_of(to)))->wr_id;
		ring_pop(rq_of(to));
		fib_push_wc(to->ib.recv_cq, &wc);
		return IB_WC_SUCCESS;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		done->opcode = op == IB_WR_ATOMIC_CMP_AND_SWP ? IB_WC_COMP_SWAP : IB_WC_FETCH_ADD;
		addr = w->wr.wr.atomic.remote_addr;
		key = w->wr.wr.atomic.rkey;
		if (addr & 7 || mr_io(key, to->ib.pd, IB_ACCESS_REMOTE_ATOMIC, addr, &old, 8, false))
			return IB_WC_REM_ACCESS_ERR;
		if (io_copy(io, &old, 8, true))
			return IB_WC_LOC_PROT_ERR;
		if (op == IB_WR_ATOMIC_FETCH_AND_ADD)
			old += w->wr.wr.atomic.compare_add;
		else if (old == w->wr.wr.atomic.compare_add)
			old = w->wr.wr.atomic.swap;
		mr_io(key, to->ib.pd, IB_ACCESS_REMOTE_ATOMIC, addr, &old, 8, true);
		return IB_WC_SUCCESS;
	}
	return IB_WC_LOC_QP_OP_ERR;
}

static enum ib_wc_status send_ud(struct fib_qp *qp, struct rxe_send_wqe *w, struct fib_io *io, u32 len)
{
	struct fib_ah *ah = xa_load(&fib_ahs, w->wr.wr.ud.ah_num);
	u32 qkey = w->wr.wr.ud.remote_qkey;
	struct fib_pkt *p;

	if (!ah || ah->ib.device != qp->ib.device || len > 4096)
		return IB_WC_LOC_QP_OP_ERR;
	p = kzalloc(sizeof(*p) + len, GFP_KERNEL);
	if (!p)
		return IB_WC_SUCCESS;	/* lost, as datagrams may be */
	if (io_copy(io, p->data, len, false)) {
		kfree(p);
		return IB_WC_LOC_PROT_ERR;
	}
	p->len = len;
	p->has_imm = w->wr.opcode == IB_WR_SEND_WITH_IMM;
	p->imm = w->wr.ex.imm_data;
	fib_transmit(p, qp, &ah->attr, w->wr.wr.ud.remote_qpn, qkey & BIT(31) ? qp->qkey : qkey);
	return IB_WC_SUCCESS;
}

static void flush_user(struct fib_qp *qp)
{
	struct ib_wc wc = { .status = IB_WC_WR_FLUSH_ERR, .qp = &qp->ib, .opcode = IB_WC_SEND };
	void *w;

	for (; (w = ring_peek(&qp->sring)); ring_pop(&qp->sring)) {
		wc.wr_id = ((struct rxe_send_wqe *)w)->wr.wr_id;
		fib_push_wc(qp->ib.send_cq, &wc);
	}
	wc.opcode = IB_WC_RECV;
	for (; !qp->srq && (w = ring_peek(&qp->rring)); ring_pop(&qp->rring)) {
		wc.wr_id = ((struct rxe_recv_wqe *)w)->wr_id;
		fib_push_wc(qp->ib.recv_cq, &wc);
	}
}

/* true: a receiver was not ready */
bool fib_run_sq(struct fib_qp *qp)
{
	struct rxe_send_wqe *w;

	while ((w = ring_peek(&qp->sring))) {
		struct ib_wc wc = { .qp = &qp->ib, .wr_id = w->wr.wr_id, .opcode = IB_WC_SEND, .port_num = 1 };
		struct fib_io io;

		if (qp->state == IB_QPS_ERR) {
			flush_user(qp);
			break;
		}
		if (qp->state != IB_QPS_RTS)
			break;
		wc.byte_len = READ_ONCE(w->dma.length);
		if (w->wr.send_flags & IB_SEND_INLINE) {
			io = (struct fib_io){ .inl = w->dma.inline_data };
			if (wc.byte_len > FIB_INLINE)
				wc.status = IB_WC_LOC_LEN_ERR;
		} else if (io_open(&io, qp->ib.pd, &w->dma) || io_len(&io) != wc.byte_len) {
			wc.status = IB_WC_LOC_LEN_ERR;
		}
		if (wc.status == IB_WC_SUCCESS)
			wc.status = qp->ib.qp_type == IB_QPT_UD ? send_ud(qp, w, &io, wc.byte_len) :
								   send_rc(qp, w, &io, wc.byte_len, &wc);
		if (wc.status == RNR)
			return true;
		if (wc.status != IB_WC_SUCCESS || qp->sig_all || w->wr.send_flags & IB_SEND_SIGNALED)
			fib_push_wc(qp->ib.send_cq, &wc);
		ring_pop(&qp->sring);
		if (wc.status != IB_WC_SUCCESS)
			qp->state = IB_QPS_ERR;
	}
	if (qp->state == IB_QPS_ERR)
		flush_user(qp);
	return false;
}
