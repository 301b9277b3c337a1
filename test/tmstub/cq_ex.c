// Extended completion queues. What is not valid of a completion is junk, so that reading it shows.

#define _GNU_SOURCE
#include "tmstub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const uint32_t junk = 0xdeadbeef;

static const struct cqe *at(struct ibv_cq_ex *x)
{
	const struct cq *c = owner_of(x, struct cq, x);

	if (!c->polling) {
		fprintf(stderr, "tmstub: a completion is read that was not polled\n");
		abort();
	}
	return &c->now;
}

// take takes the next completion: it is next_poll.
static int take(struct ibv_cq_ex *x)
{
	struct cq *c = owner_of(x, struct cq, x);
	int err = ENOENT;

	report_failures(c);
	if (c->overrun)
		err = EOVERFLOW;
	else if (cq_next(c, &c->now))
		err = 0;
	x->status = c->now.wc.status;
	x->wr_id = c->now.wc.wr_id;
	return err;
}

// start_poll keeps the lock until end_poll, as mlx5 does. After an error there is no end_poll.
static int start_poll(struct ibv_cq_ex *x, struct ibv_poll_cq_attr *attr)
{
	struct cq *c = owner_of(x, struct cq, x);
	int err = ENOENT;

	if (attr->comp_mask || c->polling)
		return EINVAL;
	calls[START_POLL]++;
	if (c->tail != c->head || c->overrun || c->failures) {
		enter();
		err = take(x);
		c->polling = !err;
		if (err)
			leave();
	}
	if (err == ENOENT)
		calls[EMPTY_POLL]++;
	return err;
}

static void end_poll(struct ibv_cq_ex *x)
{
	struct cq *c = owner_of(x, struct cq, x);

	if (!c->polling) {
		fprintf(stderr, "tmstub: end_poll without start_poll\n");
		abort();
	}
	cq_again(c);
	c->polling = false;
	leave();
}

// has_tag reports whether the completion says what was matched: that of an error may.
static bool has_tag(const struct cqe *e) { return e->wc.wc_flags & IBV_WC_TM_MATCH; }

static bool has_length(const struct cqe *e)
{
	bool ends = (e->wc.wc_flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID)) != IBV_WC_TM_MATCH;

	return ends && (e->wc.status == IBV_WC_SUCCESS || e->wc.status == IBV_WC_TM_RNDV_INCOMPLETE);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *x) { return at(x)->wc.opcode; }

static uint32_t read_vendor_err(struct ibv_cq_ex *x) { return at(x)->wc.vendor_err; }

static uint32_t read_byte_len(struct ibv_cq_ex *x) { return has_length(at(x)) ? at(x)->wc.byte_len : junk; }

static __be32 read_imm_data(struct ibv_cq_ex *x) { return at(x)->wc.wc_flags & IBV_WC_WITH_IMM ? at(x)->wc.imm_data : junk; }

static uint32_t read_qp_num(struct ibv_cq_ex *x) { return at(x)->wc.qp_num; }

static unsigned read_wc_flags(struct ibv_cq_ex *x) { return at(x)->wc.wc_flags; }

static void read_tm_info(struct ibv_cq_ex *x, struct ibv_wc_tm_info *info)
{
	const struct cqe *e = at(x);

	info->tag = has_tag(e) ? e->tag : junk;
	info->priv = has_tag(e) ? e->priv : junk;
}

struct ibv_cq_ex *create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *a)
{
	const uint64_t known = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_TM_INFO;
	struct cq *c;

	if (a->wc_flags & ~known || a->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (a->wc_flags & IBV_WC_EX_WITH_TM_INFO && !context_of(ctx)->cfg.tags) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	c = new_cq(ctx, a->cqe, a->cq_context, a->channel, a->comp_vector);
	if (!c)
		return NULL;
	c->wc_flags = a->wc_flags;
	c->x.start_poll = start_poll;
	c->x.next_poll = take;
	c->x.end_poll = end_poll;
	c->x.read_opcode = read_opcode;
	c->x.read_vendor_err = read_vendor_err;
	c->x.read_wc_flags = read_wc_flags;
	if (a->wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		c->x.read_byte_len = read_byte_len;
	if (a->wc_flags & IBV_WC_EX_WITH_IMM)
		c->x.read_imm_data = read_imm_data;
	if (a->wc_flags & IBV_WC_EX_WITH_QP_NUM)
		c->x.read_qp_num = read_qp_num;
	if (a->wc_flags & IBV_WC_EX_WITH_TM_INFO)
		c->x.read_tm_info = read_tm_info;
	return &c->x;
}
