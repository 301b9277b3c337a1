// Messages to an SRQ with a tag list, and rendezvous by the device (docs/tag-matching-offload.md,
// 2.3, 2.4 and 4).

#define _GNU_SOURCE
#include "tmstub.h"

#include <endian.h>
#include <infiniband/tm_types.h>
#include <stdlib.h>
#include <string.h>

// header is the beginning of a message.
struct header {
	struct ibv_tmh tmh;
	struct ibv_rvh rvh;
};

// match is a message and the entry that it has matched.
struct match {
	struct slot *e;
	uint32_t handle;
	struct header h;
	bool last; // of the completions
	bool solicited;
};

static struct list buffer_of(struct slot *e) { return (struct list){&e->sge, e->sges ? 1 : 0}; }

// complete reports something of a matched receive.
static void complete(struct qp *p, const struct match *m, struct ibv_wc wc)
{
	struct cqe e = {.wc = wc, .srq = p->srq, .entry = true, .handle = m->handle, .pays = m->last ? 1 : 0, .solicited = m->solicited};

	e.wc.wr_id = m->e->recv_wr_id;
	e.tag = be64toh(m->h.tmh.tag);
	e.priv = be32toh(m->h.tmh.app_ctx);
	if (wc.wc_flags != IBV_WC_TM_MATCH || wc.status != IBV_WC_SUCCESS)
		e.wc.qp_num = p->q.qp_num; // MATCH alone is not known to have it
	cq_push(p->srq->tags->cq, &e);
}

static enum outcome fail(struct qp *p, struct swqe *w, struct match m, enum ibv_wc_status status)
{
	m.last = true;
	complete(p, &m, (struct ibv_wc){.status = status, .opcode = 0x7f});
	qp_fail(p);
	return end(w, status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
}

// packet is the completion that comes with the packet of a message.
static struct ibv_wc packet(const struct swqe *w, uint32_t len)
{
	struct ibv_wc wc = {.opcode = IBV_WC_TM_RECV, .wc_flags = IBV_WC_TM_DATA_VALID, .byte_len = len};

	if (w->opcode == IBV_WR_SEND_WITH_IMM) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = w->imm;
	}
	return wc;
}

static void complete_match(struct qp *p, const struct match *m)
{
	complete(p, m, (struct ibv_wc){.opcode = IBV_WC_TM_RECV, .wc_flags = IBV_WC_TM_MATCH});
}

static enum outcome eager(struct qp *q, struct qp *p, struct swqe *w, struct match m)
{
	struct list to = buffer_of(m.e);
	uint32_t len = w->len - sizeof m.h.tmh;
	struct ibv_wc wc = packet(w, len);

	if (len > list_length(to))
		return fail(p, w, m, IBV_WC_LOC_LEN_ERR);
	if (w->len > 128U << q->attr.path_mtu)
		complete_match(p, &m);
	else
		wc.wc_flags |= IBV_WC_TM_MATCH;
	if (!list_registered(p->q.pd, p->dev, to, len, IBV_ACCESS_LOCAL_WRITE))
		return fail(p, w, m, IBV_WC_LOC_PROT_ERR);
	list_copy(to, 0, w->list, sizeof m.h.tmh, len);
	m.last = true;
	m.solicited = w->flags & IBV_SEND_SOLICITED;
	complete(p, &m, wc);
	return end(w, IBV_WC_SUCCESS);
}

// incomplete leaves a rendezvous to software: its headers are in the buffer.
static enum outcome incomplete(struct qp *p, struct swqe *w, struct match m)
{
	struct list to = buffer_of(m.e);
	uint64_t n = list_length(to) < sizeof m.h ? list_length(to) : sizeof m.h;
	struct ibv_wc wc = packet(w, (uint32_t)n);

	if (!list_registered(p->q.pd, p->dev, to, n, IBV_ACCESS_LOCAL_WRITE))
		return fail(p, w, m, IBV_WC_LOC_PROT_ERR);
	list_copy(to, 0, w->list, 0, n);
	if (p->ctx->cfg.two) {
		complete(p, &m, (struct ibv_wc){.opcode = IBV_WC_TM_RECV, .wc_flags = IBV_WC_TM_MATCH, .status = IBV_WC_TM_RNDV_INCOMPLETE});
	} else {
		wc.wc_flags |= IBV_WC_TM_MATCH;
		wc.status = IBV_WC_TM_RNDV_INCOMPLETE;
	}
	m.last = true;
	complete(p, &m, wc);
	return end(w, IBV_WC_SUCCESS);
}

static void append(struct rndv **list, struct rndv *r)
{
	while (*list)
		list = &(*list)->next;
	r->next = NULL;
	*list = r;
}

// tell reports the end of a receive that was matched before.
static void tell(struct qp *p, const struct rndv *r, struct ibv_wc wc)
{
	struct cqe e = {.wc = wc, .srq = p->srq, .entry = true, .handle = r->handle, .pays = 1, .solicited = r->solicited};

	e.wc.wr_id = r->wc.wr_id;
	e.wc.qp_num = p->q.qp_num;
	cq_push(p->srq->tags->cq, &e);
}

// send_fin has the FIN sent when the data is there, and tells that.
static void send_fin(struct qp *p, struct rndv *r)
{
	tell(p, r, r->wc);
	r->fin_sge = (struct ibv_sge){.addr = (uintptr_t)r->fin, .length = sizeof r->fin};
	r->w = (struct swqe){.opcode = IBV_WR_SEND, .len = sizeof r->fin, .list = {&r->fin_sge, 1}, .rndv = r};
	append(&p->fins, r);
}

