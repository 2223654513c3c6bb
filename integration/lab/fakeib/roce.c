// SPDX-License-Identifier: GPL-2.0
/*
 * RoCE HCAs on netdevs.
 */
#include "fakeib.h"

static char *roce[16];
static int nroce;
module_param_array(roce, charp, &nroce, 0444);
MODULE_PARM_DESC(roce, "init_net netdevs to put a RoCE HCA on, NETDEV[@OWNER]: its parent is the PCI function of OWNER (a bond has none), else of NETDEV");
static bool roce_leaves;
module_param(roce_leaves, bool, 0444);
MODULE_PARM_DESC(roce_leaves, "make a RoCE HCA anew, in init_net, when its netdev moves");
static bool notified;
static struct fib_dev *roce_dev[ARRAY_SIZE(roce)];
static struct net_device *roce_ndev[ARRAY_SIZE(roce)];
static struct device *roce_on[ARRAY_SIZE(roce)];	/* the function of the netdev; a bond has none */

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
		struct fib_dev *d;
		struct net_device *n;

		if (!test_and_clear_bit(i, roce_moved))
			continue;
		rtnl_lock();
		d = roce_dev[i];
		n = roce_ndev[i];
		roce_dev[i] = NULL;
		if (n)
			dev_hold(n);
		rtnl_unlock();
		if (d) {
			fib_tc_del(d);
			fib_del(d);
		}
		if (!n)
			continue;
		d = fib_add(fib_function(n), NULL, 0, 0, n);
		rtnl_lock();
		roce_dev[i] = IS_ERR(d) ? NULL : d;
		rtnl_unlock();
		dev_put(n);
		if (!IS_ERR(d))
			fib_tc_add(d);
	}
}
static DECLARE_WORK(roce_work, roce_anew);

/* like mlx5: drop the netdev on UNREGISTER (also sent when it leaves a netns), take it back on REGISTER */
static int fib_netdev_event(struct notifier_block *nb, unsigned long ev, void *ptr)
{
	struct net_device *n = netdev_notifier_info_to_dev(ptr);
	int i;

	for (i = 0; i < nroce; i++) {
		if (!roce_dev[i])
			continue;
		if (ev == NETDEV_CHANGEADDR)
			roce_mac_changed(roce_dev[i], n);	/* n may be a VLAN on the port's netdev */
		if (ev == NETDEV_REGISTER && n->type == ARPHRD_ETHER && roce_on[i] && fib_function(n) == roce_on[i])
			roce_ndev[i] = n;	/* another one, if the driver was bound again */
		if (n != roce_ndev[i])
			continue;
		if (ev == NETDEV_UNREGISTER || ev == NETDEV_REGISTER) {
			roce_dev[i]->ndev = ev == NETDEV_REGISTER ? n : NULL;
			ib_device_set_netdev(&roce_dev[i]->ib, roce_dev[i]->ndev, 1);
		}
		roce_netdev_changed(roce_dev[i], n);
		if (roce_leaves && ev == NETDEV_UNREGISTER && n->reg_state != NETREG_UNREGISTERING) {
			set_bit(i, roce_moved);
			schedule_work(&roce_work);
		}
		if (ev == NETDEV_UNREGISTER && roce_on[i] && n->reg_state == NETREG_UNREGISTERING)
			roce_ndev[i] = NULL;	/* the next one may be anywhere */
	}
	return NOTIFY_DONE;
}
static struct notifier_block fib_netdev_nb = { .notifier_call = fib_netdev_event };

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
		roce_on[i] = fib_function(n);
		roce_dev[i] = d;
		fib_tc_add(d);
	}
	return 0;
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
		if (roce_dev[i]) {
			fib_tc_del(roce_dev[i]);
			fib_del(roce_dev[i]);
		}
}
