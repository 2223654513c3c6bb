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
#include <linux/vmalloc.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_umem.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include "roce.h"

#define SM_LID		0xbe00
#define MAXVF		128
#define MAXHCA		256
#define FIB_SGE		32		/* entries of a scatter/gather list */
#define FIB_KSGE	4		/* ... of a receive buffer of the kernel */
#define FIB_INLINE	512		/* bytes in a work request */
#define FIB_GRH		40		/* bytes that precede a datagram */
#define FIB_MAX_WR	16384
#define FIB_MAX_CQE	65536
#define FIB_MAX_RD	16		/* READs and atomics of a QP; more than 0 is what counts */
#define FIB_MAX_MSG	(64 << 20)	/* a message is copied in one go, while nobody else sends */

/* what a device has a limited number of */
enum fib_kind { FIB_PD, FIB_CQ, FIB_QP, FIB_SRQ, FIB_MR, FIB_AH, FIB_KINDS };
#define FIB_MAX_OBJ	4096

/* hw_counters/: the names of mlx5 and what they mean there */
enum fib_hw {
	HW_RX_WRITE, HW_RX_READ, HW_RX_ATOMIC, HW_OUT_OF_BUFFER, HW_RNR_NAK_RETRY, HW_ACK_TIMEOUT, HW_PACKET_SEQ,
	HW_OUT_OF_SEQ, HW_DUPLICATE, HW_IMPLIED_NAK, HW_RESP_LENGTH, HW_RESP_CQE, HW_REQ_CQE, HW_REQ_INVALID,
	HW_REQ_ACCESS, HW_RESP_ACCESS, HW_RESP_FLUSH, HW_REQ_FLUSH, HW_COUNTERS
};

/* counters/: what went over the port; written with fib_lock */
struct fib_traffic {
	u64 xmit_words, rcv_words;		/* of four bytes */
	u64 xmit_packets, rcv_packets, mc_xmit_packets, mc_rcv_packets;
	u64 xmit_discards, rcv_constraint, link_downed;
};

struct fib_qp;
struct fib_dev {
	struct ib_device ib;
	struct list_head list;
	struct platform_device *plat;
	bool is_roce, ready;
	struct roce_port roce[FIB_PORTS];
	struct fib_tc *tc;	/* NULL: it has no such file */
	int idx;
	u16 lid;		/* 0: RoCE */
	__be64 guid;
	struct fib_dev *pf;	/* of a VF; outlives it */
	int vf;
	u64 vf_guid[MAXVF][2];	/* of a PF: what its VFs get when they are next bound */
	u8 vf_link[MAXVF];	/* IFLA_VF_LINK_STATE_* */
	struct fib_qp *gsi[FIB_PORTS];
	struct fib_traffic traffic;
	u64 hw[HW_COUNTERS];
	atomic_t used[FIB_KINDS];
};

struct fib_ring {			/* shared with user space; idx is the kernel's end, never read back */
	struct list_head list;
	struct ib_ucontext *ctx;
	struct rxe_queue_buf *buf;
	u64 offset;
	u32 size, mask, shift, idx;
};

struct fib_pd { struct ib_pd ib; };
struct fib_uctx { struct ib_ucontext ib; };

struct fib_mr {
	struct ib_mr ib;
	struct ib_umem *umem;
	struct page **pages;
	u64 iova, len;
	u32 off;		/* of iova in the first page */
	int access;
};

struct fib_srq {
	struct ib_srq ib;
	struct fib_ring rq;
	struct ib_srq_attr attr;
};

struct fib_cq {
	struct ib_cq ib;
	struct list_head pending;	/* its handler or its error is to be reported */
	spinlock_t lock;
	struct ib_wc *ring;		/* of a CQ of the kernel: head to tail */
	u32 size, head, tail;
	bool user, armed, solicited_only, fire, overrun, reported;
	struct fib_ring uring;
};

struct fib_rwr { u64 wr_id; int n; struct ib_sge sge[FIB_KSGE]; };
struct fib_mc { struct list_head list; union ib_gid gid; };

struct fib_qp {
	struct ib_qp ib;
	struct list_head list;		/* fib_qps */
	struct list_head mcs;
	struct ib_qp_attr attr;		/* what it was modified to; qp_state is the state */
	struct ib_qp_cap cap;
	enum ib_sig_type sig;
	bool user;
	/* of the kernel: receive buffers, head to tail */
	spinlock_t lock;
	struct fib_rwr *rq;
	u32 size, head, tail;
	/* of a user */
	struct fib_ring sring, rring;
	struct fib_srq *srq;
	struct list_head ready;		/* to be run; ready_lock */
	bool dying;			/* ready_lock */
	struct delayed_work timer;	/* of a retry */
	bool waiting;			/* for the timer */
	u8 retries, rnr_retries;	/* that are left */
};

