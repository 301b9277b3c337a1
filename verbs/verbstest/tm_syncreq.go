package verbstest

import (
	"time"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 4.6: which completions have SYNC_REQ.

// testTagSyncReq: SYNC_REQ of ADD and DEL, as specified or as the mlx5 driver computes it (TMO
// 4.6).
func testTagSyncReq(r *tagRig) {
	post := func(op verbs.OpsOpcode, h, count uint32, want bool) uint32 {
		r.t.Helper()
		wr := r.counted(op, 5)
		wr.Handle, wr.UnexpectedCnt = h, count
		r.post(wr)
		if w := r.b.want(wr.WRID, verbs.WCSuccess); (w.Flags&verbs.WCFlagTMSyncReq != 0) != want || w.Flags&^verbs.WCFlagTMSyncReq != 0 {
			r.t.Fatalf("opcode %d with count %d of %d: flags %#x", op, count, r.count, w.Flags)
		}
		return wr.Handle
	}
	h := post(verbs.WRTagAdd, 0, r.count, false)
	post(verbs.WRTagDel, h, r.count, false)
	h = post(verbs.WRTagAdd, 0, r.count, false)
	r.miss(9)
	// S equals H, but the driver compares with the count of the ADD.
	post(verbs.WRTagDel, h, r.count, r.opts.SyncReqOfDriver)
	h = post(verbs.WRTagAdd, 0, r.count-1, true)
	post(verbs.WRTagDel, h, r.count-1, true)
	h = post(verbs.WRTagAdd, 0, r.count+1, true) // ahead is not up to date either
	post(verbs.WRTagDel, h, r.count+1, true)
	// The counts are equal in 16 bits, but the driver compares 32.
	h = post(verbs.WRTagAdd, 0, r.count+1<<16, r.opts.SyncReqOfDriver)
	post(verbs.WRTagDel, h, r.count, r.opts.SyncReqOfDriver)
}

// testTagSyncReqUnexpected: an unexpected message has SYNC_REQ if, including it, more than 0x3fff
// were not reported as handled, also one of several packets. The mlx5 driver counts only reports by
// ADD. The host posts a SYNC: the entry that was dormant meanwhile is live.
func testTagSyncReqUnexpected(r *tagRig) {
	const most = 0x3fff
	reported := r.count - most + 2
	if r.opts.SyncReqOfDriver && r.count < most { // it compares 32 bits: no count is old enough yet
		reported = r.count
		r.flood(most-2, func(flags verbs.WCFlags) {
			if r.count++; flags != 0 {
				r.t.Fatalf("message %d asks for a SYNC", r.count-reported)
			}
		})
	}
	wr := r.counted(verbs.WRTagAdd, 5)
	wr.UnexpectedCnt = reported
	r.post(wr)
	r.b.want(wr.WRID, verbs.WCSuccess)
	next := func() {
		r.t.Helper()
		r.flood(1, func(flags verbs.WCFlags) {
			r.count++
			if missing := r.count - reported; (flags&verbs.WCFlagTMSyncReq != 0) != (missing > most) || flags&^verbs.WCFlagTMSyncReq != 0 {
				r.t.Fatalf("%d messages are not reported: flags %#x", missing, flags)
			}
		})
	}
	for range 5 {
		next()
	}
	r.untagged(1)
	r.eager(9, 0, 3000)
	if w := r.inUntagged(); w.Flags != verbs.WCFlagTMSyncReq {
		r.t.Fatalf("a message of several packets: flags %#x", w.Flags)
	}
	r.sent()
	r.count++
	r.sync()
	r.hit(5, 5)
	if !r.opts.SyncReqOfDriver {
		reported = r.count
		next()
	}
	r.add(6, 6, exact, r.bbuf)
	reported = r.count
	next()
}

// testTagSyncReqNever: while the counts differ SYNCs, NO_TAG messages, FINs and, where there are
// any, matched messages complete without SYNC_REQ, with the flags of TMO 4.4 and no others.
func testTagSyncReqNever(r *tagRig) {
	const size = 20_000 // several packets
	fin := r.finBuffer()
	for id := range uint64(3) {
		r.add(id, 20+id, exact, r.bbuf[id*size:][:size])
	}
	r.miss(9)
	behind := r.counted(verbs.WRTagSync, 3)
	behind.UnexpectedCnt--
	r.post(behind)
	flags := func(id uint64, want ...verbs.WCFlags) {
		r.t.Helper()
		for i, f := range want {
			if w := r.b.want(id, verbs.WCSuccess); w.Flags != f {
				r.t.Errorf("completion %d of request %d while the counts differ: flags %#x, want %#x", i, id, w.Flags, f)
			}
		}
	}
	flags(behind.WRID, 0)
	for _, op := range []verbs.TMHOpcode{verbs.TMHNoTag, verbs.TMHFin} {
		r.raw(r.qa, r.message(op, 5, 0, 8))
		if w := r.inUntagged(); w.Flags != 0 {
			r.t.Errorf("%+v while the counts differ", w)
		}
		r.sent()
	}
	if r.opts.Dormant {
		return // nothing matches while the counts differ
	}
	r.eager(20, 0, 8)
	flags(0, flagsBoth)
	r.sent()
	r.eager(21, 0, size)
	flags(1, flagMatch, flagData)
	r.sent()
	r.rndv(22, 3, size)
	flags(2, flagMatch, flagData)
	r.wantFIN(8, 22, 3, fin)
}

// flood sends n unexpected messages in batches, since tests need 65536 of them, and calls each with
// the flags of their completions.
func (r *tagRig) flood(n int, each func(verbs.WCFlags)) {
	r.t.Helper()
	var recvs [untaggedDepth]verbs.RecvWR
	var sends [untaggedDepth]verbs.SendWR
	m := make([]byte, verbs.TMHSize)
	verbs.TMH{Opcode: verbs.TMHEager, Tag: 9}.Put(m)
	buf := sge(r.umr, r.ubuf[:verbs.TMHSize])
	for batch := 0; n > 0; n -= batch {
		batch = min(n, untaggedDepth-untaggedStock)
		for i := range batch {
			recvs[i] = verbs.RecvWR{WRID: untaggedID + uint64(r.posted+i), SGList: buf}
			sends[i] = inline(77, 0, m)
			if i > 0 {
				recvs[i-1].Next, sends[i-1].Next = &recvs[i], &sends[i]
			}
		}
		sends[batch-1].Flags |= verbs.SendSignaled
		_, err := r.srq.PostSRQRecv(&recvs[0])
		r.ok(err)
		_, err = r.qa.PostSend(&sends[0])
		r.ok(err)
		r.flooded(batch, each)
		r.posted += batch
	}
}

// flooded polls the completions of a batch at both ends.
func (r *tagRig) flooded(n int, each func(verbs.WCFlags)) {
	r.t.Helper()
	var wc [untaggedDepth]verbs.WC
	poll := func(b *node) []verbs.WC {
		letGo(b.dev, func() {})
		k, err := Poll(b.cq, wc[:])
		r.ok(err)
		return wc[:k]
	}
	deadline := time.Now().Add(patience)
	sent := false
	for i := 0; i < n || !sent; {
		for _, w := range poll(r.a) {
			sent = w.WRID == 77 && w.Status == verbs.WCSuccess
		}
		ws := poll(r.b)
		for _, w := range ws {
			if w.WRID != untaggedID+uint64(r.used) || w.Status != verbs.WCSuccess {
				r.t.Fatalf("%+v, want unexpected message %d", w, r.used)
			}
			r.used++
			each(w.Flags)
			i++
		}
		if len(ws) == 0 && time.Now().After(deadline) {
			r.t.Fatal("waited in vain for a flood of unexpected messages")
		}
	}
}
