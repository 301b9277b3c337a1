package verbstest

import (
	"errors"
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the scenarios of TMO 7.2 about the list and its resources: 15, 16, 19, 22, 23, 25
// to 27, and 54 to 56.

// testTagDelFirst is scenario 15: a signalled DEL before any message succeeds, and the message is
// unexpected then.
func testTagDelFirst(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	for k, n := range []int{0, 8, 3000} {
		del := r.counted(verbs.WRTagDel, 5)
		del.Handle = r.add(1, 5, exact, r.bbuf)
		r.post(del)
		r.completes(verbs.WC{WRID: del.WRID, Opcode: verbs.WCTMDel})
		m := r.eager(5, 1, n)
		r.sent()
		r.handled(k, m)
	}
	r.del(r.add(1, 5, exact, r.bbuf), verbs.WCSuccess)
	m := r.rndv(5, 1, 100)
	r.handled(3, m)
	r.b.none()
}

// testTagDelConsumed is scenario 16: a signalled DEL after an eager message has consumed the entry
// fails with TM_ERR, whether the host knows of the message or not. The receive completes, once,
// with success.
func testTagDelConsumed(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 64)
	for i := range uint32(4) {
		h := r.add(1, 5, exact, r.bbuf)
		m := r.early(5, i)
		if i%2 == 0 {
			r.matched(1, 5, i, m[verbs.TMHSize:], r.bbuf)
			r.del(h, verbs.WCTMErr)
		} else {
			del := r.counted(verbs.WRTagDel, 5)
			del.Handle = h
			r.post(del)
			r.matched(1, 5, i, m[verbs.TMHSize:], r.bbuf)
			r.b.want(del.WRID, verbs.WCTMErr)
		}
		r.b.none()
	}
}

// testTagDelTwice is scenario 19: a second DEL, or one of a handle whose slot was reused, removes
// nothing: TM_ERR, or EINVAL when it is posted.
func testTagDelTwice(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 64)
	h := r.add(1, 5, exact, r.bbuf)
	twice := []*verbs.OpsWR{r.counted(verbs.WRTagDel, 2), r.counted(verbs.WRTagDel, 3)}
	for _, wr := range twice {
		wr.Handle = h
	}
	r.post(chain(twice...)) // the slot is not free yet
	r.b.want(twice[0].WRID, verbs.WCSuccess)
	r.b.want(twice[1].WRID, verbs.WCTMErr)
	old := []uint32{h}
	r.delStale(h)
	for i := range uint64(4) {
		old = append(old, r.add(2+i, 5, exact, r.bbuf))
		for _, stale := range old[:len(old)-1] {
			r.delStale(stale)
		}
		wr := r.counted(verbs.WRTagAdd, 100)
		r.refused(wr, wr, syscall.ENOMEM) // no slot was freed either
		if i%2 == 0 {
			r.hit(2+i, 5)
		} else {
			r.del(old[len(old)-1], verbs.WCSuccess)
		}
	}
	r.b.none()
}

// testTagForcedDelOfLive is scenario 22: a host posts forced DELs of a matched and of a live entry.
// The receive ends once, with success or with the status of a slot that is not the host's (TMO
// 3.4), which a strict device guarantees; it reports both.
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
	if w := r.b.next(); w.WRID != 1 || w.Status != verbs.WCGeneralErr && (opts.Strict || w.Status != verbs.WCSuccess) {
		t.Errorf("%+v", w)
	}
	r.b.want(9, verbs.WCSuccess)
	force(r.add(2, 5, exact, r.bbuf))
	r.b.want(9, verbs.WCSuccess)
	r.b.none()
}

// testTagKeptInSoftware is scenario 23: receives that the full list refuses stay in software, and
// so do later ones that overlap: their messages are unexpected, while entries go on matching. When
// the list has room the device takes receives again; order is kept.
func testTagKeptInSoftware(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 2, 64)
	r.untagged(8)
	r.add(1, 5, exact, r.bbuf)
	r.add(2, 6, exact, r.bbuf)
	for range 3 {
		wr := r.counted(verbs.WRTagAdd, 7)
		r.refused(wr, wr, syscall.ENOMEM)
	}
	r.miss(0, 7) // the refused one's, found by software
	r.sync()
	r.hit(1, 5)
	r.miss(1, 5) // the receive behind that one is in software too
	r.add(3, 7, exact, r.bbuf)
	wr := r.counted(verbs.WRTagAdd, 5)
	r.refused(wr, wr, syscall.ENOMEM)
	r.hit(2, 6)
	r.hit(3, 7)
	r.b.none()
}

