// SPDX-License-Identifier: GPL-2.0
/*
 * fakeib: software InfiniBand HCAs for testing RDMA/IPoIB netns plumbing without hardware.
 * Every port is IBA link layer (or RoCE on a netdev) and plugged into one global software fabric with a built-in
 * subnet administrator (ClassPortInfo, MCMemberRecord, PathRecord), so the real ib_ipoib gets carrier and
 * passes datagram traffic.  Kernel UD/GSI QPs only; uverbs opens a context but offers no data path.
 *
 * Part of the fabric-cni test lab; licensed apart from the product, see LICENSE beside this file.
 */
#include <linux/module.h>
#include <linux/version.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/auxiliary_bus.h>
#include <linux/if_link.h>
#include <linux/netdevice.h>
#include <linux/jhash.h>
#include <linux/vmalloc.h>
#include <rdma/ib_verbs.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>
#include <rdma/ib_smi.h>

static int num = 2;
module_param(num, int, 0444);
MODULE_PARM_DESC(num, "HCAs to create on platform devices");
static char *name = "mlx5_%d";
module_param(name, charp, 0444);
static char *names[64];
static int nnames;
module_param_array(names, charp, &nnames, 0444);
MODULE_PARM_DESC(names, "names of the HCAs in the order of creation: platform, then roce; name= for the rest");
static bool pci;
module_param(pci, bool, 0444);
MODULE_PARM_DESC(pci, "also drive QEMU nvme / igb PCI functions as HCAs, with SR-IOV VFs");
static bool vf_guid = true;
module_param(vf_guid, bool, 0644);
MODULE_PARM_DESC(vf_guid, "VFs have a GUID before the PF gives them one; without, their port stays Init, as no SM configures it");
static ushort pkeys[16] = { 0xffff, 0x8001, 0x8002, 0x8003, 0x9001 };
static int npkeys = 5;
module_param_array(pkeys, ushort, &npkeys, 0444);
static char *roce[16];
static int nroce;
module_param_array(roce, charp, &nroce, 0444);
MODULE_PARM_DESC(roce, "init_net netdevs to put a RoCE HCA on, NETDEV[@OWNER]: its parent is the PCI function of OWNER (a bond has none), else of NETDEV");
static int sf;
module_param(sf, int, 0444);
MODULE_PARM_DESC(sf, "HCAs to create on auxiliary devices fakeib.sf.N, as subfunctions have them");
static bool movable = true;
module_param(movable, bool, 0444);
MODULE_PARM_DESC(movable, "provide disassociate_ucontext, i.e. allow moves between net namespaces");

static ushort lid = 1;
module_param(lid, ushort, 0444);
MODULE_PARM_DESC(lid, "LID of the first HCA; GUIDs are made from it, too: guests that are to look like nodes of one fabric want their own");

#define SM_LID	0xbe00
#define MAXVF	64
#define MAXHCA	256

/*
 * state=4,1,2: IB port state (1 Down, 2 Init, 3 Armed, 4 Active) of each platform HCA; the ones not mentioned are
 * Active.  Writable at run time: the difference is dispatched as PORT_ACTIVE or PORT_ERR, as mlx5 does.
 */
static u8 states[MAXHCA];
static DEFINE_MUTEX(states_lock);	/* states against the set of platform HCAs */
static int states_set(const char *val, const struct kernel_param *kp);
static int states_get(char *buf, const struct kernel_param *kp);
static const struct kernel_param_ops states_ops = { .set = states_set, .get = states_get };
module_param_cb(state, &states_ops, NULL, 0644);
MODULE_PARM_DESC(state, "port states of the platform HCAs: 1 Down, 2 Init, 3 Armed, 4 Active (default)");

struct fib_dev {
	struct ib_device ib;
	struct list_head list;
	struct platform_device *plat;
	struct net_device *ndev;	/* RoCE: compared only, never dereferenced */
	bool is_roce, ready;
	int idx;
	u16 lid;
	__be64 guid;
	struct fib_dev *pf;	/* of a VF; outlives it */
	int vf;
	u64 vf_guid[MAXVF][2];	/* of a PF: what its VFs get when they are next bound */
	u8 vf_link[MAXVF];	/* IFLA_VF_LINK_STATE_* */
};
struct fib_cq {
	struct ib_cq ib;
	struct list_head list;
	spinlock_t lock;
	struct ib_wc *ring;
	u32 size, head, tail;
	bool armed, pending;
};
struct fib_rwr { u64 wr_id; int n; struct ib_sge sge[4]; };
struct fib_mc { struct list_head list; union ib_gid gid; };
struct fib_qp {
	struct ib_qp ib;
	struct list_head list, mcs;
	spinlock_t lock;
	struct fib_rwr *rq;
	u32 size, head, tail;
	enum ib_qp_state state;
	u16 pkey_index;
	u32 qkey;
};
struct fib_ah { struct ib_ah ib; struct rdma_ah_attr attr; };
struct fib_pkt {
	struct list_head list;
	struct fib_dev *src;
	u32 sqpn, dqpn, len;
	u16 pkey, dlid;
	u8 sl;
	bool grh;
	struct ib_grh hdr;
	u8 data[];
};

