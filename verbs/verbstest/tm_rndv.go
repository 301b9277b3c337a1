package verbstest

import (
	"bytes"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// rndvOffset is the offset of rendezvous data in the sender's memory.
const rndvOffset = 4096

// rndv sends a request for the n bytes at rndvOffset, with a software header of 7 bytes.
func (r *tagRig) rndv(tag uint64, ctx uint32, n int) []byte {
	r.t.Helper()
	return r.rndvOn(r.qa, tag, ctx, verbs.RVH{VA: r.amr.Addr() + rndvOffset, RKey: r.amr.RKey(), Len: uint32(n)})
}

func (r *tagRig) rndvOn(qp verbs.QP, tag uint64, ctx uint32, rvh verbs.RVH) []byte {
	r.t.Helper()
	m := make([]byte, verbs.TMHSize+verbs.RVHSize+7)
	verbs.TMH{Opcode: verbs.TMHRndv, Tag: tag, AppCtx: ctx}.Put(m)
	rvh.Put(m[verbs.TMHSize:])
	copy(m[32:], "softhdr")
	r.a.send(qp, inline(77, 0, m))
	return m
}

// testTagRndvFull: the sender has no receive for the first FIN yet, so that all others wait, and
// the reads behind it, of more rendezvous than a device has room for. Each ends once, with its data
// and one FIN, which has its app_ctx.
func testTagRndvFull(t *testing.T, open Opener, opts TagOptions) {
	const n, size = 400, 100
	r := newSmallRig(t, open, opts, 511, 64)
	qa, _ := r.connect(r.a, r.b, qpConf{cap: verbs.QPCap{MaxSendWR: n, MaxRecvWR: n, MaxRecvSGE: 1, MaxInlineData: 64}}, r.conf())
	fmr, fin := r.a.mem(64 * n)
	for i := range uint64(n) {
		r.add(i, i, exact, r.bbuf[i*size:][:size])
	}
	for i := range uint64(n) {
		r.rndvOn(qa, i, uint32(i), verbs.RVH{VA: r.amr.Addr() + 13*i, RKey: r.amr.RKey(), Len: size})
	}
	matches, ends := uint64(0), map[uint64]bool{}
	look := func() {
		for _, w := range r.b.got {
			switch {
			case w.Status == verbs.WCSuccess && w.Flags == flagMatch && w.WRID == matches:
				matches++
			case w.Status != verbs.WCSuccess || w.Flags != flagData || w.WRID >= matches || ends[w.WRID]:
				t.Fatalf("%+v, after %d MATCHes", w, matches)
			default:
				ends[w.WRID] = true
			}
		}
		r.b.got = nil
	}
	r.until("all to be matched", func() bool { look(); return matches == n })
	r.a.none()
	for i := range uint64(n) {
		r.a.recv(qa, i, sge(fmr, fin[i*64:][:64]))
	}
	fins := map[uint32]bool{}
	for range n {
		w := r.a.next()
		h := verbs.ParseTMH(received(w, fin[w.WRID*64:]))
		if w.Status != verbs.WCSuccess || h.Opcode != verbs.TMHFin || h.Tag != uint64(h.AppCtx) || h.Tag >= n || fins[h.AppCtx] {
			t.Fatalf("%+v: %+v comes twice, or is no FIN of these", w, h)
		}
		fins[h.AppCtx] = true
	}
	r.until("the end", func() bool { look(); return len(ends) == n })
	for i := range n {
		if !bytes.Equal(r.bbuf[i*size:][:size], r.abuf[13*i:][:size]) {
			t.Fatalf("receive %d has wrong data", i)
		}
	}
}

// sentKeepingFINs waits for a send completion while FINs may come first.
func (r *tagRig) sentKeepingFINs() {
	r.t.Helper()
	r.until("the send's completion", func() bool {
		for i, w := range r.a.got {
			if w.WRID == 77 {
				r.a.got = append(r.a.got[:i:i], r.a.got[i+1:]...)
				return w.Status == verbs.WCSuccess
			}
		}
		return false
	})
}

// testTagRndvRefused is scenario 49, and more: the device's read needs a valid key, an address in
// its region, and REMOTE_READ of region and queue pair. Else the receive ends with an error, there
// is no FIN, and both queue pairs are in ERR. Other connections are not affected.
func testTagRndvRefused(r *tagRig) {
	closed := r.a.reg(make([]byte, 64), verbs.AccessLocalWrite)
	r.add(2, 6, exact, r.bbuf[64:])
	for what, c := range map[string]struct {
		access verbs.AccessFlags // of the queue pair
		spoil  func(h *verbs.RVH)
	}{
		"key":                {allAccess, func(h *verbs.RVH) { h.RKey ^= 1 << 20 }},
		"address before":     {allAccess, func(h *verbs.RVH) { h.VA -= 1 << 30 }},
		"address behind":     {allAccess, func(h *verbs.RVH) { h.VA += 1 << 30 }},
		"region's right":     {allAccess, func(h *verbs.RVH) { h.VA, h.RKey = closed.Addr(), closed.RKey() }},
		"queue pair's right": {verbs.AccessLocalWrite, func(*verbs.RVH) {}},
	} {
		if r.opts.OpenReads && c.access != allAccess {
			continue
		}
		qa, qb := r.connect(r.a, r.b, qpConf{access: c.access}, r.conf())
		r.add(1, 5, exact, r.bbuf[:64])
		clear(r.bbuf[:64])
		r.a.recv(qa, 8, nil)
		at := verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey(), Len: 64}
		c.spoil(&at)
		r.rndvOn(qa, 5, 1, at)
		if w := r.b.want(1, verbs.WCSuccess); w.Flags != flagMatch {
			r.t.Fatalf("%s: %+v", what, w)
		}
		r.b.want(1, verbs.WCTMRndvIncomplete)
		if ev := r.b.wantEvent(verbs.EventQPAccessErr); ev.QP != qb.Num() || state(qb) != verbs.QPSErr {
			r.t.Errorf("%s: %+v, and queue pair %d is in %v", what, ev, qb.Num(), state(qb))
		}
		r.inErr(qa)
		r.settle()
		if !bytes.Equal(r.bbuf[:64], make([]byte, 64)) {
			r.t.Errorf("%s: the buffer was written", what)
		}
		for _, w := range r.a.got {
			if w.WRID == 8 && w.Status == verbs.WCSuccess {
				r.t.Errorf("%s: a FIN arrived", what)
			}
		}
		r.a.got = nil // its request may have completed or not
	}
	m := r.eager(6, 0, 8)
	r.matched(2, 6, 0, m[verbs.TMHSize:], r.bbuf[64:])
	r.b.none()
}

