// The tag list of an SRQ: its slots, and list operations (docs/tag-matching-offload.md, 3 and 5.2).

#define _GNU_SOURCE
#include "tmstub.h"

#include <errno.h>
#include <stdlib.h>

enum {
	COMMAND_QP = 0xfffffe,  // completions of list operations name it
	MOST_UNREPORTED = 0x3fff,
};

int tm_init(struct srq *s, struct cq *cq, struct ibv_tm_cap cap)
{
	struct taglist *t = calloc(1, sizeof *t);

	if (!t)
		return ENOMEM;
	t->cq = cq;
	t->size = cap.max_num_tags + 1;
	t->max_ops = cap.max_ops;
	t->slots = calloc(t->size, sizeof *t->slots);
	t->free = calloc(t->size, sizeof *t->free);
	if (!t->slots || !t->free) {
		free(t->slots);
		free(t->free);
		free(t);
		return ENOMEM;
	}
	for (uint32_t i = 0; i < t->size; i++)
		t->free[t->free_tail++] = i;
	t->last = &t->first;
	s->tags = t;
	return 0;
}

void tm_free(struct srq *s)
{
	free(s->tags->slots);
	free(s->tags->free);
	free(s->tags);
}

// A handle is the slot, and above it the generation, so that one that is out of date is known.
static uint32_t handle_of(const struct taglist *t, const struct slot *e)
{
	return (uint32_t)e->generation << 16 | (uint32_t)(e - t->slots);
}

// slot_of is the slot of a handle: NULL if that is out of date.
static struct slot *slot_of(const struct taglist *t, uint32_t handle)
{
	uint32_t i = handle & 0xffff;
	struct slot *e = i < t->size ? &t->slots[i] : NULL;

	return e && e->owed && e->generation == handle >> 16 ? e : NULL;
}

// owe changes how many completions a slot owes. One that owes none is free.
static void owe(struct taglist *t, struct slot *e, int by)
{
	e->owed += (unsigned)by;
	if (e->owed)
		return;
	e->generation++;
	t->free[t->free_tail++ % t->size] = (uint32_t)(e - t->slots);
}

static void unlist(struct taglist *t, struct slot *e)
{
	struct slot **p;

	for (p = &t->first; *p != e; p = &(*p)->next)
		;
	*p = e->next;
	if (t->last == &e->next)
		t->last = p;
	e->listed = false;
}

// tm_match takes the first entry that may match a tag out of the list.
struct slot *tm_match(struct srq *s, uint64_t tag, uint32_t *handle)
{
	struct taglist *t = s->tags;

	if (s->rq.head - s->rq.next < s->ctx->cfg.untagged)
		return NULL;
	for (struct slot *e = t->first; e; e = e->next) {
		if (e->live && (tag & e->mask) == e->tag) {
			*handle = handle_of(t, e);
			unlist(t, e);
			return e;
		}
	}
	return NULL;
}

// activate makes all entries live when all unexpected messages are reported as handled.
static void activate(struct taglist *t)
{
	if (t->reported == t->unexpected)
		for (struct slot *e = t->first; e; e = e->next)
			e->live = true;
}

// complete_op reports a list operation, if that is asked for.
static void complete_op(struct srq *s, const struct ibv_ops_wr *wr, struct cqe e, enum ibv_wc_opcode op)
{
	struct taglist *t = s->tags;

	t->ops++;
	if (!(wr->flags & IBV_OPS_SIGNALED))
		return;
	e.srq = s;
	e.op_end = t->ops;
	e.count = t->unexpected;
	e.wc.wr_id = wr->wr_id;
	e.wc.opcode = op;
	e.wc.qp_num = COMMAND_QP;
	cq_push(t->cq, &e);
}

static void add(struct srq *s, struct ibv_ops_wr *wr)
{
	struct taglist *t = s->tags;
	struct slot *e = &t->slots[t->free[t->free_head++ % t->size]];
	bool signaled = wr->flags & IBV_OPS_SIGNALED;

	if (wr->flags & IBV_OPS_TM_SYNC)
		t->driver_count = wr->tm.unexpected_cnt;
	e->recv_wr_id = wr->tm.add.recv_wr_id;
	e->tag = wr->tm.add.tag;
	e->mask = wr->tm.add.mask;
	e->sges = wr->tm.add.num_sge;
	if (e->sges)
		e->sge = *wr->tm.add.sg_list;
	e->count = t->driver_count;
	e->owed = signaled ? 2 : 1;
	e->listed = true;
	e->live = false;
	e->next = NULL;
	*t->last = e;
	t->last = &e->next;
	wr->tm.handle = handle_of(t, e);
}

