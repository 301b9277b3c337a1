package verbstest

import (
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 5: which counters there are, what moves them, and what they do to the entries.

// miss sends a short message that must be unexpected, in untagged buffer k, and counts it as handled.
func (r *tagRig) miss(k int, tag uint64) {
	r.t.Helper()
	m := r.eager(tag, 0, 8)
	r.unexpected(k, m)
	r.sent()
	r.count++
}

// hit sends a short message that receive id must take.
func (r *tagRig) hit(id, tag uint64) {
	r.t.Helper()
	m := r.eager(tag, uint32(id), 8)
	r.matched(id, tag, uint32(id), m[verbs.TMHSize:], r.bbuf)
	r.sent()
}

// testTagCounts: unexpected EAGER and RNDV messages count, one each however many packets they have; matched ones, NO_TAG and
// FIN do not. An entry becomes live with the one right count only.
func testTagCounts(t *testing.T, open Opener, opts TagOptions) {
	const long = 60_000
	r := newTagRig(t, open, opts, 15, 64)
	fmr, fin := r.a.mem(64)
	next := 0
	r.untagged(1) // one more than it takes, so that a wrong count is seen at once
	untagged := func(m []byte, op verbs.WCOpcode) {
		t.Helper()
		r.untagged(1)
		r.a.send(r.qa, verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(r.amr, m)})
		if w := r.b.want(untaggedID+uint64(next), verbs.WCSuccess); op == verbs.WCTMNoTag && w.Opcode != op {
			t.Fatalf("%+v", w)
		}
		next++
		r.sent()
	}
	for name, c := range map[string]struct {
		counts uint32
		run    func()
	}{
		"eager":        {1, func() { untagged(r.message(verbs.TMHEager, 9, 0, 8), verbs.WCTMRecv) }},
		"eager, long":  {1, func() { untagged(r.message(verbs.TMHEager, 9, 0, long), verbs.WCTMRecv) }},
		"rendezvous":   {1, func() { untagged(r.message(verbs.TMHRndv, 9, 0, 16), verbs.WCTMRecv) }},
		"NO_TAG":       {0, func() { untagged(r.message(verbs.TMHNoTag, 9, 0, 8), verbs.WCTMNoTag) }},
		"NO_TAG, long": {0, func() { untagged(r.message(verbs.TMHNoTag, 9, 0, long), verbs.WCTMNoTag) }},
		"FIN":          {0, func() { untagged(r.message(verbs.TMHFin, 9, 0, 16), verbs.WCTMNoTag) }},
		"matched":      {0, func() { r.add(8, 8, exact, r.bbuf); r.hit(8, 8) }},
		"matched, long": {0, func() {
			r.add(8, 8, exact, r.bbuf)
			m := r.eager(8, 0, long)
			r.matched(8, 8, 0, m[16:], r.bbuf)
			r.sent()
		}},
		"matched rendezvous": {0, func() {
			r.a.recv(r.qa, 1, sge(fmr, fin))
			r.add(8, 8, exact, r.bbuf)
			r.rndv(8, 3, 5000)
			r.matched(8, 8, 3, r.abuf[rndvOffset:][:5000], r.bbuf)
			r.wantFIN(1, 8, 3, fin)
		}},
	} {
		c.run()
		r.count += c.counts
		r.add(1, 5, exact, r.bbuf)
		r.eager(5, 1, 8)
		if w := r.b.next(); w.WRID != 1 {
			t.Fatalf("%s: does not count for %d: %+v", name, c.counts, w)
		}
		r.sent()
	}
}

// testTagCountLow16: of a count the low 16 bits matter, whichever operation brings it.
func testTagCountLow16(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	for k, op := range []verbs.OpsOpcode{verbs.WRTagSync, verbs.WRTagDel, verbs.WRTagAdd} {
		r.miss(k, 9)
		count := r.count
		r.count-- // as the device knows it
		id := uint64(k)
		other := r.add(50, 50, exact, r.bbuf)
		r.add(id, 5, exact, r.bbuf)
		r.count = count + 1<<16*uint32(3+k)
		r.do(verbs.OpsWR{Opcode: op, Handle: other, Add: r.tagAdd(60, 60, exact, r.bbuf)}, verbs.WCSuccess)
		r.hit(id, 5)
		r.count = count
	}
}

