// SPDX-License-Identifier: GPL-2.0
/*
 * An HCA as the RDMA core sees it: attributes, port, GIDs, PKeys, virtual functions.
 */
#include "fakeib.h"

static bool vf_guid = true;
module_param(vf_guid, bool, 0644);
MODULE_PARM_DESC(vf_guid, "VFs have a GUID before the PF gives them one; without, their port stays Init, as no SM configures it");
static bool verbs = true;
module_param(verbs, bool, 0444);
MODULE_PARM_DESC(verbs, "user space finds a provider for the InfiniBand HCAs; without, they have no data path");
static bool movable = true;
module_param(movable, bool, 0444);
MODULE_PARM_DESC(movable, "provide disassociate_ucontext, i.e. allow moves between net namespaces");
static ushort lid = 1;
module_param(lid, ushort, 0444);
MODULE_PARM_DESC(lid, "LID of the first HCA; GUIDs are made from it, too: guests that are to look like nodes of one fabric want their own");

static DEFINE_IDA(hca_ida);

static int fib_query_device(struct ib_device *d, struct ib_device_attr *a, struct ib_udata *u)
{
	memset(a, 0, sizeof(*a));
	a->sys_image_guid = to_dev(d)->guid;
	a->vendor_id = 0x02c9;
	a->vendor_part_id = 4123;
	a->max_mr_size = ~0ULL;
	a->page_size_cap = PAGE_SIZE;
	a->max_qp = a->max_cq = a->max_pd = a->max_ah = a->max_mr = a->max_srq = FIB_MAX_OBJ;
	a->max_qp_wr = a->max_srq_wr = FIB_MAX_WR;
	a->max_cqe = FIB_MAX_CQE;
	a->max_send_sge = a->max_recv_sge = a->max_sge_rd = a->max_srq_sge = FIB_SGE;
	a->device_cap_flags = IB_DEVICE_SRQ_RESIZE | IB_DEVICE_RC_RNR_NAK_GEN |
			      IB_DEVICE_PORT_ACTIVE_EVENT | IB_DEVICE_SYS_IMAGE_GUID;
	a->max_mcast_grp = a->max_mcast_qp_attach = a->max_total_mcast_qp_attach = 4096;
	a->atomic_cap = IB_ATOMIC_HCA;
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = FIB_MAX_RD;
	a->max_res_rd_atom = FIB_MAX_RD * FIB_MAX_OBJ;
	a->max_pkeys = fib_npkeys;
	a->local_ca_ack_delay = 15;
	a->kernel_cap_flags = IBK_LOCAL_DMA_LKEY;
	if (d->dev.parent && dev_is_pci(d->dev.parent) && to_pci_dev(d->dev.parent)->is_virtfn)
		a->kernel_cap_flags |= IBK_VIRTUAL_FUNCTION;
	return 0;
}

/*
 * A port that is down has no negotiated rate. mlx5 says 4X SDR of it, 10 Gb/s, and of a RoCE port 4X QDR, 40 Gb/s, with
 * which mlx5_query_port_roce begins.
 */
static void query_speed(struct ib_port_attr *a, bool roce)
{
	static const struct { int gbps; u16 speed; } speeds[] = {
		{ 10, IB_SPEED_SDR }, { 20, IB_SPEED_DDR }, { 40, IB_SPEED_QDR }, { 56, IB_SPEED_FDR },
		{ 100, IB_SPEED_EDR }, { 200, IB_SPEED_HDR }, { 400, IB_SPEED_NDR } };
	int i;

	a->active_width = IB_WIDTH_4X;
	a->active_speed = roce ? IB_SPEED_QDR : IB_SPEED_SDR;
	if (a->state == IB_PORT_DOWN)
		return;
	for (i = 0; i < ARRAY_SIZE(speeds) && speeds[i].gbps <= fib_rate(); i++)
		a->active_speed = speeds[i].speed;
}

static int fib_query_port(struct ib_device *d, u32 port, struct ib_port_attr *a)
{
	a->state = fib_state(to_dev(d), port);
	a->phys_state = a->state != IB_PORT_DOWN ? IB_PORT_PHYS_STATE_LINK_UP :
			to_dev(d)->is_roce ? IB_PORT_PHYS_STATE_DISABLED : IB_PORT_PHYS_STATE_POLLING;
	a->max_mtu = a->active_mtu = IB_MTU_4096;
	a->gid_tbl_len = 8;
	a->pkey_tbl_len = fib_npkeys;
	a->max_msg_sz = FIB_MAX_MSG;
	a->max_vl_num = 1;
	if (!to_dev(d)->is_roce && a->state >= IB_PORT_ARMED) {	/* the subnet manager gives LIDs */
		a->lid = to_dev(d)->lid;
		a->sm_lid = SM_LID;
	}
	query_speed(a, to_dev(d)->is_roce);
	if (to_dev(d)->is_roce)
		roce_query_port(to_dev(d), port, a);
	return 0;
}

