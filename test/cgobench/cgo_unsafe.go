package main

/*
#cgo CFLAGS: -I${SRCDIR}/../tmstub
#cgo LDFLAGS: -libverbs
#cgo noescape c_abs
#cgo nocallback c_abs
#cgo noescape c_poll
#cgo nocallback c_poll
#cgo noescape c_post
#cgo nocallback c_post
#cgo noescape c_poll_extended
#cgo nocallback c_poll_extended
#include <stdlib.h>
#include "bench.h"

struct bench *tmstub_bench(void);
uint64_t tmstub_time(int loop, long turns);
void tmstub_again(int n);

// Addresses are numbers here: Go would check pointers.
static int c_abs(int n) { return abs(n); }
static int c_poll(uintptr_t cq, int most, uintptr_t wc) { return ibv_poll_cq((struct ibv_cq *)cq, most, (struct ibv_wc *)wc); }

static int c_post(uintptr_t qp, uintptr_t wr, uintptr_t bad)
{
	return ibv_post_send((struct ibv_qp *)qp, (struct ibv_send_wr *)wr, (struct ibv_send_wr **)bad);
}

// c_poll_extended reads as tmstub_time does.
static int c_poll_extended(uintptr_t cq, int most, uintptr_t fields)
{
	struct ibv_cq_ex *x = (struct ibv_cq_ex *)cq;
	struct ibv_poll_cq_attr none = {0};
	struct ibv_wc_tm_info tm;
	uint64_t *f = (uint64_t *)fields;
	int n = 0;

	if (ibv_start_poll(x, &none))
		return 0;
	do {
		f[0] = x->status;
		f[1] = x->wr_id;
		f[2] = ibv_wc_read_opcode(x);
		f[3] = ibv_wc_read_vendor_err(x);
		f[4] = ibv_wc_read_byte_len(x);
		f[5] = ibv_wc_read_qp_num(x);
		f[6] = ibv_wc_read_wc_flags(x);
		f[7] = ibv_wc_read_imm_data(x);
		ibv_wc_read_tm_info(x, &tm);
		f[8] = tm.tag;
	} while (++n < most && !ibv_next_poll(x));
	ibv_end_poll(x);
	return n;
}

static uintptr_t abs_fn(void) { return (uintptr_t)abs; }
static uintptr_t poll_fn(struct bench *b) { return (uintptr_t)b->qp->context->ops.poll_cq; }
static uintptr_t post_fn(struct bench *b) { return (uintptr_t)b->qp->context->ops.post_send; }
static uintptr_t receive_fn(struct bench *b) { return (uintptr_t)b->qp->context->ops.post_srq_recv; }
*/
import "C"

import (
	"time"
	"unsafe"

	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/ccall"
)

// objects are what the stand-in times its loops on.
type objects struct {
	b                                  *C.struct_bench
	empty, full, extended, qp, posted  C.uintptr_t
	wr, wc, fields, bad                C.uintptr_t
	abs, pollEmpty, pollFull, postCall ccall.Call
	pollPosted                         ccall.Call
}

func newObjects() *objects {
	b := C.tmstub_bench()
	o := &objects{b: b, empty: number(b.empty), full: number(b.full), extended: number(b.extended), qp: number(b.qp), posted: number(b.posted),
		wr: number(b.write), wc: number(b.wc), fields: number(b.fields)}
	o.bad = o.fields
	poll := func(cq C.uintptr_t) ccall.Call {
		return ccall.Call{Fn: uintptr(C.poll_fn(b)), Args: [6]uintptr{uintptr(cq), C.BENCH_POLL, uintptr(o.wc)}}
	}
	o.abs = ccall.Call{Fn: uintptr(C.abs_fn()), Args: [6]uintptr{1}}
	o.pollEmpty, o.pollFull, o.pollPosted = poll(o.empty), poll(o.full), poll(o.posted)
	o.postCall = ccall.Call{Fn: uintptr(C.post_fn(b)), Args: [6]uintptr{uintptr(o.qp), uintptr(o.wr), uintptr(o.bad)}}
	return o
}

func number[T any](p *T) C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(p))) }

// again has queues give the same completions again and again.
func again(on bool) {
	n := 0
	if on {
		n = C.BENCH_POLL
	}
	C.tmstub_again(C.int(n))
}

// inC is a loop of the stand-in's.
func inC(loop C.int) timed {
	return func(turns int) time.Duration { return time.Duration(C.tmstub_time(loop, C.long(turns))) }
}

// fill makes request i, of which each 32nd is signalled, in C's memory. It reports whether it is.
func (o *objects) fill(i int) bool {
	wr := o.b.write
	wr.wr_id, wr.send_flags = C.uint64_t(i), C.IBV_SEND_INLINE
	if i%C.BENCH_EVERY != C.BENCH_EVERY-1 {
		return false
	}
	wr.send_flags |= C.IBV_SEND_SIGNALED
	return true
}