static enum outcome rendezvous(struct qp *p, struct swqe *w, struct match m)
{
	struct list to = buffer_of(m.e);
	uint32_t len = be32toh(m.h.rvh.len);
	struct rndv *r;

	if (len > list_length(to) || p->cap.max_send_wr)
		return incomplete(p, w, m);
	complete_match(p, &m);
	if (!list_registered(p->q.pd, p->dev, to, len, IBV_ACCESS_LOCAL_WRITE))
		return fail(p, w, m, IBV_WC_LOC_PROT_ERR);
	r = calloc(1, sizeof *r);
	if (!r)
		abort();
	r->handle = m.handle;
	r->solicited = w->flags & IBV_SEND_SOLICITED;
	r->wc = packet(w, len);
	r->wc.wr_id = m.e->recv_wr_id;
	r->sge = m.e->sge;
	m.h.tmh.opcode = IBV_TMH_FIN;
	memcpy(r->fin, &m.h, sizeof r->fin);
	r->w = (struct swqe){.opcode = IBV_WR_RDMA_READ, .remote = be64toh(m.h.rvh.va), .rkey = be32toh(m.h.rvh.rkey), .len = len,
		.list = {&r->sge, 1}, .rndv = r};
	if (len)
		append(&p->rndvs, r);
	else
		send_fin(p, r);
	kick(p);
	return end(w, IBV_WC_SUCCESS);
}

// own_failure ends a queue pair whose device's own request has failed. No completion tells of that.
static void own_failure(struct qp *q, enum ibv_wc_status status)
{
	qp_event(q, status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_FATAL);
	qp_fail(q);
}

// cancel ends a receive whose transfer was given up. No opcode is known for that.
static void cancel(struct qp *q, const struct rndv *r)
{
	struct ibv_wc wc = {.status = IBV_WC_TM_RNDV_INCOMPLETE, .opcode = IBV_WC_RECV,
		.wc_flags = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID};

	if (!q->ctx->cfg.lost)
		tell(q, r, wc);
}

static void unlink_rndv(struct rndv **list, struct rndv *r)
{
	while (*list != r)
		list = &(*list)->next;
	*list = r->next;
}

// rndv_read goes on when the READ is done, or has failed.
void rndv_read(struct qp *q, struct rndv *r)
{
	unlink_rndv(&q->rndvs, r);
	if (r->w.status == IBV_WC_SUCCESS) {
		send_fin(q, r);
		return;
	}
	cancel(q, r);
	own_failure(q, r->w.status);
	free(r);
}

// run_rndvs begins READs, as many as may be outstanding, and sends FINs in order.
void run_rndvs(struct qp *q)
{
	for (struct rndv *r = q->rndvs, *next; r && q->q.state == IBV_QPS_RTS; r = next) {
		next = r->next;
		if (r->reading)
			continue;
		if (!q->attr.max_rd_atomic) {
			own_failure(q, IBV_WC_LOC_QP_OP_ERR);
			return;
		}
		switch (transmit(q, &r->w)) {
		case WAITS:
			next = NULL;
			break;
		case STARTED:
			r->reading = true;
			break;
		case DONE: // without an error it would not be
			rndv_read(q, r);
			return;
		}
	}
	while (q->fins && q->q.state == IBV_QPS_RTS) {
		struct rndv *r = q->fins;

		if (transmit(q, &r->w) == WAITS)
			return;
		q->waiting = NOT_WAITING;
		q->deadline = 0;
		if (q->fins != r)
			return; // it sends to itself, and has failed
		q->fins = r->next;
		if (r->w.status != IBV_WC_SUCCESS)
			own_failure(q, r->w.status);
		free(r);
	}
}

// drop_rndvs gives up what the device does for a queue pair.
void drop_rndvs(struct qp *q)
{
	while (q->rndvs) {
		struct rndv *r = q->rndvs;

		q->rndvs = r->next;
		cancel(q, r);
		free(r);
	}
	while (q->fins) {
		struct rndv *r = q->fins;

		q->fins = r->next;
		free(r);
	}
}

// tm_receive has the peer take a message: by an entry of its list, or else by an untagged buffer.
enum outcome tm_receive(struct qp *q, struct qp *p, struct swqe *w)
{
	struct match m = {0};
	struct ibv_sge sge = {.addr = (uintptr_t)&m.h, .length = sizeof m.h};
	uint64_t n = w->len < sizeof m.h ? w->len : sizeof m.h;
	bool rndv, tagged;

	list_copy((struct list){&sge, 1}, 0, w->list, 0, n);
	rndv = n && m.h.tmh.opcode == IBV_TMH_RNDV;
	tagged = rndv || (n && m.h.tmh.opcode == IBV_TMH_EAGER);
	if ((rndv && (w->len < sizeof m.h || w->len > MAX_RNDV)) || (tagged && w->len < sizeof m.h.tmh)) {
		qp_event(p, IBV_EVENT_QP_REQ_ERR);
		qp_fail(p);
		return end(w, IBV_WC_REM_INV_REQ_ERR);
	}
	if (tagged)
		m.e = tm_match(p->srq, be64toh(m.h.tmh.tag), &m.handle);
	if (m.e)
		return rndv ? rendezvous(p, w, m) : eager(q, p, w, m);
	if (rq_empty(&p->srq->rq))
		return wait_rnr(q, p, w);
	end(w, respond(q, p, w, tagged ? IBV_WC_TM_RECV : IBV_WC_TM_NO_TAG));
	if (tagged && w->status == IBV_WC_SUCCESS)
		p->srq->tags->unexpected++;
	return DONE;
}