static LIST_HEAD(devs);
static LIST_HEAD(cqs);
static LIST_HEAD(qps);
static LIST_HEAD(pkts);
static DEFINE_MUTEX(fab);		/* devs, cqs, qps, their mcs; held while delivering */
static DEFINE_SPINLOCK(pkts_lock);
static DEFINE_IDA(hca_ida);
static atomic_t next_qpn = ATOMIC_INIT(0x10);
static void fabric_run(struct work_struct *w);
static DECLARE_WORK(fabric_work, fabric_run);
static struct workqueue_struct *fib_wq;

static struct fib_dev *to_dev(struct ib_device *d) { return container_of(d, struct fib_dev, ib); }
static enum ib_port_state fib_state(const struct fib_dev *d)
{
	if (d->is_roce)
		return d->ndev ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	if (d->pf && d->pf->vf_link[d->vf] == IFLA_VF_LINK_STATE_DISABLE)
		return IB_PORT_DOWN;
	if (!d->guid)
		return IB_PORT_INIT;
	return d->plat && states[d->plat->id] ? states[d->plat->id] : IB_PORT_ACTIVE;
}

static struct fib_cq *to_cq(struct ib_cq *c) { return container_of(c, struct fib_cq, ib); }
static struct fib_qp *to_qp(struct ib_qp *q) { return container_of(q, struct fib_qp, ib); }

/* ---- fabric ---- */
static void push_wc(struct ib_cq *ibcq, const struct ib_wc *wc)
{
	struct fib_cq *cq = to_cq(ibcq);
	unsigned long f;

	spin_lock_irqsave(&cq->lock, f);
	if (cq->tail - cq->head < cq->size)
		cq->ring[cq->tail++ % cq->size] = *wc;
	else
		pr_warn_ratelimited("fakeib: CQ overrun\n");
	if (cq->armed) {
		cq->armed = false;
		cq->pending = true;
	}
	spin_unlock_irqrestore(&cq->lock, f);
	queue_work(fib_wq, &fabric_work);
}

static void deliver(struct fib_qp *qp, struct fib_pkt *p, u16 slid)
{
	struct ib_wc wc = { .status = IB_WC_SUCCESS, .opcode = IB_WC_RECV, .qp = &qp->ib, .src_qp = p->sqpn,
			    .slid = slid, .sl = p->sl, .port_num = 1, .byte_len = p->len + 40,
			    .wc_flags = p->grh ? IB_WC_GRH : 0 };
	struct fib_rwr r;
	unsigned long f;
	u32 off = 0, k;
	int i;

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
	push_wc(qp->ib.recv_cq, &wc);
}

static struct fib_qp *gsi_of(struct fib_dev *d)
{
	struct fib_qp *qp;

	list_for_each_entry(qp, &qps, list)
		if (qp->ib.device == &d->ib && qp->ib.qp_type == IB_QPT_GSI)
			return qp;
	return NULL;
}

static void sa_request(struct fib_pkt *p)	/* answer in place and send it back */
{
	struct ib_sa_mad *m = (struct ib_sa_mad *)p->data;
	struct fib_qp *qp = gsi_of(p->src);
	struct fib_dev *d, *to = NULL;
	u8 *r = m->data;

	if (!qp || p->len < sizeof(*m) || m->mad_hdr.mgmt_class != IB_MGMT_CLASS_SUBN_ADM ||
	    (m->mad_hdr.method & IB_MGMT_METHOD_RESP))
		return;
	m->mad_hdr.method = m->mad_hdr.method == IB_SA_METHOD_DELETE ? IB_SA_METHOD_DELETE_RESP :
								       IB_MGMT_METHOD_GET_RESP;
	m->mad_hdr.status = 0;
	switch (be16_to_cpu(m->mad_hdr.attr_id)) {
	case IB_SA_ATTR_CLASS_PORTINFO:
		memset(r, 0, sizeof(m->data));
		r[0] = 1; r[1] = 2; r[7] = 18;
		break;
	case IB_SA_ATTR_MC_MEMBER_REC:
		*(__be32 *)(r + 32) = cpu_to_be32(0x0b1b);
		*(__be16 *)(r + 36) = cpu_to_be16(0xc000 | (jhash(r, 16, 0) & 0x3ff));
		r[38] = 2 << 6 | IB_MTU_4096; r[42] = 2 << 6 | IB_RATE_100_GBPS; r[43] = 2 << 6 | 18;
		r[44] = r[45] = r[46] = r[47] = 0;
		r[48] = (r[1] & 0xf) << 4 | (r[48] & 0xf);
		break;
	case IB_SA_ATTR_PATH_REC:
		list_for_each_entry(d, &devs, list)
			if (!memcmp(r + 16, &d->guid, 8))
				to = d;
		if (!to) {
			m->mad_hdr.status = cpu_to_be16(0x0300);	/* ERR_NO_RECORDS */
			break;
		}
		*(__be16 *)(r + 40) = cpu_to_be16(to->lid);
		*(__be16 *)(r + 42) = cpu_to_be16(p->src->lid);
		r[49] |= 0x80;
		r[54] = 2 << 6 | IB_MTU_4096; r[55] = 2 << 6 | IB_RATE_100_GBPS; r[56] = 2 << 6 | 18;
		break;
	default:
		m->mad_hdr.status = cpu_to_be16(0x000c);		/* unsupported method/attribute */
	}
	p->sqpn = 1;
	p->grh = false;
	deliver(qp, p, SM_LID);
}

