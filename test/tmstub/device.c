// Devices: what there are, their attributes, and opening them.

#define _GNU_SOURCE
#include "tmstub.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device *devices;
int device_count;
atomic_ulong calls[CALLS];

struct context *context_of(struct ibv_context *c)
{
	return owner_of(c, struct context, v.context);
}

struct device *device_of_context(struct ibv_context *c) { return context_of(c)->dev; }

uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s && *s ? strtoull(s, NULL, 0) : otherwise;
}

// make_devices makes TMSTUB_DEVICES devices, once.
static int make_devices(void)
{
	int n = (int)setting("TMSTUB_DEVICES", 2);

	if (devices || n <= 0)
		return 0;
	if (n > MAX_DEVICES)
		n = MAX_DEVICES;
	devices = calloc(n, sizeof *devices);
	if (!devices)
		return ENOMEM;
	device_count = n;
	for (int i = 0; i < n; i++) {
		struct device *d = &devices[i];

		d->index = i;
		d->lid = 0x100 + i;
		d->port = IBV_PORT_ACTIVE;
		d->dev.node_type = IBV_NODE_CA;
		d->dev.transport_type = IBV_TRANSPORT_IB;
		snprintf(d->dev.name, sizeof d->dev.name, "tmstub%d", i);
		snprintf(d->dev.dev_name, sizeof d->dev.dev_name, "tmstub_verbs%d", i);
	}
	return 0;
}

API struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list;

	enter();
	errno = make_devices();
	list = errno ? NULL : calloc(device_count + 1, sizeof *list);
	for (int i = 0; list && i < device_count; i++)
		list[i] = &devices[i].dev;
	if (count)
		*count = list ? device_count : 0;
	leave();
	return list;
}

API void ibv_free_device_list(struct ibv_device **list) { free(list); }

API const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }

API __be64 ibv_get_device_guid(struct ibv_device *d)
{
	return htobe64(0x0002c90300000000 + owner_of(d, struct device, dev)->index);
}

static int query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in, struct ibv_device_attr_ex *attr,
			   size_t size)
{
	struct ibv_device_attr_ex a = {0};
	struct ibv_device_attr *o = &a.orig_attr;
	const struct config *cfg = &context_of(c)->cfg;

	if (in && in->comp_mask)
		return EINVAL;
	strcpy(o->fw_ver, "0.0.0");
	o->node_guid = o->sys_image_guid = ibv_get_device_guid(c->device);
	o->max_mr_size = UINT64_MAX;
	o->page_size_cap = 4096;
	o->max_qp = MAX_QPS - 1;
	o->max_qp_wr = MAX_WR;
	o->max_sge = o->max_sge_rd = MAX_SGE;
	o->max_cq = 1 << 16;
	o->max_cqe = MAX_CQE;
	o->max_mr = MAX_MRS - 1;
	o->max_pd = 1 << 16;
	o->max_qp_rd_atom = o->max_qp_init_rd_atom = MAX_READS;
	o->max_srq = 1 << 16;
	o->max_srq_wr = MAX_WR;
	o->max_srq_sge = MAX_SRQ_SGE;
	o->max_pkeys = 1;
	o->phys_port_cnt = 1;
	if (cfg->tags)
		a.tm_caps = (struct ibv_tm_caps){.max_rndv_hdr_size = cfg->tm_flags ? MAX_RNDV : 0, .max_num_tags = cfg->tags,
			.flags = cfg->tm_flags, .max_ops = cfg->ops, .max_sge = 1};
	memset(attr, 0, size);
	memcpy(attr, &a, size < sizeof a ? size : sizeof a);
	return 0;
}

static int query_port(struct ibv_context *c, uint8_t num, struct ibv_port_attr *attr, size_t size)
{
	const struct device *d = device_of_context(c);
	bool ethernet = context_of(c)->cfg.ethernet;
	struct ibv_port_attr a = {
		.state = d->port, .max_mtu = IBV_MTU_4096, .active_mtu = IBV_MTU_4096, .gid_tbl_len = 4, .max_msg_sz = MAX_MESSAGE,
		.pkey_tbl_len = 1, .lid = ethernet ? 0 : d->lid, .sm_lid = 1,
		.link_layer = ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND,
	};

	if (num != 1)
		return EINVAL;
	memset(attr, 0, size);
	memcpy(attr, &a, size < sizeof a ? size : sizeof a);
	return 0;
}

