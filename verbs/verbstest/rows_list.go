package verbstest

import (
	"slices"
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has scenarios of TMO 7.2 about the list and its resources: 19, 22, 23, 27, and 54 to
// 56.

// testTagDelTwice is scenario 19: a second DEL, or one of a handle whose slot was reused, removes
// nothing and frees no slot: TM_ERR, or EINVAL when it is posted.
func testTagDelTwice(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 2, 64)
	full := func() {
		t.Helper()
		wr := r.counted(verbs.WRTagAdd, 100)
		r.refused(wr, wr, syscall.ENOMEM)
	}
	other := r.add(60, 60, exact, r.bbuf)
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
	for i := range uint64(6) { // slots are used in turn
		h := r.add(2+i, 5, exact, r.bbuf)
		for _, stale := range old {
			r.delStale(stale)
		}
		old = append(old, h)
		full()
		if i%2 == 0 {
			r.hit(2+i, 5)
		} else {
			r.del(h, verbs.WCSuccess)
		}
	}
	r.hit(60, 60)
	r.del(other, verbs.WCTMErr)
	r.b.none()
	r.add(1, 5, exact, r.bbuf)
	r.add(2, 5, exact, r.bbuf)
	full()
}

// testTagForcedDelOfLive is scenario 22: a host posts forced DELs of a matched and of a live entry.
// The receive ends once, with success or with the status of a slot that is not the host's (TMO
// 3.4), which a strict device guarantees; it reports both.
func testTagForcedDelOfLive(r *tagRig) {
	force := func(h uint32) {
		r.t.Helper()
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h})
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagSync, WRID: 9, Flags: verbs.OpsSignaled})
		if r.opts.Strict {
			r.b.wantEvent(verbs.EventSRQErr)
		}
	}
	h := r.add(1, 5, exact, r.bbuf)
	r.unpolled(func() { r.eager(5, 0, 8); r.sent() })
	force(h)
	if w := r.b.next(); w.WRID != 1 || w.Status != verbs.WCGeneralErr && (r.opts.Strict || w.Status != verbs.WCSuccess) {
		r.t.Errorf("%+v", w)
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
	r.add(1, 5, exact, r.bbuf)
	r.add(2, 6, exact, r.bbuf)
	for range 3 {
		wr := r.counted(verbs.WRTagAdd, 7)
		r.refused(wr, wr, syscall.ENOMEM)
	}
	r.miss(7) // the refused one's, found by software
	r.sync()
	r.hit(1, 5)
	r.miss(5) // the receive behind that one is in software too
	r.add(3, 7, exact, r.bbuf)
	wr := r.counted(verbs.WRTagAdd, 5)
	r.refused(wr, wr, syscall.ENOMEM)
	r.hit(2, 6)
	r.hit(3, 7)
	r.b.none()
}

// testTagChainFails is scenario 27: a chain of ADDs that fails in the middle, for any reason, or at
// its first. The handles before are valid; the operations behind are not posted.
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
		wrs[3].Handle = 0xdead
		r.refused(chain(wrs...), wrs[2], c.errno)
		if wrs[3].Handle != 0xdead {
			t.Fatalf("%s: the operation behind the failing one was touched: %+v", name, wrs[3])
		}
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
	wrs := []*verbs.OpsWR{r.counted(verbs.WRTagAdd, 3), r.counted(verbs.WRTagAdd, 4)}
	wrs[0].Opcode = 7
	r.refused(chain(wrs...), wrs[0], syscall.EINVAL)
	r.b.none()
	r.passed(4)
	r.hit(9, 9)
}

// testTagHandleReuse is scenario 54: the list is kept full, of exactly as many entries as it was
// created for, and they leave it in any order, matched and deleted, for many times its size: each
// completion is that of the right receive. The software device uses slots, the low bits of handles,
// oldest first.
func testTagHandleReuse(t *testing.T, open Opener, opts TagOptions) {
	const tags, rounds, room = 4, 300, 100
	r := newSmallRig(t, open, opts, tags, 16)
	buf := func(id uint64) []byte { return r.bbuf[id%8*room:][:room] }
	slot := func(h uint32) uint32 { return h & 7 }
	type entry struct {
		id  uint64
		hnd uint32
	}
	var live []entry
	var freed []uint32 // slots
	for h := range uint32(tags + 1) {
		freed = append(freed, h)
	}
	for id := range uint64(rounds) {
		h := r.add(id, id, exact, buf(id))
		if opts.played && slot(h) != freed[0] {
			t.Fatalf("round %d: slot %d is used, want %d", id, slot(h), freed[0])
		}
		freed, live = freed[1:], append(live, entry{id, h})
		if len(live) < tags {
			continue
		}
		full := r.counted(verbs.WRTagAdd, 0)
		r.refused(full, full, syscall.ENOMEM)
		k := int(id*7/3) % tags
		e := live[k]
		live = slices.Delete(live, k, k+1)
		if id%3 == 0 {
			r.del(e.hnd, verbs.WCSuccess)
		} else {
			m := r.eager(e.id, uint32(id), 8)
			r.matched(e.id, e.id, uint32(id), m[verbs.TMHSize:], buf(e.id))
			r.sent()
		}
		if id%7 == 0 {
			r.delStale(e.hnd)
		}
		freed = append(freed, slot(e.hnd))
	}
	for _, e := range live {
		r.del(e.hnd, verbs.WCSuccess)
	}
}

