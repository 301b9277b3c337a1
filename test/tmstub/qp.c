// Queue pairs: their states, and posting to them.

#define _GNU_SOURCE
#include "tmstub.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct qp *qp_of(struct ibv_qp *q) { return owner_of(q, struct qp, q); }

// new_number gives the queue pair a number of its device that was free for long: 0 is none.
static uint32_t new_number(struct device *d, struct qp *q)
{
	for (int i = 0; i < MAX_QPS; i++) {
		uint32_t slot = ++d->last_qp % MAX_QPS;

		if (!d->qps[slot]) {
			d->qps[slot] = q;
			return FIRST_QP + slot;
		}
	}
	return 0;
}

// count counts the users of what a queue pair uses.
static void count(struct qp *q, int by)
{
	q->ctx->objects += by;
	q->pd->objects += by;
	q->scq->users += by;
	q->rcq->users += by;
	if (q->srq)
		q->srq->users += by;
}

static void free_qp(struct qp *q)
{
	rq_free(&q->rq);
	free(q->sq);
	free(q->sges);
	free(q->inlined);
	free(q);
}

static bool legal(const struct ibv_pd *pd, const struct ibv_qp_init_attr *a)
{
	const struct ibv_qp_cap *c = &a->cap;

	if (!a->send_cq || !a->recv_cq || a->send_cq->context != pd->context || a->recv_cq->context != pd->context)
		return false;
	if (a->srq ? a->srq->pd != pd : c->max_recv_wr > MAX_WR || c->max_recv_sge > MAX_SGE)
		return false;
	return c->max_send_wr <= MAX_WR && c->max_send_sge <= MAX_SGE && c->max_inline_data <= MAX_INLINE;
}

API struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct qp *q;

	if (a->qp_type != IBV_QPT_RC || !legal(pd, a)) {
		errno = a->qp_type == IBV_QPT_RC ? EINVAL : EOPNOTSUPP;
		return NULL;
	}
	q = calloc(1, sizeof *q);
	if (!q) {
		errno = ENOMEM;
		return NULL;
	}
	q->ctx = context_of(pd->context);
	q->dev = q->ctx->dev;
	q->pd = owner_of(pd, struct pd, p);
	q->scq = owner_of(a->send_cq, struct cq, x);
	q->rcq = owner_of(a->recv_cq, struct cq, x);
	q->srq = a->srq ? owner_of(a->srq, struct srq, s) : NULL;
	if (q->srq)
		a->cap.max_recv_wr = a->cap.max_recv_sge = 0;
	q->cap = a->cap;
	q->all_signaled = a->sq_sig_all;
	q->sq = calloc(a->cap.max_send_wr + 1, sizeof *q->sq);
	q->sges = calloc((size_t)a->cap.max_send_wr * (a->cap.max_send_sge + 1) + 1, sizeof *q->sges);
	q->inlined = calloc((size_t)a->cap.max_send_wr * a->cap.max_inline_data + 1, 1);
	q->q = (struct ibv_qp){.context = pd->context, .qp_context = a->qp_context, .pd = pd, .send_cq = a->send_cq,
		.recv_cq = a->recv_cq, .srq = a->srq, .state = IBV_QPS_RESET, .qp_type = a->qp_type};
	enter();
	if (!rq_init(&q->rq, a->cap.max_recv_wr, a->cap.max_recv_sge) && q->sq && q->sges && q->inlined)
		q->q.qp_num = new_number(q->dev, q);
	if (!q->q.qp_num) {
		leave();
		free_qp(q);
		errno = ENOMEM;
		return NULL;
	}
	count(q, 1);
	q->all = all_qps;
	all_qps = q;
	leave();
	return &q->q;
}

// forget drops all requests and their completions.
static void forget(struct qp *q)
{
	drop_work(q);
	cq_forget(q->scq, q, NULL);
	cq_forget(q->rcq, q, NULL);
	q->head = q->next = q->done = q->polled = 0;
	q->rq.head = q->rq.next = q->rq.polled = 0;
}

API int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct qp *q = qp_of(qp);
	struct qp **p;

	enter();
	q->dev->qps[qp->qp_num - FIRST_QP] = NULL;
	for (p = &all_qps; *p != q; p = &(*p)->all)
		;
	*p = q->all;
	forget(q);
	evq_forget(&q->ctx->async, qp);
	kick_senders(q);
	await_acks(&q->reported, &qp->events_completed);
	count(q, -1);
	leave();
	free_qp(q);
	return 0;
}

// transition is a row of the table of ibv_modify_qp(3) for RC.
struct transition {
	enum ibv_qp_state from, to;
	int need, allow;
};

