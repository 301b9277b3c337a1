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

bool rq_empty(const struct rq *r) { return r->next == r->head; }

// new_srq makes an SRQ, with a tag list if cq is not NULL.
static struct srq *new_srq(struct ibv_pd *pd, void *srq_context, const struct ibv_srq_attr *a, struct cq *cq, struct ibv_tm_cap cap)
{
	struct srq *s;

	if (!a->max_wr || a->max_wr > MAX_WR || a->max_sge > MAX_SRQ_SGE) {
		errno = EINVAL;
		return NULL;
	}
	s = calloc(1, sizeof *s);
	if (!s || rq_init(&s->rq, a->max_wr, a->max_sge) || (cq && tm_init(s, cq, cap))) {
		free(s);
		errno = ENOMEM;
		return NULL;
	}
	s->ctx = context_of(pd->context);
	s->s.context = pd->context;
	s->s.srq_context = srq_context;
	s->s.pd = pd;
	enter();
	s->num = ++s->ctx->dev->last_srq;
	s->ctx->objects++;
	owner_of(pd, struct pd, p)->objects++;
	if (cq)
		cq->users++;
	leave();
	return s;
}

API struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct srq *s = new_srq(pd, a->srq_context, &a->attr, NULL, (struct ibv_tm_cap){0, 0});

	return s ? &s->s : NULL;
}

// tm_refused is the errno of an SRQ for tag matching that cannot be made, or 0. On Ethernet that
// is so whatever the capabilities say: the provider connects a queue pair of its own without a GID.
static int tm_refused(const struct context *c, const struct ibv_srq_init_attr_ex *a)
{
	const uint32_t need = IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;

	if (!c->cfg.tags)
		return EOPNOTSUPP;
	if ((a->comp_mask & need) != need || !a->cq || !(owner_of(a->cq, struct cq, x)->wc_flags & IBV_WC_EX_WITH_TM_INFO))
		return EINVAL;
	if (!a->tm_cap.max_num_tags || a->tm_cap.max_num_tags > c->cfg.tags || !a->tm_cap.max_ops || a->tm_cap.max_ops > c->cfg.ops)
		return EINVAL;
	return c->cfg.ethernet ? EINVAL : c->cfg.refuse;
}

struct ibv_srq *create_srq_ex(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *a)
{
	bool tm = a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && a->srq_type == IBV_SRQT_TM;
	struct srq *s;

	errno = EOPNOTSUPP;
	if (a->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED || (a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && a->srq_type == IBV_SRQT_XRC))
		return NULL;
	errno = !(a->comp_mask & IBV_SRQ_INIT_ATTR_PD) ? EINVAL : tm ? tm_refused(context_of(ctx), a) : 0;
	if (errno)
		return NULL;
	s = new_srq(a->pd, a->srq_context, &a->attr, tm ? owner_of(a->cq, struct cq, x) : NULL, a->tm_cap);
	return s ? &s->s : NULL;
}

int get_srq_num(struct ibv_srq *s, uint32_t *num)
{
	*num = owner_of(s, struct srq, s)->num;
	return 0;
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
	if (s->tags) {
		cq_forget(s->tags->cq, NULL, s);
		s->tags->cq->users--;
		tm_free(s);
	}
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
	srq_consumed(s);
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

// srq_consumed raises the limit event if there are fewer receives than the limit.
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

	calls[POST_SRQ_RECV]++;
	enter();
	err = rq_post(&owner_of(srq, struct srq, s)->rq, wr, bad);
	leave();
	return err;
}
