// Protection domains, memory regions, and the checks of what requests name.

#define _GNU_SOURCE
#include "tmstub.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

API struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct pd *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->p.context = ctx;
	enter();
	context_of(ctx)->objects++;
	leave();
	return &p->p;
}

API int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct pd *p = owner_of(pd, struct pd, p);

	enter();
	if (p->objects) {
		leave();
		return EBUSY;
	}
	context_of(pd->context)->objects--;
	leave();
	free(p);
	return 0;
}

// new_key finds a free slot, the one that was free for longest; the low byte of a key is other
// for each turn through the slots.
static uint32_t new_key(struct device *d)
{
	for (int i = 0; i < MAX_MRS; i++) {
		uint32_t slot = ++d->last_mr % MAX_MRS;

		if (slot && !d->mrs[slot])
			return slot << 8 | (d->last_mr / MAX_MRS & 0xff);
	}
	return 0;
}

static struct mr *find_mr(const struct device *d, uint32_t key)
{
	struct mr *m = key >> 8 < MAX_MRS ? d->mrs[key >> 8] : NULL;

	return m && m->m.lkey == key ? m : NULL;
}

#undef ibv_reg_mr
API struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	const int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	const int writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	struct context *c = context_of(pd->context);
	struct device *d = c->dev;
	struct mr *m;
	uint32_t key;

	if (access & ~known || (access & writes && !(access & IBV_ACCESS_LOCAL_WRITE)) || !length) {
		errno = EINVAL;
		return NULL;
	}
	m = calloc(1, sizeof *m);
	enter();
	key = m && length <= c->cfg.mr_bytes && d->registered <= c->cfg.mr_bytes - length ? new_key(d) : 0;
	if (!key) {
		leave();
		free(m);
		errno = ENOMEM;
		return NULL;
	}
	m->m = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length, .lkey = key, .rkey = key};
	m->access = access;
	d->mrs[key >> 8] = m;
	d->registered += length;
	c->objects++;
	owner_of(pd, struct pd, p)->objects++;
	leave();
	return &m->m;
}

// Between its steps, which hold the lock, nothing keeps an address: when this returns the memory is
// not accessed any more.
API int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct context *c = context_of(mr->context);

	enter();
	c->dev->mrs[mr->lkey >> 8] = NULL;
	c->dev->registered -= mr->length;
	c->objects--;
	owner_of(mr->pd, struct pd, p)->objects--;
	leave();
	free(owner_of(mr, struct mr, m));
	return 0;
}

static bool within(const struct mr *m, const struct ibv_pd *pd, uint64_t addr, uint64_t len, int access)
{
	uint64_t start = (uintptr_t)m->m.addr;

	return m->m.pd == pd && (m->access & access) == access && addr >= start && addr - start <= m->m.length &&
	       len <= m->m.length - (addr - start);
}

uint64_t list_length(struct list l)
{
	uint64_t n = 0;

	for (int i = 0; i < l.n; i++)
		n += l.sge[i].length;
	return n;
}

// list_registered reports whether the first bytes of a list, most of them at most, may be accessed.
bool list_registered(const struct ibv_pd *pd, const struct device *d, struct list l, uint64_t most, int access)
{
	for (int i = 0; i < l.n && most > 0; i++) {
		uint64_t n = l.sge[i].length < most ? l.sge[i].length : most;
		const struct mr *m = find_mr(d, l.sge[i].lkey);

		if (n && (!m || !within(m, pd, l.sge[i].addr, n, access)))
			return false;
		most -= n;
	}
	return true;
}

bool remote_registered(const struct ibv_pd *pd, const struct device *d, uint32_t rkey, uint64_t addr, uint64_t len, int access)
{
	const struct mr *m = find_mr(d, rkey);

	return !len || (m && within(m, pd, addr, len, access));
}

// list_copy copies n bytes from a place in one list to a place in another.
void list_copy(struct list to, uint64_t to_at, struct list from, uint64_t from_at, uint64_t n)
{
	int i = 0, j = 0;

	while (n > 0) {
		uint64_t k = n;

		for (; to_at >= to.sge[i].length; i++)
			to_at -= to.sge[i].length;
		for (; from_at >= from.sge[j].length; j++)
			from_at -= from.sge[j].length;
		if (k > to.sge[i].length - to_at)
			k = to.sge[i].length - to_at;
		if (k > from.sge[j].length - from_at)
			k = from.sge[j].length - from_at;
		memmove((char *)(uintptr_t)to.sge[i].addr + to_at, (char *)(uintptr_t)from.sge[j].addr + from_at, k);
		to_at += k;
		from_at += k;
		n -= k;
	}
}
