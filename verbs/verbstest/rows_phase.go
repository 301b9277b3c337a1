package verbstest

import (
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the scenarios of TMO 7.2 about entries that are dormant: 4 to 14, and 18.

// early sends a short unexpected message that stays unpolled, and returns it.
func (r *tagRig) early(tag uint64, ctx uint32) (m []byte) {
	r.t.Helper()
	r.unpolled(func() {
		m = append(m, r.eager(tag, ctx, 8)...)
		r.sent()
	})
	return m
}

// behind posts an unsignalled ADD with the count as it is and lets it take effect, while nothing is
// polled.
func (r *tagRig) behind(id, tag uint64) uint32 {
	r.t.Helper()
	wr := r.counted(verbs.WRTagAdd, id)
	wr.Flags, wr.Add.Tag = verbs.OpsTMSync, tag
	r.post(wr)
	r.unpolled(r.settle)
	return wr.Handle
}

// force deletes an entry whose message software has found, with the count that has it.
func (r *tagRig) force(h uint32) {
	r.t.Helper()
	r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h, Flags: verbs.OpsTMSync, UnexpectedCnt: r.count})
}

// noEvents checks that a strict device did not find anything to complain of, such as an entry
// deleted by force that was live.
func (r *tagRig) noEvents() {
	r.t.Helper()
	if len(r.b.evs) > 0 {
		r.t.Fatalf("%+v", r.b.evs)
	}
}

// handled takes the completion of an unexpected message, which is handled with that.
func (r *tagRig) handled(k int, m []byte) {
	r.t.Helper()
	r.unexpected(k, m)
	r.count++
}

// testTagMessageFirst is scenario 4: the message comes before its receive. It is delivered from the
// unexpected queue, and the receive never goes to the device: the next ADD has the new count, is
// live at once and gets the next message.
func testTagMessageFirst(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	for k, n := range []int{0, 8, 3000} {
		m := r.eager(5, uint32(k), n)
		r.sent()
		r.handled(k, m)
		r.add(2, 5, exact, r.bbuf)
		r.hit(2, 5)
	}
	m := r.rndv(5, 6, 100)
	r.handled(3, m)
	r.add(2, 5, exact, r.bbuf)
	r.hit(2, 5)
	r.b.none()
	r.a.none()
}

// testTagAddBehind is scenario 5: an ADD that overtakes the completion of its message is dormant.
// Software finds the message, deletes the entry by force and completes the receive itself; the slot
// is free, and the device tells nothing of the receive.
func testTagAddBehind(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 64)
	r.untagged(8)
	for k := 0; k < 6; k += 2 {
		m := r.early(5, 1)
		h := r.behind(1, 5)
		r.handled(k, m)
		m = r.early(5, 2) // so that it shows whether the entry is dormant
		r.force(h)
		r.handled(k+1, m)
		h = r.behind(2, 6)
		r.b.none()
		r.hit(2, 6)
		r.del(h, verbs.WCTMErr)
	}
	r.miss(6, 5)
	r.noEvents()
}

// testTagPassesDormant is scenario 6: another message for the dormant entry passes it too, so that
// the two stay in order.
func testTagPassesDormant(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 64)
	r.untagged(8)
	m := r.early(5, 1)
	h := r.behind(1, 5)
	m2 := r.early(5, 2)
	r.handled(0, m)
	r.force(h)
	r.handled(1, m2)
	r.b.none()
	r.noEvents()
	r.add(2, 5, exact, r.bbuf)
	r.hit(2, 5)
}

// testTagTwoDormant is scenario 7: with two receives each message finds its own in software, a
// third one none, and later ones are the device's again.
func testTagTwoDormant(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 3, 64)
	r.untagged(16)
	for k := 0; k < 9; k += 3 {
		m := r.early(5, 1)
		h1, h2 := r.behind(1, 5), r.behind(2, 5)
		m2, m3 := r.early(5, 2), r.early(5, 3)
		r.handled(k, m)
		r.force(h1)
		r.handled(k+1, m2)
		r.force(h2)
		r.handled(k+2, m3)
		h3 := r.behind(3, 5)
		r.hit(3, 5)
		r.del(h3, verbs.WCTMErr)
		r.b.none()
	}
	r.noEvents() // forced, and none of them live
}

// testTagUnrelated is scenario 8: an unexpected message that has nothing to do with a live entry
// leaves it live, polled or not. The strict variant lets the entry's message be found by software.
func testTagUnrelated(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	h := r.add(1, 5, exact, r.bbuf)
	m := r.early(9, 0)
	m2 := r.early(5, 1)
	r.handled(0, m)
	if opts.Dormant {
		r.handled(1, m2)
		r.force(h)
	} else {
		r.matched(1, 5, 1, m2[verbs.TMHSize:], r.bbuf)
	}
	r.b.none()
	r.sync()
	r.add(2, 5, exact, r.bbuf)
	r.hit(2, 5)
}