static int fib_modify_port(struct ib_device *d, u32 p, int m, struct ib_port_modify *pm) { return 0; }
static enum rdma_link_layer fib_link_layer(struct ib_device *d, u32 p)
{
	return to_dev(d)->is_roce ? IB_LINK_LAYER_ETHERNET : IB_LINK_LAYER_INFINIBAND;
}
static int fib_gid_op(const struct ib_gid_attr *attr, void **ctx) { return 0; }
static void fib_fw(struct ib_device *d, char *s) { snprintf(s, IB_FW_VERSION_NAME_MAX, "20.35.1012"); }

static int fib_query_gid(struct ib_device *d, u32 port, int i, union ib_gid *gid)
{
	fib_own_gid(to_dev(d), gid);
	if (i)
		gid->global.interface_id = 0;
	return 0;
}

static int fib_query_pkey(struct ib_device *d, u32 port, u16 i, u16 *pkey)
{
	*pkey = fib_pkey(to_dev(d), i);
	return i < fib_npkeys ? 0 : -EINVAL;
}

static int fib_immutable(struct ib_device *d, u32 port, struct ib_port_immutable *im)
{
	im->core_cap_flags = to_dev(d)->is_roce ? RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP | RDMA_CORE_PORT_IBA_ROCE :
						RDMA_CORE_PORT_IBA_IB;
	im->gid_tbl_len = 8; im->pkey_tbl_len = fib_npkeys; im->max_mad_size = IB_MGMT_MAD_SIZE;
	if (to_dev(d)->is_roce) {
		struct ib_port_attr a = { .gid_tbl_len = im->gid_tbl_len, .pkey_tbl_len = im->pkey_tbl_len };

		roce_query_port(to_dev(d), port, &a);
		im->gid_tbl_len = a.gid_tbl_len;
		im->pkey_tbl_len = a.pkey_tbl_len;
	}
	return 0;
}

static int fib_get_vf_config(struct ib_device *d, int vf, u32 port, struct ifla_vf_info *ivf)
{
	memset(ivf, 0, sizeof(*ivf));
	if (vf >= MAXVF)
		return -EINVAL;
	ivf->vf = vf;
	ivf->linkstate = to_dev(d)->vf_link[vf];
	return 0;
}
static int fib_set_vf_link(struct ib_device *d, int vf, u32 port, int state)
{
	struct fib_dev *v;

	if (vf >= MAXVF || state > IFLA_VF_LINK_STATE_DISABLE)
		return -EINVAL;
	mutex_lock(&fib_lock);
	to_dev(d)->vf_link[vf] = state;
	list_for_each_entry(v, &fib_devs, list)
		if (v->pf == to_dev(d) && v->vf == vf && v->ready) {
			struct ib_event ev = { .device = &v->ib, .element.port_num = 1 };

			ev.event = fib_state(v, 1) == IB_PORT_ACTIVE ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR;
			ib_dispatch_event(&ev);
		}
	mutex_unlock(&fib_lock);
	return 0;
}
static int fib_get_vf_guid(struct ib_device *d, int vf, u32 port, struct ifla_vf_guid *n, struct ifla_vf_guid *p)
{
	n->vf = p->vf = vf;
	n->guid = to_dev(d)->vf_guid[vf][0];
	p->guid = to_dev(d)->vf_guid[vf][1];
	return 0;
}
static int fib_set_vf_guid(struct ib_device *d, int vf, u32 port, u64 guid, int type)
{
	if (vf >= MAXVF)
		return -EINVAL;
	to_dev(d)->vf_guid[vf][type == IFLA_VF_IB_PORT_GUID] = guid;	/* takes effect when the VF is next bound */
	return 0;
}

static const struct ib_device_ops fib_ops = {
	.owner = THIS_MODULE,
	.uverbs_abi_ver = 2,

	.add_gid = fib_gid_op,
	.alloc_hw_port_stats = fib_alloc_stats,
	.alloc_pd = fib_alloc_pd,
	.alloc_ucontext = fib_alloc_uctx,
	.attach_mcast = fib_attach,
	.create_ah = fib_create_ah,
	.create_cq = fib_create_cq,
	.create_qp = fib_create_qp,
	.create_srq = fib_create_srq,
	.create_user_ah = fib_create_user_ah,
	.dealloc_pd = fib_dealloc_pd,
	.dealloc_ucontext = fib_dealloc_uctx,
	.del_gid = fib_gid_op,
	.dereg_mr = fib_dereg_mr,
	.destroy_ah = fib_destroy_ah,
	.destroy_cq = fib_destroy_cq,
	.destroy_qp = fib_destroy_qp,
	.destroy_srq = fib_destroy_srq,
	.detach_mcast = fib_detach,
	.get_dev_fw_str = fib_fw,
	.get_dma_mr = fib_get_dma_mr,
	.get_hw_stats = fib_get_stats,
	.get_link_layer = fib_link_layer,
	.get_port_immutable = fib_immutable,
	.get_vf_config = fib_get_vf_config,
	.get_vf_guid = fib_get_vf_guid,
	.mmap = fib_mmap,
	.modify_port = fib_modify_port,
	.modify_qp = fib_modify_qp,
	.modify_srq = fib_modify_srq,
	.poll_cq = fib_poll_cq,
	.post_recv = fib_post_recv,
	.post_send = fib_post_send,
	.process_mad = fib_process_mad,
	.query_ah = fib_query_ah,
	.query_device = fib_query_device,
	.query_gid = fib_query_gid,
	.query_pkey = fib_query_pkey,
	.query_port = fib_query_port,
	.query_qp = fib_query_qp,
	.query_srq = fib_query_srq,
	.reg_user_mr = fib_reg_user_mr,
	.req_notify_cq = fib_req_notify,
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
	.resize_user_cq = fib_resize_cq,
#else
	.resize_cq = fib_resize_cq,
#endif
	.set_vf_guid = fib_set_vf_guid,
	.set_vf_link_state = fib_set_vf_link,

	INIT_RDMA_OBJ_SIZE(ib_ah, fib_ah, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, fib_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_pd, fib_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, fib_qp, ib),
	INIT_RDMA_OBJ_SIZE(ib_srq, fib_srq, ib),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, fib_uctx, ib),
};

