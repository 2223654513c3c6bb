// SPDX-License-Identifier: Apache-2.0
/*
 * verbs: a process with verbs objects, for tests of what may reach them.
 *
 * It reads commands from standard input, one per line, and answers each with one line: what is listed here, or
 * "error WHAT: NUMBER TEXT". So a test decides step by step what several processes do to each other, in network
 * namespaces of its choice, with keys and addresses that no well-behaved tool would use. rdma-core's Python bindings can
 * do the same, but need seconds to start where a processor is emulated; this needs a tenth of one.
 *
 *   open DEVICE                       ok LID
 *   pd                                ok PD
 *   mr PD ACCESS TEXT                 ok MR ADDR RKEY       ACCESS: of the letters r (remote read), w, a (atomic), or -
 *   text MR [TEXT]                    ok TEXT               what the memory holds, after setting it
 *   qp PD TYPE PKEY_INDEX             ok QP QPN             TYPE: rc or uc
 *   connect QP LID QPN                ok                    to a peer, until it can send
 *   write QP MR ADDR RKEY             wc STATUS             of the completion, as ibv_wc_status_str has it; the request
 *   read QP MR ADDR RKEY              wc STATUS             is about SIZE bytes, all of a memory region
 *   state QP                          ok STATE              a number, as enum ibv_qp_state has it
 *   event                             ok TEXT               the next asynchronous event, as ibv_event_type_str has it
 *
 * Objects are numbered from 0 in the order of their creation. They are freed by the end of the process only, as those of
 * a program that was killed.
 *
 * Part of the fabric-cni test lab.
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <infiniband/verbs.h>

#define SIZE	4096
#define MAX	16
#define PATIENCE 20	/* seconds that a completion or an event is awaited */

static struct ibv_context *context;
static struct ibv_cq *cq;
static struct ibv_pd *pds[MAX];
static struct ibv_mr *mrs[MAX];
static struct ibv_qp *qps[MAX];
static int npd, nmr, nqp;

static void fail(const char *what, int number)
{
	printf("error %s: %d %s\n", what, number, strerror(number));
}

static void do_open(char *args)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;
	int i, err;

	if (!list)
		return fail("list", errno);
	for (i = 0; list[i] && strcmp(ibv_get_device_name(list[i]), args); i++)
		;
	if (!list[i])
		return fail("find", ENODEV);
	errno = 0;
	context = ibv_open_device(list[i]);
	if (!context)
		return fail("open", errno);
	ibv_free_device_list(list);
	cq = ibv_create_cq(context, MAX, NULL, NULL, 0);
	if (!cq)
		return fail("create CQ", errno);
	err = ibv_query_port(context, 1, &port);
	if (err)
		return fail("query port", err);
	printf("ok %u\n", port.lid);
}

static void do_pd(char *args)
{
	(void)args;
	if (npd == MAX)
		return fail("alloc PD", ENOSPC);
	pds[npd] = ibv_alloc_pd(context);
	if (!pds[npd])
		return fail("alloc PD", errno);
	printf("ok %d\n", npd++);
}

static void do_mr(char *args)
{
	int access = IBV_ACCESS_LOCAL_WRITE, pd, at;
	char letters[8];
	void *memory;

	if (sscanf(args, "%d %7s %n", &pd, letters, &at) < 2 || pd < 0 || pd >= npd || nmr == MAX)
		return fail("parse", EINVAL);
	if (strchr(letters, 'r'))
		access |= IBV_ACCESS_REMOTE_READ;
	if (strchr(letters, 'w'))
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (strchr(letters, 'a'))
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	memory = aligned_alloc(SIZE, SIZE);
	if (!memory)
		return fail("allocate", errno);
	memset(memory, 0, SIZE);
	strncpy(memory, args + at, SIZE - 1);
	mrs[nmr] = ibv_reg_mr(pds[pd], memory, SIZE, access);
	if (!mrs[nmr])
		return fail("register", errno);
	printf("ok %d %lu %u\n", nmr, (unsigned long)(uintptr_t)memory, mrs[nmr]->rkey);
	nmr++;
}

static void do_text(char *args)
{
	int mr, at = 0;

	if (sscanf(args, "%d %n", &mr, &at) < 1 || mr < 0 || mr >= nmr)
		return fail("parse", EINVAL);
	if (at && args[at])
		strncpy(mrs[mr]->addr, args + at, SIZE - 1);
	printf("ok %s\n", (char *)mrs[mr]->addr);
}

