// SPDX-License-Identifier: GPL-2.0
/*
 * The queues of user space: work requests are taken from rings, completed, retried and flushed. fib_lock is held.
 */
#include "fakeib.h"

#define BATCH_WR	64
#define BATCH_BYTES	SZ_1M

/* True: there is more. User space may add as fast as this removes, so no more than a queue's length at once. */
static bool flush(struct fib_qp *qp, bool receives)
{
	struct ib_wc wc = { .status = IB_WC_WR_FLUSH_ERR, .qp = &qp->ib, .opcode = IB_WC_SEND };
	struct fib_dev *d = dev_of(qp);
	void *w;
	u32 n;

	for (n = 0; n < BATCH_WR && (w = fib_ring_peek(&qp->sring)); n++) {
		wc.wr_id = READ_ONCE(((struct rxe_send_wqe *)w)->wr.wr_id);
		fib_ring_pop(&qp->sring);
		fib_push_wc(qp->ib.send_cq, &wc, true);
		d->hw[HW_REQ_FLUSH]++;
	}
	if (n == BATCH_WR || !receives || qp->srq)
		return n == BATCH_WR;
	wc.opcode = IB_WC_RECV;
	for (n = 0; n < BATCH_WR && fib_take_recv(qp, &wc.wr_id); n++) {
		fib_push_wc(qp->ib.recv_cq, &wc, true);
		d->hw[HW_RESP_FLUSH]++;
	}
	return n == BATCH_WR;
}

/* Copies a request out of the ring. The size of its slot is known from the creation of the QP. */
static enum ib_wc_status read_wqe(struct fib_qp *qp, const struct rxe_send_wqe *in, struct fib_wqe *w)
{
	bool writes;
	int r;

	memcpy(&w->wr, &in->wr, sizeof(w->wr));
	barrier();			/* what follows is judged by the copy */
	writes = w->wr.opcode == IB_WR_RDMA_READ || w->wr.opcode == IB_WR_ATOMIC_CMP_AND_SWP ||
		 w->wr.opcode == IB_WR_ATOMIC_FETCH_AND_ADD;
	fib_io_init(&w->io);
	if (w->wr.send_flags & IB_SEND_INLINE) {
		w->len = READ_ONCE(in->dma.length);
		if (writes || w->len > qp->cap.max_inline_data)
			return IB_WC_LOC_LEN_ERR;
		memcpy(w->inl, in->dma.inline_data, w->len);
		fib_io_flat(&w->io, w->inl, w->len);
		return IB_WC_SUCCESS;
	}
	r = fib_io_list(&w->io, qp->ib.pd, &in->dma, qp->cap.max_send_sge, writes ? IB_ACCESS_LOCAL_WRITE : 0);
	if (r)
		return r == -EACCES ? IB_WC_LOC_PROT_ERR : IB_WC_LOC_LEN_ERR;
	w->len = w->io.len;
	return w->io.len > FIB_MAX_MSG ? IB_WC_LOC_LEN_ERR : IB_WC_SUCCESS;
}

/* Seconds of the InfiniBand specification in jiffies, one at least. */
static unsigned long ack_timeout(u8 code)
{
	return max(1UL, usecs_to_jiffies(min_t(u64, (4096ULL << (code & 31)) / 1000, UINT_MAX)));
}

static unsigned long rnr_timeout(u8 code)
{
	static const u32 us[32] = {
		655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920,
		2560, 3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880,
		163840, 245760, 327680, 491520,
	};

	return max(1UL, usecs_to_jiffies(us[code & 31]));
}

void fib_retry_timer(struct work_struct *w)
{
	struct fib_qp *qp = container_of(to_delayed_work(w), struct fib_qp, timer);

	WRITE_ONCE(qp->waiting, false);
	fib_ready(qp);
	fib_wake();
}

