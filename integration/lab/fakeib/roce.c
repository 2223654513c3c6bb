// SPDX-License-Identifier: GPL-2.0
/*
 * RoCE HCAs on netdevs.
 */
#include "fakeib.h"

static char *roce[16];
static int nroce;
module_param_array(roce, charp, &nroce, 0444);
MODULE_PARM_DESC(roce, "init_net netdevs to put a RoCE HCA on, NETDEV[+NETDEV...][@OWNER], those after the first one for ports 2 to 4: its parent is the PCI function of OWNER (a bond has none), else of the first NETDEV");
static bool roce_leaves;
module_param(roce_leaves, bool, 0444);
MODULE_PARM_DESC(roce_leaves, "make a RoCE HCA anew, in init_net, when the netdev of its port 1 moves");
static bool notified;

/* One for each HCA of the parameter; rtnl. */
static struct roce_hca {
	struct fib_dev *dev;
	struct net_device *ndev[FIB_PORTS];
	struct device *on[FIB_PORTS];	/* the function of the netdev; a bond has none */
} hcas[ARRAY_SIZE(roce)];

/* the PCI function under a netdev: virtio has a device of its own in between, where a real NIC has none */
static struct device *fib_function(struct net_device *n)
{
	struct device *d;

	for (d = n->dev.parent; d; d = d->parent)
		if (dev_is_pci(d))
			return d;
	return n->dev.parent;
}

/* HCAs whose netdev has moved, and which are to be made anew */
static DECLARE_BITMAP(roce_moved, ARRAY_SIZE(roce));

static void roce_anew(struct work_struct *w)
{
	int i;

	for (i = 0; i < nroce; i++) {
		struct net_device *ndev[FIB_PORTS];
		struct fib_dev *d;
		int p;

		if (!test_and_clear_bit(i, roce_moved))
			continue;
		rtnl_lock();
		d = hcas[i].dev;
		hcas[i].dev = NULL;
		for (p = 0; p < FIB_PORTS; p++) {
			ndev[p] = hcas[i].ndev[p];
			if (ndev[p])
				dev_hold(ndev[p]);
		}
		rtnl_unlock();
		if (d) {
			fib_tc_del(d);
			fib_del(d);
		}
		if (ndev[0]) {
			d = fib_add(fib_function(ndev[0]), NULL, 0, 0, ndev);
			rtnl_lock();
			hcas[i].dev = IS_ERR(d) ? NULL : d;
			rtnl_unlock();
			if (!IS_ERR(d))
				fib_tc_add(d);
		}
		for (p = 0; p < FIB_PORTS; p++)
			if (ndev[p])
				dev_put(ndev[p]);
	}
}
static DECLARE_WORK(roce_work, roce_anew);

/* like mlx5: drop the netdev on UNREGISTER (also sent when it leaves a netns), take it back on REGISTER */
static void roce_event(struct roce_hca *h, u32 port, unsigned long ev, struct net_device *n)
{
	struct net_device **own = &h->ndev[port - 1];
	struct device *on = h->on[port - 1];

	if (ev == NETDEV_REGISTER && n->type == ARPHRD_ETHER && on && fib_function(n) == on)
		*own = n;	/* another one, if the driver was bound again */
	if (n != *own)
		return;
	if (ev == NETDEV_UNREGISTER || ev == NETDEV_REGISTER) {
		h->dev->roce[port - 1].ndev = ev == NETDEV_REGISTER ? n : NULL;
		ib_device_set_netdev(&h->dev->ib, h->dev->roce[port - 1].ndev, port);
	}
	roce_netdev_changed(h->dev, port, n);
	if (roce_leaves && port == 1 && ev == NETDEV_UNREGISTER && n->reg_state != NETREG_UNREGISTERING) {
		set_bit(h - hcas, roce_moved);
		schedule_work(&roce_work);
	}
	if (ev == NETDEV_UNREGISTER && on && n->reg_state == NETREG_UNREGISTERING)
		*own = NULL;	/* the next one may be anywhere */
}

static int fib_netdev_event(struct notifier_block *nb, unsigned long ev, void *ptr)
{
	struct net_device *n = netdev_notifier_info_to_dev(ptr);
	int i;
	u32 port;

	for (i = 0; i < nroce; i++) {
		if (!hcas[i].dev)
			continue;
		if (ev == NETDEV_CHANGEADDR)
			roce_mac_changed(hcas[i].dev, n);	/* n may be a VLAN on the port's netdev */
		rdma_for_each_port(&hcas[i].dev->ib, port)
			roce_event(&hcas[i], port, ev, n);
	}
	return NOTIFY_DONE;
}
static struct notifier_block fib_netdev_nb = { .notifier_call = fib_netdev_event };

/* the netdev of a name, which is not held: the lab keeps it; NULL: none */
static struct net_device *roce_named(const char *name)
{
	struct net_device *n = name ? dev_get_by_name(&init_net, name) : NULL;

	if (n)
		dev_put(n);
	return n;
}

static int roce_one(struct roce_hca *h, char *spec)
{
	char *owner = spec, *names = strsep(&owner, "@");
	struct net_device *o = roce_named(owner);
	struct fib_dev *d;
	int p;

	for (p = 0; p < FIB_PORTS && names; p++) {
		h->ndev[p] = roce_named(strsep(&names, "+"));
		if (!h->ndev[p])
			return -ENODEV;
		h->on[p] = fib_function(h->ndev[p]);
	}
	if (names || (owner && !o))
		return -ENODEV;
	d = fib_add(fib_function(o ?: h->ndev[0]), NULL, 0, 0, h->ndev);
	if (IS_ERR(d))
		return PTR_ERR(d);
	h->dev = d;
	fib_tc_add(d);
	return 0;
}

int fib_roce_init(void)
{
	int i, r = roce_guard_init();

	if (r)
		return r;
	r = register_netdevice_notifier(&fib_netdev_nb);
	if (r) {
		roce_guard_exit();
		return r;
	}
	notified = true;
	for (i = 0; i < nroce && !r; i++)
		r = roce_one(&hcas[i], roce[i]);
	return r;
}

void fib_roce_exit(void)
{
	int i;

	if (!notified)
		return;
	unregister_netdevice_notifier(&fib_netdev_nb);
	cancel_work_sync(&roce_work);
	roce_guard_exit();
	for (i = 0; i < nroce; i++)
		if (hcas[i].dev) {
			fib_tc_del(hcas[i].dev);
			fib_del(hcas[i].dev);
		}
}
