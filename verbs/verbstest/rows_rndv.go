package verbstest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has scenarios of TMO 7.2 about rendezvous: 17, 33, 44, 46 and 48. The others
// are in tm_rndv.go.

// testTagRndvTruncated is scenario 33: a rendezvous longer than its buffer. Software reads what
// fits, by the headers in the buffer, and sends a FIN.
func testTagRndvTruncated(r *tagRig) {
	const room, size = 500, 20_000
	back, peer := r.connect(r.b, r.a, qpConf{}, qpConf{}) // with a send queue for software
	fmr, fin := r.a.mem(64)
	r.a.recv(r.qa, 8, sge(fmr, fin))
	r.a.recv(peer, 9, sge(fmr, fin))
	r.add(1, 5, exact, r.bbuf[:room])
	r.rndv(5, 6, size)
	r.incomplete(1, 5, 6)
	tmh, rvh := verbs.ParseTMH(r.bbuf), verbs.ParseRVH(r.bbuf[verbs.TMHSize:])
	if want := (verbs.RVH{VA: r.amr.Addr() + rndvOffset, RKey: r.amr.RKey(), Len: size}); rvh != want || tmh.AppCtx != 6 {
		r.t.Fatalf("the buffer has %+v and %+v, want %+v", tmh, rvh, want)
	}
	r.b.send(back, verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: sge(r.bmr, r.bbuf[:room]), RemoteAddr: rvh.VA, RKey: rvh.RKey})
	r.b.want(2, verbs.WCSuccess)
	if !bytes.Equal(r.bbuf[:room], r.abuf[rndvOffset:][:room]) {
		r.t.Fatal("wrong data")
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

// testTagRndvReceiverDies is scenarios 44 and 46: the receiver fails, or dies, after MATCH. Unless
// the data had arrived there is no FIN: the error of its queue pair releases the sender, and its
// receive for the FIN is flushed, once.
func testTagRndvReceiverDies(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	for _, dies := range []bool{false, true} {
		qa, qb := r.connect(r.a, r.b, qpConf{}, r.conf())
		mr, fin := r.a.mem(64)
		r.a.recv(qa, 8, sge(mr, fin))
		r.add(1, 5, exact, r.bbuf)
		r.rndvOn(qa, 5, 6, verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey(), Len: 4 << 20})
		if w := r.first(); w.WRID != 1 || w.Flags != flagMatch {
			t.Fatalf("%+v is no MATCH", w)
		}
		if dies {
			r.b.destroy(qb)
		} else {
			r.ok(qb.Modify(stateAlone(verbs.QPSErr)))
		}
		end := r.b.next()
		r.a.send(qa, inline(9, verbs.SendSignaled, nil))
		r.inErr(qa)
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
		r.a.got = nil
		r.b.none()
	}
}

// testTagOwnRequests: the device's READ fails, or its FIN, as the sender's queue pair has failed or
// the key was wrong. An event names the queue pair: the receive need not end.
func testTagOwnRequests(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	for _, refused := range []bool{false, true} {
		qa, qb := r.connect(r.a, r.b, qpConf{}, r.conf())
		at := verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey(), Len: 4 << 20}
		if refused {
			at.RKey ^= 1 << 20
		}
		r.add(1, 5, exact, r.bbuf)
		r.rndvOn(qa, 5, 1, at)
		if w := r.first(); w.WRID != 1 || w.Flags != flagMatch {
			t.Fatalf("%+v is no MATCH", w)
		}
		if !refused {
			r.ok(qa.Modify(stateAlone(verbs.QPSErr)))
		}
		r.until("an event of the queue pair", func() bool {
			return slices.ContainsFunc(r.b.evs, func(ev verbs.AsyncEvent) bool {
				fails := ev.Type == verbs.EventQPFatal || ev.Type == verbs.EventQPAccessErr || ev.Type == verbs.EventQPLastWQEReached
				return fails && ev.QP == qb.Num()
			})
		})
		r.settle()
		r.a.got, r.b.got, r.b.evs = nil, nil, nil
	}
}

// testTagRndvCancel is scenarios 17 and 48: the receive of a rendezvous in progress is cancelled,
// and the one behind it. The first DEL fails, before the end of the receive or after it, which has
// its data and a FIN; the second succeeds, and its buffer is never written.
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
