/* SPDX-License-Identifier: GPL-2.0 */
#ifndef FAKEIB_H
#define FAKEIB_H

#include <linux/module.h>
#include <linux/version.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/auxiliary_bus.h>
#include <linux/if_link.h>
#include <linux/netdevice.h>
#include <linux/jhash.h>
#include <linux/vmalloc.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>
#include <rdma/ib_smi.h>
#include <rdma/ib_umem.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include "roce.h"

#define SM_LID		0xbe00
#define MAXVF		64
#define MAXHCA		256
#define FIB_SGE		32	/* entries of a scatter/gather list */
#define FIB_INLINE	512	/* bytes in a work request */

struct fib_dev {
	struct ib_device ib;
	struct list_head list;
	struct platform_device *plat;
	struct net_device *ndev;	/* RoCE: compared only, never dereferenced */
	bool is_roce, ready;
	struct roce_port roce;
	int idx;
	u16 lid;		/* 0: RoCE */
	__be64 guid;
	struct fib_dev *pf;	/* of a VF; outlives it */
	int vf;
	u64 vf_guid[MAXVF][2];	/* of a PF: what its VFs get when they are next bound */
	u8 vf_link[MAXVF];	/* IFLA_VF_LINK_STATE_* */
};

struct fib_ring {			/* shared with user space; idx is the kernel's end, never read back */
	struct list_head list;
	struct ib_ucontext *ctx;
	struct rxe_queue_buf *buf;
	u64 offset;
	u32 size, mask, shift, idx;
};

struct fib_srq { struct ib_srq ib; struct fib_ring rq; struct ib_srq_attr attr; };
struct fib_cq {
	struct ib_cq ib;
	struct list_head list;
	spinlock_t lock;
	struct ib_wc *ring;
	u32 size, head, tail;
	bool armed, pending, user;
	struct fib_ring uring;
};
struct fib_rwr { u64 wr_id; int n; struct ib_sge sge[4]; };
struct fib_mc { struct list_head list; union ib_gid gid; };
struct fib_qp {
	struct ib_qp ib;
	struct list_head list, mcs;
	spinlock_t lock;
	struct fib_rwr *rq;
	u32 size, head, tail;
	enum ib_qp_state state;
	u16 pkey_index;
	u32 qkey;
	/* of a user */
	bool user, db, sig_all;
	struct fib_ring sring, rring;
	struct fib_srq *srq;
	struct ib_qp_cap cap;
	u32 dqpn;
	u16 dlid;
	struct rdma_ah_attr av;
};
struct fib_ah { struct ib_ah ib; struct rdma_ah_attr attr; u32 num; };
struct fib_pkt {
	struct list_head list;
	struct fib_dev *src;
	u32 sqpn, dqpn, len;
	u16 pkey, dlid;
	u8 sl;
	bool grh, has_imm;
	__be32 imm;
	u32 qkey;
	struct ib_grh hdr;
	struct roce_dst to;	/* of a RoCE port */
	u8 data[];
};

struct fib_pd { struct ib_pd ib; };
struct fib_uctx { struct ib_ucontext ib; };

struct fib_mr {
	struct ib_mr ib;
	struct ib_umem *umem;
	struct page **pages;
	u64 iova, len;
	u32 off;
	int access;
};

struct fib_io {				/* a place in a scatter/gather list or in inline data */
	struct ib_pd *pd;
	struct rxe_sge sge[FIB_SGE];
	u32 n, i, off;
	const u8 *inl;
};

static inline struct fib_dev *to_dev(struct ib_device *d) { return container_of(d, struct fib_dev, ib); }
static inline struct fib_cq *to_cq(struct ib_cq *c) { return container_of(c, struct fib_cq, ib); }
static inline struct fib_qp *to_qp(struct ib_qp *q) { return container_of(q, struct fib_qp, ib); }
static inline struct fib_srq *to_srq(struct ib_srq *s) { return container_of(s, struct fib_srq, ib); }
static inline struct fib_ah *to_ah(struct ib_ah *a) { return container_of(a, struct fib_ah, ib); }

/* main.c: parameters */
extern u8 fib_states[MAXHCA];
const char *fib_name(int idx);