struct fib_ah { struct ib_ah ib; struct rdma_ah_attr attr; u32 num; };

struct fib_pkt {
	struct list_head list;
	struct fib_dev *src;
	u32 sqpn, dqpn, len;
	u16 pkey, dlid;
	u8 sl;
	bool grh, has_imm, solicited;
	__be32 imm;
	u32 qkey;
	struct ib_grh hdr;
	struct roce_dst to;	/* of a RoCE port */
	u8 data[];
};

/* a list of pieces of memory that is read or written from its begin to its end */
struct fib_span { const struct fib_mr *mr; u8 *flat; u64 off; u32 len; };
struct fib_io {
	struct fib_span span[FIB_SGE + 1];	/* a GRH may precede */
	u32 n, i, off;
	u64 len;
};

/* a work request, copied from the ring once: what user space changes after that has no effect */
struct fib_wqe {
	struct rxe_send_wr wr;
	u32 len;
	struct fib_io io;
	u8 inl[FIB_INLINE];
};

static inline struct fib_dev *to_dev(struct ib_device *d) { return container_of(d, struct fib_dev, ib); }
static inline struct fib_cq *to_cq(struct ib_cq *c) { return container_of(c, struct fib_cq, ib); }
static inline struct fib_qp *to_qp(struct ib_qp *q) { return container_of(q, struct fib_qp, ib); }
static inline struct fib_srq *to_srq(struct ib_srq *s) { return container_of(s, struct fib_srq, ib); }
static inline struct fib_ah *to_ah(struct ib_ah *a) { return container_of(a, struct fib_ah, ib); }
static inline struct fib_dev *dev_of(const struct fib_qp *qp) { return to_dev(qp->ib.device); }

static inline struct ib_ucontext *fib_ctx(struct ib_udata *u)
{
	struct fib_uctx *c = rdma_udata_to_drv_context(u, struct fib_uctx, ib);

	return c ? &c->ib : NULL;
}

/* From here on in layers: a file uses those above it only. TestFakeibLayers holds it. */

/* hca.c */
extern struct list_head fib_devs, fib_qps;	/* fib_lock */
extern struct xarray fib_qpns;			/* QPs by number; fib_lock */
extern struct xarray fib_ahs;	/* address handles of user space, by the number it knows them by; fib_lock */
extern struct mutex fib_lock;			/* those, and whatever is being delivered */
extern u8 fib_states[MAXHCA];
const char *fib_name(int idx);
int fib_rate(void);
enum ib_port_state fib_state(const struct fib_dev *d, u32 port);
bool fib_up(const struct fib_dev *d);
void fib_own_gid(const struct fib_dev *d, union ib_gid *gid);
u32 fib_reaches(const struct fib_dev *from, const struct rdma_ah_attr *av, const struct fib_dev *to);
int fib_take(struct ib_device *d, enum fib_kind kind);
void fib_give(struct ib_device *d, enum fib_kind kind);

/* pkey.c */
extern int fib_npkeys;
u16 fib_pkey(const struct fib_dev *d, u16 i);
int fib_pkey_index(const struct fib_dev *d, u16 pkey);
bool fib_pkeys_match(u16 a, u16 b);

/* counters.c */
void fib_count(struct fib_dev *from, struct fib_dev *to, u32 packets, u64 bytes, bool multicast);
struct rdma_hw_stats *fib_alloc_stats(struct ib_device *d, u32 port);
int fib_get_stats(struct ib_device *d, struct rdma_hw_stats *s, u32 port, int index);
int fib_process_mad(struct ib_device *d, int flags, u32 port, const struct ib_wc *wc, const struct ib_grh *grh,
		    const struct ib_mad *in, struct ib_mad *out, size_t *size, u16 *pkey_index);

/* ring.c */
int fib_ring_make(struct fib_ring *r, struct ib_ucontext *ctx, u32 *n, u32 elem, struct mminfo *mi);
void fib_ring_free(struct fib_ring *r);
void *fib_ring_peek(struct fib_ring *r);
void fib_ring_pop(struct fib_ring *r);
void fib_ring_drop(struct fib_ring *r);
u32 fib_ring_used(struct fib_ring *r);
bool fib_ring_push(struct fib_ring *r, const void *elem, u32 len);
void fib_ring_replace(struct fib_ring *old, struct fib_ring *new);
int fib_mmap(struct ib_ucontext *c, struct vm_area_struct *v);

