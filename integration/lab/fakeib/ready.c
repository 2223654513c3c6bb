// SPDX-License-Identifier: GPL-2.0
/*
 * What is to be done: QPs of user space with requests, and completions whose users are to be told. run.c does it.
 */
#include "fakeib.h"

static LIST_HEAD(ready);		/* QPs of user space with something to do */
static DEFINE_SPINLOCK(ready_lock);
static LIST_HEAD(pending);		/* CQs whose users are to be told */
static DEFINE_SPINLOCK(pending_lock);
struct workqueue_struct *fib_wq;
struct work_struct fib_work;

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

/* The next QP that has something to do; NULL: there is none. */
struct fib_qp *fib_next_ready(void)
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

/* Tells the users of CQs what has been pushed; fib_lock is held. */
void fib_report_cqs(void)
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

bool fib_ready_wait(void)
{
	return !list_empty_careful(&ready) || !list_empty_careful(&pending);
}
