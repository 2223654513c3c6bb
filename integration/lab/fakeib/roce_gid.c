// SPDX-License-Identifier: GPL-2.0
/*
 * RoCE ports with a data path (roce_verbs=1).
 *
 * Addresses are what they are on a card: ib_core makes the GID table from the IP addresses of the netdev, asks the network
 * for the destination's MAC, by ARP or neighbour discovery over the netdev itself, and hands both down.  A message arrives
 * at the port that has the GID, of the same RoCE version, under that MAC, in the same VLAN, if both netdevs are up and have
 * a carrier.  What then travels is a copy, as between the InfiniBand ports, and no packet of the netdev.
 *
 * librxe binds to the driver id of rdma_rxe, and rdma_rxe takes every device of that id for its own as soon as something
 * happens to the netdev under it.  So the two exclude each other.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <net/checksum.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_pack.h>

#include "fakeib.h"

bool fib_roce_verbs;
module_param_named(roce_verbs, fib_roce_verbs, bool, 0444);
MODULE_PARM_DESC(roce_verbs, "RoCE ports have a data path, and the state of their netdev; excludes the module rdma_rxe");

/* GID tables and netdev states of all ports. Nothing else is locked under it. */
static DEFINE_SPINLOCK(roce_lock);

/* ---- the GID table ---- */
static int roce_add_gid(const struct ib_gid_attr *attr, void **context)
{
	struct roce_port *p = &to_dev(attr->device)->roce[attr->port_num - 1];
	struct roce_gid g = { .used = true, .gid = attr->gid, .type = attr->gid_type, .vlan = 0xffff };
	int r;

	if (attr->index >= ROCE_GIDS)
		return -EINVAL;
	r = rdma_read_gid_l2_fields(attr, &g.vlan, g.mac);
	if (r)
		return r;
	g.ndev = rcu_access_pointer(attr->ndev);
	spin_lock(&roce_lock);
	p->gids[attr->index] = g;
	spin_unlock(&roce_lock);
	return 0;
}

static int roce_del_gid(const struct ib_gid_attr *attr, void **context)
{
	struct roce_port *p = &to_dev(attr->device)->roce[attr->port_num - 1];

	spin_lock(&roce_lock);
	p->gids[attr->index].used = false;
	spin_unlock(&roce_lock);
	return 0;
}

/* ib_core makes the default GIDs anew when the MAC changes, and leaves those of IP addresses as they are */
void roce_mac_changed(struct fib_dev *d, const struct net_device *n)
{
	struct roce_port *p;
	int i;

	spin_lock(&roce_lock);
	for (p = d->roce; p < d->roce + FIB_PORTS; p++)
		for (i = 0; i < ROCE_GIDS; i++)
			if (p->gids[i].used && p->gids[i].ndev == n)
				ether_addr_copy(p->gids[i].mac, n->dev_addr);
	spin_unlock(&roce_lock);
}

/* ---- the port is what its netdev is ---- */

/* rtnl is held; n is the port's netdev, wherever it is */
void roce_netdev_changed(struct fib_dev *d, u32 port, struct net_device *n)
{
	struct roce_port *p = &d->roce[port - 1];
	bool up = p->ndev && netif_running(n) && netif_carrier_ok(n), was = READ_ONCE(p->up);
	struct ib_event ev = { .device = &d->ib, .element.port_num = port };

	WRITE_ONCE(p->mtu, n->mtu);
	WRITE_ONCE(p->up, up);
	if (!fib_roce_verbs || up == was || !d->ready)
		return;
	ev.event = up ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR;
	ib_dispatch_event(&ev);
}

enum ib_port_state roce_state(const struct fib_dev *d, u32 port)
{
	const struct roce_port *p = &d->roce[port - 1];

	return p->ndev && (!fib_roce_verbs || READ_ONCE(p->up)) ? IB_PORT_ACTIVE : IB_PORT_DOWN;
}