/* librxe binds to it */
static const struct ib_device_ops fib_rxe_ops = { .driver_id = RDMA_DRIVER_RXE };
static const struct ib_device_ops fib_movable_ops = { .disassociate_ucontext = fib_disassociate };

struct fib_dev *fib_add(struct device *parent, struct platform_device *plat, struct fib_dev *pf, int vf,
			       struct net_device *const *ndev)
{
	struct fib_dev *d = ib_alloc_device(fib_dev, ib);
	u64 node_guid = 0, port_guid = 0;
	u32 port;
	int r;

	if (!d)
		return ERR_PTR(-ENOMEM);
	d->idx = ida_alloc_max(&hca_ida, MAXHCA - 1, GFP_KERNEL);
	d->lid = lid + d->idx;
	if (pf && vf >= 0 && vf < MAXVF) {
		node_guid = pf->vf_guid[vf][0];
		port_guid = pf->vf_guid[vf][1];
		if (node_guid == ~0ULL)		/* taken away again */
			node_guid = 0;
		if (port_guid == ~0ULL)
			port_guid = 0;
		d->pf = pf;
		d->vf = vf;
	}
	if (!port_guid && (vf_guid || !d->pf))
		port_guid = 0x0002c90300fa0000ULL + ((u64)d->lid << 4);
	d->guid = cpu_to_be64(port_guid);
	d->ib.node_guid = node_guid ? cpu_to_be64(node_guid) : d->guid;
	d->ib.node_type = RDMA_NODE_IB_CA;
	d->ib.phys_port_cnt = 1;
	while (ndev && d->ib.phys_port_cnt < FIB_PORTS && ndev[d->ib.phys_port_cnt])
		d->ib.phys_port_cnt++;
	d->ib.num_comp_vectors = 1;
	d->ib.dev.parent = parent;
	d->is_roce = ndev;
	if (ndev)
		d->lid = 0;
	d->plat = plat;
	d->ib.uverbs_cmd_mask |= BIT_ULL(IB_USER_VERBS_CMD_POST_SEND) | BIT_ULL(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ);
	strscpy(d->ib.node_desc, "fakeib", sizeof(d->ib.node_desc));
	if (ndev)
		roce_set_ops(&d->ib);	/* first: an operation that is set stays */
	if (ndev ? fib_roce_verbs : verbs)
		ib_set_device_ops(&d->ib, &fib_rxe_ops);
	ib_set_device_ops(&d->ib, &fib_ops);
	if (movable)
		ib_set_device_ops(&d->ib, &fib_movable_ops);
	mutex_lock(&fib_lock);
	list_add_tail(&d->list, &fib_devs);
	mutex_unlock(&fib_lock);
	if (ndev) {
		rdma_for_each_port(&d->ib, port) {
			d->roce[port - 1].ndev = ndev[port - 1];
			rtnl_lock();
			roce_netdev_changed(d, port, ndev[port - 1]);
			rtnl_unlock();
			ib_device_set_netdev(&d->ib, ndev[port - 1], port);
		}
	}
	r = ib_register_device(&d->ib, fib_name(d->idx), NULL);
	if (!r) {
		mutex_lock(&fib_lock);
		d->ready = true;
		mutex_unlock(&fib_lock);
		return d;
	}
	mutex_lock(&fib_lock);
	list_del(&d->list);
	mutex_unlock(&fib_lock);
	ida_free(&hca_ida, d->idx);
	ib_dealloc_device(&d->ib);
	return ERR_PTR(r);
}

void fib_del(struct fib_dev *d)
{
	mutex_lock(&fib_lock);
	d->ready = false;
	mutex_unlock(&fib_lock);
	ib_unregister_device(&d->ib);
	mutex_lock(&fib_lock);
	list_del(&d->list);
	fib_forget(d);
	mutex_unlock(&fib_lock);
	ida_free(&hca_ida, d->idx);
	ib_dealloc_device(&d->ib);
}