static const struct transition transitions[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		IBV_QP_MIN_RNR_TIMER, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT,
		IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

static bool transition_legal(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	mask &= ~IBV_QP_STATE;
	if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
		return mask == 0;
	for (size_t i = 0; i < sizeof transitions / sizeof *transitions; i++) {
		const struct transition *t = &transitions[i];

		if (t->from == from && t->to == to)
			return (mask & t->need) == t->need && !(mask & ~(t->need | t->allow));
	}
	return false;
}

// path_legal reports whether packets can be addressed so: on Ethernet by a GID alone.
static bool path_legal(const struct qp *q, const struct ibv_ah_attr *a)
{
	bool ethernet = q->ctx->cfg.ethernet;

	if (a->port_num != 1 || (a->is_global && a->grh.sgid_index > (ethernet ? 1 : 0)))
		return false;
	return ethernet ? a->is_global && a->grh.hop_limit : a->dlid != 0;
}

static bool values_legal(const struct qp *q, const struct ibv_qp_attr *a, int mask)
{
	return !((mask & IBV_QP_PORT && a->port_num != 1) || (mask & IBV_QP_PKEY_INDEX && a->pkey_index) ||
		 (mask & IBV_QP_ACCESS_FLAGS && a->qp_access_flags & ~0xfU) ||
		 (mask & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096)) ||
		 (mask & IBV_QP_RQ_PSN && a->rq_psn >> 24) || (mask & IBV_QP_SQ_PSN && a->sq_psn >> 24) ||
		 (mask & IBV_QP_DEST_QPN && a->dest_qp_num >> 24) || (mask & IBV_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31) ||
		 (mask & IBV_QP_TIMEOUT && a->timeout > 31) || (mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7) ||
		 (mask & IBV_QP_RNR_RETRY && a->rnr_retry > 7) || (mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > MAX_READS) ||
		 (mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > MAX_READS) ||
		 (mask & IBV_QP_AV && !path_legal(q, &a->ah_attr)));
}

#define SET(bit, field)         \
	if (mask & (bit))       \
		to->field = a->field

static void set_attr(struct ibv_qp_attr *to, const struct ibv_qp_attr *a, int mask)
{
	SET(IBV_QP_PORT, port_num);
	SET(IBV_QP_PKEY_INDEX, pkey_index);
	SET(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	SET(IBV_QP_PATH_MTU, path_mtu);
	SET(IBV_QP_RQ_PSN, rq_psn);
	SET(IBV_QP_SQ_PSN, sq_psn);
	SET(IBV_QP_DEST_QPN, dest_qp_num);
	SET(IBV_QP_AV, ah_attr);
	SET(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	SET(IBV_QP_TIMEOUT, timeout);
	SET(IBV_QP_RETRY_CNT, retry_cnt);
	SET(IBV_QP_RNR_RETRY, rnr_retry);
	SET(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	SET(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
}

API int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct qp *q = qp_of(qp);
	enum ibv_qp_state to;

	enter();
	to = mask & IBV_QP_STATE ? a->qp_state : qp->state;
	if (!transition_legal(qp->state, to, mask) || !values_legal(q, a, mask)) {
		leave();
		return EINVAL;
	}
	if (to == IBV_QPS_ERR) {
		qp_fail(q);
	} else if (to == IBV_QPS_RESET) {
		forget(q);
		memset(&q->attr, 0, sizeof q->attr);
		qp->state = to;
		kick_senders(q);
	} else {
		set_attr(&q->attr, a, mask);
		qp->state = to;
		kick(q);
		kick_senders(q); // one may have waited for this
	}
	leave();
	return 0;
}

API int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	struct qp *q = qp_of(qp);

	(void)mask; // more than what is asked for may be told
	enter();
	*a = q->attr;
	a->qp_state = a->cur_qp_state = qp->state;
	a->cap = q->cap;
	*init = (struct ibv_qp_init_attr){.qp_context = qp->qp_context, .send_cq = qp->send_cq, .recv_cq = qp->recv_cq,
		.srq = qp->srq, .cap = q->cap, .qp_type = qp->qp_type, .sq_sig_all = q->all_signaled};
	leave();
	return 0;
}

void qp_event(struct qp *q, enum ibv_event_type type) { evq_put(&q->ctx->async, type, &q->q, &q->reported); }

struct rq *receives_of(struct qp *q) { return q->srq ? &q->srq->rq : &q->rq; }

// complete_receive reports a receive that is done; wc has what is not the same for all.
void complete_receive(struct qp *q, uint64_t wr_id, struct ibv_wc wc, bool solicited)
{
	struct cqe e = {.wc = wc, .solicited = solicited, .qp = q, .received = true, .srq = q->srq};
	struct taglist *t = q->srq ? q->srq->tags : NULL;

	e.wc.wr_id = wr_id;
	e.wc.qp_num = q->q.qp_num;
	if (t)
		e.qp = NULL;
	e.unexpected = t && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_TM_RECV;
	if (e.unexpected && q->ctx->cfg.recv)
		e.wc.opcode = IBV_WC_RECV;
	cq_push(t ? t->cq : q->rcq, &e);
}

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	default:
		return IBV_WC_SEND;
	}
}