void roce_query_port(const struct fib_dev *d, u32 port, struct ib_port_attr *a)
{
	if (!fib_roce_verbs)
		return;
	a->gid_tbl_len = ROCE_GIDS;
	a->pkey_tbl_len = 1;
	a->ip_gids = true;
	a->port_cap_flags = IB_PORT_CM_SUP;
	/* as the netdev's MTU allows: 1024 of 1500 */
	a->active_mtu = iboe_get_mtu(READ_ONCE(d->roce[port - 1].mtu)) ?: IB_MTU_256;
}

/* ---- addresses ---- */

/* false: no address of a RoCE port */
bool roce_dst(struct roce_dst *dst, const struct rdma_ah_attr *a)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(a);

	if (a->type != RDMA_AH_ATTR_TYPE_ROCE || !(rdma_ah_get_ah_flags(a) & IB_AH_GRH) || !grh->sgid_attr)
		return false;
	*dst = (struct roce_dst){ .sgid = grh->sgid_attr->gid, .dgid = grh->dgid, .type = grh->sgid_attr->gid_type,
		.port = grh->sgid_attr->port_num, .index = grh->sgid_attr->index, .tclass = grh->traffic_class, .hops = grh->hop_limit,
		.flow = grh->flow_label };
	ether_addr_copy(dst->dmac, a->roce.dmac);
	return true;
}

bool roce_is_multicast(const struct roce_dst *dst)
{
	return rdma_is_multicast_addr((struct in6_addr *)&dst->dgid);
}

/* the entry that a GID leads to; NULL: none. roce_lock is held */
static const struct roce_gid *roce_find(const struct roce_port *p, const union ib_gid *gid, enum ib_gid_type type,
					u16 vlan, const u8 *mac)
{
	const struct roce_gid *g;

	for (g = p->gids; g < p->gids + ROCE_GIDS; g++)
		if (g->used && g->type == type && g->vlan == vlan && !memcmp(&g->gid, gid, sizeof(*gid)) &&
		    ether_addr_equal(g->mac, mac))
			return g;
	return NULL;
}

/* the sender's own entry, if it is still the one that the address was made with. roce_lock is held */
static const struct roce_gid *roce_own(const struct fib_dev *from, const struct roce_dst *dst)
{
	const struct roce_gid *g = &from->roce[dst->port - 1].gids[dst->index];

	return g->used && g->type == dst->type && !memcmp(&g->gid, &dst->sgid, sizeof(g->gid)) ? g : NULL;
}

/*
 * The port of to at which arrives what from sends to dst; 0: none. Of multicast, any port takes part whose queue pairs
 * have joined.
 */
u32 roce_leads_to(const struct fib_dev *from, const struct roce_dst *dst, const struct fib_dev *to)
{
	const struct roce_gid *own;
	u32 port, at = 0;

	if (!to->is_roce || roce_state(from, dst->port) != IB_PORT_ACTIVE)
		return 0;
	spin_lock(&roce_lock);
	own = roce_own(from, dst);
	rdma_for_each_port(&to->ib, port)
		if (own && !at && roce_state(to, port) == IB_PORT_ACTIVE &&
		    (roce_is_multicast(dst) ||
		     roce_find(&to->roce[port - 1], &dst->dgid, dst->type, own->vlan, dst->dmac)))
			at = port;
	spin_unlock(&roce_lock);
	return at;
}

/* ---- what the receiver sees of the headers ---- */

