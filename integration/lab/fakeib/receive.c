// SPDX-License-Identifier: GPL-2.0
/*
 * Messages into the receive buffers of QPs. fib_lock is held.
 */
#include "fakeib.h"

struct fib_ring *fib_rq(struct fib_qp *qp)
{
	return qp->srq ? &qp->srq->rq : &qp->rring;
}

static void qp_event(struct fib_qp *qp, enum ib_event_type event)
{
	struct ib_event ev = { .device = qp->ib.device, .element.qp = &qp->ib, .event = event };

	if (qp->ib.event_handler)
		qp->ib.event_handler(&ev, qp->ib.qp_context);
}

/* To the error state, once; event says why, IB_EVENT_QP_LAST_WQE_REACHED that nobody has to be told. */
void fib_qp_error(struct fib_qp *qp, enum ib_event_type event)
{
	if (qp->attr.qp_state == IB_QPS_ERR)
		return;
	qp->attr.qp_state = IB_QPS_ERR;
	if (event != IB_EVENT_QP_LAST_WQE_REACHED)
		qp_event(qp, event);
	if (qp->srq)
		qp_event(qp, IB_EVENT_QP_LAST_WQE_REACHED);
	fib_ready(qp);			/* its queues are flushed when it runs */
}

static void took_from_srq(struct fib_qp *qp)
{
	struct fib_srq *s = qp->srq;

	if (!s || !s->attr.srq_limit || fib_ring_used(&s->rq) >= s->attr.srq_limit)
		return;
	s->attr.srq_limit = 0;		/* said once, until it is armed again */
	if (s->ib.event_handler) {
		struct ib_event ev = { .device = s->ib.device, .element.srq = &s->ib,
				       .event = IB_EVENT_SRQ_LIMIT_REACHED };

		s->ib.event_handler(&ev, s->ib.srq_context);
	}
}

/* The next receive request, whose buffer is not needed. */
bool fib_take_recv(struct fib_qp *qp, u64 *wr_id)
{
	struct rxe_recv_wqe *w = fib_ring_peek(fib_rq(qp));

	if (!w)
		return false;
	*wr_id = READ_ONCE(w->wr_id);
	fib_ring_pop(fib_rq(qp));
	took_from_srq(qp);
	return true;
}

/*
 * One message into the next receive buffer. Answers FIB_RNR if there is none, else what the sender of a connected QP
 * learns. A receiver that can't take it is in the error state then.
 */
int fib_receive(struct fib_qp *qp, struct ib_wc *wc, struct fib_io *from, void *grh, u32 len, bool solicited)
{
	static struct fib_io io;	/* fib_lock */
	u32 head = grh ? FIB_GRH : 0, max = qp->srq ? qp->srq->attr.max_sge : qp->cap.max_recv_sge;
	struct ib_pd *pd = qp->srq ? qp->srq->ib.pd : qp->ib.pd;
	struct rxe_recv_wqe *w = fib_ring_peek(fib_rq(qp));
	struct fib_dev *d = dev_of(qp);

	if (!w) {
		d->hw[HW_OUT_OF_BUFFER]++;
		return FIB_RNR;
	}
	fib_io_init(&io);
	wc->status = IB_WC_SUCCESS;
	if (fib_io_list(&io, pd, &w->dma, max, IB_ACCESS_LOCAL_WRITE)) {
		wc->status = IB_WC_LOC_PROT_ERR;
	} else if (io.len < (u64)head + len) {
		wc->status = IB_WC_LOC_LEN_ERR;
		d->hw[HW_RESP_LENGTH]++;
	} else {
		static struct fib_io first;

		if (head) {
			fib_io_init(&first);
			fib_io_flat(&first, grh, head);
			fib_io_copy(&io, &first, head);
		}
		fib_io_copy(&io, from, len);
	}
	fib_take_recv(qp, &wc->wr_id);
	fib_push_wc(qp->ib.recv_cq, wc, solicited);
	if (wc->status == IB_WC_SUCCESS)
		return IB_WC_SUCCESS;
	d->hw[HW_RESP_CQE]++;
	fib_qp_error(qp, IB_EVENT_QP_LAST_WQE_REACHED);
	return wc->status == IB_WC_LOC_LEN_ERR ? IB_WC_REM_INV_REQ_ERR : IB_WC_REM_OP_ERR;
}

static void deliver_user(struct fib_qp *qp, struct fib_pkt *p, struct ib_wc *wc)
{
	static struct fib_io from;	/* fib_lock */

	fib_io_init(&from);
	fib_io_flat(&from, p->data, p->len);
	fib_receive(qp, wc, &from, &p->hdr, p->len, p->solicited);
}

/* To a QP that is known to take it: from whom, with which PKey and QKey has been looked at. */
void fib_deliver(struct fib_qp *qp, struct fib_pkt *p, u16 slid)
{
	struct ib_wc wc = { .status = IB_WC_SUCCESS, .opcode = IB_WC_RECV, .qp = &qp->ib, .src_qp = p->sqpn,
			    .slid = slid, .sl = p->sl, .port_num = qp->attr.port_num, .byte_len = p->len + FIB_GRH,
			    .ex.imm_data = p->imm,
			    .wc_flags = (p->grh ? IB_WC_GRH : 0) | (p->has_imm ? IB_WC_WITH_IMM : 0) };
	struct fib_rwr r;
	unsigned long f;
	u32 off = 0, end = p->len + FIB_GRH, n;
	int i;

	if (qp->attr.qp_state < IB_QPS_RTR || qp->attr.qp_state == IB_QPS_ERR)
		return;
	if (qp->ib.qp_type == IB_QPT_GSI)
		wc.pkey_index = max(fib_pkey_index(dev_of(qp), p->pkey), 0);
	if (p->src->is_roce && !qp->user)
		roce_received(&wc, p->src, &p->to);
	if (qp->user) {
		deliver_user(qp, p, &wc);
		return;
	}
	spin_lock_irqsave(&qp->lock, f);
	if (qp->head == qp->tail) {
		spin_unlock_irqrestore(&qp->lock, f);
		dev_of(qp)->hw[HW_OUT_OF_BUFFER]++;
		return;
	}
	r = qp->rq[qp->head++ % qp->size];
	spin_unlock_irqrestore(&qp->lock, f);
	wc.wr_id = r.wr_id;
	for (i = 0; i < r.n && off < end; i++) {	/* the GRH, then the payload */
		u8 *dst = (u8 *)(uintptr_t)r.sge[i].addr, *stop = dst + r.sge[i].length;

		while (dst < stop && off < end) {
			n = off < FIB_GRH ? FIB_GRH - off : end - off;
			n = min_t(u32, n, stop - dst);
			memcpy(dst, off < FIB_GRH ? (u8 *)&p->hdr + off : p->data + off - FIB_GRH, n);
			dst += n;
			off += n;
		}
	}
	if (off < end)
		wc.status = IB_WC_LOC_LEN_ERR;
	fib_push_wc(qp->ib.recv_cq, &wc, p->solicited);
}