// testTagAddWithoutSync: an ADD without TM_SYNC leaves the device's count as it is: it is live at once if that was right,
// whatever the unused field says, and dormant if it was not.
func testTagAddWithoutSync(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	add := func(id uint64, count uint32) {
		t.Helper()
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagAdd, WRID: 9, Flags: verbs.OpsSignaled, UnexpectedCnt: count, Add: r.tagAdd(id, 5, exact, r.bbuf)})
		r.b.want(9, verbs.WCSuccess)
	}
	add(1, r.count+7)
	r.hit(1, 5)
	r.miss(0, 9)
	add(2, r.count)
	r.miss(1, 5)
	r.sync()
	r.hit(2, 5)
}

// testTagDelActivates: a DEL with the right count takes its entry out and makes the others live.
func testTagDelActivates(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	r.miss(0, 9)
	r.count--
	first := r.add(1, 5, exact, r.bbuf)
	r.add(2, 5, exact, r.bbuf)
	r.count++
	r.del(first, verbs.WCSuccess)
	r.hit(2, 5)
	r.miss(1, 5)
}

// testTagAddActivates: an ADD with the right count makes itself and every entry before it live.
func testTagAddActivates(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	r.miss(0, 9)
	r.count--
	r.add(1, 5, exact, r.bbuf)
	r.add(2, 6, exact, r.bbuf)
	r.count++
	r.add(3, 0, 0, r.bbuf)
	r.hit(2, 6)
	r.hit(1, 5)
	r.hit(3, 6)
}

// testTagOlderCount: an operation that brings an older count makes nothing dormant; it only delays what comes after it.
func testTagOlderCount(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	r.miss(0, 9)
	r.add(1, 5, exact, r.bbuf)
	r.count--
	r.sync()
	r.add(2, 6, exact, r.bbuf)
	r.count++
	r.hit(1, 5)
	r.miss(1, 6)
	r.sync()
	r.hit(2, 6)
}

// testTagForcedDel: an unsignalled DEL of a dormant entry cannot fail, posted with the count that covers the message found for
// it: it has no completion, its slot is free at once, and nothing can match it any more.
func testTagForcedDel(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 64)
	r.untagged(32)
	for i := range 8 {
		r.miss(2*i, 5)
		r.count--
		h := r.add(1, 5, exact, r.bbuf)
		r.count++
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h, Flags: verbs.OpsTMSync, UnexpectedCnt: r.count})
		r.add(2, 6, exact, r.bbuf)
		r.miss(2*i+1, 5)
		r.sync()
		r.hit(2, 6)
	}
	r.b.none()
	if len(r.b.evs) > 0 {
		t.Errorf("%+v", r.b.evs)
	}
}

// testTagForcedDelOfLive: row 22: a host deletes by force what a message has taken, and what is live. The receive ends once; a
// strict device tells.
func testTagForcedDelOfLive(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 7, 64)
	force := func(h uint32) {
		t.Helper()
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h})
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagSync, WRID: 9, Flags: verbs.OpsSignaled})
		if opts.Strict {
			r.b.wantEvent(verbs.EventSRQErr)
		}
	}
	h := r.add(1, 5, exact, r.bbuf)
	r.unpolled(func() { r.eager(5, 0, 8); r.sent() })
	force(h)
	if w := r.b.next(); w.WRID != 1 || opts.Strict != (w.Status == verbs.WCGeneralErr) {
		t.Errorf("%+v", w)
	}
	r.b.want(9, verbs.WCSuccess)
	force(r.add(2, 5, exact, r.bbuf))
	r.b.want(9, verbs.WCSuccess)
	r.b.none()
}