// del removes an entry, and returns the completion for it: TM_ERR if a message was faster.
static struct cqe del(struct taglist *t, const struct ibv_ops_wr *wr)
{
	struct slot *e = slot_of(t, wr->tm.handle);
	bool removed = e && e->listed;
	struct cqe out = {.entry = e, .handle = wr->tm.handle, .pays = removed ? 2 : 1};

	if (!removed)
		out.wc.status = IBV_WC_TM_ERR;
	else
		unlist(t, e);
	if (e)
		owe(t, e, wr->flags & IBV_OPS_SIGNALED ? 1 : -1);
	return out;
}

// execute does an operation. Removal precedes activation.
static void execute(struct srq *s, struct ibv_ops_wr *wr)
{
	struct taglist *t = s->tags;
	enum ibv_wc_opcode op = IBV_WC_TM_SYNC;
	struct cqe e = {0};

	switch (wr->opcode) {
	case IBV_WR_TAG_ADD:
		add(s, wr);
		op = IBV_WC_TM_ADD;
		e = (struct cqe){.entry = true, .handle = wr->tm.handle, .pays = 1};
		break;
	case IBV_WR_TAG_DEL:
		e = del(t, wr);
		op = IBV_WC_TM_DEL;
		break;
	default:
		break;
	}
	if (wr->flags & IBV_OPS_TM_SYNC)
		t->reported = (uint16_t)wr->tm.unexpected_cnt;
	activate(t);
	complete_op(s, wr, e, op);
}

// refused is the errno of an operation that cannot be posted, or 0. The list is full when the next
// slot is the last free one.
static int refused(const struct taglist *t, const struct ibv_ops_wr *wr)
{
	if (t->ops - t->ops_polled == t->max_ops)
		return ENOMEM;
	if (wr->flags & ~(IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC))
		return EINVAL;
	switch (wr->opcode) {
	case IBV_WR_TAG_ADD:
		if (wr->tm.add.num_sge > 1)
			return EINVAL;
		return t->free_tail - t->free_head == 1 ? ENOMEM : 0;
	case IBV_WR_TAG_DEL:
		return wr->flags & IBV_OPS_SIGNALED || slot_of(t, wr->tm.handle) ? 0 : EINVAL;
	case IBV_WR_TAG_SYNC:
		return 0;
	}
	return EINVAL;
}

int post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	struct srq *s = owner_of(srq, struct srq, s);
	int err = 0;

	calls[POST_SRQ_OPS]++;
	enter();
	for (; wr; wr = wr->next) {
		err = s->tags ? refused(s->tags, wr) : EINVAL;
		if (err) {
			*bad = wr;
			break;
		}
		execute(s, wr);
	}
	if (s->tags && s->rq.starved)
		kick_starved(&s->rq); // a message that waits may match now
	leave();
	return err;
}

// no_srq_ops is what a device without tag matching has.
int no_srq_ops(struct ibv_srq *s, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	(void)s;
	(void)wr;
	(void)bad; // it is not written
	return EOPNOTSUPP;
}

// tm_pay gives back what a completion has held, and does what the driver does with it: it asks for
// a SYNC, and finds a receive whose slot is not its own any more.
void tm_pay(struct cqe *c)
{
	struct taglist *t = c->srq->tags;
	struct slot *e = c->entry ? slot_of(t, c->handle) : NULL;
	enum ibv_wc_opcode op = c->wc.opcode;

	if (c->op_end)
		t->ops_polled = c->op_end;
	if (e && (op == IBV_WC_TM_ADD || op == IBV_WC_TM_DEL) && c->wc.status == IBV_WC_SUCCESS && c->count != e->count)
		c->wc.wc_flags |= IBV_WC_TM_SYNC_REQ;
	if (c->unexpected && (int32_t)(++t->polled_count - t->driver_count) > MOST_UNREPORTED)
		c->wc.wc_flags |= IBV_WC_TM_SYNC_REQ;
	if (e && c->pays)
		owe(t, e, -c->pays);
	else if (c->entry && !e && !c->op_end)
		c->wc.status = IBV_WC_GENERAL_ERR;
}