// testTagTeardown is scenario 55: there are entries in the list, a rendezvous that is being read, a
// message of which a part has arrived, and completions that are not polled. Each queue pair in ERR
// raises its last event; a receive that was matched ends once (V12), another does not end. Queue
// pairs, SRQ and CQ are destroyed in that order only.
func testTagTeardown(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 1, 4)
	cq := r.b.tagCQ(64)
	srq, err := r.b.pd.CreateSRQ(tagAttr(cq, 15, 64))
	r.ok(err)
	r.srq, r.b.cq = srq, cq
	var from, to [2]verbs.QP
	for i := range from {
		from[i], to[i] = r.connect(r.a, r.b, qpConf{}, r.conf())
	}
	for id := range uint64(6) {
		r.add(id, id, exact, r.bbuf[id*600_000:][:600_000])
	}
	r.untagged(2)
	r.short(r.a, from[0], 0, 0, 8) // whole
	if !opts.Dormant {
		r.short(r.a, from[0], 100, 0, 8) // unexpected
	}
	r.rndvOn(from[0], 1, 1, verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey(), Len: 600_000})
	r.a.send(from[1], verbs.SendWR{Opcode: verbs.WRSend, SGList: sge(r.amr, r.message(verbs.TMHEager, 2, 0, 600_000-verbs.TMHSize))})
	r.unpolled(func() {
		for range 20 {
			r.poll()
		}
	})
	busy := func(destroy ...func() error) {
		t.Helper()
		for _, f := range destroy {
			r.errno(f(), syscall.EBUSY)
		}
	}
	busy(srq.Destroy, cq.Destroy)
	last := map[uint32]bool{}
	for _, qp := range to {
		r.ok(qp.Modify(stateAlone(verbs.QPSErr)))
	}
	for range to {
		last[r.b.wantEvent(verbs.EventQPLastWQEReached).QP] = true
	}
	if !last[to[0].Num()] || !last[to[1].Num()] {
		t.Errorf("the last event comes from the queue pairs %v", last)
	}
	r.settle()
	matches, ends := map[uint64]int{}, map[uint64]int{}
	for _, w := range r.b.got {
		if w.WRID >= untaggedID {
			continue
		}
		if w.Flags&flagMatch != 0 && (w.Status == verbs.WCSuccess || matches[w.WRID] == 0) {
			matches[w.WRID]++ // a transfer that was given up may say so again (TMO 4.3)
		}
		if w.Status != verbs.WCSuccess || w.Flags&flagData != 0 {
			ends[w.WRID]++
		}
	}
	for id, n := range ends {
		if id > 2 || n != 1 || matches[id] != 1 {
			t.Errorf("receive %d has %d ends and %d MATCH", id, n, matches[id])
		}
	}
	if len(ends) != len(matches) || opts.played && len(ends) != 3 {
		t.Errorf("%d receives were matched, %d have ended", len(matches), len(ends))
	}
	r.post(r.counted(verbs.WRTagSync, 70)) // completes into a queue that is polled no more
	r.unpolled(r.settle)
	r.b.cq = r.spare
	busy(srq.Destroy)
	for _, qp := range to {
		r.b.destroy(qp)
	}
	busy(cq.Destroy)
	r.ok(srq.Destroy())
	wr := r.counted(verbs.WRTagSync, 71)
	r.refused(wr, wr, syscall.EINVAL)
}

// testTagLimit is scenario 56: a limit on the untagged buffers is armed and crossed, by unexpected
// messages and by others, but not by those that match: one event for each arming, even if it is
// crossed repeatedly.
func testTagLimit(r *tagRig) {
	r.untagged(8)
	take := func(events int) {
		r.t.Helper()
		r.add(1, 5, exact, r.bbuf)
		r.hit(1, 5) // consumes none
		m := r.message(verbs.TMHNoTag, 6, 0, 8)
		if r.used%2 == 0 {
			m = r.message(verbs.TMHEager, 6, 0, 8)
		}
		r.raw(r.qa, m)
		if r.sent(); r.used%2 == 0 {
			r.handled(m)
		} else {
			r.noTag(m)
		}
		r.until("the event", func() bool { return len(r.b.evs) >= events })
		r.settle()
		for _, ev := range r.b.evs {
			if ev.Type != verbs.EventSRQLimitReached || ev.QP != r.srq.Num() {
				r.t.Fatalf("%+v, want the limit of SRQ %d", ev, r.srq.Num())
			}
		}
		if len(r.b.evs) != events {
			r.t.Fatalf("%d events, want %d", len(r.b.evs), events)
		}
		r.b.evs = nil
	}
	arm := func(limit uint32) {
		r.t.Helper()
		r.ok(r.srq.Modify(verbs.SRQAttr{Limit: limit}, verbs.SRQLimit))
	}
	take(0)
	r.untagged(1)
	for range 3 {
		arm(7)
		take(0) // 7 are left
		take(1)
		take(0)
		r.untagged(3)
		take(0) // below it again, not armed
		r.untagged(1)
	}
	arm(9) // fewer are posted: the event comes at once
	r.b.wantEvent(verbs.EventSRQLimitReached)
	take(0)
}