static void do_qp(char *args)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .sq_sig_all = 1,
					 .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_ATOMIC };
	unsigned int pkey;
	char type[8];
	int pd, err;

	if (sscanf(args, "%d %7s %u", &pd, type, &pkey) != 3 || pd < 0 || pd >= npd || nqp == MAX)
		return fail("parse", EINVAL);
	init.qp_type = strcmp(type, "uc") ? IBV_QPT_RC : IBV_QPT_UC;
	if (init.qp_type == IBV_QPT_UC)
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	attr.pkey_index = pkey;
	qps[nqp] = ibv_create_qp(pds[pd], &init);
	if (!qps[nqp])
		return fail("create QP", errno);
	err = ibv_modify_qp(qps[nqp], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (err)
		return fail("initialise QP", err);
	printf("ok %d %u\n", nqp, qps[nqp]->qp_num);
	nqp++;
}

static struct ibv_qp *qp_of(int i)
{
	return i >= 0 && i < nqp ? qps[i] : NULL;
}

static void do_connect(char *args)
{
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_2048, .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 1, .ah_attr = { .port_num = 1 } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 8, .retry_cnt = 1, .rnr_retry = 1,
				   .max_rd_atomic = 1 };
	int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int to_rts = IBV_QP_STATE | IBV_QP_SQ_PSN;
	unsigned int lid, qpn;
	struct ibv_qp *qp;
	int i, err;

	if (sscanf(args, "%d %u %u", &i, &lid, &qpn) != 3 || !(qp = qp_of(i)))
		return fail("parse", EINVAL);
	rtr.ah_attr.dlid = lid;
	rtr.dest_qp_num = qpn;
	if (qp->qp_type == IBV_QPT_RC) {
		to_rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		to_rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	err = ibv_modify_qp(qp, &rtr, to_rtr);
	if (!err)
		err = ibv_modify_qp(qp, &rts, to_rts);
	if (err)
		return fail("connect", err);
	printf("ok\n");
}

/* One work request, and its completion: other ones that come first are those of an earlier request that failed. */
static void request(char *args, enum ibv_wr_opcode opcode)
{
	static uint64_t id;
	struct ibv_send_wr wr = { .opcode = opcode, .num_sge = 1 }, *bad;
	struct ibv_sge sge = { .length = SIZE };
	unsigned long address;
	unsigned int rkey;
	struct ibv_qp *qp;
	struct ibv_wc wc;
	time_t end = time(NULL) + PATIENCE;
	int i, mr, n, err;

	if (sscanf(args, "%d %d %lu %u", &i, &mr, &address, &rkey) != 4 || !(qp = qp_of(i)) || mr < 0 || mr >= nmr)
		return fail("parse", EINVAL);
	sge.addr = (uintptr_t)mrs[mr]->addr;
	sge.lkey = mrs[mr]->lkey;
	wr.sg_list = &sge;
	wr.wr_id = ++id;
	wr.wr.rdma.remote_addr = address;
	wr.wr.rdma.rkey = rkey;
	err = ibv_post_send(qp, &wr, &bad);
	if (err)
		return fail("post", err);
	while (time(NULL) < end) {
		n = ibv_poll_cq(cq, 1, &wc);
		if (n < 0)
			return fail("poll", EIO);
		if (n && wc.wr_id == id) {
			printf("wc %s\n", ibv_wc_status_str(wc.status));
			return;
		}
		if (!n)
			poll(NULL, 0, 1);
	}
	fail("wait", ETIMEDOUT);
}

static void do_write(char *args)
{
	request(args, IBV_WR_RDMA_WRITE);
}

static void do_read(char *args)
{
	request(args, IBV_WR_RDMA_READ);
}

static void do_state(char *args)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp = qp_of(atoi(args));
	int err;

	if (!qp)
		return fail("parse", EINVAL);
	err = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
	if (err)
		return fail("query", err);
	printf("ok %d\n", attr.qp_state);
}

static void do_event(char *args)
{
	struct pollfd p = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	(void)args;
	if (poll(&p, 1, PATIENCE * 1000) != 1)
		return fail("wait", ETIMEDOUT);
	if (ibv_get_async_event(context, &event))
		return fail("event", errno);
	printf("ok %s\n", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
}

static const struct {
	const char *name;
	void (*run)(char *args);
} commands[] = {
	{ "open", do_open }, { "pd", do_pd }, { "mr", do_mr }, { "text", do_text }, { "qp", do_qp },
	{ "connect", do_connect }, { "write", do_write }, { "read", do_read }, { "state", do_state },
	{ "event", do_event },
};

static void command(char *line)
{
	char *args = strchr(line, ' ');
	size_t i;

	if (args)
		*args++ = 0;
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(commands[i].name, line)) {
			if (!context && commands[i].run != do_open)
				return fail(line, EBADF);
			return commands[i].run(args ? args : "");
		}
	fail(line, ENOSYS);
}

int main(void)
{
	static char line[SIZE];

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		command(line);
	}
	return 0;
}
