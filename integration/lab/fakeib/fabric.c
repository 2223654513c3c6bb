// SPDX-License-Identifier: GPL-2.0
/*
 * The fabric: who may reach whom, and what runs when.
 *
 * All that is sent is delivered with fib_lock held, in process context: by a worker, or, when that is idle, by the
 * process that rings the doorbell. Either does a bounded amount, then lets others have the lock and the CPU.
 */
#include "fakeib.h"

LIST_HEAD(fib_devs);
LIST_HEAD(fib_qps);
DEFINE_XARRAY_ALLOC1(fib_qpns);
DEFINE_MUTEX(fib_lock);

static LIST_HEAD(ready);		/* QPs of user space with something to do */
static DEFINE_SPINLOCK(ready_lock);
static LIST_HEAD(pending);		/* CQs whose users are to be told */
static DEFINE_SPINLOCK(pending_lock);
static struct workqueue_struct *fib_wq;
static void run(struct work_struct *w);
static DECLARE_WORK(fib_work, run);

bool fib_up(const struct fib_dev *d)
{
	return fib_state(d) == IB_PORT_ACTIVE;
}

/* An address that has a GRH names the port twice, and both names count. */
bool fib_reaches(const struct fib_dev *from, const struct rdma_ah_attr *av, const struct fib_dev *to)
{
	struct roce_dst dst;
	union ib_gid gid;

	if (from->is_roce)
		return roce_dst(&dst, av) && roce_leads_to(from, &dst, to);
	if (to->is_roce || rdma_ah_get_dlid(av) != to->lid)
		return false;
	if (!(rdma_ah_get_ah_flags(av) & IB_AH_GRH))
		return true;
	fib_own_gid(to, &gid);
	return !memcmp(&gid, &rdma_ah_read_grh(av)->dgid, sizeof(gid));
}

void fib_wake(void)
{
	queue_work(fib_wq, &fib_work);
}

void fib_ready(struct fib_qp *qp)
{
	unsigned long f;

	spin_lock_irqsave(&ready_lock, f);
	if (!qp->dying && list_empty(&qp->ready))
		list_add_tail(&qp->ready, &ready);
	spin_unlock_irqrestore(&ready_lock, f);
}

/* For ever. It may still be running, and set its timer. */
void fib_not_ready(struct fib_qp *qp)
{
	unsigned long f;

	spin_lock_irqsave(&ready_lock, f);
	qp->dying = true;
	list_del_init(&qp->ready);
	spin_unlock_irqrestore(&ready_lock, f);
}

void fib_ready_later(struct fib_qp *qp, unsigned long delay)
{
	mod_delayed_work(fib_wq, &qp->timer, delay);
}

static struct fib_qp *next_ready(void)
{
	struct fib_qp *qp;
	unsigned long f;

	spin_lock_irqsave(&ready_lock, f);
	qp = list_first_entry_or_null(&ready, struct fib_qp, ready);
	if (qp)
		list_del_init(&qp->ready);
	spin_unlock_irqrestore(&ready_lock, f);
	return qp;
}

static bool push(struct fib_cq *cq, const struct ib_wc *wc)
{
	struct ib_uverbs_wc u;

	if (!cq->user) {
		if (cq->tail - cq->head >= cq->size)
			return false;
		cq->ring[cq->tail++ % cq->size] = *wc;
		return true;
	}
	u = (struct ib_uverbs_wc){ .wr_id = wc->wr_id, .status = wc->status, .opcode = wc->opcode,
		.byte_len = wc->byte_len, .ex.imm_data = wc->ex.imm_data, .qp_num = wc->qp->qp_num,
		.src_qp = wc->src_qp, .wc_flags = wc->wc_flags, .pkey_index = wc->pkey_index, .slid = wc->slid,
		.sl = wc->sl, .port_num = wc->port_num };
	return fib_ring_push(&cq->uring, &u, sizeof(u));
}

