// Objects of the stand-in that loops are timed on, in C by tmstub_time, and elsewhere by their addresses.

#ifndef TMSTUB_BENCH_H
#define TMSTUB_BENCH_H

#include <infiniband/verbs.h>

enum { BENCH_POLL = 16, BENCH_EVERY = 32, BENCH_RECEIVES = 2048, BENCH_RECEIVE = (8 << 10) + 64 };

// bench is a queue that has no completions, two that give the same 16 again and again, and queue pairs
// of which each 32nd request is signalled.
struct bench {
	struct ibv_cq *empty, *full;
	struct ibv_cq_ex *extended;
	struct ibv_qp *qp; // its completions are in posted
	struct ibv_cq *posted;
	struct ibv_send_wr *write; // of 8 bytes inline
	struct ibv_wc *wc;
	uint64_t *fields; // where what is read of an extended queue goes

	// For messages one way, of a header of 16 bytes and 8 bytes:
	struct ibv_qp *from;
	struct ibv_cq *sent, *received;
	struct ibv_srq *srq;
	struct ibv_send_wr *send;    // with its two entries
	uint64_t *message;           // what it sends
	struct ibv_recv_wr *receive; // 32, each with an entry
	char *receives;              // the memory of all of them, by wr_id
};

// loop is what is timed: see bench.c.
enum loop { LOOP_EMPTY, LOOP_POST, LOOP_POLL, LOOP_EXTENDED, LOOP_MESSAGE };

#endif
