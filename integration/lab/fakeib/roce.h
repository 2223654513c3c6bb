/* SPDX-License-Identifier: GPL-2.0 */
/* RoCE ports: roce.c puts them on netdevs, roce_gid.c leads messages between them. */
#ifndef FAKEIB_ROCE_H
#define FAKEIB_ROCE_H

#include <linux/etherdevice.h>
#include <rdma/ib_verbs.h>

struct fib_dev;

#define ROCE_GIDS	16
#define FIB_PORTS	4		/* that an HCA may have */

/* An entry of a port's GID table, as ib_core has put it there. */
struct roce_gid {
	bool used;
	union ib_gid gid;
	enum ib_gid_type type;
	const struct net_device *ndev;	/* whose address it is; compared only, never dereferenced */
	u8 mac[ETH_ALEN];
	u16 vlan;			/* 0xffff: none */
};

/* What a RoCE port has besides those of InfiniBand. */
struct roce_port {
	struct roce_gid gids[ROCE_GIDS];	/* roce_lock */
	struct net_device *ndev;	/* compared only, never dereferenced */
	int mtu;				/* of the netdev, bytes */
	bool up;				/* the netdev is up and has a carrier */
};

/* Where a message goes: what its address handle says. */
struct roce_dst {
	union ib_gid sgid, dgid;
	enum ib_gid_type type;
	u32 port;			/* of the sender */
	int index;			/* of sgid in its table */
	u8 dmac[ETH_ALEN];
	u8 tclass, hops;
	u32 flow;
};

extern bool fib_roce_verbs;

/* roce_gid.c */
int roce_guard_init(void);
void roce_guard_exit(void);
void roce_set_ops(struct ib_device *ib);
void roce_netdev_changed(struct fib_dev *d, u32 port, struct net_device *n);
void roce_mac_changed(struct fib_dev *d, const struct net_device *n);
enum ib_port_state roce_state(const struct fib_dev *d, u32 port);
void roce_query_port(const struct fib_dev *d, u32 port, struct ib_port_attr *a);
bool roce_dst(struct roce_dst *dst, const struct rdma_ah_attr *a);
bool roce_is_multicast(const struct roce_dst *dst);
u32 roce_leads_to(const struct fib_dev *from, const struct roce_dst *dst, const struct fib_dev *to);
void roce_header(void *hdr, const struct roce_dst *dst, u32 len);
void roce_received(struct ib_wc *wc, const struct fib_dev *from, const struct roce_dst *dst);

#endif
