// SPDX-License-Identifier: GPL-2.0
/*
 * The subnet administrator of the fabric: what IPoIB and the connection manager ask.
 */
#include "fakeib.h"

static struct fib_qp *gsi_of(struct fib_dev *d)
{
	struct fib_qp *qp;

	list_for_each_entry(qp, &fib_qps, list)
		if (qp->ib.device == &d->ib && qp->ib.qp_type == IB_QPT_GSI)
			return qp;
	return NULL;
}

void fib_sa_request(struct fib_pkt *p)	/* answer in place and send it back */
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
		list_for_each_entry(d, &fib_devs, list)
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
	fib_deliver(qp, p, SM_LID);
}