// testTagStaysDormant is scenario 9: when the host handles all messages but posts nothing more, the
// entry stays dormant, however many come, and however well the counts would agree. Its receive
// completes by software.
func testTagStaysDormant(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 64)
	r.untagged(16)
	m := r.early(9, 0)
	h := r.behind(1, 5)
	r.handled(0, m)
	for k := range 10 {
		r.miss(k+1, 5)
		r.settle()
	}
	r.force(h)
	r.add(2, 5, exact, r.bbuf)
	r.hit(2, 5)
	r.b.none()
}

// testTagBareSync is scenario 10: a SYNC alone, signalled or not, makes the entry live, and the
// device matches the next message.
func testTagBareSync(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 64)
	r.untagged(8)
	for k, flags := range []verbs.OpsFlags{verbs.OpsTMSync, verbs.OpsTMSync | verbs.OpsSignaled} {
		m := r.early(9, 0)
		r.behind(1, 5)
		r.handled(2*k, m)
		r.miss(2*k+1, 5)
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

// testTagSyncLost is scenario 11: a host that never sends a SYNC is only slower; for one that is
// lost on its way see TestRace11SyncLost. Every message is found by software, every receive is
// deleted by force, and none is lost or ends twice. The first count that arrives sets all right.
func testTagSyncLost(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 2, 64)
	r.untagged(32)
	k := 0
	for range 8 {
		m := r.early(5, 1)
		wr := &verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(1, 5, exact, r.bbuf)}
		r.post(wr)
		r.handled(k, m)
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: wr.Handle})
		wr = &verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(2, 6, exact, r.bbuf)}
		r.post(wr)
		r.unpolled(r.settle)
		r.miss(k+1, 6)
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: wr.Handle})
		k += 2
	}
	r.b.none()
	r.add(3, 5, exact, r.bbuf)
	r.hit(3, 5)
}

// testTagStaleSync is scenario 12: only the right count makes entries live, not one that is behind
// it, or ahead, or comes again.
func testTagStaleSync(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(16)
	r.miss(0, 5)
	r.miss(1, 5)
	right := r.count
	r.count -= 2
	r.add(1, 5, exact, r.bbuf)
	// The first two report the same count.
	for k, off := range []int{-2, -3, -1, -1, 1, 3, 1 << 15, -1 << 15, -1} {
		r.count = uint32(int(right) + off)
		r.sync()
		r.miss(k+2, 5)
		right++
	}
	r.count = right
	r.sync()
	r.hit(1, 5)
	r.sync() // a repeated one is right as long as nothing comes
	r.add(1, 5, exact, r.bbuf)
	r.hit(1, 5)
}

// testTagWrap is scenario 13: the count of unexpected messages goes over 65536. A host that reports
// before 2^14 are missing sees no SYNC_REQ, and matching goes on, before, at and behind the wrap.
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
	}
}

// testTagNeverReported is scenario 14: from 2^14 unexpected messages on without list operations
// their completions ask for a SYNC. The host posts one: what was dormant until then is live.
func testTagNeverReported(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(1)
	r.miss(0, 9)
	r.count-- // as the device knows it
	r.add(1, 5, exact, r.bbuf)
	missing := uint32(1)
	r.count++
	next := func(n int) {
		t.Helper()
		r.flood(n, func(flags verbs.WCFlags) {
			r.count++
			missing++
			if (flags&verbs.WCFlagTMSyncReq != 0) != (missing > 0x3fff) {
				t.Fatalf("%d messages are not reported: flags %#x", missing, flags)
			}
		})
	}
	next(1<<14 + 40)
	r.sync()
	r.hit(1, 5)
	if opts.SyncReqOfDriver { // to which a SYNC reports nothing
		r.add(1, 5, exact, r.bbuf)
	}
	missing = 0
	next(3)
}

// testTagDelDormant is scenario 18: a DEL of a dormant entry succeeds, and nothing makes the entry
// live afterwards.
func testTagDelDormant(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	for k := 0; k < 4; k += 2 {
		m := r.early(9, 0)
		h := r.behind(1, 5)
		r.handled(k, m)
		r.count -= uint32(k / 2) // the DEL brings the count, or not yet
		r.del(h, verbs.WCSuccess)
		r.count += uint32(k / 2)
		r.sync()
		r.miss(k+1, 5)
		r.b.none()
	}
}