// port_gid is entry 0, of the GUID, or 1, on Ethernet alone, of an IPv4 address.
void port_gid(const struct device *d, bool ethernet, int index, union ibv_gid *gid)
{
	memset(gid, 0, sizeof *gid);
	if (ethernet && index == 1) {
		gid->raw[10] = gid->raw[11] = 0xff;
		gid->raw[12] = 192;
		gid->raw[14] = 2;
		gid->raw[15] = 1 + d->index;
		return;
	}
	gid->global.subnet_prefix = htobe64(0xfe80000000000000);
	gid->global.interface_id = ibv_get_device_guid((struct ibv_device *)&d->dev);
}

API int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
			  size_t size)
{
	bool ethernet = context_of(c)->cfg.ethernet;
	struct ibv_gid_entry e = {.gid_index = index, .port_num = port};

	if (port != 1 || index > 3 || flags || size < sizeof e)
		return EINVAL;
	if (index > (ethernet ? 1 : 0))
		return ENODATA;
	port_gid(device_of_context(c), ethernet, index, &e.gid);
	e.gid_type = !ethernet ? IBV_GID_TYPE_IB : index == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
	memset(entry, 0, size);
	memcpy(entry, &e, sizeof e);
	return 0;
}

static bool is(const char *name, const char *value)
{
	const char *s = getenv(name);

	return s && strcmp(s, value) == 0;
}

static struct config environment(void)
{
	return (struct config){
		.ethernet = is("TMSTUB_LINK", "ethernet"), .mr_bytes = setting("TMSTUB_MR_BYTES", UINT64_MAX),
		.tags = (uint32_t)setting("TMSTUB_TAGS", 1023), .tm_flags = (uint32_t)setting("TMSTUB_TM_FLAGS", IBV_TM_CAP_RC),
		.ops = (uint32_t)setting("TMSTUB_OPS", MAX_OPS), .untagged = (uint32_t)setting("TMSTUB_UNTAGGED", 0), .recv = is("TMSTUB_UNEXPECTED", "recv"),
		.two = is("TMSTUB_INCOMPLETE", "two"), .lost = is("TMSTUB_CANCELED", "lost"), .refuse = (int)setting("TMSTUB_SRQ_ERRNO", 0),
	};
}

API struct ibv_context *ibv_open_device(struct ibv_device *dev)
{
	struct device *d = owner_of(dev, struct device, dev);
	struct context *c = calloc(1, sizeof *c);

	if (!c || evq_open(&c->async)) {
		free(c);
		errno = ENOMEM;
		return NULL;
	}
	c->dev = d;
	c->cfg = environment();
	c->v.sz = sizeof c->v;
	c->v.query_port = query_port;
	c->v.query_device_ex = query_device_ex;
	c->v.create_cq_ex = create_cq_ex;
	c->v.create_srq_ex = create_srq_ex;
	c->v.get_srq_num = get_srq_num;
	c->v.post_srq_ops = c->cfg.tags ? post_srq_ops : no_srq_ops;
	c->v.context = (struct ibv_context){
		.device = dev, .cmd_fd = -1, .async_fd = c->async.fd, .num_comp_vectors = 1, .abi_compat = __VERBS_ABI_IS_EXTENDED,
		.ops = {.poll_cq = poll_cq, .req_notify_cq = req_notify_cq, .post_srq_recv = post_srq_recv, .post_send = post_send,
			.post_recv = post_recv},
	};
	pthread_mutex_init(&c->v.context.mutex, NULL);
	start_worker();
	enter();
	c->next = d->contexts;
	d->contexts = c;
	leave();
	return &c->v.context;
}

// The real one does not look whether there are objects left; here that is an error.
API int ibv_close_device(struct ibv_context *ctx)
{
	struct context *c = context_of(ctx);
	struct context **p;

	enter();
	if (c->objects) {
		leave();
		return EBUSY;
	}
	for (p = &c->dev->contexts; *p != c; p = &(*p)->next)
		;
	*p = c->next;
	leave();
	evq_close(&c->async);
	free(c);
	return 0;
}

// tmstub_calls is how often a call was made.
API unsigned long tmstub_calls(int call) { return call < CALLS ? calls[call] : 0; }

// tmstub_port sets the state of a device's port, and raises the event.
API int tmstub_port(int device, int active)
{
	if (device >= device_count)
		return EINVAL;
	enter();
	devices[device].port = active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	device_event(&devices[device], active ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
	leave();
	return 0;
}
