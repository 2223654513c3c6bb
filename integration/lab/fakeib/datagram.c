// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams: of the kernel (IPoIB, management) and of user space.
 */
#include "fakeib.h"

#define MAX_PKTS 4096			/* that wait; more are lost, as in a switch that is full */

static LIST_HEAD(pkts);
static u32 npkts;
static DEFINE_SPINLOCK(pkts_lock);

/* false: the address is none of this port's fabric */
static bool address(struct fib_pkt *p, struct fib_qp *qp, const struct rdma_ah_attr *a, u32 dqpn, u32 qkey, u16 pkey)
{
	p->src = dev_of(qp);
	p->sqpn = qp->ib.qp_num;
	p->dqpn = dqpn;
	p->qkey = qkey & BIT(31) ? qp->attr.qkey : qkey;	/* a privileged QKey stands for the QP's own */
	p->dlid = rdma_ah_get_dlid(a);
	p->sl = rdma_ah_get_sl(a);
	p->pkey = pkey;
	p->grh = rdma_ah_get_ah_flags(a) & IB_AH_GRH;
	if (p->src->is_roce) {
		if (!roce_dst(&p->to, a))
			return false;
		roce_header(&p->hdr, &p->to, p->len);
		p->grh = true;
	} else if (p->grh) {
		p->hdr.version_tclass_flow = cpu_to_be32(6 << 28);
		p->hdr.paylen = cpu_to_be16(p->len);
		p->hdr.dgid = rdma_ah_read_grh(a)->dgid;
		fib_own_gid(p->src, &p->hdr.sgid);
	}
	return true;
}

/* Of the kernel, in any context. */
void fib_transmit(struct fib_pkt *p, struct fib_qp *qp, const struct rdma_ah_attr *a, u32 dqpn, u32 qkey, u16 pkey)
{
	unsigned long f;

	if (!address(p, qp, a, dqpn, qkey, pkey)) {
		kfree(p);
		return;
	}
	spin_lock_irqsave(&pkts_lock, f);
	if (npkts < MAX_PKTS) {
		npkts++;
		list_add_tail(&p->list, &pkts);
		p = NULL;
	}
	spin_unlock_irqrestore(&pkts_lock, f);
	kfree(p);
}

static bool takes(const struct fib_qp *qp, const struct fib_pkt *p)
{
	struct fib_dev *d = dev_of(qp);

	if (qp->ib.qp_type != IB_QPT_UD)
		return false;
	if (!fib_pkeys_match(fib_pkey(d, qp->attr.pkey_index), p->pkey)) {
		d->traffic.rcv_constraint++;
		return false;
	}
	return p->qkey == qp->attr.qkey;
}

static bool is_multicast(const struct fib_pkt *p)
{
	if (p->src->is_roce)
		return roce_is_multicast(&p->to);
	return p->dlid >= be16_to_cpu(IB_MULTICAST_LID_BASE);
}

/* The port of d that it is for; 0: none. A GRH names the port a second time, and has to be right. */
static u32 leads_to(const struct fib_pkt *p, const struct fib_dev *d)
{
	union ib_gid gid;

	if (p->src->is_roce)
		return roce_leads_to(p->src, &p->to, d);
	if (d->is_roce || d->lid != p->dlid)
		return 0;
	fib_own_gid(d, &gid);
	return !p->grh || !memcmp(&gid, &p->hdr.dgid, sizeof(gid));
}

static struct fib_dev *destination(const struct fib_pkt *p, u32 *port)
{
	struct fib_dev *d;

	list_for_each_entry(d, &fib_devs, list)
		if (fib_up(d)) {
			*port = leads_to(p, d);
			if (*port)
				return d;
		}
	return NULL;
}

/* LRH, BTH, DETH and ICRC; the GRH; immediate data */
static u32 on_wire(const struct fib_pkt *p)
{
	return p->len + 8 + 12 + 8 + 4 + (p->grh ? FIB_GRH : 0) + (p->has_imm ? 4 : 0);
}

static void unicast(struct fib_pkt *p)
{
	struct fib_qp *qp;
	u32 port;
	struct fib_dev *d = destination(p, &port);

	if (!d) {
		fib_count(p->src, NULL, 1, on_wire(p), false);	/* lost on its way */
		return;
	}
	fib_count(p->src, d, 1, on_wire(p), false);
	if (p->dqpn == 1) {
		if (!d->gsi[port - 1] || p->qkey != IB_QP1_QKEY)
			return;
		if (fib_pkey_index(d, p->pkey) < 0)
			d->traffic.rcv_constraint++;
		else
			fib_deliver(d->gsi[port - 1], p, p->src->lid);
		return;
	}
	qp = xa_load(&fib_qpns, p->dqpn);
	if (qp && qp->ib.device == &d->ib && takes(qp, p))
		fib_deliver(qp, p, p->src->lid);
}

