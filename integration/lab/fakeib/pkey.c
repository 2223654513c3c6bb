// SPDX-License-Identifier: GPL-2.0
/*
 * PKey tables: one for all HCAs, and what single ones lack.
 */
#include "fakeib.h"

#define MAX_LACKS 64

static ushort pkeys[16] = { 0xffff, 0x8001, 0x8002, 0x8003, 0x9001 };
int fib_npkeys = 5;
module_param_array(pkeys, ushort, &fib_npkeys, 0444);
MODULE_PARM_DESC(pkeys, "PKey table of every HCA");

static struct lack { int idx; u16 pkey; } lacks[MAX_LACKS];
static int nlacks;
static DEFINE_MUTEX(lacks_lock);

static bool lacking(int idx, u16 pkey)
{
	int i, n = READ_ONCE(nlacks);

	for (i = 0; i < n; i++)
		if (READ_ONCE(lacks[i].idx) == idx && READ_ONCE(lacks[i].pkey) == pkey)
			return true;
	return false;
}

/* 0 is no PKey: an entry that is empty or not there. */
u16 fib_pkey(const struct fib_dev *d, u16 i)
{
	if (d->is_roce && fib_roce_verbs)
		return i ? 0 : 0xffff;	/* all that RoCE has */
	return i < fib_npkeys && !lacking(d->idx, pkeys[i]) ? pkeys[i] : 0;
}

/* Two ports talk if they have the same PKey, of which one at least is a full member's. */
bool fib_pkeys_match(u16 a, u16 b)
{
	return (a & 0x7fff) && !((a ^ b) & 0x7fff) && ((a | b) & 0x8000);
}

/* The entry of a port that a packet with this PKey matches, or -ENOENT. */
int fib_pkey_index(const struct fib_dev *d, u16 pkey)
{
	int i;

	for (i = 0; i < fib_npkeys; i++)
		if (fib_pkeys_match(fib_pkey(d, i), pkey))
			return i;
	return -ENOENT;
}

static int nopkeys_set(const char *val, const struct kernel_param *kp)
{
	struct lack want[MAX_LACKS];
	char *copy = kstrdup(val, GFP_KERNEL), *rest = copy, *tok;
	struct fib_dev *d;
	int n = 0, r = copy ? 0 : -ENOMEM;

	while (!r && rest && (tok = strsep(&rest, ",")) != NULL) {
		unsigned int idx, pkey;

		if (!*strim(tok))
			continue;
		if (n == MAX_LACKS)
			r = -E2BIG;
		else if (sscanf(tok, "%u:%i", &idx, &pkey) != 2 || idx >= MAXHCA || pkey > 0xffff)
			r = -EINVAL;
		else
			want[n++] = (struct lack){ .idx = idx, .pkey = pkey };
	}
	kfree(copy);
	if (r)
		return r;
	mutex_lock(&lacks_lock);
	WRITE_ONCE(nlacks, 0);
	memcpy(lacks, want, n * sizeof(*lacks));
	WRITE_ONCE(nlacks, n);
	mutex_unlock(&lacks_lock);
	mutex_lock(&fib_lock);
	list_for_each_entry(d, &fib_devs, list) {
		struct ib_event ev = { .device = &d->ib, .element.port_num = 1, .event = IB_EVENT_PKEY_CHANGE };

		if (d->ready)
			ib_dispatch_event(&ev);
	}
	mutex_unlock(&fib_lock);
	return 0;
}

static int nopkeys_get(char *buf, const struct kernel_param *kp)
{
	int i, n = 0;

	mutex_lock(&lacks_lock);
	for (i = 0; i < nlacks; i++)
		n += scnprintf(buf + n, PAGE_SIZE - n, "%s%d:0x%04x", i ? "," : "", lacks[i].idx, lacks[i].pkey);
	mutex_unlock(&lacks_lock);
	return n + scnprintf(buf + n, PAGE_SIZE - n, "\n");
}

static const struct kernel_param_ops nopkeys_ops = { .set = nopkeys_set, .get = nopkeys_get };
module_param_cb(nopkeys, &nopkeys_ops, NULL, 0644);
MODULE_PARM_DESC(nopkeys, "what HCAs lack of pkeys, INDEX:PKEY,...; INDEX is the place in the order of creation");
