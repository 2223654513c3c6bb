// SPDX-License-Identifier: GPL-2.0
/*
 * fakeib: software InfiniBand HCAs for testing RDMA and IPoIB in network namespaces without hardware.
 *
 * Every port has the InfiniBand link layer (or is a RoCE port on a netdev) and is plugged into one fabric with a
 * subnet administrator, so the kernel's own ib_ipoib gets a carrier and datagrams. User space finds the queues of rxe:
 * rdma-core's provider for it drives these HCAs unmodified.
 *
 * Part of the fabric-cni test lab; licensed apart from the product, see LICENSE beside this file.
 */
#include "fakeib.h"

static int num = 2;
module_param(num, int, 0444);
MODULE_PARM_DESC(num, "HCAs to create on platform devices");
static bool pci;
module_param(pci, bool, 0444);
MODULE_PARM_DESC(pci, "also drive QEMU nvme / igb PCI functions as HCAs, with SR-IOV VFs");

/*
 * state=4,1,2: IB port state (1 Down, 2 Init, 3 Armed, 4 Active) of each platform HCA; the ones not mentioned are
 * Active.  Writable at run time: the difference is dispatched as PORT_ACTIVE or PORT_ERR, as mlx5 does.
 */
static DEFINE_MUTEX(states_lock);	/* fib_states against the set of platform HCAs */
static int states_set(const char *val, const struct kernel_param *kp);
static int states_get(char *buf, const struct kernel_param *kp);
static const struct kernel_param_ops states_ops = { .set = states_set, .get = states_get };
module_param_cb(state, &states_ops, NULL, 0644);
MODULE_PARM_DESC(state, "port fib_states of the platform HCAs: 1 Down, 2 Init, 3 Armed, 4 Active (default)");

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
		u8 was = fib_states[i] ?: IB_PORT_ACTIVE, now = want[i] ?: IB_PORT_ACTIVE;

		fib_states[i] = want[i];
		if (!plat[i] || was == now)
			continue;
		ev.device = &plat[i]->ib;
		if (was != IB_PORT_DOWN && now == IB_PORT_DOWN)
			plat[i]->traffic.link_downed++;
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
		n += scnprintf(buf + n, PAGE_SIZE - n, "%s%u", i ? "," : "", fib_states[i] ?: IB_PORT_ACTIVE);
	return n + scnprintf(buf + n, PAGE_SIZE - n, "\n");
}

static void fib_plat_exit(void)
{
	int i;

	fib_roce_exit();
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

static int __init fib_init(void)
{
	int i, r = 0;

	r = fib_ulp_init();
	if (r)
		return r;
	r = fib_run_init();
	if (r) {
		fib_ulp_exit();
		return r;
	}
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
		fib_run_exit();
		fib_ulp_exit();
	}
	return r;
}

static void __exit fib_exit(void)
{
	if (pci)
		pci_unregister_driver(&fib_pci);
	fib_sf_exit();
	fib_plat_exit();
	fib_run_exit();
	fib_ulp_exit();
}

module_init(fib_init);
module_exit(fib_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Fake InfiniBand HCAs on a software fabric");
