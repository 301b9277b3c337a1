// Loops that programs in other languages are compared with, as a program in C has them.

#define _GNU_SOURCE
#include "tmstub.h"
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

atomic_int again;

// tmstub_again has each queue that has become empty give its newest n completions again. 0: no more.
API void tmstub_again(int n) { again = n; }

static struct ibv_context *contexts[2];
static struct ibv_pd *pds[2];
static char memory[2][1 << 16];
static struct ibv_mr *mrs[2];

static void *made(void *p)
{
	if (!p) {
		perror("tmstub: bench");
		abort();
	}
	return p;
}

static void done(int err)
{
	if (err) {
		fprintf(stderr, "tmstub: bench: %s\n", strerror(err));
		abort();
	}
}

static void open_devices(void)
{
	struct ibv_device **list = made(ibv_get_device_list(NULL));

	for (int i = 0; i < 2; i++) {
		contexts[i] = made(ibv_open_device(list[i]));
		pds[i] = made(ibv_alloc_pd(contexts[i]));
		mrs[i] = made((ibv_reg_mr)(pds[i], memory[i], sizeof memory[i], IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	}
	ibv_free_device_list(list);
}

static struct ibv_qp *new_qp(int device, struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr a = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 64, .max_send_sge = 2, .max_inline_data = 64}};

	return made(ibv_create_qp(pds[device], &a));
}

// connect_to brings q to RTS, with its peer p, which is of the other device or the same.
static void connect_to(struct ibv_qp *q, const struct ibv_qp *p)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	done(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = p->qp_num,
		.ah_attr = {.port_num = 1, .dlid = device_of_context(p->context)->lid}};
	done(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .retry_cnt = 6, .rnr_retry = 7, .timeout = 18};
	done(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_TIMEOUT));
}

static void post(struct ibv_qp *q, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	done(ibv_post_send(q, wr, &bad));
}

// filled has 16 completions in the queue.
static void filled(struct ibv_cq *cq, struct ibv_send_wr *wr)
{
	struct ibv_qp *q = new_qp(0, cq, NULL);

	connect_to(q, q);
	wr->send_flags |= IBV_SEND_SIGNALED;
	for (int i = 0; i < BENCH_POLL; i++)
		post(q, wr);
	wr->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
}

// post_receives posts 32 from a buffer on.
static void post_receives(struct bench *b, long first)
{
	struct ibv_recv_wr *bad;

	for (int i = 0; i < BENCH_EVERY; i++) {
		b->receive[i].wr_id = first + i;
		b->receive[i].sg_list->addr = (uintptr_t)(b->receives + (first + i) * BENCH_RECEIVE);
	}
	done(ibv_post_srq_recv(b->srq, b->receive, &bad));
}

// open_messages makes what messages one way take, with as many receives as transports post to a NIC,
// in pages like those of Go's.
static void open_messages(struct bench *b)
{
	static uint64_t text[3] = {2};
	static struct ibv_sge parts[2] = {{.length = 16}, {.length = 8}}, into[BENCH_EVERY];
	static struct ibv_send_wr send = {.sg_list = parts, .num_sge = 2, .opcode = IBV_WR_SEND};
	static struct ibv_recv_wr receive[BENCH_EVERY];
	const size_t size = (size_t)BENCH_RECEIVES * BENCH_RECEIVE;
	struct ibv_srq_init_attr a = {.attr = {.max_wr = BENCH_RECEIVES, .max_sge = 1}};
	struct ibv_mr *mr;
	struct ibv_qp *to;

	b->sent = made(ibv_create_cq(contexts[0], 4096, NULL, NULL, 0));
	b->received = made(ibv_create_cq(contexts[1], 4096, NULL, NULL, 0));
	b->srq = made(ibv_create_srq(pds[1], &a));
	b->from = new_qp(0, b->sent, NULL);
	to = new_qp(1, b->received, b->srq);
	connect_to(b->from, to);
	connect_to(to, b->from);
	b->receives = made(aligned_alloc(4096, size));
	madvise(b->receives, size, MADV_NOHUGEPAGE);
	memset(b->receives, 0, size);
	mr = made((ibv_reg_mr)(pds[1], b->receives, size, IBV_ACCESS_LOCAL_WRITE));
	parts[0].addr = (uintptr_t)&text[0];
	parts[1].addr = (uintptr_t)&text[2];
	for (int i = 0; i < BENCH_EVERY; i++) {
		into[i] = (struct ibv_sge){.length = BENCH_RECEIVE, .lkey = mr->lkey};
		receive[i] = (struct ibv_recv_wr){.sg_list = &into[i], .num_sge = 1, .next = i + 1 < BENCH_EVERY ? &receive[i + 1] : NULL};
	}
	b->send = &send;
	b->message = text;
	b->receive = receive;
	for (long i = 0; i < BENCH_RECEIVES; i += BENCH_EVERY)
		post_receives(b, i);
}