/* RoCE v2 over IPv4 has its header in the second half of these 40 bytes, as ib_core and libibverbs look for it there */
void roce_header(void *hdr, const struct roce_dst *dst, u32 len)
{
	bool v2 = dst->type == IB_GID_TYPE_ROCE_UDP_ENCAP;
	/* after the network header: UDP, BTH, DETH, the message, ICRC */
	u32 payload = (v2 ? IB_UDP_BYTES : 0) + IB_BTH_BYTES + IB_DETH_BYTES + ALIGN(len, 4) + IB_ICRC_BYTES;
	struct ib_grh *grh = hdr;

	memset(hdr, 0, sizeof(*grh));
	if (v2 && ipv6_addr_v4mapped((const struct in6_addr *)&dst->sgid)) {
		struct iphdr *ip = hdr + sizeof(*grh) - sizeof(*ip);

		ip->version = 4;
		ip->ihl = sizeof(*ip) / 4;
		ip->tos = dst->tclass;
		ip->tot_len = cpu_to_be16(sizeof(*ip) + payload);
		ip->frag_off = cpu_to_be16(IP_DF);
		ip->ttl = dst->hops;
		ip->protocol = IPPROTO_UDP;
		memcpy(&ip->saddr, dst->sgid.raw + 12, 4);
		memcpy(&ip->daddr, dst->dgid.raw + 12, 4);
		ip->check = ip_fast_csum(ip, ip->ihl);
		return;
	}
	grh->version_tclass_flow = cpu_to_be32(6 << 28 | dst->tclass << 20 | (dst->flow & 0xfffff));
	grh->paylen = cpu_to_be16(payload);
	grh->next_hdr = v2 ? IPPROTO_UDP : 0x1b;	/* IBA: a BTH follows */
	grh->hop_limit = dst->hops;
	grh->sgid = dst->sgid;
	grh->dgid = dst->dgid;
}

/* the completion of a received datagram: there is always a header, and the kernel wants to know which */
void roce_received(struct ib_wc *wc, const struct fib_dev *from, const struct roce_dst *dst)
{
	const struct roce_gid *own;

	wc->slid = 0;
	wc->wc_flags |= IB_WC_GRH | IB_WC_WITH_NETWORK_HDR_TYPE;
	wc->network_hdr_type = dst->type == IB_GID_TYPE_ROCE ? RDMA_NETWORK_ROCE_V1 :
			       ipv6_addr_v4mapped((const struct in6_addr *)&dst->sgid) ? RDMA_NETWORK_IPV4 :
											 RDMA_NETWORK_IPV6;
	spin_lock(&roce_lock);
	own = roce_own(from, dst);
	if (own && own->vlan != 0xffff) {
		wc->vlan_id = own->vlan;
		wc->wc_flags |= IB_WC_WITH_VLAN;
	}
	spin_unlock(&roce_lock);
}

/* ---- the driver id ---- */
static const struct ib_device_ops roce_ops = { .add_gid = roce_add_gid, .del_gid = roce_del_gid };
static const struct ib_device_ops roce_verbs_ops = { .driver_id = RDMA_DRIVER_RXE };

void roce_set_ops(struct ib_device *ib)
{
	ib_set_device_ops(ib, &roce_ops);
	if (fib_roce_verbs)
		ib_set_device_ops(ib, &roce_verbs_ops);
}

static int roce_module_event(struct notifier_block *nb, unsigned long ev, void *data)
{
	const struct module *m = data;

	if (ev != MODULE_STATE_COMING || strcmp(m->name, "rdma_rxe"))
		return NOTIFY_OK;
	pr_err("fakeib: rdma_rxe can't be loaded beside roce_verbs=1: it would take these devices for its own\n");
	return notifier_from_errno(-EBUSY);
}
static struct notifier_block roce_module_nb = { .notifier_call = roce_module_event };

int roce_guard_init(void)
{
	struct kobject *rxe;
	int r;

	if (!fib_roce_verbs)
		return 0;
	r = register_module_notifier(&roce_module_nb);
	if (r)
		return r;
	rxe = kset_find_obj(THIS_MODULE->mkobj.kobj.kset, "rdma_rxe");
	if (!rxe)
		return 0;
	kobject_put(rxe);
	unregister_module_notifier(&roce_module_nb);
	pr_err("fakeib: roce_verbs=1 can't be had beside rdma_rxe, which would take these devices for its own\n");
	return -EBUSY;
}

void roce_guard_exit(void)
{
	if (fib_roce_verbs)
		unregister_module_notifier(&roce_module_nb);
}
