package verbstest

import (
	"bytes"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// testTagMalformed: messages without the headers that their opcode needs fail, and so do rendezvous
// requests above max_rndv_hdr_size. Other connections are not affected.
func testTagMalformed(r *tagRig) {
	r.stocked()
	most := int(r.b.dev.Attr().TM.MaxRndvHdrSize)
	for _, c := range []struct {
		op verbs.TMHOpcode
		n  int
	}{{verbs.TMHEager, 1}, {verbs.TMHEager, 15}, {verbs.TMHRndv, 31}, {verbs.TMHRndv, most + 1}} {
		qa, qb := r.connect(r.a, r.b, qpConf{}, r.conf())
		m := r.message(c.op, 1, 0, most)[:c.n]
		r.raw(qa, m)
		r.a.want(77, verbs.WCRemInvReqErr)
		r.inErr(qb)
	}
	r.b.none()
	r.add(1, 5, exact, r.bbuf)
	r.hit(1, 5)
}

// testTagDeregistered: the region of a tagged buffer is deregistered after MATCH of a long message.
// The receive completes once: with an error, and both queue pairs with it, or with success if the
// whole message had been received. Other connections are not affected.
func testTagDeregistered(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	for polls := range 6 {
		r.deregister(polls)
	}
}

// deregister deregisters the region of a matched message after so many polls.
func (r *tagRig) deregister(polls int) {
	r.t.Helper()
	const size = 4<<20 - verbs.TMHSize
	qa, qb := r.connect(r.a, r.b, qpConf{}, r.conf())
	mr, buf := r.b.mem(size)
	add := r.tagAdd(1, 5, exact, nil)
	add.SGList = sge(mr, buf)
	r.do(verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: add}, verbs.WCSuccess)
	r.add(2, 6, exact, r.bbuf)
	m := r.message(verbs.TMHEager, 5, 0, size)
	r.a.send(qa, verbs.SendWR{WRID: 78, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(r.amr, m)})
	if w := r.b.want(1, verbs.WCSuccess); w.Flags != flagMatch {
		r.t.Fatalf("%+v", w)
	}
	for range polls {
		r.poll()
	}
	r.ok(mr.Dereg())
	w := r.b.next()
	cut := w.Status == verbs.WCLocProtErr
	if w.WRID != 1 || !cut && (w.Status != verbs.WCSuccess || w.Flags != flagData || !bytes.Equal(buf, m[verbs.TMHSize:])) {
		r.t.Fatalf("%+v", w)
	}
	if cut {
		r.a.want(78, verbs.WCRemOpErr)
		r.inErr(qa, qb)
	} else {
		r.a.want(78, verbs.WCSuccess)
	}
	r.b.none()
	r.hit(2, 6)
}