// tmstub_bench makes the objects, once.
API struct bench *tmstub_bench(void)
{
	static struct bench b;
	static struct ibv_sge sge = {.length = 8};
	static struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE};
	static struct ibv_wc wc[32];
	static uint64_t fields[16];
	struct ibv_cq_init_attr_ex ex = {.cqe = 64, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
		IBV_WC_EX_WITH_TM_INFO};

	if (b.empty)
		return &b;
	open_devices();
	sge.addr = (uintptr_t)memory[1];
	wr.wr.rdma.remote_addr = (uintptr_t)memory[0];
	wr.wr.rdma.rkey = mrs[0]->rkey;
	b.wc = wc;
	b.write = &wr;
	b.fields = fields;
	b.full = made(ibv_create_cq(contexts[0], 64, NULL, NULL, 0));
	b.extended = made(create_cq_ex(contexts[0], &ex));
	b.posted = made(ibv_create_cq(contexts[0], 64, NULL, NULL, 0));
	b.qp = new_qp(0, b.posted, NULL);
	connect_to(b.qp, b.qp);
	filled(b.full, &wr);
	filled(ibv_cq_ex_to_cq(b.extended), &wr);
	open_messages(&b);
	b.empty = made(ibv_create_cq(contexts[0], 64, NULL, NULL, 0));
	return &b;
}

// poll_extended reads all fields of so many completions.
static void poll_extended(struct ibv_cq_ex *x, int most, uint64_t *f)
{
	struct ibv_poll_cq_attr none = {0};
	struct ibv_wc_tm_info tm;
	int n = 0;

	if (ibv_start_poll(x, &none))
		return;
	do {
		f[0] = x->status;
		f[1] = x->wr_id;
		f[2] = ibv_wc_read_opcode(x);
		f[3] = ibv_wc_read_vendor_err(x);
		f[4] = ibv_wc_read_byte_len(x);
		f[5] = ibv_wc_read_qp_num(x);
		f[6] = ibv_wc_read_wc_flags(x);
		f[7] = ibv_wc_read_imm_data(x);
		ibv_wc_read_tm_info(x, &tm);
		f[8] = tm.tag;
	} while (++n < most && !ibv_next_poll(x));
	ibv_end_poll(x);
}

static void write_one(struct bench *b, long i)
{
	struct ibv_send_wr w = *b->write;

	w.wr_id = i;
	if (i % BENCH_EVERY == BENCH_EVERY - 1)
		w.send_flags |= IBV_SEND_SIGNALED;
	post(b->qp, &w);
	if (i % BENCH_EVERY == BENCH_EVERY - 1)
		ibv_poll_cq(b->posted, 32, b->wc);
}

// message sends a message, and handles it where it arrives.
static void message(struct bench *b, long i)
{
	int n;

	b->message[1] = i;
	b->send->wr_id = i;
	b->send->send_flags = IBV_SEND_INLINE | (i % BENCH_EVERY == BENCH_EVERY - 1 ? IBV_SEND_SIGNALED : 0);
	post(b->from, b->send);
	while ((n = ibv_poll_cq(b->received, 32, b->wc)) == 0)
		;
	for (int k = 0; k < n; k++)
		b->fields[0] += *(uint64_t *)(b->receives + b->wc[k].wr_id * BENCH_RECEIVE + 16);
	if (i % BENCH_EVERY == BENCH_EVERY - 1) {
		post_receives(b, (long)b->wc[n - 1].wr_id - (BENCH_EVERY - 1));
		ibv_poll_cq(b->sent, 32, b->wc);
	}
}

// tmstub_time is how many ns so many turns of a loop take. Those of LOOP_POST and LOOP_MESSAGE are a
// multiple of 32.
API uint64_t tmstub_time(int loop, long turns)
{
	struct bench *b = tmstub_bench();
	uint64_t start;

	start = now();
	for (long i = 0; i < turns; i++) {
		switch (loop) {
		case LOOP_EMPTY:
			ibv_poll_cq(b->empty, 16, b->wc);
			break;
		case LOOP_POST:
			write_one(b, i);
			break;
		case LOOP_POLL:
			ibv_poll_cq(b->full, BENCH_POLL, b->wc);
			break;
		case LOOP_EXTENDED:
			poll_extended(b->extended, BENCH_POLL, b->fields);
			break;
		case LOOP_MESSAGE:
			message(b, i);
			break;
		}
	}
	return now() - start;
}
