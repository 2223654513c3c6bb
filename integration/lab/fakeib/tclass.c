// SPDX-License-Identifier: GPL-2.0
/*
 * Traffic classes of RoCE: what packets of connected QPs had, and the file tc/1/traffic_class of the HCAs, as NVIDIA's
 * driver package has it. There the driver keeps the value, whatever network namespace the HCA is in. No packet is
 * changed.
 */
#include "fakeib.h"

/* packets of each traffic class. fib_lock is held by who counts */
static u32 seen[256];

void fib_tclass_seen(const struct rdma_ah_attr *to, u32 packets)
{
	if (to->type == RDMA_AH_ATTR_TYPE_ROCE)
		seen[rdma_ah_read_grh(to)->traffic_class] += packets;
}

static int tclasses_get(char *buf, const struct kernel_param *p)
{
	int i, n = 0;

	for (i = 0; i < ARRAY_SIZE(seen); i++)
		if (seen[i] && n < PAGE_SIZE - 32)
			n += sysfs_emit_at(buf, n, "%d:%u ", i, seen[i]);
	return n;
}

static int tclasses_set(const char *v, const struct kernel_param *p)
{
	memset(seen, 0, sizeof(seen));
	return 0;
}

static const struct kernel_param_ops tclasses_ops = { .get = tclasses_get, .set = tclasses_set };
module_param_cb(tclasses, &tclasses_ops, NULL, 0644);
MODULE_PARM_DESC(tclasses, "packets of connected QPs of RoCE ports by traffic class, CLASS:PACKETS; what is written makes all 0");

static bool roce_tc;
module_param(roce_tc, bool, 0444);
MODULE_PARM_DESC(roce_tc, "RoCE HCAs have a file tc/1/traffic_class, as with NVIDIA's driver package");

struct fib_tc {
	struct kobject *tc, *port;
	struct kobj_attribute attr;
	int value;
};

static ssize_t traffic_class_show(struct kobject *k, struct kobj_attribute *a, char *buf)
{
	struct fib_tc *t = container_of(a, struct fib_tc, attr);

	return t->value < 0 ? 0 : sysfs_emit(buf, "Global tclass=%d\n", t->value);
}

static ssize_t traffic_class_store(struct kobject *k, struct kobj_attribute *a, const char *buf, size_t count)
{
	struct fib_tc *t = container_of(a, struct fib_tc, attr);
	int value, r = kstrtoint(buf, 0, &value);

	if (r || value > 0xff)
		return -EINVAL;
	t->value = value;
	return count;
}

void fib_tc_add(struct fib_dev *d)
{
	struct fib_tc *t;

	if (!roce_tc)
		return;
	t = kzalloc(sizeof(*t), GFP_KERNEL);
	if (!t)
		return;
	sysfs_attr_init(&t->attr.attr);
	t->attr = (struct kobj_attribute)__ATTR(traffic_class, 0644, traffic_class_show, traffic_class_store);
	t->value = -1;
	t->tc = kobject_create_and_add("tc", &d->ib.dev.kobj);
	t->port = t->tc ? kobject_create_and_add("1", t->tc) : NULL;
	if (t->port && sysfs_create_file(t->port, &t->attr.attr))
		pr_err("fakeib: no traffic_class\n");
	d->tc = t;
}

/* before the HCA goes, whose directory they are in */
void fib_tc_del(struct fib_dev *d)
{
	if (!d->tc)
		return;
	kobject_put(d->tc->port);
	kobject_put(d->tc->tc);
	kfree(d->tc);
	d->tc = NULL;
}
