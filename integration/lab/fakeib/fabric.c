// SPDX-License-Identifier: GPL-2.0
/*
 * The fabric: datagrams between ports, and the one worker that carries everything.
 */
#include "fakeib.h"

LIST_HEAD(fib_devs);
LIST_HEAD(fib_cqs);
LIST_HEAD(fib_qps);
static LIST_HEAD(pkts);
DEFINE_MUTEX(fib_lock);		/* fib_devs, fib_cqs, fib_qps, their mcs; held while delivering */
static DEFINE_SPINLOCK(pkts_lock);
static void fib_run(struct work_struct *w);
static DECLARE_WORK(fib_work, fib_run);
static DECLARE_DELAYED_WORK(fib_again, fib_run);	/* a receiver was not ready */
static struct workqueue_struct *fib_wq;

void fib_push_wc(struct ib_cq *ibcq, const struct ib_wc *wc)
{
	struct fib_cq *cq = to_cq(ibcq);
	unsigned long f;

	spin_lock_irqsave(&cq->lock, f);
	if (cq->user ? ring_push_wc(&cq->uring, wc) : cq->tail - cq->head < cq->size) {
		if (!cq->user)
			cq->ring[cq->tail++ % cq->size] = *wc;
	} else {
		pr_warn_ratelimited("fakeib: CQ overrun\n");
	}
	if (cq->armed) {
		cq->armed = false;
		cq->pending = true;
	}
	spin_unlock_irqrestore(&cq->lock, f);
	queue_work(fib_wq, &fib_work);
}

void fib_deliver(struct fib_qp *qp, struct fib_pkt *p, u16 slid)
{
	struct ib_wc wc = { .status = IB_WC_SUCCESS, .opcode = IB_WC_RECV, .qp = &qp->ib, .src_qp = p->sqpn,
			    .slid = slid, .sl = p->sl, .port_num = 1, .byte_len = p->len + 40,
			    .wc_flags = p->grh ? IB_WC_GRH : 0 };
	struct fib_rwr r;
	unsigned long f;
	u32 off = 0, k;
	int i;

	if (qp->user)
		return fib_deliver_user(qp, p, slid);
	if (p->src->is_roce)
		roce_received(&wc, p->src, &p->to);
	spin_lock_irqsave(&qp->lock, f);
	if (qp->head == qp->tail || qp->state == IB_QPS_ERR || qp->state == IB_QPS_RESET) {
		spin_unlock_irqrestore(&qp->lock, f);
		return;
	}
	r = qp->rq[qp->head++ % qp->size];
	spin_unlock_irqrestore(&qp->lock, f);
	wc.wr_id = r.wr_id;
	for (i = 0; i < r.n && off < p->len + 40; i++) {	/* 40 bytes of GRH, then the payload */
		u8 *dst = (u8 *)(uintptr_t)r.sge[i].addr;

		for (k = 0; k < r.sge[i].length && off < p->len + 40; off += 1, k++)
			dst[k] = off < 40 ? ((u8 *)&p->hdr)[off] : p->data[off - 40];
	}
	if (off < p->len + 40)
		wc.status = IB_WC_LOC_LEN_ERR;
	fib_push_wc(qp->ib.recv_cq, &wc);
}

static bool multicast(const struct fib_pkt *p)
{
	return p->src->is_roce ? roce_is_multicast(&p->to) : p->dlid >= 0xc000;
}

/* multicast leads to every port of the same kind */
static bool leads_to(const struct fib_pkt *p, const struct fib_dev *d)
{
	if (p->src->is_roce)
		return roce_leads_to(p->src, &p->to, d);
	return !d->is_roce && (multicast(p) || d->lid == p->dlid);
}

static void route(struct fib_pkt *p)
{
	const union ib_gid *mgid = p->src->is_roce ? &p->to.dgid : &p->hdr.dgid;
	struct fib_qp *qp;
	struct fib_mc *mc;

	if (fib_state(p->src) != IB_PORT_ACTIVE)
		return;
	if (!p->src->is_roce && p->dlid == SM_LID)
		return fib_sa_request(p);
	list_for_each_entry(qp, &fib_qps, list) {
		struct fib_dev *d = to_dev(qp->ib.device);

		if (fib_state(d) != IB_PORT_ACTIVE || !leads_to(p, d))
			continue;
		if (p->dqpn == 1) {
			if (qp->ib.qp_type == IB_QPT_GSI)
				fib_deliver(qp, p, p->src->lid);
			continue;
		}
		if (qp->ib.qp_type != IB_QPT_UD || (fib_pkeys[qp->pkey_index] ^ p->pkey) & 0x7fff)
			continue;
		if (!multicast(p)) {
			if (qp->ib.qp_num == p->dqpn)
				fib_deliver(qp, p, p->src->lid);
			continue;
		}
		list_for_each_entry(mc, &qp->mcs, list)
			if (!memcmp(&mc->gid, mgid, sizeof(*mgid))) {
				fib_deliver(qp, p, p->src->lid);
				break;
			}
	}
}