static void route(struct fib_pkt *p)
{
	struct fib_qp *qp;
	struct fib_mc *mc;

	if (fib_state(p->src) != IB_PORT_ACTIVE)
		return;
	if (p->dlid == SM_LID)
		return sa_request(p);
	list_for_each_entry(qp, &qps, list) {
		struct fib_dev *d = to_dev(qp->ib.device);

		if (fib_state(d) != IB_PORT_ACTIVE)
			continue;
		if (p->dqpn == 1) {
			if (d->lid == p->dlid && qp->ib.qp_type == IB_QPT_GSI)
				deliver(qp, p, p->src->lid);
			continue;
		}
		if (qp->ib.qp_type != IB_QPT_UD || (pkeys[qp->pkey_index] ^ p->pkey) & 0x7fff)
			continue;
		if (p->dlid < 0xc000) {
			if (d->lid == p->dlid && qp->ib.qp_num == p->dqpn)
				deliver(qp, p, p->src->lid);
			continue;
		}
		list_for_each_entry(mc, &qp->mcs, list)
			if (!memcmp(&mc->gid, &p->hdr.dgid, 16)) {
				deliver(qp, p, p->src->lid);
				break;
			}
	}
}

static void fabric_run(struct work_struct *w)
{
	struct fib_pkt *p;
	struct fib_cq *cq;
	unsigned long f;

	mutex_lock(&fab);
	for (;;) {
		bool fire;

		spin_lock_irqsave(&pkts_lock, f);
		p = list_first_entry_or_null(&pkts, struct fib_pkt, list);
		if (p)
			list_del(&p->list);
		spin_unlock_irqrestore(&pkts_lock, f);
		if (p) {
			route(p);
			kfree(p);
		}
		local_bh_disable();	/* comp_handlers schedule NAPI */
		list_for_each_entry(cq, &cqs, list) {
			spin_lock_irqsave(&cq->lock, f);
			fire = cq->pending;
			cq->pending = false;
			spin_unlock_irqrestore(&cq->lock, f);
			if (fire && cq->ib.comp_handler)
				cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
		}
		local_bh_enable();
		if (!p)
			break;
	}
	mutex_unlock(&fab);
}

/* ---- verbs ---- */
static int fib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	struct fib_qp *qp = to_qp(ibqp);
	unsigned long f;

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
			p->src = to_dev(ibqp->device);
			p->sqpn = ibqp->qp_num;
			p->dqpn = ud_wr(wr)->remote_qpn;
			p->dlid = rdma_ah_get_dlid(a);
			p->sl = rdma_ah_get_sl(a);
			p->pkey = pkeys[ibqp->qp_type == IB_QPT_UD ? qp->pkey_index : 0];
			p->grh = rdma_ah_get_ah_flags(a) & IB_AH_GRH;
			if (p->grh) {
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
		wc.status = qp->state == IB_QPS_ERR ? IB_WC_WR_FLUSH_ERR : IB_WC_SUCCESS;
		push_wc(ibqp->send_cq, &wc);
	}
	return 0;
}