/* Any context. Who calls it without fib_lock calls fib_wake() afterwards. */
void fib_push_wc(struct ib_cq *ibcq, const struct ib_wc *wc, bool solicited)
{
	struct fib_cq *cq = to_cq(ibcq);
	bool report = false, lost;
	unsigned long f;

	spin_lock_irqsave(&cq->lock, f);
	lost = !push(cq, wc);
	if (lost && !cq->overrun)
		cq->overrun = report = true;
	if (cq->armed && (!cq->solicited_only || solicited || wc->status != IB_WC_SUCCESS)) {
		cq->armed = cq->solicited_only = false;
		cq->fire = report = true;
	}
	if (report) {
		spin_lock(&pending_lock);
		if (list_empty(&cq->pending))
			list_add_tail(&cq->pending, &pending);
		spin_unlock(&pending_lock);
	}
	spin_unlock_irqrestore(&cq->lock, f);
	if (lost && !cq->user)
		pr_warn_ratelimited("fakeib: CQ overrun\n");
}

/* Nobody pushes to it any more: its QPs are gone. */
void fib_cq_forget(struct fib_cq *cq)
{
	mutex_lock(&fib_lock);		/* its handler is not running */
	spin_lock_irq(&pending_lock);
	list_del_init(&cq->pending);
	spin_unlock_irq(&pending_lock);
	mutex_unlock(&fib_lock);
}

static void report_cqs(void)
{
	struct fib_cq *cq;
	bool fire, overrun;

	for (;;) {
		spin_lock_irq(&pending_lock);
		cq = list_first_entry_or_null(&pending, struct fib_cq, pending);
		if (cq)
			list_del_init(&cq->pending);
		spin_unlock_irq(&pending_lock);
		if (!cq)
			return;
		spin_lock_irq(&cq->lock);
		fire = cq->fire;
		cq->fire = false;
		overrun = cq->overrun && !cq->reported;
		cq->reported |= overrun;
		spin_unlock_irq(&cq->lock);
		if (overrun && cq->ib.event_handler) {
			struct ib_event ev = { .device = cq->ib.device, .element.cq = &cq->ib,
					       .event = IB_EVENT_CQ_ERR };

			cq->ib.event_handler(&ev, cq->ib.cq_context);
		}
		if (fire && cq->ib.comp_handler) {
			local_bh_disable();	/* handlers schedule NAPI */
			cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
			local_bh_enable();
		}
	}
}

/* A bounded amount of work; true if there is more. */
static bool step(void)
{
	struct fib_qp *qp;
	int i;

	fib_run_packets();
	for (i = 0; i < 8; i++) {
		qp = next_ready();
		if (!qp)
			break;
		if (fib_run_sq(qp))
			fib_ready(qp);
	}
	report_cqs();
	return !list_empty_careful(&ready) || !list_empty_careful(&pending) || fib_packets_wait();
}

static void run(struct work_struct *w)
{
	bool more;

	do {
		mutex_lock(&fib_lock);
		more = step();
		mutex_unlock(&fib_lock);
		cond_resched();
	} while (more);
}

/*
 * Of user space: what to send is in the queue that it has mapped. Done at once if nobody else is at it: a message then
 * costs no switch to the worker and back, which is most of its time on one CPU.
 */
void fib_doorbell(struct fib_qp *qp)
{
	bool more = true;

	fib_ready(qp);
	if (mutex_trylock(&fib_lock)) {
		more = step();
		mutex_unlock(&fib_lock);
	}
	if (more)
		fib_wake();
}

int fib_fabric_init(void)
{
	fib_wq = alloc_workqueue("fakeib", WQ_UNBOUND, 0);
	return fib_wq ? 0 : -ENOMEM;
}

/* No device is left, hence no QP and no timer. */
void fib_fabric_exit(void)
{
	destroy_workqueue(fib_wq);
}
