// The wire: execution of send requests, and the thread that reads and keeps the time.

#define _GNU_SOURCE
#include "tmstub.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// A READ goes on by steps of so many bytes, and others get the lock in between.
enum { STEP = 64 << 10 };

// transfer is a READ under way.
struct transfer {
	struct transfer *next;
	struct qp *q;
	struct swqe *w;
	uint64_t done;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acks = PTHREAD_COND_INITIALIZER;
static pthread_cond_t work; // for the thread
static atomic_int callers;  // that want the lock
struct qp *all_qps;
static struct qp *pending, **last_pending = &pending;
static struct transfer *transfers, **last_transfer = &transfers;

static void run(struct qp *q);

void enter(void)
{
	atomic_fetch_add(&callers, 1);
	pthread_mutex_lock(&mutex);
	atomic_fetch_sub(&callers, 1);
}

static void run_pending(void)
{
	while (pending) {
		struct qp *q = pending;

		pending = q->pending;
		if (!pending)
			last_pending = &pending;
		q->pending = NULL;
		q->is_pending = false;
		run(q);
	}
}

void leave(void)
{
	run_pending();
	pthread_mutex_unlock(&mutex);
}

void wait_for_acks(void)
{
	run_pending();
	pthread_cond_wait(&acks, &mutex);
}

void acked(void) { pthread_cond_broadcast(&acks); }

// kick has a queue pair's requests looked at before the lock is given back.
void kick(struct qp *q)
{
	if (q->is_pending || q->q.state != IBV_QPS_RTS || q->next == q->head)
		return;
	q->is_pending = true;
	*last_pending = q;
	last_pending = &q->pending;
}

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
static struct qp *peer_of(const struct qp *q)
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

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// rnr_timer is the time of a code of min_rnr_timer, in ns.
static uint64_t rnr_timer(uint8_t code)
{
	static const uint32_t units[32] = {65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
		1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

	return (uint64_t)units[code & 31] * 10000;
}

// outcome is that of trying a request.
enum outcome { DONE, STARTED, WAITS };

static enum outcome end(struct swqe *w, enum ibv_wc_status status)
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
	pthread_cond_signal(&work);
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
	pthread_cond_signal(&work);
	return WAITS;
}

static enum outcome wait_rnr(struct qp *q, struct qp *p, struct swqe *w)
{
	receives_of(p)->starved = true;
	return wait(q, w, WAITS_RNR, rnr_timer(p->attr.min_rnr_timer), q->attr.rnr_retry, IBV_WC_RNR_RETRY_EXC_ERR);
}

// respond has the peer take a message, or its immediate data.
static enum ibv_wc_status respond(struct qp *q, struct qp *p, const struct swqe *w, enum ibv_wc_opcode op)
{
	struct rq *r = receives_of(p);
	const struct rwqe *to = &r->w[r->next++ % r->size];
	struct ibv_wc wc = {.opcode = op, .byte_len = w->len, .src_qp = q->q.qp_num};
	bool send = op == IBV_WC_RECV;

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

static bool empty(const struct rq *r) { return r->next == r->head; }

// refuse_access fails a responder whose peer may not do what it asks for.
static enum ibv_wc_status refuse_access(struct qp *p)
{
	qp_event(p, IBV_EVENT_QP_ACCESS_ERR);
	qp_fail(p);
	return IBV_WC_REM_ACCESS_ERR;
}

static bool accessible(const struct qp *p, uint32_t rkey, uint64_t addr, uint64_t len, int access)
{
	return p->attr.qp_access_flags & access && remote_registered(p->q.pd, p->dev, rkey, addr, len, access);
}

static enum outcome write_to(struct qp *q, struct qp *p, struct swqe *w)
{
	struct ibv_sge sge = {.addr = w->remote, .length = w->len};

	if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && empty(receives_of(p)))
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
	struct transfer *t;

	if (!accessible(p, w->rkey, w->remote, w->len, IBV_ACCESS_REMOTE_READ))
		return end(w, refuse_access(p));
	if (!p->attr.max_dest_rd_atomic)
		return end(w, IBV_WC_REM_INV_REQ_ERR);
	if (!w->len)
		return end(w, IBV_WC_SUCCESS);
	if (q->reads == q->attr.max_rd_atomic)
		return WAITS;
	t = calloc(1, sizeof *t);
	if (!t)
		abort();
	*t = (struct transfer){.q = q, .w = w};
	*last_transfer = t;
	last_transfer = &t->next;
	q->reads++;
	pthread_cond_signal(&work);
	return STARTED;
}

// execute tries a request.
static enum outcome execute(struct qp *q, struct swqe *w)
{
	bool inlined = w->flags & IBV_SEND_INLINE;
	int access = w->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
	struct qp *p;

