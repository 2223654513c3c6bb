// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of connected QPs, reliable (RC) and not (UC). fib_lock is held.
 *
 * A message is carried as a whole, at once, to the peer's memory. What the wire would do is counted, not done.
 */
#include "fakeib.h"

static bool receives(const struct fib_qp *qp)
{
	return qp->attr.qp_state >= IB_QPS_RTR && qp->attr.qp_state != IB_QPS_ERR;
}

static bool same_partition(const struct fib_qp *a, const struct fib_qp *b)
{
	return fib_pkeys_match(fib_pkey(dev_of(a), a->attr.pkey_index), fib_pkey(dev_of(b), b->attr.pkey_index));
}

/* The QP that answers, if any: each names the other, and both ports and the partition let them. */
static struct fib_qp *peer_of(struct fib_qp *qp)
{
	struct fib_qp *to = xa_load(&fib_qpns, qp->attr.dest_qp_num);

	if (!to || !to->user || !receives(to) || to->ib.qp_type != qp->ib.qp_type ||
	    to->attr.dest_qp_num != qp->ib.qp_num)
		return NULL;
	if (!fib_up(dev_of(qp)) || !fib_up(dev_of(to)) || !fib_reaches(dev_of(qp), &qp->attr.ah_attr, dev_of(to)))
		return NULL;
	/* acknowledgments must find their way, too */
	if (qp->ib.qp_type == IB_QPT_RC && !fib_reaches(dev_of(to), &to->attr.ah_attr, dev_of(qp)))
		return NULL;
	if (!same_partition(qp, to)) {
		dev_of(to)->traffic.rcv_constraint++;
		return NULL;
	}
	return to;
}

/* Packets of a message of this path MTU: LRH, BTH and ICRC each, maybe a GRH; ext are the headers of single ones. */
static void count(const struct fib_qp *from, const struct fib_qp *to, u32 len, u32 ext)
{
	u32 n = max(1U, DIV_ROUND_UP(len, (u32)ib_mtu_enum_to_int(from->attr.path_mtu)));
	u32 head = 8 + 12 + 4 + (rdma_ah_get_ah_flags(&from->attr.ah_attr) & IB_AH_GRH ? FIB_GRH : 0);

	fib_tclass_seen(&from->attr.ah_attr, n);
	fib_count(dev_of(from), dev_of(to), n, (u64)n * head + round_up(len, 4) + ext, false);
}

static void acknowledge(const struct fib_qp *from, const struct fib_qp *to)
{
	if (from->ib.qp_type == IB_QPT_RC)
		count(from, to, 0, 4);
}

/*
 * The responder refuses. Reliable: it says so, and is in the error state as the requester will be. Else the message is
 * lost and nobody learns of it.
 */
static int refuse(struct fib_qp *qp, struct fib_qp *to, enum ib_wc_status status)
{
	if (qp->ib.qp_type != IB_QPT_RC)
		return IB_WC_SUCCESS;
	acknowledge(to, qp);
	if (status == IB_WC_REM_ACCESS_ERR)
		dev_of(to)->hw[HW_RESP_ACCESS]++;
	fib_qp_error(to, status == IB_WC_REM_ACCESS_ERR ? IB_EVENT_QP_ACCESS_ERR : IB_EVENT_QP_REQ_ERR);
	return status;
}

static int not_ready(struct fib_qp *qp, struct fib_qp *to)
{
	if (qp->ib.qp_type != IB_QPT_RC)
		return IB_WC_SUCCESS;
	acknowledge(to, qp);
	return FIB_RNR;
}

static void recv_wc(struct fib_qp *qp, struct fib_qp *to, struct fib_wqe *w, struct ib_wc *wc)
{
	*wc = (struct ib_wc){ .opcode = IB_WC_RECV, .qp = &to->ib, .src_qp = qp->ib.qp_num, .slid = dev_of(qp)->lid,
			      .sl = rdma_ah_get_sl(&qp->attr.ah_attr), .port_num = 1, .byte_len = w->len };
	if (w->wr.opcode == IB_WR_SEND_WITH_IMM || w->wr.opcode == IB_WR_RDMA_WRITE_WITH_IMM) {
		wc->wc_flags = IB_WC_WITH_IMM;
		wc->ex.imm_data = w->wr.ex.imm_data;
	}
}

static int do_send(struct fib_qp *qp, struct fib_qp *to, struct fib_wqe *w)
{
	struct ib_wc wc;
	int r;

	recv_wc(qp, to, w, &wc);
	count(qp, to, w->len, wc.wc_flags & IB_WC_WITH_IMM ? 4 : 0);
	r = fib_receive(to, &wc, &w->io, NULL, w->len, w->wr.send_flags & IB_SEND_SOLICITED);
	if (r == FIB_RNR)
		return not_ready(qp, to);
	acknowledge(to, qp);
	return qp->ib.qp_type == IB_QPT_RC ? r : IB_WC_SUCCESS;
}

