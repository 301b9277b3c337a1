// The wire: execution of send requests, and what answers them.

#define _GNU_SOURCE
#include "tmstub.h"

#include <string.h>

struct qp *all_qps;

// kick_senders has those looked at that send to a queue pair.
void kick_senders(const struct qp *to)
{
	for (struct qp *q = all_qps; q; q = q->all)
		if (q->attr.dest_qp_num == to->q.qp_num)
			kick(q);
}

// destination is the device that a queue pair's packets go to.
static struct device *destination(const struct qp *q)
{
	const struct ibv_ah_attr *a = &q->attr.ah_attr;
	bool ethernet = q->ctx->cfg.ethernet;

	for (int i = 0; i < device_count; i++) {
		struct device *d = &devices[i];
		union ibv_gid gid;

		if (!ethernet && d->lid != a->dlid)
			continue;
		port_gid(d, ethernet, ethernet ? 1 : 0, &gid);
		if (!a->is_global || memcmp(&gid, &a->grh.dgid, sizeof gid) == 0)
			return d;
	}
	return NULL;
}

// peer_of is the queue pair that takes the packets of another, and answers: NULL if there is none.
struct qp *peer_of(const struct qp *q)
{
	const struct device *d = destination(q);
	uint32_t slot = q->attr.dest_qp_num - FIRST_QP;
	struct qp *p = d && slot < MAX_QPS ? d->qps[slot] : NULL;

	if (!p || p->q.state == IBV_QPS_RESET || p->q.state == IBV_QPS_ERR)
		return NULL;
	if (p->q.state != IBV_QPS_INIT && (p->attr.dest_qp_num != q->q.qp_num || destination(p) != q->dev))
		return NULL; // it is connected to another
	return p;
}

void kick_starved(struct rq *r)
{
	r->starved = false;
	for (struct qp *q = all_qps; q; q = q->all) {
		struct qp *p = q->waiting == WAITS_RNR ? peer_of(q) : NULL;

		if (p && receives_of(p) == r)
			kick(q);
	}
}

// rnr_timer is the time of a code of min_rnr_timer, in ns.
static uint64_t rnr_timer(uint8_t code)
{
	static const uint32_t units[32] = {65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
		1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

	return (uint64_t)units[code & 31] * 10000;
}

enum outcome end(struct swqe *w, enum ibv_wc_status status)
{
	w->done = true;
	w->status = status;
	return DONE;
}

// await_failure has the error of the oldest request come later than what was posted behind it: when
// its completion queue is polled, or after a time.
void await_failure(struct qp *q)
{
	q->failed = true;
	q->scq->failures++;
	q->deadline = now() + 20000000;
	wake_worker();
}

// report_failures ends queue pairs whose errors are to come on a completion queue.
void report_failures(const struct cq *cq)
{
	for (struct qp *q = all_qps; q && cq->failures; q = q->all)
		if (q->failed && q->scq == cq)
			qp_fail(q);
}

// wait has the request tried again after a time, as often as there are retries. 7 retries after RNR
// are retries for ever. What it waits for has it tried again at once.
static enum outcome wait(struct qp *q, struct swqe *w, enum waiting why, uint64_t interval, int retries, enum ibv_wc_status status)
{
	bool first = q->waiting != why;

	if (first) {
		q->waiting = why;
		q->retries = retries;
	} else if (!q->deadline || now() < q->deadline) {
		return WAITS;
	}
	if ((why == WAITS_RNR && retries == 7) || !interval) {
		q->deadline = 0;
		return WAITS;
	}
	if (q->retries-- == 0)
		return end(w, status);
	q->deadline = now() + interval;
	wake_worker();
	return WAITS;
}

enum outcome wait_rnr(struct qp *q, struct qp *p, struct swqe *w)
{
	receives_of(p)->starved = true;
	return wait(q, w, WAITS_RNR, rnr_timer(p->attr.min_rnr_timer), q->attr.rnr_retry, IBV_WC_RNR_RETRY_EXC_ERR);
}

// respond has the peer take a message, or its immediate data, by a receive of its queue.
enum ibv_wc_status respond(struct qp *q, struct qp *p, const struct swqe *w, enum ibv_wc_opcode op)
{
	struct rq *r = receives_of(p);
	const struct rwqe *to = &r->w[r->next++ % r->size];
	struct ibv_wc wc = {.opcode = op, .byte_len = w->len, .src_qp = q->q.qp_num};
	bool send = op != IBV_WC_RECV_RDMA_WITH_IMM;

	if (p->srq)
		srq_consumed(p->srq);
	if (send && w->len > list_length(to->list))
		wc.status = IBV_WC_LOC_LEN_ERR;
	else if (send && !list_registered(p->q.pd, p->dev, to->list, w->len, IBV_ACCESS_LOCAL_WRITE))
		wc.status = IBV_WC_LOC_PROT_ERR;
	if (wc.status) {
		wc.opcode = 0x7f;
		complete_receive(p, to->wr_id, wc, true);
		qp_fail(p);
		return wc.status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR;
	}
	if (w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		wc.imm_data = w->imm;
		wc.wc_flags |= IBV_WC_WITH_IMM;
	}
	if (send)
		list_copy(to->list, 0, w->list, 0, w->len);
	complete_receive(p, to->wr_id, wc, w->flags & IBV_SEND_SOLICITED);
	return IBV_WC_SUCCESS;
}


// refuse_access fails a responder whose peer may not do what it asks for.
enum ibv_wc_status refuse_access(struct qp *p)
{
	qp_event(p, IBV_EVENT_QP_ACCESS_ERR);
	qp_fail(p);
	return IBV_WC_REM_ACCESS_ERR;
}

bool accessible(const struct qp *p, uint32_t rkey, uint64_t addr, uint64_t len, int access)
{
	return p->attr.qp_access_flags & access && remote_registered(p->q.pd, p->dev, rkey, addr, len, access);
}

static enum outcome write_to(struct qp *q, struct qp *p, struct swqe *w)
{
	struct ibv_sge sge = {.addr = w->remote, .length = w->len};

	if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && rq_empty(receives_of(p)))
		return wait_rnr(q, p, w);
	if (!accessible(p, w->rkey, w->remote, w->len, IBV_ACCESS_REMOTE_WRITE))
		return end(w, refuse_access(p));
	list_copy((struct list){&sge, 1}, 0, w->list, 0, w->len);
	if (w->opcode == IBV_WR_RDMA_WRITE)
		return end(w, IBV_WC_SUCCESS);
	return end(w, respond(q, p, w, IBV_WC_RECV_RDMA_WITH_IMM));
}

