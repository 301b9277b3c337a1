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

// testTagRndvBurst: many concurrent rendezvous, with eager messages between: each ends once, with
// its data.
func testTagRndvBurst(t *testing.T, open Opener, opts TagOptions) {
	const n, size = 60, 30_000
	r := newTagRig(t, open, opts, 255, 600)
	fmr, fin := r.a.mem(64 * n)
	for i := range uint64(n) {
		r.a.recv(r.qa, 1000+i, sge(fmr, fin[i*64:(i+1)*64]))
		r.add(i, i, exact, r.bbuf[i*size:(i+1)*size])
		r.add(500+i, 500+i, exact, r.bbuf[n*size:])
	}
	for i := range uint64(n) {
		at := verbs.RVH{VA: r.amr.Addr() + 13*i, RKey: r.amr.RKey(), Len: uint32(size - i*17)}
		r.rndvOn(r.qa, i, uint32(i), at)
		var m [verbs.TMHSize]byte
		verbs.TMH{Opcode: verbs.TMHEager, Tag: 500 + i}.Put(m[:])
		r.a.send(r.qa, inline(77, verbs.SendSignaled, m[:]))
		r.sentKeepingFINs()
	}
	order, ended := uint64(0), map[uint64]bool{}
	for len(ended) < 2*n {
		w := r.b.next()
		if w.Status != verbs.WCSuccess {
			t.Fatalf("%+v", w)
		}
		if w.Flags&verbs.WCFlagTMMatch != 0 && w.WRID < 500 {
			if w.WRID != order {
				t.Fatalf("MATCH of %d, want %d", w.WRID, order)
			}
			order++
		}
		if w.Flags&verbs.WCFlagTMDataValid == 0 {
			continue
		}
		if ended[w.WRID] {
			t.Fatalf("receive %d ends twice", w.WRID)
		}
		ended[w.WRID] = true
		if i := w.WRID; i < 500 && !bytes.Equal(r.bbuf[i*size:][:w.ByteLen], r.abuf[13*i:][:size-i*17]) {
			t.Fatalf("receive %d has wrong data", i)
		}
	}
	seen := map[uint32]bool{}
	for range n {
		w := r.a.next()
		b := received(w, fin[(w.WRID-1000)*64:])
		ctx := verbs.ParseTMH(b).AppCtx
		if b[0] != byte(verbs.TMHFin) || seen[ctx] {
			t.Fatalf("FIN %d comes twice, or is none", ctx)
		}
		seen[ctx] = true
	}
}

// testTagRndvFull: the sender has no receive for the first FIN yet, so that all others wait, and
// the reads behind it, of more rendezvous than a device has room for. Each ends once, with its data
// and one FIN.
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
		b := received(w, fin[w.WRID*64:])
		ctx := verbs.ParseTMH(b).AppCtx
		if w.Status != verbs.WCSuccess || b[0] != byte(verbs.TMHFin) || ctx >= n || fins[ctx] {
			t.Fatalf("%+v: FIN %d comes twice, or is none", w, ctx)
		}
		fins[ctx] = true
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

// testTagRndvEmpty: scenario 36: a rendezvous of no bytes has a FIN.
func testTagRndvEmpty(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	fmr, fin := r.a.mem(64)
	for i := range uint64(3) {
		r.a.recv(r.qa, i, sge(fmr, fin))
		r.add(i, 5, exact, r.bbuf[:i])
		r.rndvOn(r.qa, 5, 3, verbs.RVH{}) // its key is ignored
		r.matched(i, 5, 3, nil, r.bbuf)
		r.wantFIN(i, 5, 3, fin)
	}
}

// testTagRndvIncomplete: scenarios 33 and 34: a rendezvous is longer than the buffer, and software
// reads the data that the headers describe.
func testTagRndvIncomplete(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	fmr, fin := r.a.mem(64)
	r.a.recv(r.qa, 8, sge(fmr, fin)) // for a FIN, which must not come
	for i, n := range []int{999, 32, 31, 5, 0} {
		clear(r.bbuf)
		id := uint64(i)
		h := r.add(id, 5, exact, r.bbuf[:n])
		m := r.rndv(5, 9, 1000)
		w := r.b.want(id, verbs.WCTMRndvIncomplete)
		if w.Flags&verbs.WCFlagTMDataValid == 0 {
			w = r.b.want(id, verbs.WCSuccess)
		}
		k := min(n, 32)
		if w.Flags&verbs.WCFlagTMDataValid == 0 || !bytes.Equal(r.bbuf[:k], m[:k]) || r.bbuf[k] != 0 {
			t.Fatalf("buffer of %d: %+v, %x", n, w, r.bbuf[:40])
		}
		r.del(h, verbs.WCTMErr)
	}
	r.add(9, 5, exact, r.bbuf) // the QP still works
	m := r.eager(5, 2, 20)
	r.matched(9, 5, 2, m[16:], r.bbuf)
	r.sent()
	r.a.none()
}

