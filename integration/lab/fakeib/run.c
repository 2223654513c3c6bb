// SPDX-License-Identifier: GPL-2.0
/*
 * What runs when.
 *
 * All that is sent is delivered with fib_lock held, in process context: by a worker, or, when that is idle, by the
 * process that rings the doorbell. Either does a bounded amount, then lets others have the lock and the CPU.
 */
#include "fakeib.h"

/* A bounded amount of work; true if there is more. */
static bool step(void)
{
	struct fib_qp *qp;
	int i;

	fib_run_packets();
	for (i = 0; i < 8; i++) {
		qp = fib_next_ready();
		if (!qp)
			break;
		if (fib_run_sq(qp))
			fib_ready(qp);
	}
	fib_report_cqs();
	return fib_ready_wait() || fib_packets_wait();
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

int fib_run_init(void)
{
	INIT_WORK(&fib_work, run);
	fib_wq = alloc_workqueue("fakeib", WQ_UNBOUND, 0);
	return fib_wq ? 0 : -ENOMEM;
}

/* No device is left, hence no QP and no timer. */
void fib_run_exit(void)
{
	destroy_workqueue(fib_wq);
}