func (o *objects) rows() []row {
	run := func(do func(turns int)) timed {
		return func(turns int) time.Duration {
			start := time.Now()
			do(turns)
			return time.Since(start)
		}
	}
	var eight [8]ccall.Step
	for i := range eight {
		eight[i] = ccall.Step{Addr: o.abs.Fn, Args: [3]uintptr{1}}
	}
	return []row{
		{name: "a crossing",
			cgo: run(func(n int) {
				for range n {
					C.c_abs(1)
				}
			}),
			call: run(func(n int) {
				for range n {
					o.abs.Do()
				}
			})},
		{name: "eight calls in one crossing",
			call: run(func(n int) {
				for range n {
					ccall.Run(eight[:], nil)
				}
			})},
		{name: "empty poll", c: inC(C.LOOP_EMPTY),
			cgo: run(func(n int) {
				for range n {
					C.c_poll(o.empty, C.BENCH_POLL, o.wc)
				}
			}),
			call: run(func(n int) {
				for range n {
					o.pollEmpty.Do()
				}
			})},
		{name: "post of one inline request", c: inC(C.LOOP_POST),
			cgo: run(func(n int) {
				for i := range n {
					signalled := o.fill(i)
					C.c_post(o.qp, o.wr, o.bad)
					if signalled {
						C.c_poll(o.posted, C.BENCH_POLL, o.wc)
					}
				}
			}),
			call: run(func(n int) {
				for i := range n {
					signalled := o.fill(i)
					o.postCall.Do()
					if signalled {
						o.pollPosted.Do()
					}
				}
			})},
		{name: "poll of 16", c: inC(C.LOOP_POLL), again: true,
			cgo: run(func(n int) {
				for range n {
					C.c_poll(o.full, C.BENCH_POLL, o.wc)
				}
			}),
			call: run(func(n int) {
				for range n {
					o.pollFull.Do()
				}
			})},
		{name: "extended poll of 16", c: inC(C.LOOP_EXTENDED), again: true,
			cgo: run(func(n int) {
				for range n {
					C.c_poll_extended(o.extended, C.BENCH_POLL, o.fields)
				}
			})},
		{name: "message by rc, both ends", c: inC(C.LOOP_MESSAGE), call: o.messages()},
	}
}

// messages is the program of LOOP_MESSAGE with bare calls.
func (o *objects) messages() timed {
	b := o.b
	poll := func(cq *C.struct_ibv_cq) ccall.Call {
		return ccall.Call{Fn: uintptr(C.poll_fn(b)), Args: [6]uintptr{uintptr(number(cq)), C.BENCH_EVERY, uintptr(o.wc)}}
	}
	received, sent := poll(b.received), poll(b.sent)
	post := ccall.Call{Fn: uintptr(C.post_fn(b)), Args: [6]uintptr{uintptr(number(b.from)), uintptr(number(b.send)), uintptr(o.bad)}}
	postReceives := ccall.Call{Fn: uintptr(C.receive_fn(b)), Args: [6]uintptr{uintptr(number(b.srq)), uintptr(number(b.receive)), uintptr(o.bad)}}
	text := unsafe.Slice(b.message, 3)
	receives := unsafe.Slice((*byte)(unsafe.Pointer(b.receives)), C.BENCH_RECEIVES*C.BENCH_RECEIVE)
	receive, wc := unsafe.Slice(b.receive, C.BENCH_EVERY), unsafe.Slice(b.wc, C.BENCH_EVERY)
	sum := C.uint64_t(0)
	return func(turns int) time.Duration {
		start := time.Now()
		for i := range turns {
			last := i%C.BENCH_EVERY == C.BENCH_EVERY-1
			text[1], b.send.wr_id, b.send.send_flags = C.uint64_t(i), C.uint64_t(i), C.IBV_SEND_INLINE
			if last {
				b.send.send_flags |= C.IBV_SEND_SIGNALED
			}
			post.Do()
			for received.Do(); int32(received.Ret) == 0; received.Do() {
			}
			sum += *(*C.uint64_t)(unsafe.Pointer(&receives[wc[0].wr_id*C.BENCH_RECEIVE+16]))
			if last {
				for k := range receive {
					receive[k].wr_id = wc[0].wr_id - C.BENCH_EVERY + 1 + C.uint64_t(k)
					receive[k].sg_list.addr = C.uint64_t(uintptr(unsafe.Pointer(&receives[receive[k].wr_id*C.BENCH_RECEIVE])))
				}
				postReceives.Do()
				sent.Do()
			}
		}
		return time.Since(start)
	}
}