	if (w->flags & IBV_SEND_FENCE && q->reads)
		return WAITS;
	if (!inlined && !list_registered(q->q.pd, q->dev, w->list, w->len, access))
		return end(w, IBV_WC_LOC_PROT_ERR);
	p = peer_of(q);
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
		if (empty(receives_of(p)))
			return wait_rnr(q, p, w);
		return end(w, respond(q, p, w, IBV_WC_RECV));
	}
}

// refused reports whether the newest request that was executed has failed.
static bool refused(const struct qp *q)
{
	const struct swqe *w = &q->sq[(q->next - 1) % q->cap.max_send_wr];

	return q->failed || (q->next > q->done && w->done && w->status != IBV_WC_SUCCESS);
}

// run executes what a queue pair has, as far as that goes. Behind an error nothing is executed.
static void run(struct qp *q)
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
}

// unlink_transfer takes the READ at t out of the list.
static void unlink_transfer(struct transfer **t)
{
	struct transfer *gone = *t;

	*t = gone->next;
	if (last_transfer == &gone->next)
		last_transfer = t;
	gone->q->reads--;
	free(gone);
}

// drop_work forgets what is under way for a queue pair.
void drop_work(struct qp *q)
{
	for (struct transfer **t = &transfers; *t;) {
		if ((*t)->q == q)
			unlink_transfer(t);
		else
			t = &(*t)->next;
	}
	if (q->is_pending) {
		struct qp **p = &pending;

		for (; *p != q; p = &(*p)->pending)
			;
		*p = q->pending;
		if (last_pending == &q->pending)
			last_pending = p;
		q->pending = NULL;
		q->is_pending = false;
	}
	q->waiting = NOT_WAITING;
	q->deadline = 0;
	q->scq->failures -= q->failed;
	q->failed = false;
}

// step moves a part of a READ, whose regions and queue pairs may have changed since the last, and
// reports whether that was the last.
static bool step(struct transfer *t)
{
	struct qp *q = t->q, *p = peer_of(q);
	struct swqe *w = t->w;
	uint64_t n = w->len - t->done < STEP ? w->len - t->done : STEP;
	struct ibv_sge from = {.addr = w->remote, .length = w->len};

	if (!p || p->q.state == IBV_QPS_INIT)
		return end(w, IBV_WC_RETRY_EXC_ERR) == DONE;
	if (!list_registered(q->q.pd, q->dev, w->list, w->len, IBV_ACCESS_LOCAL_WRITE))
		return end(w, IBV_WC_LOC_PROT_ERR) == DONE;
	if (!accessible(p, w->rkey, w->remote, w->len, IBV_ACCESS_REMOTE_READ))
		return end(w, refuse_access(p)) == DONE;
	list_copy(w->list, t->done, (struct list){&from, 1}, t->done, n);
	t->done += n;
	return t->done == w->len && end(w, IBV_WC_SUCCESS) == DONE;
}

// step_first does a step of the oldest READ. Those of other queue pairs get their turn after it.
static void step_first(void)
{
	struct transfer *t = transfers;
	struct qp *q = t->q;

	if (step(t)) {
		// A queue pair that has failed in the step, being its own peer, has dropped its transfers.
		if (transfers == t) {
			unlink_transfer(&transfers);
			complete_sends(q);
			kick(q);
		}
	} else if (t->next) {
		transfers = t->next;
		t->next = NULL;
		*last_transfer = t;
		last_transfer = &t->next;
	}
}

// expire tries again what has waited for its time, and returns the next time: 0, there is none.
static uint64_t expire(void)
{
	uint64_t next = 0, t = now();

	for (struct qp *q = all_qps; q; q = q->all)
		if (q->deadline && q->deadline <= t && q->failed)
			qp_fail(q);
		else if (q->deadline && q->deadline <= t)
			kick(q);
	run_pending();
	for (struct qp *q = all_qps; q; q = q->all)
		if (q->deadline && (!next || q->deadline < next))
			next = q->deadline;
	return next;
}

static void *worker(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&mutex);
	for (;;) {
		uint64_t next = expire();

		if (transfers) {
			step_first();
			run_pending();
			pthread_mutex_unlock(&mutex);
			do
				sched_yield();
			while (atomic_load(&callers));
			pthread_mutex_lock(&mutex);
		} else if (next) {
			struct timespec t = {.tv_sec = next / 1000000000, .tv_nsec = next % 1000000000};

			pthread_cond_timedwait(&work, &mutex, &t);
		} else {
			pthread_cond_wait(&work, &mutex);
		}
	}
	return NULL;
}

// start_worker starts the thread, once. It takes no signals: they are the program's.
static void start_once(void)
{
	pthread_condattr_t attr;
	pthread_t thread;
	sigset_t all, old;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&work, &attr);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	if (pthread_create(&thread, NULL, worker, NULL))
		abort();
	pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void start_worker(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, start_once);
}
