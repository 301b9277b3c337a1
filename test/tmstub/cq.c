// Completion queues.

#define _GNU_SOURCE
#include "tmstub.h"

#include <errno.h>
#include <stdlib.h>

static struct cq *cq_of(struct ibv_cq *cq) { return owner_of(cq, struct cq, x); }

struct cq *new_cq(struct ibv_context *ctx, uint32_t cqe, void *cq_context, struct ibv_comp_channel *channel, uint32_t vector)
{
	struct cq *c = NULL;

	errno = EINVAL;
	if (cqe < 1 || cqe > MAX_CQE || vector >= (uint32_t)ctx->num_comp_vectors)
		return NULL;
	errno = ENOMEM;
	c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->ring = calloc(cqe, sizeof *c->ring);
	if (!c->ring) {
		free(c);
		return NULL;
	}
	c->ctx = context_of(ctx);
	c->x.context = ctx;
	c->x.channel = channel;
	c->x.cq_context = cq_context;
	c->x.cqe = (int)cqe;
	enter();
	c->ctx->objects++;
	if (channel)
		channel->refcnt++;
	leave();
	return c;
}

API struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context, struct ibv_comp_channel *channel,
				 int comp_vector)
{
	return (struct ibv_cq *)new_cq(ctx, (uint32_t)cqe, cq_context, channel, (uint32_t)comp_vector);
}

API int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct cq *c = cq_of(cq);

	enter();
	if (c->users) {
		leave();
		return EBUSY;
	}
	evq_forget(&c->ctx->async, cq);
	if (cq->channel) {
		evq_forget(&owner_of(cq->channel, struct channel, c)->events, cq);
		cq->channel->refcnt--;
	}
	await_acks(&c->comp_reported, &c->x.comp_events_completed);
	await_acks(&c->async_reported, &c->x.async_events_completed);
	c->ctx->objects--;
	leave();
	free(c->ring);
	free(c);
	return 0;
}

int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct cq *c = cq_of(cq);

	enter();
	if (!solicited_only)
		c->armed = ARMED;
	else if (c->armed == UNARMED)
		c->armed = ARMED_SOLICITED;
	leave();
	return 0;
}

// cq_push adds a completion, and its event if one is asked for. A queue that is full is unusable
// from then on.
void cq_push(struct cq *c, const struct cqe *e)
{
	if (c->overrun)
		return;
	if (c->tail - c->head == (uint64_t)c->x.cqe) {
		c->overrun = true;
		evq_put(&c->ctx->async, IBV_EVENT_CQ_ERR, &c->x, &c->async_reported);
		return;
	}
	c->ring[c->tail % c->x.cqe] = *e;
	c->tail++;
	if (c->armed == ARMED || (c->armed == ARMED_SOLICITED && (e->solicited || e->wc.status != IBV_WC_SUCCESS))) {
		c->armed = UNARMED;
		if (c->x.channel)
			evq_put(&owner_of(c->x.channel, struct channel, c)->events, 0, &c->x, &c->comp_reported);
	}
}

// pay gives back what a completion has held.
static void pay(struct cqe *e)
{
	if (e->sq_end)
		e->qp->polled = e->sq_end;
	if (e->received && e->srq)
		e->srq->rq.polled++;
	else if (e->received)
		e->qp->rq.polled++;
	if (e->srq && e->srq->tags)
		tm_pay(e);
}

// cq_forget drops the completions of a queue pair that is destroyed or reset, or of an SRQ.
void cq_forget(struct cq *c, const struct qp *qp, const struct srq *srq)
{
	uint64_t to = c->head;

	for (uint64_t i = c->head; i < c->tail; i++) {
		struct cqe *e = &c->ring[i % c->x.cqe];

		if (qp ? e->qp == qp : e->srq == srq)
			pay(e);
		else
			c->ring[to++ % c->x.cqe] = *e;
	}
	c->tail = to;
}

// cq_next takes the oldest completion, if there is one.
bool cq_next(struct cq *c, struct cqe *e)
{
	if (c->head == c->tail)
		return false;
	*e = c->ring[c->head++ % c->x.cqe];
	pay(e);
	return true;
}

// cq_again has a queue that is empty give the newest completions again, where tmstub_again has asked for
// that. They are of send requests, whose room can be given back more than once.
void cq_again(struct cq *c)
{
	if (again && c->head == c->tail && c->tail >= (uint64_t)again)
		c->head -= again;
}

int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	struct cq *c = cq_of(cq);
	struct cqe e;
	int n = 0;

	calls[POLL_CQ]++;
	if (c->tail == c->head && !c->overrun && !c->failures) { // head is the poller's own
		calls[EMPTY_POLL]++;
		return 0;
	}
	enter();
	report_failures(c);
	if (c->overrun)
		n = -1;
	else
		while (n < most && cq_next(c, &e))
			wc[n++] = e.wc;
	cq_again(c);
	leave();
	if (!n)
		calls[EMPTY_POLL]++;
	return n;
}
