// Events: asynchronous ones, and those of completion channels.

#define _GNU_SOURCE
#include "tmstub.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct event {
	struct event *next;
	enum ibv_event_type type;
	void *element;
	uint32_t *reported; // counts those of the element that were taken
};

int evq_open(struct evq *e)
{
	e->last = &e->first;
	e->fd = eventfd(0, EFD_CLOEXEC);
	return e->fd < 0 ? errno : 0;
}

void evq_close(struct evq *e)
{
	while (e->first)
		evq_forget(e, e->first->element);
	close(e->fd);
}

// readable makes the descriptor readable, or no more.
static void readable(struct evq *e, bool now)
{
	eventfd_t n = 1;
	ssize_t done = now ? write(e->fd, &n, sizeof n) : read(e->fd, &n, sizeof n);

	(void)done;
}

void evq_put(struct evq *e, enum ibv_event_type type, void *element, uint32_t *reported)
{
	struct event *ev = calloc(1, sizeof *ev);

	if (!ev)
		abort();
	*ev = (struct event){.type = type, .element = element, .reported = reported};
	if (!e->first)
		readable(e, true);
	*e->last = ev;
	e->last = &ev->next;
}

// unlink_event takes the event at p out of the queue.
static void unlink_event(struct evq *e, struct event **p)
{
	struct event *ev = *p;

	*p = ev->next;
	if (e->last == &ev->next)
		e->last = p;
	free(ev);
	if (!e->first)
		readable(e, false);
}

// evq_forget drops the events of an object that is destroyed, as the kernel does.
void evq_forget(struct evq *e, const void *element)
{
	for (struct event **p = &e->first; *p;) {
		if ((*p)->element == element)
			unlink_event(e, p);
		else
			p = &(*p)->next;
	}
}

// evq_wait takes an event, without the lock: it waits if the descriptor blocks.
static int evq_wait(struct evq *e, enum ibv_event_type *type, void **element)
{
	for (;;) {
		struct pollfd p = {.fd = e->fd, .events = POLLIN};

		enter();
		if (e->first) {
			*type = e->first->type;
			*element = e->first->element;
			if (e->first->reported)
				++*e->first->reported;
			unlink_event(e, &e->first);
			leave();
			return 0;
		}
		leave();
		if (fcntl(e->fd, F_GETFL) & O_NONBLOCK) {
			errno = EAGAIN;
			return -1;
		}
		poll(&p, 1, -1);
	}
}

// await_acks waits until the events of an object that were taken are acknowledged.
void await_acks(const uint32_t *reported, const uint32_t *completed)
{
	while (*reported != *completed)
		wait_for_acks();
}

API int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *ev)
{
	void *element;

	if (evq_wait(&context_of(c)->async, &ev->event_type, &element))
		return -1;
	switch (ev->event_type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_DEVICE_FATAL:
		ev->element.port_num = 1;
		break;
	default:
		ev->element.qp = element; // all members of the union but the number are pointers
	}
	return 0;
}

API void ibv_ack_async_event(struct ibv_async_event *ev)
{
	enter();
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		ev->element.cq->async_events_completed++;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		ev->element.qp->events_completed++;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		ev->element.srq->events_completed++;
		break;
	default:
		break;
	}
	acked();
	leave();
}

// device_event raises an event of a device's port.
void device_event(struct device *d, enum ibv_event_type type)
{
	for (struct context *c = d->contexts; c; c = c->next)
		evq_put(&c->async, type, NULL, NULL);
}

API struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct channel *c = calloc(1, sizeof *c);

	if (!c || evq_open(&c->events)) {
		free(c);
		errno = ENOMEM;
		return NULL;
	}
	c->c.context = ctx;
	c->c.fd = c->events.fd;
	enter();
	context_of(ctx)->objects++;
	leave();
	return &c->c;
}

API int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	struct channel *c = owner_of(ch, struct channel, c);
	bool used;

	enter();
	used = ch->refcnt != 0;
	context_of(ch->context)->objects -= !used;
	leave();
	if (used)
		return EBUSY;
	evq_close(&c->events);
	free(c);
	return 0;
}

API int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **context)
{
	enum ibv_event_type type;
	void *element;

	if (evq_wait(&owner_of(ch, struct channel, c)->events, &type, &element))
		return -1;
	*cq = element;
	*context = (*cq)->cq_context;
	return 0;
}

API void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	enter();
	cq->comp_events_completed += n;
	acked();
	leave();
}
