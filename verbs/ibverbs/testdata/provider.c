/* A libibverbs whose only device does what the test says. Variables are set by the test, and hold for
   all that is called afterwards. Nothing moves: completions are those that the test has put there. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int devices = 1;          /* in the list; -1: there is none, with list_errno */
int list_errno;
int transport = IBV_TRANSPORT_IB;
int ports = 2;
int states[2] = { IBV_PORT_DOWN, IBV_PORT_ACTIVE };
int link_layer = IBV_LINK_LAYER_ETHERNET;
int gid_types[4] = { IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, -1, -1 }; /* -1: an empty entry */
char failing[32];         /* the verb that fails with failing_errno */
int failing_errno;
int gone;                 /* the device was removed */
uint64_t refused = -1;    /* wr_id of the request that a post refuses */
int refused_errno = ENOMEM;
int calls;                /* posts, polls, registrations and deregistrations */
uint64_t posted[256];     /* wr_id of the requests that were taken */
int posts;
struct ibv_wc completions[128];
int completed;            /* those that were not polled yet */
int states_set[16];       /* of queue pairs, newest last */
int modified;

static struct verbs_context *opened;
static struct ibv_device device = { .name = "fake0", .dev_name = "uverbs7" };
static struct ibv_device *list[2] = { &device };
static uint32_t numbers = 100;

static int fails(const char *verb)
{
	if (strcmp(verb, failing))
		return 0;
	errno = failing_errno;
	return failing_errno;
}

struct ibv_device **ibv_get_device_list(int *n)
{
	device.transport_type = transport;
	errno = list_errno;
	*n = devices < 0 ? 0 : devices;
	return devices < 0 ? NULL : list;
}

#ifndef WITHOUT_FREE
void ibv_free_device_list(struct ibv_device **l) { (void)l; }
#endif

static int query_device(struct ibv_context *c, const struct ibv_query_device_ex_input *in, struct ibv_device_attr_ex *a, size_t size)
{
	(void)c, (void)in;
	memset(a, 0, size);
	a->orig_attr = (struct ibv_device_attr){ .phys_port_cnt = ports, .max_qp = 64, .max_qp_wr = 1024, .max_sge = 4, .max_cq = 64,
		.max_cqe = 4096, .max_mr = 64, .max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16, .max_srq = 8, .max_srq_wr = 1024, .max_srq_sge = 4 };
	return fails("query_device");
}

static int query_port(struct ibv_context *c, uint8_t num, struct ibv_port_attr *a, size_t size)
{
	(void)c;
	memset(a, 0, size);
	a->state = states[num - 1];
	a->link_layer = link_layer;
	a->active_mtu = IBV_MTU_1024;
	a->gid_tbl_len = 4;
	a->max_msg_sz = 1 << 30;
	a->lid = 7;
	return fails("query_port");
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	(void)cq;
	calls++;
	int n = most < completed ? most : completed;
	memcpy(wc, completions, n * sizeof *wc);
	completed -= n;
	memmove(completions, completions + n, completed * sizeof *wc);
	return n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited) { (void)cq, (void)solicited; return 0; }

static int take(uint64_t id)
{
	if (id == refused)
		return refused_errno;
	posted[posts++ % 256] = id;
	return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	for (calls++; wr; wr = wr->next)
		if (take(wr->wr_id)) {
			*bad = wr;
			return refused_errno;
		}
	return 0;
}

static int receive(struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	for (calls++; wr; wr = wr->next)
		if (take(wr->wr_id)) {
			*bad = wr;
			return refused_errno;
		}
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) { (void)qp; return receive(wr, bad); }
static int post_srq_recv(struct ibv_srq *s, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) { (void)s; return receive(wr, bad); }

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	if (fails("open_device"))
		return NULL;
	struct verbs_context *v = opened = calloc(1, sizeof *v);
	v->sz = sizeof *v;
	v->query_device_ex = query_device;
	v->query_port = query_port;
	v->context.device = d;
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->context.async_fd = eventfd(0, EFD_CLOEXEC);
	v->context.ops.poll_cq = poll_cq;
	v->context.ops.req_notify_cq = req_notify_cq;
	v->context.ops.post_send = post_send;
	v->context.ops.post_recv = post_recv;
	v->context.ops.post_srq_recv = post_srq_recv;
	return &v->context;
}