static int fib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	struct fib_qp *qp = to_qp(ibqp);
	unsigned long f;

	for (; wr; wr = wr->next) {
		struct ib_wc wc = { .wr_id = wr->wr_id, .status = IB_WC_WR_FLUSH_ERR, .opcode = IB_WC_RECV, .qp = ibqp };
		struct fib_rwr *r;

		spin_lock_irqsave(&qp->lock, f);
		if (qp->state == IB_QPS_ERR) {
			spin_unlock_irqrestore(&qp->lock, f);
			push_wc(ibqp->recv_cq, &wc);
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

static int fib_poll_cq(struct ib_cq *ibcq, int n, struct ib_wc *wc)
{
	struct fib_cq *cq = to_cq(ibcq);
	unsigned long f;
	int i;

	spin_lock_irqsave(&cq->lock, f);
	for (i = 0; i < n && cq->head != cq->tail; i++)
		wc[i] = cq->ring[cq->head++ % cq->size];
	spin_unlock_irqrestore(&cq->lock, f);
	return i;
}

static int fib_req_notify(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct fib_cq *cq = to_cq(ibcq);
	unsigned long f;
	int r;

	spin_lock_irqsave(&cq->lock, f);
	cq->armed = true;
	r = (flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->head != cq->tail;
	spin_unlock_irqrestore(&cq->lock, f);
	return r;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#define CQ_ARG struct uverbs_attr_bundle *u
#else
#define CQ_ARG struct ib_udata *u
#endif
static int fib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr, CQ_ARG)
{
	struct fib_cq *cq = to_cq(ibcq);

	if (u)
		return -EOPNOTSUPP;
	cq->size = attr->cqe + 16;
	cq->ring = vzalloc(array_size(cq->size, sizeof(*cq->ring)));
	if (!cq->ring)
		return -ENOMEM;
	spin_lock_init(&cq->lock);
	ibcq->cqe = attr->cqe;
	mutex_lock(&fab);
	list_add_tail(&cq->list, &cqs);
	mutex_unlock(&fab);
	return 0;
}

static int fib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *u)
{
	mutex_lock(&fab);
	list_del(&to_cq(ibcq)->list);
	mutex_unlock(&fab);
	vfree(to_cq(ibcq)->ring);
	return 0;
}

static int fib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init, struct ib_udata *u)
{
	struct fib_qp *qp = to_qp(ibqp);

	if (u || (init->qp_type != IB_QPT_UD && init->qp_type != IB_QPT_GSI && init->qp_type != IB_QPT_SMI))
		return -EOPNOTSUPP;
	qp->size = init->cap.max_recv_wr + 1;
	qp->rq = vzalloc(array_size(qp->size, sizeof(*qp->rq)));
	if (!qp->rq)
		return -ENOMEM;
	spin_lock_init(&qp->lock);
	INIT_LIST_HEAD(&qp->mcs);
	ibqp->qp_num = init->qp_type == IB_QPT_SMI ? 0 : init->qp_type == IB_QPT_GSI ? 1 :
		       atomic_inc_return(&next_qpn) & 0xffffff;
	mutex_lock(&fab);
	list_add_tail(&qp->list, &qps);
	mutex_unlock(&fab);
	return 0;
}

static int fib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *a, int mask, struct ib_udata *u)
{
	struct ib_wc wc = { .status = IB_WC_WR_FLUSH_ERR, .opcode = IB_WC_RECV, .qp = ibqp };
	struct fib_qp *qp = to_qp(ibqp);
	unsigned long f;

	spin_lock_irqsave(&qp->lock, f);
	if ((mask & IB_QP_PKEY_INDEX) && a->pkey_index < npkeys)
		qp->pkey_index = a->pkey_index;
	if (mask & IB_QP_QKEY)
		qp->qkey = a->qkey;
	if (mask & IB_QP_STATE)
		qp->state = a->qp_state;
	if (qp->state == IB_QPS_RESET)
		qp->head = qp->tail;
	while (qp->state == IB_QPS_ERR && qp->head != qp->tail) {
		wc.wr_id = qp->rq[qp->head++ % qp->size].wr_id;
		push_wc(ibqp->recv_cq, &wc);
	}
	spin_unlock_irqrestore(&qp->lock, f);
	return 0;
}

static int fib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *a, int mask, struct ib_qp_init_attr *init)
{
	memset(a, 0, sizeof(*a));
	a->qp_state = a->cur_qp_state = to_qp(ibqp)->state;
	a->pkey_index = to_qp(ibqp)->pkey_index;
	a->qkey = to_qp(ibqp)->qkey;
	a->port_num = 1;
	return 0;
}

static int fib_detach(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct fib_mc *mc, *t;

	mutex_lock(&fab);
	list_for_each_entry_safe(mc, t, &to_qp(ibqp)->mcs, list)
		if (!gid || !memcmp(&mc->gid, gid, sizeof(*gid))) {
			list_del(&mc->list);
			kfree(mc);
		}
	mutex_unlock(&fab);
	return 0;
}

static int fib_attach(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct fib_mc *mc = kzalloc(sizeof(*mc), GFP_KERNEL);

	if (!mc)
		return -ENOMEM;
	mc->gid = *gid;
	mutex_lock(&fab);
	list_add(&mc->list, &to_qp(ibqp)->mcs);
	mutex_unlock(&fab);
	return 0;
}

static int fib_destroy_qp(struct ib_qp *ibqp, struct ib_udata *u)
{
	fib_detach(ibqp, NULL, 0);
	mutex_lock(&fab);
	list_del(&to_qp(ibqp)->list);
	mutex_unlock(&fab);
	vfree(to_qp(ibqp)->rq);
	return 0;
}

static int fib_create_ah(struct ib_ah *ah, struct rdma_ah_init_attr *init, struct ib_udata *u)
{
	container_of(ah, struct fib_ah, ib)->attr = *init->ah_attr;
	return 0;
}
static int fib_query_ah(struct ib_ah *ah, struct rdma_ah_attr *a)
{
	*a = container_of(ah, struct fib_ah, ib)->attr;
	return 0;
}
static int fib_destroy_ah(struct ib_ah *ah, u32 flags) { return 0; }
static int fib_alloc_pd(struct ib_pd *pd, struct ib_udata *u) { return 0; }
static int fib_dealloc_pd(struct ib_pd *pd, struct ib_udata *u) { return 0; }
static int fib_alloc_uctx(struct ib_ucontext *c, struct ib_udata *u) { return 0; }
static void fib_dealloc_uctx(struct ib_ucontext *c) { }
static void fib_disassociate(struct ib_ucontext *c) { }
static int fib_mmap(struct ib_ucontext *c, struct vm_area_struct *v) { return -EINVAL; }
static struct ib_mr *fib_get_dma_mr(struct ib_pd *pd, int acc)
{
	struct ib_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);

	return mr ?: ERR_PTR(-ENOMEM);
}
static int fib_dereg_mr(struct ib_mr *mr, struct ib_udata *u) { kfree(mr); return 0; }
static struct ib_mr *fib_reg_user_mr(struct ib_pd *pd, u64 s, u64 l, u64 v, int acc,
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
				     struct ib_dmah *dmah,
#endif
				     struct ib_udata *u) { return ERR_PTR(-EOPNOTSUPP); }

