/* The part of a device that tags_test.go needs, behind the real header: one extended completion queue, whose
   completions the test writes, and one SRQ with tag matching, which records what is posted. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

/* misuse counts calls in an order that libibverbs does not allow; live the objects. */
int misuse, live;

/* What the device announces, and what it refuses with. */
struct ibv_tm_caps caps;
int refuse_cq, refuse_srq;

/* What was asked for. */
struct ibv_cq_init_attr_ex cq_asked;
struct ibv_srq_init_attr_ex srq_asked;

/* The completions: those from head up to tail. next_poll returns next_fails where there is none. */
struct completion {
	uint64_t wr_id, tag;
	uint32_t status, opcode, vendor_err, byte_len, qp_num, flags, imm, priv;
} queue[256];
int head, tail, start_fails = ENOENT, next_fails = ENOENT;

static struct completion *current;
static struct ibv_cq_ex cq;

static int take(int empty)
{
	if (head == tail) {
		current = NULL;
		return empty;
	}
	current = &queue[head++ % 256];
	cq.wr_id = current->wr_id;
	cq.status = current->status;
	return 0;
}

static int polling;

static int start_poll(struct ibv_cq_ex *c, struct ibv_poll_cq_attr *attr)
{
	misuse += polling || c != &cq || attr->comp_mask;
	int ret = take(start_fails);
	polling = ret == 0;
	return ret;
}

static int next_poll(struct ibv_cq_ex *c)
{
	misuse += !polling || c != &cq;
	return take(next_fails);
}

static void end_poll(struct ibv_cq_ex *c)
{
	misuse += !polling || c != &cq;
	polling = 0;
}

#define READ(type, name, field) \
	static type name(struct ibv_cq_ex *c) \
	{ \
		if (!current || c != &cq) \
			return misuse++; \
		return current->field; \
	}
READ(enum ibv_wc_opcode, read_opcode, opcode)
READ(uint32_t, read_vendor_err, vendor_err)
READ(uint32_t, read_byte_len, byte_len)
READ(uint32_t, read_qp_num, qp_num)
READ(unsigned int, read_wc_flags, flags)
READ(__be32, read_imm_data, imm)

static void read_tm_info(struct ibv_cq_ex *c, struct ibv_wc_tm_info *info)
{
	misuse += !current || c != &cq;
	info->tag = current->tag;
	info->priv = current->priv;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	cq_asked = *attr;
	if (refuse_cq) {
		errno = refuse_cq;
		return NULL;
	}
	memset(&cq, 0, sizeof cq);
	cq.context = context;
	cq.start_poll = start_poll;
	cq.next_poll = next_poll;
	cq.end_poll = end_poll;
	cq.read_opcode = read_opcode;
	cq.read_vendor_err = read_vendor_err;
	cq.read_wc_flags = read_wc_flags;
	if (attr->wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		cq.read_byte_len = read_byte_len;
	if (attr->wc_flags & IBV_WC_EX_WITH_QP_NUM)
		cq.read_qp_num = read_qp_num;
	if (attr->wc_flags & IBV_WC_EX_WITH_IMM)
		cq.read_imm_data = read_imm_data;
	if (attr->wc_flags & IBV_WC_EX_WITH_TM_INFO)
		cq.read_tm_info = read_tm_info;
	live++;
	return &cq;
}

static struct ibv_srq srq;
static struct ibv_pd pd;

static struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	srq_asked = *attr;
	if (refuse_srq) {
		errno = refuse_srq;
		return NULL;
	}
	attr->attr.max_wr += 10;
	srq.context = context;
	live++;
	return &srq;
}

static int get_srq_num(struct ibv_srq *s, uint32_t *num)
{
	misuse += s != &srq;
	*num = 0x123456;
	return 0;
}

/* The operations that were posted, one call as one array; room is for how many more there is. */
struct ibv_ops_wr ops[128];
struct ibv_sge sges[128];
int posted, calls, room = 128, silent;

static int post_srq_ops(struct ibv_srq *s, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	misuse += s != &srq || *bad;
	calls++;
	for (; wr; wr = wr->next) {
		if (room == 0) {
			if (!silent)
				*bad = wr;
			return ENOMEM;
		}
		room--;
		ops[posted] = *wr;
		if (wr->opcode == IBV_WR_TAG_ADD) {
			if (wr->tm.add.num_sge)
				sges[posted] = *wr->tm.add.sg_list;
			wr->tm.handle = 100 + posted;
		}
		posted++;
	}
	return 0;
}

/* What a real library exports. */
struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) { pd.context = context; live++; return &pd; }
int ibv_dealloc_pd(struct ibv_pd *p) { misuse += p != &pd; live--; return 0; }
int ibv_destroy_cq(struct ibv_cq *c) { misuse += c != ibv_cq_ex_to_cq(&cq); live--; return 0; }
int ibv_destroy_srq(struct ibv_srq *s) { misuse += s != &srq; live--; return 0; }

static struct verbs_context context;

/* open_context makes all new. */
struct ibv_context *open_context(void)
{
	misuse = live = refuse_cq = refuse_srq = head = tail = polling = posted = calls = silent = 0;
	start_fails = next_fails = ENOENT;
	room = 128;
	memset(&context, 0, sizeof context);
	context.sz = sizeof context;
	context.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	context.create_cq_ex = create_cq_ex;
	context.create_srq_ex = create_srq_ex;
	context.get_srq_num = get_srq_num;
	context.post_srq_ops = post_srq_ops;
	return &context.context;
}

/* forget has the device lack an operation. */
void forget_post_srq_ops(void) { context.post_srq_ops = NULL; }
void forget_get_srq_num(void) { context.get_srq_num = NULL; }