int ibv_close_device(struct ibv_context *c)
{
	close(c->async_fd);
	free((char *)c - offsetof(struct verbs_context, context));
	return fails("close_device");
}

/* take_away removes the device under those who have it open. */
void take_away(void)
{
	gone = 1;
	eventfd_write(opened->context.async_fd, 1);
}

int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t i, struct ibv_gid_entry *e, uint32_t flags, size_t size)
{
	(void)c, (void)flags, (void)size;
	if (gid_types[i] < 0)
		return ENODATA;
	*e = (struct ibv_gid_entry){ .gid_index = i, .port_num = port, .gid_type = gid_types[i] };
	e->gid.raw[0] = 0xfe, e->gid.raw[1] = 0x80, e->gid.raw[15] = i + 1;
	return fails("query_gid");
}

#define CREATE(verb, type) (fails(verb) ? NULL : (type *)calloc(1, sizeof(type)))
#define DESTROY(verb, type) \
	int ibv_##verb(type *p) \
	{ \
		int e = gone ? EIO : fails(#verb); \
		if (e == 0) \
			free(p); \
		return e; \
	}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c) { (void)c; return CREATE("alloc_pd", struct ibv_pd); }
DESTROY(dealloc_pd, struct ibv_pd)

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *p, size_t n, int access)
{
	(void)pd, (void)access;
	struct ibv_mr *m = CREATE("reg_mr", struct ibv_mr);
	calls++;
	if (m)
		m->addr = p, m->length = n, m->lkey = ++numbers, m->rkey = ++numbers;
	return m;
}

int ibv_dereg_mr(struct ibv_mr *m)
{
	int e = gone ? EIO : fails("dereg_mr");
	calls++;
	if (e == 0)
		free(m);
	return e;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct ibv_comp_channel *ch = CREATE("create_comp_channel", struct ibv_comp_channel);
	if (ch)
		ch->context = c, ch->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	return ch;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	int e = gone ? EIO : fails("destroy_comp_channel");
	if (e == 0) {
		close(ch->fd);
		free(ch);
	}
	return e;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *context, struct ibv_comp_channel *ch, int vector)
{
	(void)c, (void)context, (void)vector;
	struct ibv_cq *cq = CREATE("create_cq", struct ibv_cq);
	if (cq)
		cq->channel = ch, cq->cqe = cqe;
	return cq;
}
DESTROY(destroy_cq, struct ibv_cq)

int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **context)
{
	eventfd_t v;
	*cq = NULL, *context = NULL;
	return eventfd_read(ch->fd, &v);
}
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n) { (void)cq, (void)n; }

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *ev)
{
	(void)ev;
	eventfd_t v;
	if (!gone)
		return eventfd_read(c->async_fd, &v);
	errno = EIO;
	return -1;
}
void ibv_ack_async_event(struct ibv_async_event *ev) { (void)ev; }

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a) { (void)pd, (void)a; return CREATE("create_srq", struct ibv_srq); }
int ibv_modify_srq(struct ibv_srq *s, struct ibv_srq_attr *a, int mask) { (void)s, (void)a, (void)mask; return fails("modify_srq"); }
int ibv_query_srq(struct ibv_srq *s, struct ibv_srq_attr *a) { (void)s, (void)a; return fails("query_srq"); }
DESTROY(destroy_srq, struct ibv_srq)

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	(void)pd, (void)a;
	struct ibv_qp *qp = CREATE("create_qp", struct ibv_qp);
	if (qp)
		qp->qp_num = ++numbers;
	return qp;
}
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	(void)qp;
	if (mask & IBV_QP_STATE)
		states_set[modified++ % 16] = a->qp_state;
	return fails("modify_qp");
}
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *i)
{
	(void)qp, (void)a, (void)mask, (void)i;
	return fails("query_qp");
}
DESTROY(destroy_qp, struct ibv_qp)