static enum outcome read_from(struct qp *q, struct qp *p, struct swqe *w)
{
	if (!accessible(p, w->rkey, w->remote, w->len, IBV_ACCESS_REMOTE_READ))
		return end(w, refuse_access(p));
	if (!p->attr.max_dest_rd_atomic)
		return end(w, IBV_WC_REM_INV_REQ_ERR);
	if (!w->len)
		return end(w, IBV_WC_SUCCESS);
	if (q->reads == q->attr.max_rd_atomic)
		return WAITS;
	start_transfer(q, w);
	return STARTED;
}

// transmit tries a request whose memory was checked.
enum outcome transmit(struct qp *q, struct swqe *w)
{
	struct qp *p = peer_of(q);

	if (!p) // it will not answer: a NIC finds that by its retries, this one at once
		return end(w, IBV_WC_RETRY_EXC_ERR);
	if (p->q.state == IBV_QPS_INIT)
		return wait(q, w, WAITS_PEER, q->attr.timeout ? 4096ULL << q->attr.timeout : 0, q->attr.retry_cnt, IBV_WC_RETRY_EXC_ERR);
	switch (w->opcode) {
	case IBV_WR_RDMA_READ:
		return read_from(q, p, w);
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return write_to(q, p, w);
	default:
		if (p->srq && p->srq->tags)
			return tm_receive(q, p, w);
		if (rq_empty(receives_of(p)))
			return wait_rnr(q, p, w);
		return end(w, respond(q, p, w, IBV_WC_RECV));
	}
}

// execute tries a request of the program.
static enum outcome execute(struct qp *q, struct swqe *w)
{
	bool inlined = w->flags & IBV_SEND_INLINE;
	int access = w->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (w->flags & IBV_SEND_FENCE && q->reads)
		return WAITS;
	if (!inlined && !list_registered(q->q.pd, q->dev, w->list, w->len, access))
		return end(w, IBV_WC_LOC_PROT_ERR);
	return transmit(q, w);
}

// refused reports whether the newest request that was executed has failed.
static bool refused(const struct qp *q)
{
	const struct swqe *w = &q->sq[(q->next - 1) % q->cap.max_send_wr];

	return q->failed || (q->next > q->done && w->done && w->status != IBV_WC_SUCCESS);
}

// run executes what a queue pair has, as far as that goes. Behind an error nothing is executed.
void run(struct qp *q)
{
	while (q->q.state == IBV_QPS_RTS && q->next < q->head) {
		struct swqe *w = &q->sq[q->next % q->cap.max_send_wr];

		if (refused(q) || execute(q, w) == WAITS)
			return;
		if (q->q.state != IBV_QPS_RTS)
			return; // it sends to itself, and has failed
		q->waiting = NOT_WAITING;
		q->deadline = 0;
		q->next++;
		complete_sends(q);
	}
	if (q->srq && q->srq->tags)
		run_rndvs(q);
}