// complete_send reports the oldest request that is not complete. Errors are always reported. The
// opcode of one with an error is junk, as on a NIC.
static void complete_send(struct qp *q, enum ibv_wc_status status)
{
	const struct swqe *w = &q->sq[q->done % q->cap.max_send_wr];
	struct cqe e = {.qp = q, .sq_end = ++q->done};

	if (status == IBV_WC_SUCCESS && !(w->flags & IBV_SEND_SIGNALED) && !q->all_signaled)
		return;
	e.wc = (struct ibv_wc){.wr_id = w->wr_id, .status = status, .qp_num = q->q.qp_num,
		.opcode = status == IBV_WC_SUCCESS ? wc_opcode(w->opcode) : 0x7f, .vendor_err = status ? 0x51 : 0};
	if (status == IBV_WC_SUCCESS && w->opcode == IBV_WR_RDMA_READ)
		e.wc.byte_len = w->len;
	cq_push(q->scq, &e);
}

// complete_sends reports what is executed, in order. The first error will end the queue pair.
void complete_sends(struct qp *q)
{
	while (q->done < q->next && !q->failed) {
		const struct swqe *w = &q->sq[q->done % q->cap.max_send_wr];

		if (!w->done)
			return;
		if (w->status == IBV_WC_SUCCESS)
			complete_send(q, w->status);
		else
			await_failure(q);
	}
}

static void flush(struct qp *q)
{
	while (q->done < q->head)
		complete_send(q, IBV_WC_WR_FLUSH_ERR);
	q->next = q->head;
	while (q->rq.next < q->rq.head) {
		const struct rwqe *w = &q->rq.w[q->rq.next++ % q->rq.size];

		complete_receive(q, w->wr_id, (struct ibv_wc){.status = IBV_WC_WR_FLUSH_ERR, .opcode = 0x7f}, false);
	}
}

// qp_fail moves a queue pair to ERR.
void qp_fail(struct qp *q)
{
	if (q->q.state == IBV_QPS_ERR)
		return;
	q->q.state = IBV_QPS_ERR;
	if (q->failed)
		complete_send(q, q->sq[q->done % q->cap.max_send_wr].status);
	drop_work(q);
	flush(q);
	if (q->srq)
		qp_event(q, IBV_EVENT_QP_LAST_WQE_REACHED);
	kick_senders(q);
}

// refused is the errno of a request that cannot be posted, or 0.
static int refused(const struct qp *q, const struct ibv_send_wr *wr)
{
	const unsigned known = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
	uint64_t len;

	if (wr->opcode > IBV_WR_RDMA_READ || wr->send_flags & ~known || wr->num_sge < 0 ||
	    (uint32_t)wr->num_sge > q->cap.max_send_sge)
		return EINVAL;
	if (wr->opcode == IBV_WR_RDMA_READ && (wr->send_flags & IBV_SEND_INLINE || !q->attr.max_rd_atomic))
		return EINVAL;
	len = list_length((struct list){wr->sg_list, wr->num_sge});
	if (len > MAX_MESSAGE || (wr->send_flags & IBV_SEND_INLINE && len > q->cap.max_inline_data))
		return EINVAL;
	return q->head - q->polled == q->cap.max_send_wr ? ENOMEM : 0;
}

// fill copies a request, with its data if that is inline.
static void fill(struct qp *q, const struct ibv_send_wr *wr)
{
	uint64_t i = q->head % q->cap.max_send_wr;
	struct swqe *w = &q->sq[i];
	struct list from = {wr->sg_list, wr->num_sge};

	*w = (struct swqe){.wr_id = wr->wr_id, .remote = wr->wr.rdma.remote_addr, .rkey = wr->wr.rdma.rkey, .imm = wr->imm_data,
		.opcode = wr->opcode, .flags = wr->send_flags, .len = (uint32_t)list_length(from)};
	w->list = (struct list){&q->sges[i * (q->cap.max_send_sge + 1)], wr->num_sge};
	if (wr->send_flags & IBV_SEND_INLINE) {
		calls[INLINE_WRITE] += wr->opcode == IBV_WR_RDMA_WRITE;
		w->list.n = 1;
		*w->list.sge = (struct ibv_sge){.addr = (uintptr_t)&q->inlined[i * q->cap.max_inline_data], .length = w->len};
		list_copy(w->list, 0, from, 0, w->len);
	} else if (wr->num_sge) {
		memcpy(w->list.sge, wr->sg_list, wr->num_sge * sizeof *w->list.sge);
	}
	q->head++;
}

int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *q = qp_of(qp);
	int err = 0;

	calls[POST_SEND]++;
	enter();
	for (; wr; wr = wr->next) {
		err = qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_ERR ? refused(q, wr) : EINVAL;
		if (err) {
			*bad = wr;
			break;
		}
		fill(q, wr);
	}
	if (qp->state == IBV_QPS_ERR)
		flush(q);
	else
		kick(q);
	leave();
	return err;
}

int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *q = qp_of(qp);
	int err;

	calls[POST_RECV]++;
	enter();
	if (q->srq || qp->state == IBV_QPS_RESET) {
		*bad = wr;
		err = EINVAL;
	} else {
		err = rq_post(&q->rq, wr, bad);
		if (qp->state == IBV_QPS_ERR)
			flush(q);
	}
	leave();
	return err;
}