// testTagRndvDel: scenario 17: MATCH, then TM_ERR and DATA_VALID in either order.
func testTagRndvDel(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	fmr, fin := r.a.mem(64)
	for i := range uint64(5) {
		r.a.recv(r.qa, 1, sge(fmr, fin))
		h := r.add(10+i, 5, exact, r.bbuf)
		r.rndv(5, 4, 2<<20)
		w := r.b.want(10+i, verbs.WCSuccess)
		if w.Flags&verbs.WCFlagTMMatch == 0 {
			t.Fatalf("%+v", w)
		}
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h, WRID: 5, Flags: verbs.OpsSignaled})
		for range 2 {
			if w := r.b.next(); w.WRID == 5 && w.Status != verbs.WCTMErr || w.WRID != 5 && w.Flags&verbs.WCFlagTMDataValid == 0 {
				t.Fatalf("%+v", w)
			}
		}
		r.wantFIN(1, 5, 4, fin)
		if !bytes.Equal(r.bbuf[:2<<20], r.abuf[rndvOffset:][:2<<20]) {
			t.Fatal("wrong data")
		}
	}
}

// testTagRndvBadKey: scenario 49: the rkey of a request is wrong. Other connections are not
// affected.
func testTagRndvBadKey(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	qa, qb := r.connect(r.a, r.b, qpConf{}, r.conf())
	r.add(1, 5, exact, r.bbuf)
	r.add(2, 6, exact, r.bbuf)
	r.rndvOn(qa, 5, 1, verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey() ^ 1<<20, Len: 100})
	if w := r.b.want(1, verbs.WCSuccess); w.Flags&verbs.WCFlagTMMatch == 0 {
		t.Fatalf("%+v", w)
	}
	r.b.want(1, verbs.WCTMRndvIncomplete)
	if qb.State() != verbs.QPSErr {
		t.Errorf("the QP is in %v", qb.State())
	}
	r.until("the sender's QP in ERR", func() bool { return qa.State() == verbs.QPSErr })
	r.a.got = nil // its request may have completed or not
	m := r.eager(6, 0, 8)
	r.matched(2, 6, 0, m[16:], r.bbuf)
	r.sent()
	r.b.none()
}

// testTagRndvPeerGone: scenario 47: during the device's read the sender's QP fails, or the region
// is deregistered. Other connections and their entries are unaffected.
func testTagRndvPeerGone(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	for polls := range 6 {
		for _, withdraws := range []bool{false, true} {
			failed := r.senderGoes(polls, withdraws)
			// The sender's device was not polled after MATCH.
			if polls == 0 && !opts.OpenReads && !failed {
				t.Errorf("withdrawn: %v: a read went on without its sender", withdraws)
			}
		}
	}
}

// senderGoes fails the sender of a rendezvous, or deregisters its region, a number of polls after
// MATCH. It reports whether the device's READ has failed; else the READ was complete before.
func (r *tagRig) senderGoes(polls int, withdraws bool) (failed bool) {
	r.t.Helper()
	const size = 4 << 20
	qa, qb := r.connect(r.a, r.b, qpConf{}, r.conf())
	mr := r.a.reg(r.abuf[:size:size], allAccess)
	r.add(1, 5, exact, r.bbuf)
	r.add(2, 6, exact, r.bbuf) // for another source
	if withdraws {
		r.a.recv(qa, 8, nil) // too short for a FIN, which would fail the queue pairs as well
	}
	r.rndvOn(qa, 5, 1, verbs.RVH{VA: mr.Addr(), RKey: mr.RKey(), Len: size})
	if w := r.b.want(1, verbs.WCSuccess); w.Flags != flagMatch {
		r.t.Fatalf("%+v", w)
	}
	for range polls {
		r.poll()
	}
	if withdraws {
		r.ok(mr.Dereg())
	} else {
		r.ok(qa.Modify(stateAlone(verbs.QPSErr)))
	}
	w := r.b.next()
	failed = w.Status == verbs.WCTMRndvIncomplete
	if w.WRID != 1 || !failed && (w.Status != verbs.WCSuccess || w.Flags != flagData) {
		r.t.Fatalf("%+v", w)
	}
	r.until("ERR on both sides", func() bool { return qa.State() == verbs.QPSErr && qb.State() == verbs.QPSErr })
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

// testTagRndvFINWaits: scenario 31: the FIN waits until the sender has posted a receive for it.
func testTagRndvFINWaits(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	fmr, fin := r.a.mem(64)
	for i := range uint64(3) {
		r.add(i, 5, exact, r.bbuf)
		r.rndv(5, uint32(i), 50_000)
		r.matched(i, 5, uint32(i), r.abuf[rndvOffset:][:50_000], r.bbuf)
		r.a.none()
		r.a.recv(r.qa, 20+i, sge(fmr, fin))
		r.wantFIN(20+i, 5, uint32(i), fin)
	}
}

// testTagOwnSendQueue: on a QP whose send queue the program uses, the device matches a rendezvous,
// and leaves READ and FIN to software.
func testTagOwnSendQueue(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	qa, _ := r.connect(r.a, r.b, qpConf{}, qpConf{srq: r.srq})
	r.add(1, 5, exact, r.bbuf)
	r.add(2, 5, exact, r.bbuf)
	m := r.rndvOn(qa, 5, 1, verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey(), Len: 1000})
	w := r.b.want(1, verbs.WCTMRndvIncomplete)
	if w.Flags&verbs.WCFlagTMDataValid == 0 {
		r.b.want(1, verbs.WCSuccess)
	}
	if !bytes.Equal(r.bbuf[:32], m[:32]) {
		t.Error("the headers are not in the buffer")
	}
	r.qa = qa
	m = r.eager(5, 3, 70)
	r.matched(2, 5, 3, m[16:], r.bbuf)
	r.sent()
}