static int fib_query_device(struct ib_device *d, struct ib_device_attr *a, struct ib_udata *u)
{
	memset(a, 0, sizeof(*a));
	a->sys_image_guid = to_dev(d)->guid;
	a->vendor_id = 0x02c9; a->vendor_part_id = 4123; a->hw_ver = 0;
	a->max_mr_size = ~0ULL; a->page_size_cap = PAGE_SIZE;
	a->max_qp = a->max_cq = a->max_pd = a->max_ah = a->max_mr = 4096;
	a->max_qp_wr = a->max_cqe = 65536;
	a->max_send_sge = 32; a->max_recv_sge = 4; a->max_sge_rd = 4;
	a->max_mcast_grp = a->max_mcast_qp_attach = a->max_total_mcast_qp_attach = 4096;
	a->max_pkeys = npkeys; a->local_ca_ack_delay = 15;
	a->kernel_cap_flags = IBK_LOCAL_DMA_LKEY;
	if (d->dev.parent && dev_is_pci(d->dev.parent) && to_pci_dev(d->dev.parent)->is_virtfn)
		a->kernel_cap_flags |= IBK_VIRTUAL_FUNCTION;
	return 0;
}

static int fib_query_port(struct ib_device *d, u32 port, struct ib_port_attr *a)
{
	a->state = fib_state(to_dev(d));
	a->phys_state = a->state != IB_PORT_DOWN ? IB_PORT_PHYS_STATE_LINK_UP :
			to_dev(d)->is_roce ? IB_PORT_PHYS_STATE_DISABLED : IB_PORT_PHYS_STATE_POLLING;
	a->max_mtu = a->active_mtu = IB_MTU_4096;
	a->gid_tbl_len = 8; a->pkey_tbl_len = npkeys; a->max_msg_sz = 1 << 30;
	a->max_vl_num = 1;
	if (!to_dev(d)->is_roce && a->state >= IB_PORT_ARMED) {	/* the subnet manager gives LIDs */
		a->lid = to_dev(d)->lid;
		a->sm_lid = SM_LID;
	}
	a->active_width = IB_WIDTH_4X; a->active_speed = IB_SPEED_HDR;
	return 0;
}

static int fib_modify_port(struct ib_device *d, u32 p, int m, struct ib_port_modify *pm) { return 0; }
static enum rdma_link_layer fib_ll(struct ib_device *d, u32 p)
{
	return to_dev(d)->is_roce ? IB_LINK_LAYER_ETHERNET : IB_LINK_LAYER_INFINIBAND;
}
static int fib_gid_op(const struct ib_gid_attr *attr, void **ctx) { return 0; }
static void fib_fw(struct ib_device *d, char *s) { snprintf(s, IB_FW_VERSION_NAME_MAX, "20.35.1012"); }

static int fib_query_gid(struct ib_device *d, u32 port, int i, union ib_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	gid->global.subnet_prefix = cpu_to_be64(0xfe80000000000000ULL);
	if (i == 0)
		gid->global.interface_id = to_dev(d)->guid;
	return 0;
}

static int fib_query_pkey(struct ib_device *d, u32 port, u16 i, u16 *pkey)
{
	*pkey = i < npkeys ? pkeys[i] : 0;
	return i < npkeys ? 0 : -EINVAL;
}