static void fib_run(struct work_struct *w)
{
	bool fire, busy, again = false;
	struct fib_pkt *p;
	struct fib_cq *cq;
	struct fib_qp *qp;
	unsigned long f;

	mutex_lock(&fib_lock);
	for (;;) {

		spin_lock_irqsave(&pkts_lock, f);
		p = list_first_entry_or_null(&pkts, struct fib_pkt, list);
		if (p)
			list_del(&p->list);
		spin_unlock_irqrestore(&pkts_lock, f);
		if (p) {
			route(p);
			kfree(p);
		}
		busy = p;
		list_for_each_entry(qp, &fib_qps, list)
			if (qp->user && READ_ONCE(qp->db)) {
				WRITE_ONCE(qp->db, false);
				if (fib_run_sq(qp)) {
					WRITE_ONCE(qp->db, true);
					again = true;
				} else {
					busy = true;
				}
			}
		local_bh_disable();	/* comp_handlers schedule NAPI */
		list_for_each_entry(cq, &fib_cqs, list) {
			spin_lock_irqsave(&cq->lock, f);
			fire = cq->pending;
			cq->pending = false;
			spin_unlock_irqrestore(&cq->lock, f);
			if (fire && cq->ib.comp_handler)
				cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
		}
		local_bh_enable();
		if (!busy)
			break;
	}
	mutex_unlock(&fib_lock);
	if (again)
		queue_delayed_work(fib_wq, &fib_again, 1);
}

/* ---- verbs ---- */
void fib_transmit(struct fib_pkt *p, struct fib_qp *qp, const struct rdma_ah_attr *a, u32 dqpn, u32 qkey)
{
	unsigned long f;

	p->src = to_dev(qp->ib.device);
	p->sqpn = qp->ib.qp_num;
	p->dqpn = dqpn;
	p->qkey = qkey;
	p->dlid = rdma_ah_get_dlid(a);
	p->sl = rdma_ah_get_sl(a);
	p->pkey = fib_pkeys[qp->ib.qp_type == IB_QPT_UD ? qp->pkey_index : 0];
	p->grh = rdma_ah_get_ah_flags(a) & IB_AH_GRH;
	if (p->src->is_roce) {
		if (!roce_dst(&p->to, a)) {
			kfree(p);
			return;
		}
		roce_header(&p->hdr, &p->to, p->len);
		p->grh = true;
	} else if (p->grh) {
		p->hdr.version_tclass_flow = cpu_to_be32(6 << 28);
		p->hdr.paylen = cpu_to_be16(p->len);
		p->hdr.dgid = rdma_ah_read_grh(a)->dgid;
		p->hdr.sgid.global.subnet_prefix = cpu_to_be64(0xfe80000000000000ULL);
		p->hdr.sgid.global.interface_id = p->src->guid;
	}
	spin_lock_irqsave(&pkts_lock, f);
	list_add_tail(&p->list, &pkts);
	spin_unlock_irqrestore(&pkts_lock, f);
}

/* what a device that goes has sent and nobody has received */
void fib_forget(struct fib_dev *d)
{
	struct fib_pkt *p, *t;

	spin_lock_irq(&pkts_lock);
	list_for_each_entry_safe(p, t, &pkts, list)
		if (p->src == d) {
			list_del(&p->list);
			kfree(p);
		}
	spin_unlock_irq(&pkts_lock);
}

/* what to send is in the queue that user space has mapped */
void fib_ring_doorbell(struct fib_qp *qp)
{
	WRITE_ONCE(qp->db, true);
	queue_work(fib_wq, &fib_work);
}

int fib_fabric_init(void)
{
	fib_wq = alloc_workqueue("fakeib", WQ_UNBOUND, 0);
	return fib_wq ? 0 : -ENOMEM;
}

void fib_fabric_exit(void)
{
	cancel_delayed_work_sync(&fib_again);
	destroy_workqueue(fib_wq);
}
