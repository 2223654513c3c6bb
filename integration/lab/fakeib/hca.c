// SPDX-License-Identifier: GPL-2.0
/*
 * What the HCAs are: names, ports, GIDs, and how much of each kind they can have. All other files use this one.
 */
#include "fakeib.h"

LIST_HEAD(fib_devs);
LIST_HEAD(fib_qps);
DEFINE_XARRAY_ALLOC1(fib_qpns);
DEFINE_XARRAY_ALLOC1(fib_ahs);
DEFINE_MUTEX(fib_lock);

static char *name = "mlx5_%d";
module_param(name, charp, 0444);
static char *names[64];
static int nnames;
module_param_array(names, charp, &nnames, 0444);
MODULE_PARM_DESC(names, "names of the HCAs in the order of creation: platform, then roce; name= for the rest");

const char *fib_name(int idx)
{
	return idx < nnames ? names[idx] : name;
}

static int rate = 200;
module_param(rate, int, 0444);
MODULE_PARM_DESC(rate, "Gb/s that InfiniBand ports say they have, 4 lanes: 10, 20, 40, 56, 100, 200 (default), 400");

u8 fib_states[MAXHCA];

enum ib_port_state fib_state(const struct fib_dev *d, u32 port)
{
	if (d->is_roce)
		return roce_state(d, port);
	if (d->pf && d->pf->vf_link[d->vf] == IFLA_VF_LINK_STATE_DISABLE)
		return IB_PORT_DOWN;
	if (!d->guid)
		return IB_PORT_INIT;
	return d->plat && fib_states[d->plat->id] ? fib_states[d->plat->id] : IB_PORT_ACTIVE;
}

int fib_rate(void)
{
	return rate;
}

/* GID 0, which a port has for ever; others are the core's (RoCE) */
void fib_own_gid(const struct fib_dev *d, union ib_gid *gid)
{
	gid->global.subnet_prefix = cpu_to_be64(0xfe80000000000000ULL);
	gid->global.interface_id = d->guid;
}

/* One more of a kind, of what user space can have without bound otherwise. */
int fib_take(struct ib_device *d, enum fib_kind kind)
{
	return atomic_add_unless(&to_dev(d)->used[kind], 1, FIB_MAX_OBJ) ? 0 : -ENOMEM;
}

void fib_give(struct ib_device *d, enum fib_kind kind)
{
	atomic_dec(&to_dev(d)->used[kind]);
}

/* true: one of its ports is */
bool fib_up(const struct fib_dev *d)
{
	u32 port;

	rdma_for_each_port(&d->ib, port)
		if (fib_state(d, port) == IB_PORT_ACTIVE)
			return true;
	return false;
}

/* The port of to that an address leads to; 0: none. One that has a GRH names it twice, and both names count. */
u32 fib_reaches(const struct fib_dev *from, const struct rdma_ah_attr *av, const struct fib_dev *to)
{
	struct roce_dst dst;
	union ib_gid gid;

	if (from->is_roce)
		return roce_dst(&dst, av) ? roce_leads_to(from, &dst, to) : 0;
	if (to->is_roce || rdma_ah_get_dlid(av) != to->lid)
		return 0;
	if (!(rdma_ah_get_ah_flags(av) & IB_AH_GRH))
		return 1;
	fib_own_gid(to, &gid);
	return !memcmp(&gid, &rdma_ah_read_grh(av)->dgid, sizeof(gid));
}