static int fib_immutable(struct ib_device *d, u32 port, struct ib_port_immutable *im)
{
	im->core_cap_flags = to_dev(d)->is_roce ? RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP | RDMA_CORE_PORT_IBA_ROCE :
						RDMA_CORE_PORT_IBA_IB;
	im->gid_tbl_len = 8; im->pkey_tbl_len = npkeys; im->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

static int fib_get_vf_config(struct ib_device *d, int vf, u32 port, struct ifla_vf_info *ivf)
{
	memset(ivf, 0, sizeof(*ivf));
	if (vf >= MAXVF)
		return -EINVAL;
	ivf->vf = vf;
	ivf->linkstate = to_dev(d)->vf_link[vf];
	return 0;
}
static int fib_set_vf_link(struct ib_device *d, int vf, u32 port, int state)
{
	struct fib_dev *v;

	if (vf >= MAXVF || state > IFLA_VF_LINK_STATE_DISABLE)
		return -EINVAL;
	mutex_lock(&fab);
	to_dev(d)->vf_link[vf] = state;
	list_for_each_entry(v, &devs, list)
		if (v->pf == to_dev(d) && v->vf == vf && v->ready) {
			struct ib_event ev = { .device = &v->ib, .element.port_num = 1 };

			ev.event = fib_state(v) == IB_PORT_ACTIVE ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR;
			ib_dispatch_event(&ev);
		}
	mutex_unlock(&fab);
	return 0;
}
static int fib_get_vf_guid(struct ib_device *d, int vf, u32 port, struct ifla_vf_guid *n, struct ifla_vf_guid *p)
{
	n->vf = p->vf = vf;
	n->guid = to_dev(d)->vf_guid[vf][0];
	p->guid = to_dev(d)->vf_guid[vf][1];
	return 0;
}
static int fib_set_vf_guid(struct ib_device *d, int vf, u32 port, u64 guid, int type)
{
	if (vf >= MAXVF)
		return -EINVAL;
	to_dev(d)->vf_guid[vf][type == IFLA_VF_IB_PORT_GUID] = guid;	/* takes effect when the VF is next bound */
	return 0;
}

static const struct ib_device_ops fib_ops = {
	.owner = THIS_MODULE, .driver_id = RDMA_DRIVER_UNKNOWN, .uverbs_abi_ver = 1,
	.post_send = fib_post_send, .post_recv = fib_post_recv, .poll_cq = fib_poll_cq, .req_notify_cq = fib_req_notify,
	.query_device = fib_query_device, .query_port = fib_query_port, .modify_port = fib_modify_port,
	.get_port_immutable = fib_immutable, .get_link_layer = fib_ll, .get_dev_fw_str = fib_fw,
	.add_gid = fib_gid_op, .del_gid = fib_gid_op, .query_gid = fib_query_gid, .query_pkey = fib_query_pkey,
	.alloc_pd = fib_alloc_pd, .dealloc_pd = fib_dealloc_pd,
	.alloc_ucontext = fib_alloc_uctx, .dealloc_ucontext = fib_dealloc_uctx, .mmap = fib_mmap,
	.create_ah = fib_create_ah, .query_ah = fib_query_ah, .destroy_ah = fib_destroy_ah,
	.create_qp = fib_create_qp, .modify_qp = fib_modify_qp, .query_qp = fib_query_qp, .destroy_qp = fib_destroy_qp,
	.create_cq = fib_create_cq, .destroy_cq = fib_destroy_cq,
	.get_dma_mr = fib_get_dma_mr, .reg_user_mr = fib_reg_user_mr, .dereg_mr = fib_dereg_mr,
	.attach_mcast = fib_attach, .detach_mcast = fib_detach,
	.get_vf_config = fib_get_vf_config, .get_vf_guid = fib_get_vf_guid, .set_vf_guid = fib_set_vf_guid,
	.set_vf_link_state = fib_set_vf_link,
	INIT_RDMA_OBJ_SIZE(ib_qp, fib_qp, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, fib_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_ah, fib_ah, ib),
};
static const struct ib_device_ops fib_movable_ops = { .disassociate_ucontext = fib_disassociate };
struct fib_pd { struct ib_pd ib; };
struct fib_uctx { struct ib_ucontext ib; };
static const struct ib_device_ops fib_obj_ops = {
	INIT_RDMA_OBJ_SIZE(ib_pd, fib_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, fib_uctx, ib),
};

/* ---- devices ---- */
static struct fib_dev *fib_add(struct device *parent, struct platform_device *plat, struct fib_dev *pf, int vf,
			       struct net_device *ndev)
{
	struct fib_dev *d = ib_alloc_device(fib_dev, ib);
	u64 node_guid = 0, port_guid = 0;
	const char *nm;
	int r;

	if (!d)
		return ERR_PTR(-ENOMEM);
	d->idx = ida_alloc_max(&hca_ida, MAXHCA - 1, GFP_KERNEL);
	d->lid = lid + d->idx;
	if (pf && vf >= 0 && vf < MAXVF) {
		node_guid = pf->vf_guid[vf][0];
		port_guid = pf->vf_guid[vf][1];
		if (node_guid == ~0ULL)		/* taken away again */
			node_guid = 0;
		if (port_guid == ~0ULL)
			port_guid = 0;
		d->pf = pf;
		d->vf = vf;
	}
	if (!port_guid && (vf_guid || !d->pf))
		port_guid = 0x0002c90300fa0000ULL + ((u64)d->lid << 4);
	d->guid = cpu_to_be64(port_guid);
	d->ib.node_guid = node_guid ? cpu_to_be64(node_guid) : d->guid;
	d->ib.node_type = RDMA_NODE_IB_CA;
	d->ib.phys_port_cnt = 1;
	d->ib.num_comp_vectors = 1;
	d->ib.dev.parent = parent;
	d->is_roce = ndev;
	d->plat = plat;
	strscpy(d->ib.node_desc, "fakeib", sizeof(d->ib.node_desc));
	ib_set_device_ops(&d->ib, &fib_ops);
	ib_set_device_ops(&d->ib, &fib_obj_ops);
	if (movable)
		ib_set_device_ops(&d->ib, &fib_movable_ops);
	mutex_lock(&fab);
	list_add_tail(&d->list, &devs);
	mutex_unlock(&fab);
	if (ndev) {
		d->ndev = ndev;
		ib_device_set_netdev(&d->ib, ndev, 1);
	}
	nm = d->idx < nnames ? names[d->idx] : name;
	r = ib_register_device(&d->ib, nm, NULL);
	if (!r) {
		mutex_lock(&fab);
		d->ready = true;
		mutex_unlock(&fab);
		return d;
	}
	mutex_lock(&fab);
	list_del(&d->list);
	mutex_unlock(&fab);
	ida_free(&hca_ida, d->idx);
	ib_dealloc_device(&d->ib);
	return ERR_PTR(r);
}

static void fib_del(struct fib_dev *d)
{
	struct fib_pkt *p, *t;

	mutex_lock(&fab);
	d->ready = false;
	mutex_unlock(&fab);
	ib_unregister_device(&d->ib);
	mutex_lock(&fab);
	list_del(&d->list);
	spin_lock_irq(&pkts_lock);
	list_for_each_entry_safe(p, t, &pkts, list)
		if (p->src == d) {
			list_del(&p->list);
			kfree(p);
		}
	spin_unlock_irq(&pkts_lock);
	mutex_unlock(&fab);
	ida_free(&hca_ida, d->idx);
	ib_dealloc_device(&d->ib);
}

static int fib_probe(struct pci_dev *pd, const struct pci_device_id *id)
{
	struct fib_dev *d, *pf = pd->is_virtfn ? pci_get_drvdata(pci_physfn(pd)) : NULL;
	int vf = pf ? pci_iov_vf_id(pd) : -1, r = pci_enable_device(pd);

	if (r)
		return r;
	d = fib_add(&pd->dev, NULL, pf, vf, NULL);
	if (IS_ERR(d)) {
		pci_disable_device(pd);
		return PTR_ERR(d);
	}
	pci_set_drvdata(pd, d);
	return 0;
}

static void fib_remove(struct pci_dev *pd)
{
	if (pci_num_vf(pd))
		pci_disable_sriov(pd);
	fib_del(pci_get_drvdata(pd));
	pci_disable_device(pd);
}

static const struct pci_device_id fib_ids[] = {	/* QEMU nvme (PF and VF), igb PF, igb VF: any emulated PCI function with SR-IOV will do */
	{ PCI_DEVICE(0x1b36, 0x0010) }, { PCI_DEVICE(0x8086, 0x10c9) }, { PCI_DEVICE(0x8086, 0x10ca) }, { }
};
static struct pci_driver fib_pci = { .name = "fakeib", .id_table = fib_ids, .probe = fib_probe, .remove = fib_remove,
				     .sriov_configure = pci_sriov_configure_simple };
static struct fib_dev *plat[MAXHCA];	/* states_lock, once registered */

static int states_set(const char *val, const struct kernel_param *kp)
{
	u8 want[MAXHCA] = { 0 };
	char *copy = kstrdup(val, GFP_KERNEL), *rest = copy, *tok;
	int i, n = 0, r = copy ? 0 : -ENOMEM;

	while (!r && rest && (tok = strsep(&rest, ",")) != NULL)
		r = n == MAXHCA ? -E2BIG : kstrtou8(strim(tok), 0, &want[n++]);
	kfree(copy);
	for (i = 0; !r && i < n; i++)
		if (want[i] < IB_PORT_DOWN || want[i] > IB_PORT_ACTIVE)
			r = -EINVAL;
	if (r)
		return r;
	mutex_lock(&states_lock);
	for (i = 0; i < MAXHCA; i++) {
		struct ib_event ev = { .element.port_num = 1 };
		u8 was = states[i] ?: IB_PORT_ACTIVE, now = want[i] ?: IB_PORT_ACTIVE;

		states[i] = want[i];
		if (!plat[i] || was == now)
			continue;
		ev.device = &plat[i]->ib;
		ev.event = now == IB_PORT_ACTIVE ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR;
		ib_dispatch_event(&ev);
	}
	mutex_unlock(&states_lock);
	return 0;
}

static int states_get(char *buf, const struct kernel_param *kp)
{
	int i, n = 0;

	for (i = 0; i < num && i < MAXHCA; i++)
		n += scnprintf(buf + n, PAGE_SIZE - n, "%s%u", i ? "," : "", states[i] ?: IB_PORT_ACTIVE);
	return n + scnprintf(buf + n, PAGE_SIZE - n, "\n");
}

static struct fib_dev *roce_dev[ARRAY_SIZE(roce)];
static struct net_device *roce_ndev[ARRAY_SIZE(roce)];

/* like mlx5: drop the netdev on UNREGISTER (also sent when it leaves a netns), take it back on REGISTER */
static int fib_netdev_event(struct notifier_block *nb, unsigned long ev, void *ptr)
{
	struct net_device *n = netdev_notifier_info_to_dev(ptr);
	int i;

	for (i = 0; i < nroce; i++) {
		if (!roce_dev[i] || n != roce_ndev[i])
			continue;
		if (ev == NETDEV_UNREGISTER || ev == NETDEV_REGISTER) {
			roce_dev[i]->ndev = ev == NETDEV_REGISTER ? n : NULL;
			ib_device_set_netdev(&roce_dev[i]->ib, roce_dev[i]->ndev, 1);
		}
	}
	return NOTIFY_DONE;
}
static struct notifier_block fib_nb = { .notifier_call = fib_netdev_event };

/* the PCI function under a netdev: virtio has a device of its own in between, where a real NIC has none */
static struct device *fib_function(struct net_device *n)
{
	struct device *d;

	for (d = n->dev.parent; d; d = d->parent)
		if (dev_is_pci(d))
			return d;
	return n->dev.parent;
}

static int fib_roce_init(void)
{
	int i;

	for (i = 0; i < nroce; i++) {
		char *own = strchr(roce[i], '@');
		struct net_device *n, *o = NULL;
		struct fib_dev *d = ERR_PTR(-ENODEV);

		if (own)
			*own++ = 0;
		n = dev_get_by_name(&init_net, roce[i]);
		if (own)
			o = dev_get_by_name(&init_net, own);
		if (n && (o || !own))
			d = fib_add(fib_function(o ?: n), NULL, 0, 0, n);
		if (o)
			dev_put(o);
		if (n)
			dev_put(n);
		if (IS_ERR(d))
			return PTR_ERR(d);
		roce_ndev[i] = n;
		roce_dev[i] = d;
	}
	return 0;
}

static void fib_plat_exit(void)
{
	int i;

	unregister_netdevice_notifier(&fib_nb);
	for (i = 0; i < nroce; i++)
		if (roce_dev[i])
			fib_del(roce_dev[i]);
	for (i = 0; i < MAXHCA; i++) {
		struct fib_dev *d = plat[i];

		mutex_lock(&states_lock);
		plat[i] = NULL;
		mutex_unlock(&states_lock);
		if (d) {
			struct platform_device *pd = d->plat;

			fib_del(d);
			platform_device_unregister(pd);
		}
	}
}

/* ---- subfunctions: the bus is the kernel's, the parent is a platform device ---- */
static struct platform_device *sf_parent;
static struct auxiliary_device *sfs[MAXVF];

static int fib_sf_probe(struct auxiliary_device *adev, const struct auxiliary_device_id *id)
{
	struct fib_dev *d = fib_add(&adev->dev, NULL, NULL, 0, NULL);

	if (IS_ERR(d))
		return PTR_ERR(d);
	auxiliary_set_drvdata(adev, d);
	return 0;
}
static void fib_sf_remove(struct auxiliary_device *adev) { fib_del(auxiliary_get_drvdata(adev)); }
static void fib_sf_release(struct device *dev) { kfree(to_auxiliary_dev(dev)); }
static const struct auxiliary_device_id fib_sf_ids[] = { { .name = "fakeib.sf" }, { } };
static struct auxiliary_driver fib_sf_drv = { .name = "sf", .id_table = fib_sf_ids, .probe = fib_sf_probe, .remove = fib_sf_remove };

static void fib_sf_exit(void)
{
	int i;

	if (!sf_parent)
		return;
	for (i = 0; i < MAXVF && sfs[i]; i++) {
		auxiliary_device_delete(sfs[i]);
		auxiliary_device_uninit(sfs[i]);
	}
	auxiliary_driver_unregister(&fib_sf_drv);
	platform_device_unregister(sf_parent);
}

static int __init fib_sf_init(void)
{
	int i, r;

	if (sf <= 0)
		return 0;
	sf_parent = platform_device_register_simple("fakeib-sf", -1, NULL, 0);
	if (IS_ERR(sf_parent)) {
		r = PTR_ERR(sf_parent);
		sf_parent = NULL;
		return r;
	}
	r = auxiliary_driver_register(&fib_sf_drv);
	if (r) {
		platform_device_unregister(sf_parent);
		sf_parent = NULL;
		return r;
	}
	for (i = 0; i < sf && i < MAXVF; i++) {
		struct auxiliary_device *a = kzalloc(sizeof(*a), GFP_KERNEL);

		if (!a)
			return -ENOMEM;
		a->name = "sf";
		a->id = i;
		a->dev.parent = &sf_parent->dev;
		a->dev.release = fib_sf_release;
		r = auxiliary_device_init(a);
		if (r) {
			kfree(a);
			return r;
		}
		r = auxiliary_device_add(a);
		if (r) {
			auxiliary_device_uninit(a);
			return r;
		}
		sfs[i] = a;
	}
	return 0;
}

static int __init fib_init(void)
{
	int i, r = 0;

	fib_wq = alloc_workqueue("fakeib", WQ_UNBOUND, 0);
	if (!fib_wq)
		return -ENOMEM;
	register_netdevice_notifier(&fib_nb);
	for (i = 0; i < num && i < MAXHCA && !r; i++) {
		struct platform_device *pd = platform_device_register_simple("fakeib", i, NULL, 0);
		struct fib_dev *d;

		if (IS_ERR(pd)) {
			r = PTR_ERR(pd);
			break;
		}
		d = fib_add(&pd->dev, pd, 0, 0, NULL);
		if (IS_ERR(d)) {
			r = PTR_ERR(d);
			platform_device_unregister(pd);
			break;
		}
		mutex_lock(&states_lock);
		plat[i] = d;
		mutex_unlock(&states_lock);
	}
	if (!r)
		r = fib_roce_init();
	if (!r && pci)
		r = pci_register_driver(&fib_pci);
	if (!r)
		r = fib_sf_init();
	if (r) {
		fib_sf_exit();
		fib_plat_exit();
		destroy_workqueue(fib_wq);
	}
	return r;
}

static void __exit fib_exit(void)
{
	if (pci)
		pci_unregister_driver(&fib_pci);
	fib_sf_exit();
	fib_plat_exit();
	destroy_workqueue(fib_wq);
}

module_init(fib_init);
module_exit(fib_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Fake InfiniBand HCAs on a software fabric");
