// What the files of the stand-in share.
//
// The stand-in is a libibverbs.so.1 for tests. It has devices of its own, which move bytes within
// the process, and it answers through the ABI of the real header. What there is depends on the
// environment: TMSTUB_DEVICES is the number of devices, see config for the rest.
//
// One lock guards all: enter takes it, leave gives it back. Functions that say nothing else are
// called with it held. What a call sets off at other queue pairs is put off until leave (kick), so
// that no function is entered again by what it causes.

#ifndef TMSTUB_H
#define TMSTUB_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define owner_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))

enum {
	MAX_DEVICES = 8,
	MAX_QPS = 1 << 14,
	MAX_MRS = 1 << 16,
	MAX_CQE = 1 << 22,
	MAX_WR = 1 << 15,
	MAX_SGE = 30,
	MAX_SRQ_SGE = 31,
	MAX_INLINE = 512,
	MAX_READS = 16,
	MAX_MESSAGE = 1 << 30,
	FIRST_QP = 0x40, // numbers and keys of each device begin alike, so that confusing them shows
};

// config is what the environment says when a device is opened.
struct config {
	bool ethernet;      // TMSTUB_LINK=ethernet
	uint64_t mr_bytes;  // TMSTUB_MR_BYTES: the most bytes registered with a device
};

// evq is a queue of events. Its descriptor is readable while there are some.
struct event;
struct evq {
	int fd;
	struct event *first, **last;
};

// list is a scatter/gather list.
struct list {
	struct ibv_sge *sge;
	int n;
};

struct device {
	struct ibv_device dev;
	int index;
	uint16_t lid;
	enum ibv_port_state port;
	struct context *contexts;
	uint64_t registered; // bytes
	struct mr *mrs[MAX_MRS];
	uint32_t last_mr;
	struct qp *qps[MAX_QPS];
	uint32_t last_qp;
};

struct context {
	struct verbs_context v;
	struct device *dev;
	struct config cfg;
	struct evq async;
	int objects;
	struct context *next;
};

struct pd {
	struct ibv_pd p;
	int objects;
};

struct mr {
	struct ibv_mr m;
	int access;
};

struct channel {
	struct ibv_comp_channel c;
	struct evq events;
};

// cqe is a completion, and what polling it gives back.
struct cqe {
	struct ibv_wc wc;
	bool solicited;
	struct qp *qp;    // whose it is
	uint64_t sq_end;  // not 0: requests of qp up to here give back their room
	bool received;    // a receive gives back its room: srq's, else qp's
	struct srq *srq;
};

struct cq {
	struct ibv_cq_ex x; // begins as a struct ibv_cq does
	struct context *ctx;
	struct cqe *ring;
	uint64_t head;
	_Atomic uint64_t tail; // of the newest; a poller looks at it without the lock
	enum { UNARMED, ARMED_SOLICITED, ARMED } armed;
	_Atomic bool overrun;
	atomic_int failures; // of queue pairs that send to it, to come
	int users;
	uint32_t comp_reported, async_reported; // events that were taken
};

struct rwqe {
	uint64_t wr_id;
	struct list list;
};

// rq is a receive queue, shared or not. Receives from next to head are posted; those that were
// polled give back their room.
struct rq {
	struct rwqe *w;
	struct ibv_sge *sges;
	uint32_t size, max_sge;
	uint64_t head, next, polled;
	bool starved; // a message has found it empty
};

struct srq {
	struct ibv_srq s;
	struct context *ctx;
	struct rq rq;
	uint32_t limit;
	int users;
	uint32_t reported;
};

// waiting is what the request at next of a queue pair waits for, of what takes time.
enum waiting { NOT_WAITING, WAITS_RNR, WAITS_PEER };

// swqe is a send request.
struct swqe {
	uint64_t wr_id, remote;
	uint32_t rkey, len;
	enum ibv_wr_opcode opcode;
	unsigned flags;
	__be32 imm;
	struct list list;
	bool done;
	enum ibv_wc_status status;
};

struct qp {
	struct ibv_qp q;
	struct context *ctx;
	struct device *dev;
	struct pd *pd;
	struct cq *scq, *rcq;
	struct srq *srq; // or NULL
	struct ibv_qp_attr attr;
	struct ibv_qp_cap cap;
	bool all_signaled;
	uint32_t reported;

	// Send requests: from polled to head their room is taken; from done to next they are executed,
	// and not complete; from next to head they wait.
	struct swqe *sq;
	struct ibv_sge *sges;
	uint8_t *inlined;
	uint64_t head, next, done, polled;
	int reads; // outstanding
	enum waiting waiting;
	bool failed;       // the error of the request at done is to come
	int retries;       // left
	uint64_t deadline; // ns; 0: none

	struct rq rq;
	struct qp *all; // the next of all queue pairs
	struct qp *pending;
	bool is_pending;
};

// device.c
extern struct device *devices;
extern int device_count;
struct device *device_of_context(struct ibv_context *c);
struct context *context_of(struct ibv_context *c);
void port_gid(const struct device *d, bool ethernet, int index, union ibv_gid *gid);

// events.c
int evq_open(struct evq *e);
void evq_close(struct evq *e);
void evq_put(struct evq *e, enum ibv_event_type type, void *element, uint32_t *reported);
void evq_forget(struct evq *e, const void *element);
void await_acks(const uint32_t *reported, const uint32_t *completed);
void device_event(struct device *d, enum ibv_event_type type);

// memory.c
uint64_t list_length(struct list l);
bool list_registered(const struct ibv_pd *pd, const struct device *d, struct list l, uint64_t most, int access);
bool remote_registered(const struct ibv_pd *pd, const struct device *d, uint32_t rkey, uint64_t addr, uint64_t len, int access);
void list_copy(struct list to, uint64_t to_at, struct list from, uint64_t from_at, uint64_t n);

// cq.c
int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc);
int req_notify_cq(struct ibv_cq *cq, int solicited_only);
void cq_push(struct cq *cq, const struct cqe *e);
void cq_forget(struct cq *cq, const struct qp *qp);

// srq.c
int rq_init(struct rq *r, uint32_t size, uint32_t max_sge);
void rq_free(struct rq *r);
int rq_post(struct rq *r, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_srq_recv(struct ibv_srq *s, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void srq_consumed(struct srq *s);

// qp.c
int post_send(struct ibv_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void complete_sends(struct qp *q);
void complete_receive(struct qp *q, uint64_t wr_id, struct ibv_wc wc, bool solicited);
void qp_event(struct qp *q, enum ibv_event_type type);
void qp_fail(struct qp *q);
struct rq *receives_of(struct qp *q);

// wire.c
extern struct qp *all_qps;
void enter(void);
void leave(void);
void start_worker(void);
void wait_for_acks(void);
void acked(void);
void kick(struct qp *q);
void kick_senders(const struct qp *to);
void kick_starved(struct rq *r);
void drop_work(struct qp *q);
void await_failure(struct qp *q);
void report_failures(const struct cq *cq);

#endif
