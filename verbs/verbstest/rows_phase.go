package verbstest

import (
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has scenarios of TMO 7.2 about dormant entries: 5 to 7, and 9 to 13.

// behind posts an unsignalled ADD with the current count and waits for its effect, without polling.
func (r *tagRig) behind(id, tag uint64) uint32 {
	r.t.Helper()
	wr := r.counted(verbs.WRTagAdd, id)
	wr.Flags, wr.Add.Tag = verbs.OpsTMSync, tag
	r.post(wr)
	r.unpolled(r.settle)
	return wr.Handle
}

// force posts a forced DEL of an entry whose message software has found, with a count that includes
// it.
func (r *tagRig) force(h uint32) {
	r.t.Helper()
	r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h, Flags: verbs.OpsTMSync, UnexpectedCnt: r.count})
}

// noEvents checks that a strict device had nothing to report, such as a forced DEL of a live entry.
func (r *tagRig) noEvents() {
	r.t.Helper()
	if len(r.b.evs) > 0 {
		r.t.Fatalf("%+v", r.b.evs)
	}
}

// testTagAddBehind is scenarios 5 and 6: an ADD posted before the completion of its message is
// polled is dormant. Another message for it, before the first is polled or after, is unexpected
// too, so that the two stay in order. Software finds the message, posts a forced DEL and completes
// the receive; the slot is free, and the device has no completion for the receive.
func testTagAddBehind(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 64)
	for i := range 8 {
		m := r.early(5, 1)
		h := r.behind(1, 5)
		if i%2 == 0 {
			r.handled(m)
		}
		second := r.early(5, 2)
		if i%2 != 0 {
			r.handled(m)
		}
		behind := uint32(i / 2 % 2) // the count of the DEL may be older than its message
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h, Flags: verbs.OpsTMSync, UnexpectedCnt: r.count - behind})
		r.handled(second)
		h = r.behind(2, 6)
		r.b.none()
		r.hit(2, 6)
		r.del(h, verbs.WCTMErr)
	}
	r.miss(5)
	r.noEvents()
}

// testTagTwoDormant is scenario 7: with two receives each message is matched in software, a third
// one is queued, and later ones are matched by the device again.
func testTagTwoDormant(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 3, 64)
	for range 3 {
		m := r.early(5, 1)
		h1, h2 := r.behind(1, 5), r.behind(2, 5)
		m2, m3 := r.early(5, 2), r.early(5, 3)
		r.handled(m)
		r.force(h1)
		r.handled(m2)
		r.force(h2)
		r.handled(m3)
		h3 := r.behind(3, 5)
		r.hit(3, 5)
		r.del(h3, verbs.WCTMErr)
		r.b.none()
	}
	r.noEvents() // forced DELs, and none of a live entry
}

// testTagBareSync is scenarios 9 and 10: when the host handles all messages but posts nothing more,
// an entry stays dormant, however many messages follow. A SYNC alone, signalled or not, makes it
// live, and the device matches the next message.
func testTagBareSync(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 64)
	for _, flags := range []verbs.OpsFlags{verbs.OpsTMSync, verbs.OpsTMSync | verbs.OpsSignaled} {
		m := r.early(9, 0)
		r.behind(1, 5)
		r.handled(m)
		for range 10 {
			r.miss(5)
			r.settle()
		}
		wr := r.counted(verbs.WRTagSync, 0)
		wr.Flags = flags
		r.post(wr)
		r.unpolled(r.settle)
		if flags&verbs.OpsSignaled != 0 {
			r.b.want(wr.WRID, verbs.WCSuccess)
		}
		r.hit(1, 5)
	}
}

// testTagSyncLost is scenario 11: a host that never sends a SYNC is only slower; for a lost SYNC
// see TestRace11SyncLost. Every message is found by software, every receive gets a forced DEL, and
// none is lost or ends twice. The first reported count makes entries live again.
func testTagSyncLost(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 2, 64)
	for range 8 {
		m := r.early(5, 1)
		wr := &verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(1, 5, exact, r.bbuf)}
		r.post(wr)
		r.handled(m)
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: wr.Handle})
		wr = &verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(2, 6, exact, r.bbuf)}
		r.post(wr)
		r.unpolled(r.settle)
		r.miss(6)
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: wr.Handle})
	}
	r.b.none()
	r.add(3, 5, exact, r.bbuf)
	r.hit(3, 5)
}

// testTagStaleSync is scenario 12: only the right count makes entries live, not a smaller, larger
// or repeated one, whichever operation reports it.
func testTagStaleSync(r *tagRig) {
	r.miss(5)
	r.miss(5)
	right := r.count
	r.count -= 2
	r.add(1, 5, exact, r.bbuf)
	var other uint32
	// The first two report the same count.
	for i, off := range []int{-2, -3, -1, -1, 1, 3, 1 << 15, -1 << 15, -1} {
		r.count = uint32(int(right) + off)
		switch i % 3 {
		case 0:
			r.sync()
		case 1:
			other = r.add(60, 60, exact, r.bbuf)
		case 2:
			r.del(other, verbs.WCSuccess)
		}
		r.miss(5)
		right++
	}
	r.count = right
	r.sync()
	r.hit(1, 5)
	r.sync() // a repeated one is right while no message arrives
	r.add(1, 5, exact, r.bbuf)
	r.hit(1, 5)
}

// testTagWrap is scenario 13: the count of unexpected messages exceeds 65536. A host that reports
// before 2^14 are unreported sees no SYNC_REQ, and before, at and after the wrap an entry is live
// when the counts are equal, and only then, whichever operation reported them.
func testTagWrap(t *testing.T, open Opener, opts TagOptions) {
	const wrap, near = 1 << 16, 8
	r := newSmallRig(t, open, opts, 15, 64)
	next := func(n uint32) {
		t.Helper()
		r.flood(int(n), func(flags verbs.WCFlags) {
			if r.count++; flags != 0 {
				t.Fatalf("flags %#x of message %d", flags, r.count)
			}
		})
		r.add(1, 5, exact, r.bbuf)
		r.hit(1, 5)
	}
	next(1)
	for r.count < wrap-near {
		next(min(1<<14-1, wrap-near-r.count))
	}
	for r.count < wrap+near {
		next(1)
		r.miss(9)
		r.count-- // one behind, which is the larger number when H has wrapped
		r.add(2, 6, exact, r.bbuf)
		other := r.add(3, 7, exact, r.bbuf)
		r.count++
		r.miss(6)
		if r.count%2 == 0 {
			r.sync()
			r.hit(2, 6)
		}
		r.del(other, verbs.WCSuccess)
		if r.count%2 != 0 {
			r.hit(2, 6)
		}
	}
}