// testTagOpsPolled is scenario 25: unpolled signalled operations exhaust max_ops: ENOMEM. Polling
// one makes room for one, and the refused operation is posted again, in order and without loss.
func testTagOpsPolled(t *testing.T, open Opener, opts TagOptions) {
	const ops = 4
	r := newSmallRig(t, open, opts, 15, ops)
	for i := range uint64(ops) {
		r.post(r.counted(verbs.WRTagAdd, i))
	}
	for i := uint64(ops); i < 12; i++ {
		wr := r.counted(verbs.WRTagAdd, i)
		r.refused(wr, wr, syscall.ENOMEM)
		r.unpolled(r.settle) // executing them is not enough
		r.refused(wr, wr, syscall.ENOMEM)
		if w := r.first(); w.WRID != 1000+i-ops || w.Status != verbs.WCSuccess {
			t.Fatalf("%+v", w)
		}
		r.post(wr)
	}
	for i := range uint64(ops) {
		r.b.want(1008+i, verbs.WCSuccess)
	}
	for i := range uint64(12) {
		r.hit(i, i)
	}
}

// testTagOftenSignaled is scenario 26: a host that signals one operation in every max_ops/2, and
// polls it before the next such run, is never refused, however many operations it posts.
func testTagOftenSignaled(t *testing.T, open Opener, opts TagOptions) {
	const ops = 8
	r := newSmallRig(t, open, opts, 15, ops)
	for i := range uint64(10 * ops) {
		wr := r.counted(verbs.WRTagSync, i)
		if wr.Flags = verbs.OpsTMSync; i%(ops/2) == ops/2-1 {
			wr.Flags |= verbs.OpsSignaled
		}
		r.post(wr)
		if i%(ops/2) == 0 && i > 0 {
			r.b.want(1000+i-1, verbs.WCSuccess)
		}
	}
	r.b.want(1000+10*ops-1, verbs.WCSuccess)
	r.b.none()
}

// testTagChainFails is scenario 27: a chain of ADDs that fails in the middle, for any reason. The
// handles before are valid; the operations behind are not posted.
func testTagChainFails(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 3, 8)
	h := r.add(9, 9, exact, r.bbuf)
	for name, c := range map[string]struct {
		errno syscall.Errno
		spoil func(wrs []*verbs.OpsWR) // the third
	}{
		"opcode": {syscall.EINVAL, func(wrs []*verbs.OpsWR) { wrs[2].Opcode = 7 }},
		"flags":  {syscall.EINVAL, func(wrs []*verbs.OpsWR) { wrs[2].Flags = 1 << 9 }},
		"SGEs": {syscall.EINVAL, func(wrs []*verbs.OpsWR) {
			wrs[2].Add.SGList = make([]verbs.SGE, r.b.dev.Attr().TM.MaxSGE+1)
		}},
		"handle": {syscall.EINVAL, func(wrs []*verbs.OpsWR) {
			wrs[2].Opcode, wrs[2].Handle, wrs[2].Flags = verbs.WRTagDel, 1<<31|12345, 0
		}},
		"list full": {syscall.ENOMEM, func([]*verbs.OpsWR) {}},
		"queue full": {syscall.ENOMEM, func([]*verbs.OpsWR) {
			for range 6 {
				r.post(&verbs.OpsWR{Opcode: verbs.WRTagSync, WRID: 1, Flags: verbs.OpsSignaled})
			}
		}},
	} {
		wrs := []*verbs.OpsWR{r.counted(verbs.WRTagAdd, 1), r.counted(verbs.WRTagAdd, 2), r.counted(verbs.WRTagAdd, 3), r.counted(verbs.WRTagAdd, 4)}
		c.spoil(wrs)
		r.refused(chain(wrs...), wrs[2], c.errno)
		for w := r.b.next(); w.WRID == 1; w = r.b.next() { // the full queue's
			continue
		}
		r.b.want(wrs[1].WRID, verbs.WCSuccess)
		r.b.none()
		if wrs[0].Handle == wrs[1].Handle || wrs[0].Handle == h || wrs[1].Handle == h {
			t.Fatalf("%s: handles %d, %d, %d", name, wrs[0].Handle, wrs[1].Handle, h)
		}
		r.del(wrs[0].Handle, verbs.WCSuccess)
		r.hit(2, 2)
		r.del(wrs[1].Handle, verbs.WCTMErr)
		for id := uint64(3); id <= 4; id++ {
			r.passed(id)
		}
	}
	r.hit(9, 9)
}

