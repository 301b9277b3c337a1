package verbstest

import (
	"bytes"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// testTagEager: a tagged buffer gets the payload without headers, from no bytes to many packets.
func testTagEager(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(4)
	for i, n := range []int{0, 1, 8, 48, 49, 1008, 1009, 4080, 4081, 8176, 8177, 50_000, 1 << 20} {
		clear(r.bbuf)
		r.add(uint64(i), uint64(i)<<40, exact, r.bbuf[:n])
		m := r.eager(uint64(i)<<40, 0xfffffff0+uint32(i), n)
		w := r.matched(uint64(i), uint64(i)<<40, 0xfffffff0+uint32(i), m[16:], r.bbuf)
		if w.QPNum != r.qb.Num() {
			t.Errorf("QP %d in the completion, want %d", w.QPNum, r.qb.Num())
		}
		r.sent()
	}
	r.b.none()
}

// testTagImm: immediate data is in the completion of its packet, the message's last (TMO 2.3, 4.4).
func testTagImm(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(4)
	send := func(op verbs.TMHOpcode, n int) []byte {
		m := r.message(op, 7, 1, n)
		r.a.send(r.qa, verbs.SendWR{WRID: 77, Opcode: verbs.WRSendWithImm, Imm: 0xabcd0123, Flags: verbs.SendSignaled, SGList: sge(r.amr, m)})
		r.sent()
		return m
	}
	check := func(w verbs.WC) {
		t.Helper()
		if w.Flags&verbs.WCFlagWithImm == 0 || w.Imm != 0xabcd0123 {
			t.Fatalf("no immediate data in %+v", w)
		}
	}
	for i, n := range []int{10, 30_000} {
		r.add(uint64(i), 7, exact, r.bbuf)
		m := send(verbs.TMHEager, n)
		check(r.matched(uint64(i), 7, 1, m[16:], r.bbuf))
		m = send(verbs.TMHEager, n)
		check(r.unexpected(2*i, m))
		send(verbs.TMHNoTag, n)
		check(r.b.want(untaggedID+2*uint64(i)+1, verbs.WCSuccess))
		r.count++
	}
}

// testTagUnexpected: an untagged buffer gets the message with its headers, from these alone to many
// packets.
func testTagUnexpected(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(8)
	for k, n := range []int{0, 100, 60_000} {
		m := r.eager(2, 0, n)
		r.unexpected(k, m)
		r.sent()
		r.count++
	}
}

// testTagNoTag: the header of a NO_TAG message is its first byte, which may be all of it.
func testTagNoTag(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(8)
	for k, n := range []int{1, 2, 15, 16, 5000, 80_000} {
		m := r.message(verbs.TMHNoTag, exact, 0, 1<<20)[:n]
		r.a.send(r.qa, verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(r.amr, m)})
		w := r.b.want(untaggedID+uint64(k), verbs.WCSuccess)
		if w.Opcode != verbs.WCTMNoTag || !bytes.Equal(received(w, r.ubuf[k*untaggedSize:]), m) {
			t.Fatalf("%d bytes: %+v", n, w)
		}
		r.sent()
	}
}

// testTagMalformed: messages without the headers that their opcode needs fail, and so do rendezvous
// requests above max_rndv_hdr_size. Other connections are not affected.
func testTagMalformed(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(8)
	most := int(r.b.dev.Attr().TM.MaxRndvHdrSize)
	for _, c := range []struct {
		op verbs.TMHOpcode
		n  int
	}{{verbs.TMHEager, 1}, {verbs.TMHEager, 15}, {verbs.TMHRndv, 31}, {verbs.TMHRndv, most + 1}} {
		qa, qb := r.connect(r.a, r.b, qpConf{}, r.conf())
		m := r.message(c.op, 1, 0, most)[:c.n]
		r.a.send(qa, verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(r.amr, m)})
		r.a.want(77, verbs.WCRemInvReqErr)
		r.until("ERR", func() bool { return qb.State() == verbs.QPSErr })
	}
	r.b.none()
	r.add(1, 5, exact, r.bbuf)
	m := r.eager(5, 0, 8)
	r.matched(1, 5, 0, m[16:], r.bbuf)
	r.sent()
}

// testTagBadKey: an entry whose buffer is not registered fails the message that it matches.
func testTagBadKey(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	wr := verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(1, 5, exact, r.bbuf[:64])}
	wr.Add.SGList[0].LKey ^= 1 << 20
	r.do(wr, verbs.WCSuccess)
	r.eager(5, 0, 8)
	r.b.want(1, verbs.WCLocProtErr)
	r.a.want(77, verbs.WCRemOpErr)
}

// testTagWithdrawn: the region of a tagged buffer is deregistered after MATCH of a long message.
// The receive completes once: with an error, and both queue pairs with it, or with success if the
// whole message had been received. Other connections are not affected.
func testTagWithdrawn(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	for polls := range 6 {
		r.withdrawn(polls)
	}
}

// withdrawn deregisters the region of a matched message after so many polls.
func (r *tagRig) withdrawn(polls int) {
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
		r.until("ERR on both sides", func() bool { return qa.State() == verbs.QPSErr && qb.State() == verbs.QPSErr })
	} else {
		r.a.want(78, verbs.WCSuccess)
	}
	r.b.none()
	r.hit(2, 6)
}
