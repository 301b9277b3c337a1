package verbstest

import (
	"bytes"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has scenarios of TMO 7.2 about rendezvous: 3, 33, 46 and 48. The others are in
// tm_rndv.go.

// testTagRndvFIN is scenario 3: a rendezvous that fits: MATCH, data, FIN at the sender, DATA_VALID.
// The send ends with the FIN, not with the completion of its request; each gets one FIN, after its
// data is in place.
func testTagRndvFIN(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(1)
	request := func(ctx uint32, n int) {
		m := make([]byte, verbs.TMHSize+verbs.RVHSize)
		verbs.TMH{Opcode: verbs.TMHRndv, Tag: 5, AppCtx: ctx}.Put(m)
		verbs.RVH{VA: r.amr.Addr() + rndvOffset, RKey: r.amr.RKey(), Len: uint32(n)}.Put(m[verbs.TMHSize:])
		r.raw(r.qa, false, m)
		r.sentKeepingFINs()
	}
	fin := r.finBuffer()
	request(7, 1000) // unexpected: it was sent, but has not ended
	r.a.none()
	r.b.want(untaggedID, verbs.WCSuccess)
	r.count++
	for i, n := range []int{1, 3000, 50_000} {
		ctx := 100 + uint32(i)
		clear(r.bbuf)
		r.add(1, 5, exact, r.bbuf[:n])
		request(ctx, n)
		r.wantFIN(8, 5, ctx, fin)
		if !bytes.Equal(r.bbuf[:n], r.abuf[rndvOffset:][:n]) {
			t.Fatalf("the FIN of %d bytes is here before them", n)
		}
		clear(r.abuf[rndvOffset:][:n]) // the sender owns it again
		r.halves(1, 5, ctx, n)
		if bytes.Equal(r.bbuf[:n], make([]byte, n)) {
			t.Fatalf("%d bytes were read again, after the FIN", n)
		}
		r.a.none()
		fin = r.finBuffer()
		copy(r.abuf, payload())
	}
}

// testTagRndvTruncated is scenario 33: a rendezvous longer than its buffer. Software reads what
// fits, by the headers in the buffer, and sends a FIN.
func testTagRndvTruncated(t *testing.T, open Opener, opts TagOptions) {
	const room, size = 500, 20_000
	r := newSmallRig(t, open, opts, 15, 64)
	back, peer := r.connect(r.b, r.a, qpConf{}, qpConf{}) // with a send queue for software
	fmr, fin := r.a.mem(64)
	r.a.recv(r.qa, 8, sge(fmr, fin))
	r.a.recv(peer, 9, sge(fmr, fin))
	r.add(1, 5, exact, r.bbuf[:room])
	r.rndv(5, 6, size)
	r.incomplete(1, 5, 6)
	tmh, rvh := verbs.ParseTMH(r.bbuf), verbs.ParseRVH(r.bbuf[verbs.TMHSize:])
	if want := (verbs.RVH{VA: r.amr.Addr() + rndvOffset, RKey: r.amr.RKey(), Len: size}); rvh != want || tmh.AppCtx != 6 {
		t.Fatalf("the buffer has %+v and %+v, want %+v", tmh, rvh, want)
	}
	r.b.send(back, verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: sge(r.bmr, r.bbuf[:room]), RemoteAddr: rvh.VA, RKey: rvh.RKey})
	r.b.want(2, verbs.WCSuccess)
	if !bytes.Equal(r.bbuf[:room], r.abuf[rndvOffset:][:room]) {
		t.Fatal("wrong data")
	}
	tmh.Opcode = verbs.TMHFin
	m := make([]byte, verbs.TMHSize)
	tmh.Put(m)
	r.b.send(back, inline(3, verbs.SendSignaled, m))
	r.wantFIN(9, 5, 6, fin)
	r.b.want(3, verbs.WCSuccess)
	r.a.none() // the device has sent none
	r.b.none()
}

// testTagRndvReceiverDies is scenario 46: the receiver dies after MATCH. Unless the data had
// arrived there is no FIN: the error of its queue pair releases the sender, and its receive for the
// FIN is flushed.
func testTagRndvReceiverDies(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	qa, qb := r.connect(r.a, r.b, qpConf{}, r.conf())
	r.b.free = r.b.free[:len(r.b.free)-1] // qb goes before
	mr, fin := r.a.mem(64)
	r.a.recv(qa, 8, sge(mr, fin))
	r.add(1, 5, exact, r.bbuf)
	r.rndvOn(qa, 5, 6, verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey(), Len: 4 << 20})
	if w := r.first(); w.WRID != 1 || w.Flags != flagMatch {
		t.Fatalf("%+v is no MATCH", w)
	}
	r.ok(qb.Destroy())
	end := r.b.next()
	r.a.send(qa, inline(9, verbs.SendSignaled, nil))
	r.until("ERR", func() bool { return qa.State() == verbs.QPSErr })
	r.settle()
	ends := map[uint64]int{}
	for _, w := range r.a.got {
		if w.Status == verbs.WCSuccess && (w.WRID != 8 || end.Status != verbs.WCSuccess) {
			t.Errorf("%+v, though the rendezvous ended with %v", w, end.Status)
		}
		ends[w.WRID]++
	}
	if end.WRID != 1 || ends[8] != 1 || ends[9] != 1 {
		t.Errorf("the sender's requests ended so often: %v, and the receiver's with %+v", ends, end)
	}
	r.b.none()
}

// testTagRndvCancel is scenario 48: the receive of a rendezvous in progress is cancelled, and the
// one behind it. The first DEL fails, and the receive ends with its data and a FIN; the second
// succeeds, and its buffer is never written.
func testTagRndvCancel(t *testing.T, open Opener, opts TagOptions) {
	const size = 1 << 20
	r := newTagRig(t, open, opts, 2, 64)
	for i := range 4 {
		fin := r.finBuffer()
		clear(r.bbuf[:2*size])
		del := []*verbs.OpsWR{r.counted(verbs.WRTagDel, 1), r.counted(verbs.WRTagDel, 2)}
		for k, wr := range del {
			wr.Handle = r.add(uint64(k), 5, exact, r.bbuf[k*size:][:size])
		}
		r.rndv(5, 4, size)
		if w := r.first(); w.WRID != 0 || w.Flags != flagMatch {
			t.Fatalf("%+v is no MATCH", w)
		}
		for range i {
			r.unpolled(r.poll)
		}
		r.post(chain(del...))
		var dels []verbs.WC
		for ended := false; !ended || len(dels) < 2; {
			w := r.b.next()
			if w.Opcode == verbs.WCTMRecv {
				ended = w.WRID == 0 && w.Status == verbs.WCSuccess && w.Flags == flagData && !ended
			} else {
				dels = append(dels, w)
			}
		}
		if dels[0].WRID != del[0].WRID || dels[0].Status != verbs.WCTMErr || dels[1].WRID != del[1].WRID || dels[1].Status != verbs.WCSuccess {
			t.Fatalf("%+v", dels)
		}
		r.wantFIN(8, 5, 4, fin)
		if !bytes.Equal(r.bbuf[:size], r.abuf[rndvOffset:][:size]) || !bytes.Equal(r.bbuf[size:2*size], make([]byte, size)) {
			t.Fatal("wrong data")
		}
		r.b.none()
	}
}