// testTagHandleReuse is scenario 54: far more receives than slots, matched and cancelled.
func testTagHandleReuse(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 3, 16)
	r.untagged(2)
	for i := range uint64(200) {
		h1 := r.add(2*i, 5, exact, r.bbuf)
		h2 := r.add(2*i+1, 5, exact, r.bbuf)
		m := r.eager(5, uint32(i), 8)
		r.matched(2*i, 5, uint32(i), m[16:], r.bbuf)
		r.sent()
		switch i % 3 {
		case 0:
			r.del(h2, verbs.WCSuccess)
		case 1:
			m := r.eager(5, uint32(i), 4)
			r.matched(2*i+1, 5, uint32(i), m[16:], r.bbuf)
			r.sent()
		default:
			r.del(h1, verbs.WCTMErr)
			r.del(h2, verbs.WCSuccess)
		}
	}
}

// testTagTeardown is scenario 55: outstanding entries, reads and completions do not prevent the
// destruction of objects. A matched receive ends once (V12), an unmatched one does not end.
func testTagTeardown(t *testing.T, open Opener, opts TagOptions) {
	for _, seen := range []bool{false, true} { // the MATCH, before the end
		r := newTagRig(t, open, opts, 15, 64)
		r.untagged(8)
		r.add(1, 5, exact, r.bbuf)
		r.add(2, 6, exact, r.bbuf)
		r.add(3, 7, exact, r.bbuf)
		unexpected := r.eager(9, 0, 5)
		r.sent()
		r.unexpected(0, unexpected)
		if opts.Dormant {
			r.count++
			r.sync()
		}
		r.rndv(6, 0, 1<<20)
		if seen {
			r.until("MATCH", func() bool { return len(r.b.got) > 0 })
		} else {
			for range 5 {
				r.poll()
			}
		}
		r.ok(r.qb.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
		r.b.wantEvent(verbs.EventQPLastWQEReached)
		r.settle()
		r.endsOnce(2)
		wr := r.counted(verbs.WRTagSync, 1)
		if _, err := r.srq.PostSRQOps(wr); err != nil && !errors.Is(err, syscall.EINVAL) {
			t.Error(err)
		}
		r.unpolled(r.settle) // its completion is never polled
	}
}

// endsOnce checks that the polled completions are of receive id: MATCH and one end, or none.
func (r *tagRig) endsOnce(id uint64) {
	r.t.Helper()
	matches, ends := 0, 0
	for _, w := range r.b.got {
		if w.WRID != id {
			r.t.Errorf("%+v, want receive %d alone", w, id)
		}
		if w.Flags&flagMatch != 0 {
			matches++
		}
		if w.Status != verbs.WCSuccess || w.Flags&flagData != 0 {
			ends++
		}
	}
	if matches > 1 || ends != matches {
		r.t.Errorf("%d MATCH and %d ends of receive %d", matches, ends, id)
	}
}

// testTagLimitOnce is scenario 56: a limit on the untagged buffers is armed and crossed, by
// unexpected messages and by others: one event. The next event needs another arming.
func testTagLimitOnce(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	events := func(want int) {
		t.Helper()
		r.settle()
		for _, ev := range r.b.evs {
			if ev.Type != verbs.EventSRQLimitReached || ev.QP != r.srq.Num() {
				t.Fatalf("%+v", ev)
			}
		}
		if len(r.b.evs) != want {
			t.Fatalf("%d events, want %d", len(r.b.evs), want)
		}
		r.b.evs = nil
	}
	r.miss(0, 9)
	events(0) // not armed
	for k := 1; k < 7; k += 3 {
		r.ok(r.srq.Modify(verbs.SRQAttr{Limit: uint32(8 - k)}, verbs.SRQLimit))
		r.add(1, 5, exact, r.bbuf)
		r.hit(1, 5) // consumes none of them
		events(0)
		if k == 1 {
			r.miss(k, 9)
		} else {
			r.raw(r.qa, false, []byte{0})
			r.sent()
			r.b.want(untaggedID+uint64(k), verbs.WCSuccess)
		}
		events(1)
		r.miss(k+1, 9)
		r.miss(k+2, 9)
		events(0)
	}
}