// testTagRndvPeerGone: scenario 47: during the device's read the sender's QP fails, or the region
// is deregistered. Other connections and their entries are unaffected.
func testTagRndvPeerGone(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	for polls := range 6 {
		for _, deregisters := range []bool{false, true} {
			failed := r.senderGoes(polls, deregisters)
			// The sender's device was not polled after MATCH.
			if polls == 0 && !opts.OpenReads && !opts.ByItself && !failed {
				t.Errorf("deregistered: %v: a read went on without its sender", deregisters)
			}
		}
	}
}

// senderGoes fails the sender of a rendezvous, or deregisters its region, a number of polls after
// MATCH. It reports whether the device's READ has failed; else the READ was complete before.
func (r *tagRig) senderGoes(polls int, deregisters bool) (failed bool) {
	r.t.Helper()
	const size = 4 << 20
	qa, qb := r.connect(r.a, r.b, qpConf{}, r.conf())
	mr := r.a.reg(r.abuf[:size:size], allAccess)
	r.add(1, 5, exact, r.bbuf)
	r.add(2, 6, exact, r.bbuf) // for another source
	if deregisters {
		r.a.recv(qa, 8, nil) // too short for a FIN, which would fail the queue pairs as well
	}
	r.rndvOn(qa, 5, 1, verbs.RVH{VA: mr.Addr(), RKey: mr.RKey(), Len: size})
	if w := r.b.want(1, verbs.WCSuccess); w.Flags != flagMatch {
		r.t.Fatalf("%+v", w)
	}
	for range polls {
		r.poll()
	}
	if deregisters {
		r.ok(mr.Dereg())
	} else {
		r.ok(qa.Modify(stateAlone(verbs.QPSErr)))
	}
	w := r.b.next()
	failed = w.Status == verbs.WCTMRndvIncomplete
	if w.WRID != 1 || !failed && (w.Status != verbs.WCSuccess || w.Flags != flagData) {
		r.t.Fatalf("%+v", w)
	}
	r.inErr(qa, qb)
	r.settle()
	for _, w := range r.a.got {
		if w.WRID == 8 && failed != (w.Status == verbs.WCWRFlushErr) {
			r.t.Errorf("%+v in place of the FIN, the read failed: %v", w, failed)
		}
	}
	r.a.got = nil
	if len(r.b.got) > 0 {
		r.t.Fatalf("%+v after the end", r.b.got)
	}
	r.hit(2, 6)
	return failed
}

// testTagOwnSendQueue: on a QP whose send queue the program uses, the device matches a rendezvous,
// and leaves READ and FIN to software.
func testTagOwnSendQueue(r *tagRig) {
	qa, _ := r.connect(r.a, r.b, qpConf{}, qpConf{srq: r.srq})
	r.add(1, 5, exact, r.bbuf)
	r.add(2, 5, exact, r.bbuf)
	m := r.rndvOn(qa, 5, 1, verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey(), Len: 1000})
	r.incomplete(1, 5, 1)
	if !bytes.Equal(r.bbuf[:32], m[:32]) {
		r.t.Error("the headers are not in the buffer")
	}
	r.qa = qa
	r.hit(2, 5)
}
