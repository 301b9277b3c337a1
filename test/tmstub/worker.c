// The lock, the work that waits for it, and the thread that reads and keeps the time.

#define _GNU_SOURCE
#include "tmstub.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

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
static unsigned pace;       // us between the steps of READs: TMSTUB_PACE
static struct qp *pending, **last_pending = &pending;
static struct transfer *transfers, **last_transfer = &transfers;

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
	if (q->is_pending || q->q.state != IBV_QPS_RTS || (q->next == q->head && !q->rndvs && !q->fins))
		return;
	q->is_pending = true;
	*last_pending = q;
	last_pending = &q->pending;
}

uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void wake_worker(void) { pthread_cond_signal(&work); }

// start_transfer has the thread do a READ.
void start_transfer(struct qp *q, struct swqe *w)
{
	struct transfer *t = calloc(1, sizeof *t);

	if (!t)
		abort();
	*t = (struct transfer){.q = q, .w = w};
	*last_transfer = t;
	last_transfer = &t->next;
	q->reads++;
	wake_worker();
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
	if (q->srq && q->srq->tags)
		drop_rndvs(q);
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
			struct rndv *r = t->w->rndv;

			unlink_transfer(&transfers);
			if (r)
				rndv_read(q, r);
			else
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
			if (pace)
				usleep(pace);
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

// start_once starts the thread. It takes no signals: they are the program's.
static void start_once(void)
{
	pthread_condattr_t attr;
	pthread_t thread;
	sigset_t all, old;

	pace = (unsigned)setting("TMSTUB_PACE", 0);
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