/* No answer, or a receiver that is not ready: the status if no retry is left, else FIB_RNR or FIB_LOST as it was. */
static int retry(struct fib_qp *qp, int res)
{
	struct fib_dev *d = dev_of(qp);
	unsigned long wait;

	if (res == FIB_RNR) {
		struct fib_qp *to = xa_load(&fib_qpns, qp->attr.dest_qp_num);

		d->hw[HW_RNR_NAK_RETRY]++;
		if (qp->attr.rnr_retry != 7 && !qp->rnr_retries)
			return IB_WC_RNR_RETRY_EXC_ERR;
		qp->rnr_retries--;
		wait = rnr_timeout(to ? to->attr.min_rnr_timer : 1);	/* the receiver says how long */
	} else {
		if (qp->attr.timeout) {
			d->hw[HW_ACK_TIMEOUT]++;
			if (!qp->retries)
				return IB_WC_RETRY_EXC_ERR;
			qp->retries--;
			wait = ack_timeout(qp->attr.timeout);
		} else {
			wait = HZ / 10;		/* waits for ever: a wire would deliver it when the peer is there */
		}
	}
	qp->waiting = true;
	fib_ready_later(qp, wait);
	return res;
}

static void count_req_error(struct fib_dev *d, int status)
{
	d->hw[HW_REQ_CQE]++;
	if (status == IB_WC_REM_INV_REQ_ERR)
		d->hw[HW_REQ_INVALID]++;
	if (status == IB_WC_REM_ACCESS_ERR)
		d->hw[HW_REQ_ACCESS]++;
}

/* The first request of the queue. False: it is still there. */
static bool run_one(struct fib_qp *qp, const struct rxe_send_wqe *in, u32 *bytes)
{
	static struct fib_wqe w;	/* fib_lock */
	struct ib_wc wc = { .qp = &qp->ib, .opcode = IB_WC_SEND, .port_num = 1 };
	int res = read_wqe(qp, in, &w);

	wc.wr_id = w.wr.wr_id;
	wc.byte_len = w.len;
	*bytes += w.len;
	if (res == IB_WC_SUCCESS)
		res = qp->ib.qp_type == IB_QPT_UD ? fib_send_ud(qp, &w) : fib_send_connected(qp, &w, &wc);
	if (res < 0)
		res = retry(qp, res);
	if (res < 0)
		return false;
	qp->retries = qp->attr.retry_cnt;
	qp->rnr_retries = qp->attr.rnr_retry;
	wc.status = res;
	fib_ring_pop(&qp->sring);
	if (res != IB_WC_SUCCESS) {
		count_req_error(dev_of(qp), res);
		/* of the QPs without acknowledgments only the send queue is in error */
		if (qp->ib.qp_type == IB_QPT_RC)
			fib_qp_error(qp, IB_EVENT_QP_LAST_WQE_REACHED);
		else if (qp->attr.qp_state == IB_QPS_RTS)
			qp->attr.qp_state = IB_QPS_SQE;
	}
	if (res != IB_WC_SUCCESS || qp->sig == IB_SIGNAL_ALL_WR || w.wr.send_flags & IB_SEND_SIGNALED)
		fib_push_wc(qp->ib.send_cq, &wc, true);
	return true;
}

/* What a QP has to do, a bounded amount of it; true if there is more. */
bool fib_run_sq(struct fib_qp *qp)
{
	struct rxe_send_wqe *in;
	u32 n, bytes = 0;

	for (n = 0; n < BATCH_WR && bytes < BATCH_BYTES; n++) {
		if (qp->attr.qp_state == IB_QPS_ERR || qp->attr.qp_state == IB_QPS_SQE)
			return flush(qp, qp->attr.qp_state == IB_QPS_ERR);
		if (qp->attr.qp_state != IB_QPS_RTS || READ_ONCE(qp->waiting))
			return false;
		in = fib_ring_peek(&qp->sring);
		if (!in || !run_one(qp, in, &bytes))
			return false;
	}
	return true;
}