// testTagSyncReq: SYNC_REQ of list operations, as specified or as the mlx5 driver computes it (TMO 4.6); other completions than
// those of ADD, DEL and unexpected messages never have it.
func testTagSyncReq(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	post := func(op verbs.OpsOpcode, h, count uint32, want bool) uint32 {
		t.Helper()
		wr := verbs.OpsWR{Opcode: op, Handle: h, WRID: 3, Flags: verbs.OpsSignaled | verbs.OpsTMSync, UnexpectedCnt: count}
		if op == verbs.WRTagAdd {
			wr.Add = r.tagAdd(1, 5, exact, r.bbuf)
		}
		r.post(&wr)
		if w := r.b.want(3, verbs.WCSuccess); (w.Flags&verbs.WCFlagTMSyncReq != 0) != want || w.Flags&^verbs.WCFlagTMSyncReq != 0 {
			t.Fatalf("opcode %d with count %d of %d: flags %#x", op, count, r.count, w.Flags)
		}
		return wr.Handle
	}
	h := post(verbs.WRTagAdd, 0, r.count, false)
	post(verbs.WRTagDel, h, r.count, false)
	h = post(verbs.WRTagAdd, 0, r.count, false)
	r.miss(0, 9)
	post(verbs.WRTagDel, h, r.count, opts.SyncReqOfDriver) // up to date by itself, but not by the driver's memory of the ADD
	h = post(verbs.WRTagAdd, 0, r.count-1, true)
	post(verbs.WRTagDel, h, r.count-1, true)
	post(verbs.WRTagSync, 0, r.count-1, false) // though behind
	post(verbs.WRTagSync, 0, r.count, false)
	h = post(verbs.WRTagAdd, 0, r.count+1<<16, opts.SyncReqOfDriver) // 16 bits, but the driver compares 32
	post(verbs.WRTagDel, h, r.count, opts.SyncReqOfDriver)
	m := r.message(verbs.TMHNoTag, 0, 0, 0)
	r.a.send(r.qa, inline(77, verbs.SendSignaled, m))
	if w := r.b.want(untaggedID+1, verbs.WCSuccess); w.Flags != 0 {
		t.Errorf("%+v", w)
	}
	r.sent()
	if !opts.Dormant { // there, nothing matches while the counts differ
		r.syncReqOfMatched()
	}
}

// syncReqOfMatched: messages that are matched while the counts differ complete with the flags of TMO 4.4 and no others.
func (r *tagRig) syncReqOfMatched() {
	r.t.Helper()
	const match, valid = verbs.WCFlagTMMatch, verbs.WCFlagTMDataValid
	const size = 20_000 // several packets
	fmr, fin := r.a.mem(64)
	r.a.recv(r.qa, 1, sge(fmr, fin))
	for id := range uint64(3) {
		r.add(id, 20+id, exact, r.bbuf[id*size:][:size])
	}
	r.miss(2, 9)
	flags := func(id uint64, want ...verbs.WCFlags) {
		r.t.Helper()
		for i, f := range want {
			if w := r.b.want(id, verbs.WCSuccess); w.Flags != f {
				r.t.Errorf("completion %d of receive %d while the counts differ: flags %#x, want %#x", i, id, w.Flags, f)
			}
		}
	}
	r.eager(20, 0, 8)
	flags(0, match|valid)
	r.sent()
	r.eager(21, 0, size)
	flags(1, match, valid)
	r.sent()
	r.rndv(22, 3, size)
	flags(2, match, valid)
	r.wantFIN(1, 22, 3, fin)
}

// testTagWrap: rows 13 and 14: matching goes on when the counters wrap at 2^16. While more than 0x3fff unexpected messages are
// not reported, their completions ask for a SYNC.
func testTagWrap(t *testing.T, open Opener, opts TagOptions) {
	const batch = untaggedDepth
	r := newSmallRig(t, open, opts, 15, 64)
	probe := func(id uint64) {
		t.Helper()
		r.add(id, 5, exact, r.bbuf)
		r.hit(id, 5)
	}
	probe(1)
	unreported := uint32(0)
	for r.count < 1<<16+32 {
		n := max(1, min(batch, 1<<16-8-int(r.count))) // one by one where they wrap
		r.flood(n, func(flags verbs.WCFlags) {
			r.count++
			unreported++
			if (flags&verbs.WCFlagTMSyncReq != 0) != (unreported > 0x3fff) {
				t.Fatalf("%d messages are not reported: flags %#x", unreported, flags)
			}
		})
		if unreported > 0x3fff+batch || r.count > 1<<16-2*batch {
			probe(2)
			unreported = 0
		}
	}
}

// flood sends n unexpected messages at once and hands over the flags of their completions.
func (r *tagRig) flood(n int, each func(verbs.WCFlags)) {
	r.t.Helper()
	r.untagged(n)
	m := make([]byte, verbs.TMHSize)
	verbs.TMH{Opcode: verbs.TMHEager, Tag: 9}.Put(m)
	for i := range n {
		wr := inline(77, 0, m)
		if i == n-1 {
			wr.Flags |= verbs.SendSignaled
		}
		r.a.send(r.qa, wr)
	}
	for i := range n {
		w := r.b.want(untaggedID+uint64(r.posted-n+i), verbs.WCSuccess)
		each(w.Flags)
	}
	r.sent()
}
