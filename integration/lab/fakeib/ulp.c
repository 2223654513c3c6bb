// SPDX-License-Identifier: GPL-2.0
/*
 * A user of an HCA within the kernel, as nvme_rdma is one: a queue pair under the name of that module. As with every
 * such user it goes when the HCA leaves its network namespace, and nothing brings it back.
 */
#include "fakeib.h"

static DEFINE_MUTEX(ulp_lock);
static char ulp_hca[IB_DEVICE_NAME_MAX], ulp_module[32];
static struct ib_qp *ulp_qp;
static struct ib_cq *ulp_cq;
static struct ib_pd *ulp_pd;

static void ulp_drop(void)
{
	if (!ulp_qp)
		return;
	ib_destroy_qp(ulp_qp);
	ib_free_cq(ulp_cq);
	ib_dealloc_pd(ulp_pd);
	ulp_qp = NULL;
}

static int ulp_make(struct ib_device *dev)
{
	struct ib_qp_init_attr init = { .qp_type = IB_QPT_UD, .cap = { .max_send_wr = 1, .max_recv_wr = 1,
								       .max_send_sge = 1, .max_recv_sge = 1 } };
	int r;

	ulp_pd = __ib_alloc_pd(dev, 0, ulp_module);
	if (IS_ERR(ulp_pd))
		return PTR_ERR(ulp_pd);
	ulp_cq = ib_alloc_cq(dev, NULL, 2, 0, IB_POLL_DIRECT);
	if (IS_ERR(ulp_cq)) {
		r = PTR_ERR(ulp_cq);
		goto free_pd;
	}
	init.send_cq = init.recv_cq = ulp_cq;
	ulp_qp = ib_create_qp_kernel(ulp_pd, &init, ulp_module);
	if (!IS_ERR(ulp_qp))
		return 0;
	r = PTR_ERR(ulp_qp);
	ulp_qp = NULL;
	ib_free_cq(ulp_cq);
free_pd:
	ib_dealloc_pd(ulp_pd);
	return r;
}

/* Held until ib_device_put(). The core's own search, ib_device_get_by_name(), is gone in 7.3. */
static struct ib_device *ulp_find(void)
{
	struct ib_device *found = NULL;
	struct fib_dev *d;

	mutex_lock(&fib_lock);
	list_for_each_entry(d, &fib_devs, list)
		if (!strcmp(dev_name(&d->ib.dev), ulp_hca) && ib_device_try_get(&d->ib)) {
			found = &d->ib;
			break;
		}
	mutex_unlock(&fib_lock);
	return found;
}

static int ulp_set(const char *val, const struct kernel_param *kp)
{
	struct ib_device *dev;
	int r = 0;

	mutex_lock(&ulp_lock);
	ulp_drop();
	if (sscanf(val, "%63s %31s", ulp_hca, ulp_module) == 2) {
		dev = ulp_find();
		r = dev ? ulp_make(dev) : -ENODEV;
		if (dev)
			ib_device_put(dev);
	}
	mutex_unlock(&ulp_lock);
	return r;
}

static int ulp_get(char *buf, const struct kernel_param *kp)
{
	int n = 0;

	mutex_lock(&ulp_lock);
	if (ulp_qp)
		n = scnprintf(buf, PAGE_SIZE, "%s %s\n", ulp_hca, ulp_module);
	mutex_unlock(&ulp_lock);
	return n;
}

static const struct kernel_param_ops ulp_ops = { .set = ulp_set, .get = ulp_get };
module_param_cb(ulp, &ulp_ops, NULL, 0644);
MODULE_PARM_DESC(ulp, "HCA MODULE: a queue pair of the kernel on this HCA, in the name of this module; empty: none");

static int ulp_added(struct ib_device *dev)
{
	return 0;
}

static void ulp_removed(struct ib_device *dev, void *data)
{
	mutex_lock(&ulp_lock);
	if (ulp_qp && ulp_qp->device == dev)
		ulp_drop();
	mutex_unlock(&ulp_lock);
}

static struct ib_client ulp_client = { .name = "fakeib_ulp", .add = ulp_added, .remove = ulp_removed };

int fib_ulp_init(void)
{
	return ib_register_client(&ulp_client);
}

void fib_ulp_exit(void)
{
	ib_unregister_client(&ulp_client);
}
