// Receive queues, shared or not.

#define _GNU_SOURCE
#include "tmstub.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int rq_init(struct rq *r, uint32_t size, uint32_t max_sge)
{
	r->size = size;
	r->max_sge = max_sge;
	r->w = calloc(size + 1, sizeof *r->w);
	r->sges = calloc((size_t)size * max_sge + 1, sizeof *r->sges);
	return r->w && r->sges ? 0 : ENOMEM;
}

void rq_free(struct rq *r)
{
	free(r->w);
	free(r->sges);
}

// rq_post posts a chain, up to the first receive that cannot be posted.
int rq_post(struct rq *r, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = 0;

	for (; wr; wr = wr->next) {
		uint64_t i = r->size ? r->head % r->size : 0;
		struct rwqe *w = &r->w[i];

		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > r->max_sge)
			err = EINVAL;
		else if (r->head - r->polled == r->size)
			err = ENOMEM;
		if (err) {
			*bad = wr;
			break;
		}
		w->wr_id = wr->wr_id;
		w->list = (struct list){&r->sges[i * r->max_sge], wr->num_sge};
		if (wr->num_sge)
			memcpy(w->list.sge, wr->sg_list, wr->num_sge * sizeof *w->list.sge);
		r->head++;
	}
	if (r->starved && r->next < r->head)
		kick_starved(r);
	return err;
}

API struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct srq *s;

	if (!a->attr.max_wr || a->attr.max_wr > MAX_WR || a->attr.max_sge > MAX_SRQ_SGE) {
		errno = EINVAL;
		return NULL;
	}
	s = calloc(1, sizeof *s);
	if (!s || rq_init(&s->rq, a->attr.max_wr, a->attr.max_sge)) {
		free(s);
		errno = ENOMEM;
		return NULL;
	}
	s->ctx = context_of(pd->context);
	s->s.context = pd->context;
	s->s.srq_context = a->srq_context;
	s->s.pd = pd;
	enter();
	s->ctx->objects++;
	owner_of(pd, struct pd, p)->objects++;
	leave();
	return &s->s;
}

API int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct srq *s = owner_of(srq, struct srq, s);

	enter();
	if (s->users) {
		leave();
		return EBUSY;
	}
	evq_forget(&s->ctx->async, srq);
	await_acks(&s->reported, &srq->events_completed);
	s->ctx->objects--;
	owner_of(srq->pd, struct pd, p)->objects--;
	leave();
	rq_free(&s->rq);
	free(s);
	return 0;
}

API int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *a, int mask)
{
	struct srq *s = owner_of(srq, struct srq, s);

	if (mask != IBV_SRQ_LIMIT || a->srq_limit > s->rq.size)
		return EINVAL; // the queue cannot be resized
	enter();
	s->limit = a->srq_limit;
	leave();
	return 0;
}

API int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *a)
{
	struct srq *s = owner_of(srq, struct srq, s);

	enter();
	*a = (struct ibv_srq_attr){.max_wr = s->rq.size, .max_sge = s->rq.max_sge, .srq_limit = s->limit};
	leave();
	return 0;
}

// srq_consumed raises the limit event when a message has taken a receive.
void srq_consumed(struct srq *s)
{
	if (s->rq.head - s->rq.next < s->limit) {
		s->limit = 0;
		evq_put(&s->ctx->async, IBV_EVENT_SRQ_LIMIT_REACHED, &s->s, &s->reported);
	}
}

int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err;

	enter();
	err = rq_post(&owner_of(srq, struct srq, s)->rq, wr, bad);
	leave();
	return err;
}
