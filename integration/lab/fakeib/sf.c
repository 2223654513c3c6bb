// SPDX-License-Identifier: GPL-2.0
/*
 * Subfunctions: the bus is the kernel's, the parent is a platform device.
 */
#include "fakeib.h"

static int sf;
module_param(sf, int, 0444);
MODULE_PARM_DESC(sf, "HCAs to create on auxiliary devices fakeib.sf.N, as subfunctions have them");
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

void fib_sf_exit(void)
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

int __init fib_sf_init(void)
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
