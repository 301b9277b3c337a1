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
	MAX_OPS = 1 << 15,
	MAX_RNDV = 64, // bytes of a request
	FIRST_QP = 0x40, // numbers and keys of each device begin alike, so that confusing them shows
};

// config is what the environment says when a device is opened.
struct config {
	bool ethernet;      // TMSTUB_LINK=ethernet
	uint64_t mr_bytes;  // TMSTUB_MR_BYTES: the most bytes registered with a device
	uint32_t tags;      // TMSTUB_TAGS: the longest tag list; 0: no tag matching
	uint32_t ops;       // TMSTUB_OPS: the most list operations outstanding
	uint32_t tm_flags;  // TMSTUB_TM_FLAGS: of ibv_tm_caps
	uint32_t untagged;  // TMSTUB_UNTAGGED: entries match while so many untagged buffers are posted
	bool recv;          // TMSTUB_UNEXPECTED=recv: unexpected messages complete as RECV, not TM_RECV
	bool two;           // TMSTUB_INCOMPLETE=two: DATA_VALID of such a rendezvous comes apart
	bool lost;          // TMSTUB_CANCELED=lost: a matched receive whose queue pair fails does not end
	int refuse;         // TMSTUB_SRQ_ERRNO: what making an SRQ for tag matching fails with
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
	uint32_t last_qp, last_srq;
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
	struct qp *qp;    // whose it is; NULL with an SRQ for tag matching, whose completions stay
	uint64_t sq_end;  // not 0: requests of qp up to here give back their room
	bool received;    // a receive gives back its room: srq's, else qp's
	struct srq *srq;

	// With tag matching:
	uint64_t tag;
	uint32_t priv;
	uint64_t op_end;    // not 0: list operations up to here give back their room
	bool entry;         // it is of the entry with this handle, which owes so many fewer
	uint32_t handle;
	int pays;
	bool unexpected;
	uint16_t count;     // of unexpected messages, when a list operation was executed
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
	uint64_t wc_flags;                      // of an extended queue
	struct cqe now;                         // what an extended poll is at
	bool polling;
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
	uint32_t limit, num;
	int users;
	uint32_t reported;
	struct taglist *tags; // or NULL: it has no tag list
};

// slot is one of the tag list. It is free when it owes no completions any more.
struct slot {
	uint64_t recv_wr_id, tag, mask;
	struct ibv_sge sge;
	int sges;
	bool listed, live;
	uint16_t generation; // counts its uses
	unsigned owed;
	uint32_t count;         // the count at its ADD
	struct slot *next;      // in the list
};

// taglist is what an SRQ for tag matching has beside the untagged buffers.
struct taglist {
	struct cq *cq;
	struct slot *slots; // one more than entries fit
	uint32_t size;
	uint32_t *free; // slots in the order of their use, in a ring
	uint64_t free_head, free_tail;
	uint32_t max_ops;
	uint64_t ops, ops_polled;
	struct slot *first, **last;
	uint16_t unexpected, reported;        // the device's counts, H and S
	uint32_t polled_count, driver_count; // the driver's, of what was polled, and as ADD has said
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
	struct rndv *rndv; // whose request this is, or NULL: the program's
};

// rndv is a rendezvous that the device has matched: it reads, tells its end, and sends the FIN.
struct rndv {
	struct rndv *next;
	struct swqe w; // the READ, then the FIN
	struct ibv_sge sge, fin_sge;
	struct ibv_wc wc; // of its end
	uint32_t handle;
	bool solicited, reading;
	uint8_t fin[32];
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

	struct rndv *rndvs, *fins; // that are to be read, or are; whose FIN is to be sent
	struct rq rq;
	struct qp *all; // the next of all queue pairs
	struct qp *pending;
	bool is_pending;
};

// call is what the program calls most, and what is made of that: polls that find nothing, RDMA writes
// of inline data. tmstub_calls tells how often, by these numbers.
enum call { POST_SEND, POST_RECV, POST_SRQ_RECV, POST_SRQ_OPS, POLL_CQ, START_POLL, EMPTY_POLL, INLINE_WRITE, CALLS };
extern atomic_ulong calls[CALLS];

// outcome is that of trying a request.
enum outcome { DONE, STARTED, WAITS };

// device.c
uint64_t setting(const char *name, uint64_t otherwise);
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

// bench.c
extern atomic_int again;

// cq.c
int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc);
int req_notify_cq(struct ibv_cq *cq, int solicited_only);
void cq_push(struct cq *cq, const struct cqe *e);
void cq_forget(struct cq *cq, const struct qp *qp, const struct srq *srq);
struct cq *new_cq(struct ibv_context *ctx, uint32_t cqe, void *cq_context, struct ibv_comp_channel *channel, uint32_t vector);
bool cq_next(struct cq *c, struct cqe *e);
void cq_again(struct cq *c);

// cq_ex.c
struct ibv_cq_ex *create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *a);

// srq.c
int rq_init(struct rq *r, uint32_t size, uint32_t max_sge);
void rq_free(struct rq *r);
int rq_post(struct rq *r, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_srq_recv(struct ibv_srq *s, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void srq_consumed(struct srq *s);
bool rq_empty(const struct rq *r);
struct ibv_srq *create_srq_ex(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *a);
int get_srq_num(struct ibv_srq *s, uint32_t *num);

// tm.c
int tm_init(struct srq *s, struct cq *cq, struct ibv_tm_cap cap);
void tm_free(struct srq *s);
int post_srq_ops(struct ibv_srq *s, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad);
int no_srq_ops(struct ibv_srq *s, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad);
void tm_pay(struct cqe *e);
struct slot *tm_match(struct srq *s, uint64_t tag, uint32_t *handle);

// match.c
enum outcome tm_receive(struct qp *q, struct qp *p, struct swqe *w);
void run_rndvs(struct qp *q);
void rndv_read(struct qp *q, struct rndv *r);
void drop_rndvs(struct qp *q);

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
struct qp *peer_of(const struct qp *q);
bool accessible(const struct qp *p, uint32_t rkey, uint64_t addr, uint64_t len, int access);
enum ibv_wc_status refuse_access(struct qp *p);
void kick_senders(const struct qp *to);
void kick_starved(struct rq *r);
enum outcome end(struct swqe *w, enum ibv_wc_status status);
enum outcome wait_rnr(struct qp *q, struct qp *p, struct swqe *w);
enum ibv_wc_status respond(struct qp *q, struct qp *p, const struct swqe *w, enum ibv_wc_opcode op);
enum outcome transmit(struct qp *q, struct swqe *w);
void run(struct qp *q);
void await_failure(struct qp *q);
void report_failures(const struct cq *cq);

// worker.c
void enter(void);
void leave(void);
void start_worker(void);
void wake_worker(void);
void wait_for_acks(void);
void acked(void);
uint64_t now(void);
void kick(struct qp *q);
void start_transfer(struct qp *q, struct swqe *w);
void drop_work(struct qp *q);

#endif