static int do_write(struct fib_qp *qp, struct fib_qp *to, struct fib_wqe *w)
{
	static struct fib_io remote;	/* fib_lock */
	bool imm = w->wr.opcode == IB_WR_RDMA_WRITE_WITH_IMM;
	struct ib_wc wc;

	count(qp, to, w->len, imm ? 20 : 16);
	if (!(to->attr.qp_access_flags & IB_ACCESS_REMOTE_WRITE))
		return refuse(qp, to, IB_WC_REM_INV_REQ_ERR);
	fib_io_init(&remote);
	if (fib_io_key(&remote, to->ib.pd, w->wr.wr.rdma.rkey, IB_ACCESS_REMOTE_WRITE, w->wr.wr.rdma.remote_addr,
		       w->len))
		return refuse(qp, to, IB_WC_REM_ACCESS_ERR);
	if (imm && !fib_ring_peek(fib_rq(to))) {
		dev_of(to)->hw[HW_OUT_OF_BUFFER]++;
		return not_ready(qp, to);
	}
	fib_io_copy(&remote, &w->io, w->len);
	dev_of(to)->hw[HW_RX_WRITE]++;
	acknowledge(to, qp);
	if (imm) {
		recv_wc(qp, to, w, &wc);
		wc.opcode = IB_WC_RECV_RDMA_WITH_IMM;
		if (fib_take_recv(to, &wc.wr_id))
			fib_push_wc(to->ib.recv_cq, &wc, w->wr.send_flags & IB_SEND_SOLICITED);
	}
	return IB_WC_SUCCESS;
}

static int do_read(struct fib_qp *qp, struct fib_qp *to, struct fib_wqe *w)
{
	static struct fib_io remote;	/* fib_lock */

	count(qp, to, 0, 16);
	if (!(to->attr.qp_access_flags & IB_ACCESS_REMOTE_READ) || !to->attr.max_dest_rd_atomic)
		return refuse(qp, to, IB_WC_REM_INV_REQ_ERR);
	fib_io_init(&remote);
	if (fib_io_key(&remote, to->ib.pd, w->wr.wr.rdma.rkey, IB_ACCESS_REMOTE_READ, w->wr.wr.rdma.remote_addr,
		       w->len))
		return refuse(qp, to, IB_WC_REM_ACCESS_ERR);
	fib_io_copy(&w->io, &remote, w->len);
	dev_of(to)->hw[HW_RX_READ]++;
	count(to, qp, w->len, 8);
	return IB_WC_SUCCESS;
}

static int do_atomic(struct fib_qp *qp, struct fib_qp *to, struct fib_wqe *w)
{
	static struct fib_io remote, value;	/* fib_lock */
	u64 addr = w->wr.wr.atomic.remote_addr, old, new;

	count(qp, to, 0, 28);
	if (!(to->attr.qp_access_flags & IB_ACCESS_REMOTE_ATOMIC) || !to->attr.max_dest_rd_atomic || addr & 7)
		return refuse(qp, to, IB_WC_REM_INV_REQ_ERR);
	fib_io_init(&remote);
	if (fib_io_key(&remote, to->ib.pd, w->wr.wr.atomic.rkey, IB_ACCESS_REMOTE_ATOMIC, addr, sizeof(old)))
		return refuse(qp, to, IB_WC_REM_ACCESS_ERR);
	fib_io_init(&value);
	fib_io_flat(&value, (u8 *)&old, sizeof(old));
	fib_io_copy(&value, &remote, sizeof(old));
	new = old;
	if (w->wr.opcode == IB_WR_ATOMIC_FETCH_AND_ADD)
		new = old + w->wr.wr.atomic.compare_add;
	else if (old == w->wr.wr.atomic.compare_add)
		new = w->wr.wr.atomic.swap;
	fib_io_init(&value);
	fib_io_flat(&value, (u8 *)&old, sizeof(old));
	fib_io_copy(&w->io, &value, sizeof(old));
	fib_io_init(&remote);
	fib_io_key(&remote, to->ib.pd, w->wr.wr.atomic.rkey, IB_ACCESS_REMOTE_ATOMIC, addr, sizeof(new));
	fib_io_init(&value);
	fib_io_flat(&value, (u8 *)&new, sizeof(new));
	fib_io_copy(&remote, &value, sizeof(new));
	dev_of(to)->hw[HW_RX_ATOMIC]++;
	count(to, qp, 0, 12);
	return IB_WC_SUCCESS;
}

typedef int (*operation)(struct fib_qp *qp, struct fib_qp *to, struct fib_wqe *w);

/* NULL: this QP can't do it */
static operation operation_of(const struct fib_qp *qp, const struct fib_wqe *w, enum ib_wc_opcode *op)
{
	bool reads = qp->ib.qp_type == IB_QPT_RC && qp->attr.max_rd_atomic;

	switch (w->wr.opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
		*op = IB_WC_SEND;
		return do_send;
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		*op = IB_WC_RDMA_WRITE;
		return do_write;
	case IB_WR_RDMA_READ:
		*op = IB_WC_RDMA_READ;
		return reads ? do_read : NULL;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		*op = w->wr.opcode == IB_WR_ATOMIC_FETCH_AND_ADD ? IB_WC_FETCH_ADD : IB_WC_COMP_SWAP;
		return reads && w->len == sizeof(u64) ? do_atomic : NULL;
	default:	/* memory windows and invalidation are not offered */
		return NULL;
	}
}

int fib_send_connected(struct fib_qp *qp, struct fib_wqe *w, struct ib_wc *done)
{
	operation op = operation_of(qp, w, &done->opcode);
	struct fib_qp *to;

	if (!op)
		return IB_WC_LOC_QP_OP_ERR;
	to = peer_of(qp);
	if (to)
		return op(qp, to, w);
	if (fib_up(dev_of(qp)))
		fib_count(dev_of(qp), NULL, 1, 8 + 12 + 4, false);	/* it is sent, if to nobody */
	return qp->ib.qp_type == IB_QPT_RC ? FIB_LOST : IB_WC_SUCCESS;
}