/* memory.c */
void fib_io_init(struct fib_io *io);
void fib_io_flat(struct fib_io *io, void *p, u32 len);
int fib_io_key(struct fib_io *io, struct ib_pd *pd, u32 key, int access, u64 addr, u32 len);
int fib_io_list(struct fib_io *io, struct ib_pd *pd, const struct rxe_dma_info *d, u32 max, int access);
void fib_io_copy(struct fib_io *to, struct fib_io *from, u32 len);
struct ib_mr *fib_get_dma_mr(struct ib_pd *pd, int acc);
int fib_dereg_mr(struct ib_mr *ibmr, struct ib_udata *u);
struct ib_mr *fib_reg_user_mr(struct ib_pd *pd, u64 start, u64 len, u64 iova, int access,
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
			      struct ib_dmah *dmah,
#endif
			      struct ib_udata *u);

/* ready.c: what is to be done */
extern struct workqueue_struct *fib_wq;
extern struct work_struct fib_work;
void fib_wake(void);
void fib_ready(struct fib_qp *qp);
void fib_not_ready(struct fib_qp *qp);
void fib_ready_later(struct fib_qp *qp, unsigned long delay);
struct fib_qp *fib_next_ready(void);
bool fib_ready_wait(void);
void fib_push_wc(struct ib_cq *ibcq, const struct ib_wc *wc, bool solicited);
void fib_cq_forget(struct fib_cq *cq);
void fib_report_cqs(void);

/* receive.c: fib_lock is held; a status of struct ib_wc, or FIB_RNR */
#define FIB_RNR		-1		/* the receiver has no buffer */
struct fib_ring *fib_rq(struct fib_qp *qp);
void fib_qp_error(struct fib_qp *qp, enum ib_event_type event);
bool fib_take_recv(struct fib_qp *qp, u64 *wr_id);
int fib_receive(struct fib_qp *qp, struct ib_wc *wc, struct fib_io *from, void *grh, u32 len, bool solicited);
void fib_deliver(struct fib_qp *qp, struct fib_pkt *p, u16 slid);

/* sa.c */
void fib_sa_request(struct fib_pkt *p);

/* datagram.c */
void fib_transmit(struct fib_pkt *p, struct fib_qp *qp, const struct rdma_ah_attr *a, u32 dqpn, u32 qkey, u16 pkey);
bool fib_run_packets(void);
bool fib_packets_wait(void);
void fib_forget(struct fib_dev *d);
enum ib_wc_status fib_send_ud(struct fib_qp *qp, struct fib_wqe *w);

/* connected.c: a status of struct ib_wc, FIB_RNR, or FIB_LOST */
#define FIB_LOST	-2		/* no answer */
int fib_send_connected(struct fib_qp *qp, struct fib_wqe *w, struct ib_wc *done);

/* send.c: the queues of user space; fib_lock is held */
bool fib_run_sq(struct fib_qp *qp);
void fib_retry_timer(struct work_struct *w);

/* run.c: what runs when */
int fib_run_init(void);
void fib_run_exit(void);
void fib_doorbell(struct fib_qp *qp);

/* cq.c */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#define CQ_ARG struct uverbs_attr_bundle *u
#else
#define CQ_ARG struct ib_udata *u
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
#define CQE_ARG unsigned int cqe
#else
#define CQE_ARG int cqe
#endif
int fib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr, CQ_ARG);
int fib_resize_cq(struct ib_cq *ibcq, CQE_ARG, struct ib_udata *u);
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

/* device.c */
struct fib_dev *fib_add(struct device *parent, struct platform_device *plat, struct fib_dev *pf, int vf,
			struct net_device *const *ndev);
void fib_del(struct fib_dev *d);

/* ulp.c */
int fib_ulp_init(void);
void fib_ulp_exit(void);

/* tclass.c */
void fib_tc_add(struct fib_dev *d);
void fib_tc_del(struct fib_dev *d);
void fib_tclass_seen(const struct rdma_ah_attr *to, u32 packets);

/* roce.c, sf.c: other buses; exit may be called without init */
int fib_roce_init(void);
void fib_roce_exit(void);
int fib_sf_init(void);
void fib_sf_exit(void);

#endif
