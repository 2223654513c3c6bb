// SPDX-License-Identifier: GPL-2.0
/*
 * The subnet administrator of the fabric: what IPoIB and the connection manager ask. It answers in place, at once; a
 * group exists as soon as somebody asks for it.
 */
#include <linux/jhash.h>
#include <rdma/ib_sa.h>

#include "fakeib.h"

#define SELECT_EXACTLY	(2 << 6)
#define LIFETIME	18		/* of packets, 4.096 us * 2^18 */
#define NO_RECORDS	0x0300
#define UNSUPPORTED	0x000c

/* Byte offsets in the records of IBA 15.2.5 */
enum { CPI_BASE = 0, CPI_CLASS = 1, CPI_RESP_TIME = 7 };
enum { MC_MGID = 0, MC_QKEY = 32, MC_MLID = 36, MC_MTU = 38, MC_RATE = 42, MC_LIFE = 43, MC_SL_FLOW = 44, MC_SCOPE = 48 };
enum { PATH_DGUID = 16, PATH_DLID = 40, PATH_SLID = 42, PATH_REVERSIBLE = 49, PATH_PKEY = 50, PATH_MTU = 54,
       PATH_RATE = 55, PATH_LIFE = 56 };

static u8 rate_code(void)
{
	static const struct { int gbps; u8 code; } rates[] = {
		{ 10, IB_RATE_10_GBPS }, { 20, IB_RATE_20_GBPS }, { 40, IB_RATE_40_GBPS }, { 56, IB_RATE_56_GBPS },
		{ 100, IB_RATE_100_GBPS }, { 200, IB_RATE_200_GBPS }, { 400, IB_RATE_400_GBPS } };
	u8 code = IB_RATE_10_GBPS;
	int i;

	for (i = 0; i < ARRAY_SIZE(rates) && rates[i].gbps <= fib_rate(); i++)
		code = rates[i].code;
	return code;
}

static void class_port_info(u8 *r)
{
	memset(r, 0, sizeof_field(struct ib_sa_mad, data));
	r[CPI_BASE] = 1;
	r[CPI_CLASS] = 2;
	r[CPI_RESP_TIME] = LIFETIME;
}

/* A group has the QKey that who makes it asks for: rdma_cm asks for its own, IPoIB for that of the broadcast group. */
static void mc_member(const struct ib_sa_mad *m, u8 *r)
{
	if (!(m->sa_hdr.comp_mask & IB_SA_MCMEMBER_REC_QKEY))
		*(__be32 *)(r + MC_QKEY) = cpu_to_be32(0x0b1b);
	*(__be16 *)(r + MC_MLID) = cpu_to_be16(0xc000 | (jhash(r + MC_MGID, 16, 0) & 0x3ff));
	r[MC_MTU] = SELECT_EXACTLY | IB_MTU_4096;
	r[MC_RATE] = SELECT_EXACTLY | rate_code();
	r[MC_LIFE] = SELECT_EXACTLY | LIFETIME;
	memset(r + MC_SL_FLOW, 0, 4);
	r[MC_SCOPE] = (r[MC_MGID + 1] & 0xf) << 4 | (r[MC_SCOPE] & 0xf);
}

/* Between ports that share no partition there is no path: 0, or the status of the answer. */
static u16 path(const struct fib_pkt *p, const struct ib_sa_mad *m, u8 *r)
{
	u16 pkey = be16_to_cpup((__be16 *)(r + PATH_PKEY));
	struct fib_dev *d, *to = NULL;

	list_for_each_entry(d, &fib_devs, list)
		if (!d->is_roce && !memcmp(r + PATH_DGUID, &d->guid, sizeof(d->guid)))
			to = d;
	if (!to)
		return NO_RECORDS;
	if ((m->sa_hdr.comp_mask & IB_SA_PATH_REC_PKEY) &&
	    (fib_pkey_index(p->src, pkey | 0x8000) < 0 || fib_pkey_index(to, pkey | 0x8000) < 0))
		return NO_RECORDS;
	*(__be16 *)(r + PATH_DLID) = cpu_to_be16(to->lid);
	*(__be16 *)(r + PATH_SLID) = cpu_to_be16(p->src->lid);
	r[PATH_REVERSIBLE] |= 0x80;
	r[PATH_MTU] = SELECT_EXACTLY | IB_MTU_4096;
	r[PATH_RATE] = SELECT_EXACTLY | rate_code();
	r[PATH_LIFE] = SELECT_EXACTLY | LIFETIME;
	return 0;
}

/* fib_lock is held */
void fib_sa_request(struct fib_pkt *p)
{
	struct ib_sa_mad *m = (struct ib_sa_mad *)p->data;
	struct fib_qp *qp = p->src->gsi[0];	/* of InfiniBand */
	u16 status = 0;

	fib_count(p->src, NULL, 1, p->len, false);
	/* of a user's QP, which has no privileged QKey, nothing is taken */
	if (!qp || p->dqpn != 1 || p->qkey != IB_QP1_QKEY || p->len < sizeof(*m) ||
	    m->mad_hdr.mgmt_class != IB_MGMT_CLASS_SUBN_ADM || (m->mad_hdr.method & IB_MGMT_METHOD_RESP))
		return;
	m->mad_hdr.method = m->mad_hdr.method == IB_SA_METHOD_DELETE ? IB_SA_METHOD_DELETE_RESP :
								       IB_MGMT_METHOD_GET_RESP;
	switch (be16_to_cpu(m->mad_hdr.attr_id)) {
	case IB_SA_ATTR_CLASS_PORTINFO:
		class_port_info(m->data);
		break;
	case IB_SA_ATTR_MC_MEMBER_REC:
		mc_member(m, m->data);
		break;
	case IB_SA_ATTR_PATH_REC:
		status = path(p, m, m->data);
		break;
	default:
		status = UNSUPPORTED;
	}
	m->mad_hdr.status = cpu_to_be16(status);
	p->sqpn = 1;
	p->grh = false;
	fib_count(NULL, p->src, 1, p->len, false);
	fib_deliver(qp, p, SM_LID);
}