static bool has_joined(const struct fib_qp *qp, const union ib_gid *mgid)
{
	struct fib_mc *mc;

	list_for_each_entry(mc, &qp->mcs, list)
		if (!memcmp(&mc->gid, mgid, sizeof(*mgid)))
			return true;
	return false;
}

/* To each QP that has joined, of ports of the same kind. */
static void multicast(struct fib_pkt *p)
{
	const union ib_gid *mgid = p->src->is_roce ? &p->to.dgid : &p->hdr.dgid;
	struct fib_dev *d, *counted = NULL;
	struct fib_qp *qp;

	fib_count(p->src, NULL, 1, on_wire(p), true);
	list_for_each_entry(qp, &fib_qps, list) {
		d = dev_of(qp);
		if (!has_joined(qp, mgid) || d->is_roce != p->src->is_roce || !fib_up(d))
			continue;
		if (d->is_roce && !roce_leads_to(p->src, &p->to, d))
			continue;
		if (d != p->src && d != counted)
			fib_count(NULL, d, 1, on_wire(p), true);
		counted = d;
		if (takes(qp, p))
			fib_deliver(qp, p, p->src->lid);
	}
}

/* fib_lock is held */
static void send(struct fib_pkt *p)
{
	if (!fib_up(p->src))
		p->src->traffic.xmit_discards++;
	else if (!p->src->is_roce && p->dlid == SM_LID)
		fib_sa_request(p);
	else if (is_multicast(p))
		multicast(p);
	else
		unicast(p);
}

bool fib_packets_wait(void)
{
	return !list_empty_careful(&pkts);
}

/* Some of what the kernel has sent. */
bool fib_run_packets(void)
{
	struct fib_pkt *p;
	int i;

	for (i = 0; i < 64; i++) {
		spin_lock_irq(&pkts_lock);
		p = list_first_entry_or_null(&pkts, struct fib_pkt, list);
		if (p) {
			list_del(&p->list);
			npkts--;
		}
		spin_unlock_irq(&pkts_lock);
		if (!p)
			return false;
		send(p);
		kfree(p);
	}
	return true;
}

/* What a device that goes has sent and nobody has received; fib_lock is held. */
void fib_forget(struct fib_dev *d)
{
	struct fib_pkt *p, *t;

	spin_lock_irq(&pkts_lock);
	list_for_each_entry_safe(p, t, &pkts, list)
		if (p->src == d) {
			list_del(&p->list);
			npkts--;
			kfree(p);
		}
	spin_unlock_irq(&pkts_lock);
}

/* A datagram of user space; fib_lock is held. */
enum ib_wc_status fib_send_ud(struct fib_qp *qp, struct fib_wqe *w)
{
	struct fib_ah *ah = xa_load(&fib_ahs, w->wr.wr.ud.ah_num);
	static struct fib_io to;	/* fib_lock */
	struct fib_pkt *p;

	if (w->wr.opcode != IB_WR_SEND && w->wr.opcode != IB_WR_SEND_WITH_IMM)
		return IB_WC_LOC_QP_OP_ERR;
	if (!ah || ah->ib.pd != qp->ib.pd)
		return IB_WC_LOC_QP_OP_ERR;
	if (w->len > ib_mtu_enum_to_int(IB_MTU_4096))
		return IB_WC_LOC_LEN_ERR;
	p = kzalloc(sizeof(*p) + w->len, GFP_KERNEL);
	if (!p)
		return IB_WC_SUCCESS;	/* lost, as datagrams may be */
	fib_io_init(&to);
	fib_io_flat(&to, p->data, w->len);
	fib_io_copy(&to, &w->io, w->len);
	p->len = w->len;
	p->has_imm = w->wr.opcode == IB_WR_SEND_WITH_IMM;
	p->imm = w->wr.ex.imm_data;
	p->solicited = w->wr.send_flags & IB_SEND_SOLICITED;
	if (address(p, qp, &ah->attr, w->wr.wr.ud.remote_qpn, w->wr.wr.ud.remote_qkey,
		    fib_pkey(dev_of(qp), qp->attr.pkey_index)))
		send(p);
	kfree(p);
	return IB_WC_SUCCESS;
}