/* device.c */
extern ushort fib_pkeys[16];
extern int fib_npkeys;
enum ib_port_state fib_state(const struct fib_dev *d);
struct fib_dev *fib_add(struct device *parent, struct platform_device *plat, struct fib_dev *pf, int vf,
			struct net_device *ndev);
void fib_del(struct fib_dev *d);

/* roce.c, sf.c: other buses; exit may be called without init */
int fib_roce_init(void);
void fib_roce_exit(void);
int fib_sf_init(void);
void fib_sf_exit(void);

/* fabric.c */
extern struct list_head fib_devs, fib_cqs, fib_qps;	/* fib_lock */
extern struct mutex fib_lock;				/* those, and whatever is being delivered */
int fib_fabric_init(void);
void fib_fabric_exit(void);
void fib_ring_doorbell(struct fib_qp *qp);
void fib_push_wc(struct ib_cq *ibcq, const struct ib_wc *wc);
void fib_deliver(struct fib_qp *qp, struct fib_pkt *p, u16 slid);
void fib_transmit(struct fib_pkt *p, struct fib_qp *qp, const struct rdma_ah_attr *a, u32 dqpn, u32 qkey);
void fib_forget(struct fib_dev *d);

/* sa.c */
void fib_sa_request(struct fib_pkt *p);

/* send.c */
bool fib_run_sq(struct fib_qp *qp);
void fib_deliver_user(struct fib_qp *qp, struct fib_pkt *p, u16 slid);

/* ring.c */
int ring_make(struct fib_ring *r, struct ib_ucontext *ctx, u32 *n, u32 elem, struct mminfo *mi);
void ring_free(struct fib_ring *r);
void *ring_peek(struct fib_ring *r);
void ring_pop(struct fib_ring *r);
bool ring_push_wc(struct fib_ring *r, const struct ib_wc *wc);
int fib_mmap(struct ib_ucontext *c, struct vm_area_struct *v);

/* memory.c */
int mr_io(u32 key, struct ib_pd *pd, int access, u64 addr, void *buf, u32 len, bool to);
int io_open(struct fib_io *io, struct ib_pd *pd, const struct rxe_dma_info *d);
u32 io_len(const struct fib_io *io);
int io_copy(struct fib_io *io, void *buf, u32 len, bool to);
struct ib_mr *fib_get_dma_mr(struct ib_pd *pd, int acc);
int fib_dereg_mr(struct ib_mr *ibmr, struct ib_udata *u);
struct ib_mr *fib_reg_user_mr(struct ib_pd *pd, u64 start, u64 len, u64 iova, int access,
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
			      struct ib_dmah *dmah,
#endif
			      struct ib_udata *u);

/* cq.c */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#define CQ_ARG struct uverbs_attr_bundle *u
#else
#define CQ_ARG struct ib_udata *u
#endif
int fib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr, CQ_ARG);
int fib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *u);
int fib_poll_cq(struct ib_cq *ibcq, int n, struct ib_wc *wc);
int fib_req_notify(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);

/* qp.c */
int fib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init, struct ib_udata *u);
int fib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *a, int mask, struct ib_udata *u);
int fib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *a, int mask, struct ib_qp_init_attr *init);
int fib_destroy_qp(struct ib_qp *ibqp, struct ib_udata *u);
int fib_attach(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int fib_detach(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int fib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr, const struct ib_send_wr **bad);
int fib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad);

/* verbs.c */
extern struct xarray fib_ahs;	/* address handles of user space, by the number it knows them by */
int fib_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init, struct ib_udata *u);
int fib_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *a, enum ib_srq_attr_mask mask, struct ib_udata *u);
int fib_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *a);
int fib_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *u);
int fib_create_ah(struct ib_ah *ah, struct rdma_ah_init_attr *init, struct ib_udata *u);
int fib_create_user_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init, struct ib_udata *u);
int fib_query_ah(struct ib_ah *ah, struct rdma_ah_attr *a);
int fib_destroy_ah(struct ib_ah *ah, u32 flags);
int fib_alloc_pd(struct ib_pd *pd, struct ib_udata *u);
int fib_dealloc_pd(struct ib_pd *pd, struct ib_udata *u);
int fib_alloc_uctx(struct ib_ucontext *c, struct ib_udata *u);
void fib_dealloc_uctx(struct ib_ucontext *c);
void fib_disassociate(struct ib_ucontext *c);

#endif
