// SPDX-License-Identifier: GPL-2.0
/*
 * Counters of a port: counters/ in sysfs asks the performance management agent, which also answers other ports
 * (perfquery); hw_counters/ has the names of mlx5. Nothing is lost or reordered here, so many are always 0.
 */
#include <rdma/ib_pma.h>

#include "fakeib.h"

/*
 * What goes from one port to another. NULL: to none, or to several, each of which is counted apart. From a port to
 * itself nothing goes over the wire. fib_lock is held.
 */
void fib_count(struct fib_dev *from, struct fib_dev *to, u32 packets, u64 bytes, bool multicast)
{
	u64 words = DIV_ROUND_UP(bytes, 4);

	if (from == to)
		return;
	if (from) {
		from->traffic.xmit_words += words;
		from->traffic.xmit_packets += packets;
		from->traffic.mc_xmit_packets += multicast ? packets : 0;
	}
	if (to) {
		to->traffic.rcv_words += words;
		to->traffic.rcv_packets += packets;
		to->traffic.mc_rcv_packets += multicast ? packets : 0;
	}
}

static const struct rdma_stat_desc descs[HW_COUNTERS] = {
	[HW_RX_WRITE]		= { .name = "rx_write_requests" },
	[HW_RX_READ]		= { .name = "rx_read_requests" },
	[HW_RX_ATOMIC]		= { .name = "rx_atomic_requests" },
	[HW_OUT_OF_BUFFER]	= { .name = "out_of_buffer" },
	[HW_RNR_NAK_RETRY]	= { .name = "rnr_nak_retry_err" },
	[HW_ACK_TIMEOUT]	= { .name = "local_ack_timeout_err" },
	[HW_PACKET_SEQ]		= { .name = "packet_seq_err" },
	[HW_OUT_OF_SEQ]		= { .name = "out_of_sequence" },
	[HW_DUPLICATE]		= { .name = "duplicate_request" },
	[HW_IMPLIED_NAK]	= { .name = "implied_nak_seq_err" },
	[HW_RESP_LENGTH]	= { .name = "resp_local_length_error" },
	[HW_RESP_CQE]		= { .name = "resp_cqe_error" },
	[HW_REQ_CQE]		= { .name = "req_cqe_error" },
	[HW_REQ_INVALID]	= { .name = "req_remote_invalid_request" },
	[HW_REQ_ACCESS]		= { .name = "req_remote_access_errors" },
	[HW_RESP_ACCESS]	= { .name = "resp_remote_access_errors" },
	[HW_RESP_FLUSH]		= { .name = "resp_cqe_flush_error" },
	[HW_REQ_FLUSH]		= { .name = "req_cqe_flush_error" },
};

struct rdma_hw_stats *fib_alloc_stats(struct ib_device *d, u32 port)
{
	return rdma_alloc_hw_stats_struct(descs, HW_COUNTERS, 0);	/* no need to keep what costs nothing to read */
}

int fib_get_stats(struct ib_device *d, struct rdma_hw_stats *s, u32 port, int index)
{
	int i;

	if (!port)
		return -EINVAL;
	for (i = 0; i < HW_COUNTERS; i++)
		s->value[i] = READ_ONCE(to_dev(d)->hw[i]);
	return HW_COUNTERS;
}

static void class_port_info(struct ib_mad *out)
{
	struct ib_class_port_info *i = (void *)((struct ib_pma_mad *)out)->data;

	i->base_version = IB_MGMT_BASE_VERSION;
	i->class_version = 1;
	i->capability_mask = IB_PMA_CLASS_CAP_EXT_WIDTH;
	ib_set_cpi_resp_time(i, 18);
}

static void port_counters_ext(const struct fib_traffic *t, struct ib_mad *out)
{
	struct ib_pma_portcounters_ext *c = (void *)((struct ib_pma_mad *)out)->data;

	c->port_select = 1;
	c->port_xmit_data = cpu_to_be64(t->xmit_words);
	c->port_rcv_data = cpu_to_be64(t->rcv_words);
	c->port_xmit_packets = cpu_to_be64(t->xmit_packets);
	c->port_rcv_packets = cpu_to_be64(t->rcv_packets);
	c->port_unicast_xmit_packets = cpu_to_be64(t->xmit_packets - t->mc_xmit_packets);
	c->port_unicast_rcv_packets = cpu_to_be64(t->rcv_packets - t->mc_rcv_packets);
	c->port_multicast_xmit_packets = cpu_to_be64(t->mc_xmit_packets);
	c->port_multicast_rcv_packets = cpu_to_be64(t->mc_rcv_packets);
}

/* Those of 32 bits and less stay at their maximum, as the specification has it. */
static void port_counters(const struct fib_traffic *t, struct ib_mad *out)
{
	struct ib_pma_portcounters *c = (void *)((struct ib_pma_mad *)out)->data;

	c->port_select = 1;
	c->link_downed_counter = min_t(u64, t->link_downed, U8_MAX);
	c->port_xmit_discards = cpu_to_be16(min_t(u64, t->xmit_discards, U16_MAX));
	c->port_rcv_constraint_errors = min_t(u64, t->rcv_constraint, U8_MAX);
	c->port_xmit_data = cpu_to_be32(min_t(u64, t->xmit_words, U32_MAX));
	c->port_rcv_data = cpu_to_be32(min_t(u64, t->rcv_words, U32_MAX));
	c->port_xmit_packets = cpu_to_be32(min_t(u64, t->xmit_packets, U32_MAX));
	c->port_rcv_packets = cpu_to_be32(min_t(u64, t->rcv_packets, U32_MAX));
}

/* Performance management only; whatever else comes goes to the agents, as without this function. */
int fib_process_mad(struct ib_device *d, int flags, u32 port, const struct ib_wc *wc, const struct ib_grh *grh,
		    const struct ib_mad *in, struct ib_mad *out, size_t *size, u16 *pkey_index)
{
	struct fib_dev *dev = to_dev(d);
	struct fib_traffic t;

	if (in->mad_hdr.mgmt_class != IB_MGMT_CLASS_PERF_MGMT ||
	    (in->mad_hdr.method != IB_MGMT_METHOD_GET && in->mad_hdr.method != IB_MGMT_METHOD_SET))
		return IB_MAD_RESULT_SUCCESS;
	memset(out, 0, sizeof(*out));
	out->mad_hdr = in->mad_hdr;
	out->mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	/* a torn read of a 64-bit counter is not possible on this architecture */
	t = dev->traffic;
	if (in->mad_hdr.method == IB_MGMT_METHOD_SET)
		out->mad_hdr.status = cpu_to_be16(0x000c);	/* counters can't be set: a test takes differences */
	else if (in->mad_hdr.attr_id == IB_PMA_CLASS_PORT_INFO)
		class_port_info(out);
	else if (in->mad_hdr.attr_id == IB_PMA_PORT_COUNTERS)
		port_counters(&t, out);
	else if (in->mad_hdr.attr_id == IB_PMA_PORT_COUNTERS_EXT)
		port_counters_ext(&t, out);
	else
		out->mad_hdr.status = cpu_to_be16(0x000c);	/* this attribute is not supported */
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}
