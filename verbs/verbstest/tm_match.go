package verbstest

import (
	"bytes"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// testTagEager: rows 1, 2 and 35, over sizes from nothing to several packets.
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
	wr := verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: verbs.TagAdd{RecvWRID: 99, Tag: 5, Mask: exact}} // no list: length 0
	r.do(wr, verbs.WCSuccess)
	r.eager(5, 0, 0)
	r.matched(99, 5, 0, nil, nil)
	r.sent()
	r.b.none()
}

// testTagImm: immediate data comes with the completion that carries the packet (TMO 2.3, 4.4).
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

// testTagUnexpected: row 4, and that what is live stays live (row 8).
func testTagUnexpected(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(8)
	r.add(1, 1, exact, r.bbuf)
	for k, n := range []int{0, 100, 60_000} {
		m := r.eager(2, 0, n)
		r.unexpected(k, m)
		r.sent()
		r.count++
	}
	if opts.Dormant {
		r.sync()
	}
	m := r.eager(1, 9, 33)
	r.matched(1, 1, 9, m[16:], r.bbuf)
	r.sent()
}

// testTagDormant: rows 5 to 7, 9, 10 and 18: an entry that is added while software is behind matches nothing.
func testTagDormant(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(16)
	m := r.eager(5, 1, 10)
	r.unexpected(0, m)
	r.sent()
	h1 := r.add(1, 5, exact, r.bbuf) // with the old count
	m = r.eager(5, 2, 11)
	r.unexpected(1, m) // though an entry for it is in the list
	r.sent()
	r.count += 2
	r.del(h1, verbs.WCSuccess) // row 18, and the counters agree again
	h2 := r.add(2, 5, exact, r.bbuf)
	m = r.eager(5, 3, 12)
	r.matched(2, 5, 3, m[16:], r.bbuf)
	r.sent()
	r.del(h2, verbs.WCTMErr) // row 16
	m = r.eager(6, 4, 1)     // again behind
	r.unexpected(2, m)
	r.sent()
	r.add(3, 5, exact, r.bbuf)
	m = r.eager(5, 5, 2) // row 9
	r.unexpected(3, m)
	r.sent()
	r.count += 2
	r.sync() // row 10
	m = r.eager(5, 6, 3)
	r.matched(3, 5, 6, m[16:], r.bbuf)
	r.sent()
	r.b.none()
}

// testTagStaleSync: row 12: only the right count makes entries live; without TM_SYNC the old one holds.
func testTagStaleSync(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(16)
	k := 0
	miss := func() {
		t.Helper()
		m := r.eager(5, 0, 1)
		r.unexpected(k, m)
		r.sent()
		k++
	}
	miss()
	miss()
	r.add(1, 5, exact, r.bbuf)
	for _, c := range []uint32{1, 0, 1, 1 << 15} {
		r.count = opts.InitialCount + c
		r.sync()
		miss()
	}
	r.count = opts.InitialCount + uint32(k) // up to date, but not told
	r.post(&verbs.OpsWR{Opcode: verbs.WRTagSync, Flags: verbs.OpsSignaled, UnexpectedCnt: r.count, WRID: 3})
	r.b.want(3, verbs.WCSuccess)
	miss()
	r.count++
	r.sync()
	m := r.eager(5, 0, 1)
	r.matched(1, 5, 0, m[16:], r.bbuf)
	r.sent()
}

// testTagWildcards: rows 37 to 39: the first entry in list order takes the message, whatever its mask.
func testTagWildcards(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(8)
	buf := r.bbuf[:64]
	hit := func(id, tag uint64) {
		t.Helper()
		m := r.eager(tag, 0, 5)
		r.matched(id, tag, 0, m[16:], buf)
		r.sent()
	}
	r.add(1, 0, 0, buf)
	r.add(2, 9, exact, buf)
	r.add(3, 0xf00, 0xf00, buf)
	r.add(4, 0xf09, exact, buf)
	r.add(5, 0, 0, buf)
	hit(1, 9)
	hit(2, 9)
	hit(3, 0xf09)
	hit(4, 0xf09)
	hit(5, exact)
	if opts.Strict {
		return
	}
	never := r.add(6, 0xf1, 0xf0, buf) // bits outside the mask: nothing matches it
	m := r.eager(0xf1, 0, 3)
	r.unexpected(0, m)
	r.sent()
	r.count++
	r.del(never, verbs.WCSuccess)
	r.del(never, verbs.WCTMErr)
}

// testTagNoTag: rows 53 and 37: NO_TAG and FIN match nothing and count for nothing.
func testTagNoTag(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(16)
	r.add(1, 0, 0, r.bbuf)
	k := uint64(0)
	for _, op := range []verbs.TMHOpcode{verbs.TMHNoTag, verbs.TMHFin} {
		for _, n := range []int{1, 16, 32, 5000, 80_000} {
			if op == verbs.TMHFin && n < 16 {
				continue
			}
			m := r.message(op, 0, 0, 1<<20)[:n]
			r.a.send(r.qa, verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(r.amr, m)})
			w := r.b.want(untaggedID+k, verbs.WCSuccess)
			if w.Opcode != verbs.WCTMNoTag || w.Flags != 0 || !bytes.Equal(received(w, r.ubuf[k*untaggedSize:]), m) {
				t.Fatalf("opcode %d, %d bytes: %+v", op, n, w)
			}
			k++
			r.sent()
		}
	}
	m := r.eager(3, 0, 4)
	r.matched(1, 3, 0, m[16:], r.bbuf)
	r.sent()
}

// testTagTooLong: row 32.
func testTagTooLong(t *testing.T, open Opener, opts TagOptions) {
	for _, n := range []int{1, 50_000} {
		r := newTagRig(t, open, opts, 15, 64)
		r.untagged(8)
		q2, _ := r.connect(r.a, r.b, qpConf{}, r.conf())
		r.add(1, 5, exact, r.bbuf[:n-1])
		r.add(2, 6, exact, r.bbuf)
		r.eager(5, 0, n)
		r.b.want(1, verbs.WCLocLenErr)
		r.a.want(77, verbs.WCRemInvReqErr)
		r.until("ERR", func() bool { return r.qb.State() == verbs.QPSErr })
		r.qa = q2 // others are not concerned
		m := r.eager(6, 0, 8)
		r.matched(2, 6, 0, m[16:], r.bbuf)
		r.sent()
		r.b.none()
	}
}

// testTagMalformed: messages that promise headers which they do not have fail, and harm nobody else.
func testTagMalformed(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(8)
	for _, c := range []struct {
		op verbs.TMHOpcode
		n  int
	}{{verbs.TMHEager, 1}, {verbs.TMHEager, 15}, {verbs.TMHRndv, 31}, {verbs.TMHRndv, 65}} {
		qa, qb := r.connect(r.a, r.b, qpConf{}, r.conf())
		m := r.message(c.op, 1, 0, 100)[:c.n]
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

// testTagRNR: rows 28 and 30: an unexpected message waits for a buffer and is counted once; an expected one needs none.
func testTagRNR(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.add(1, 5, exact, r.bbuf)
	m := r.eager(5, 0, 8)
	r.matched(1, 5, 0, m[16:], r.bbuf)
	r.sent()
	for k, n := range []int{3, 60_000} {
		m = r.eager(6, 0, n)
		r.b.none()
		r.untagged(1)
		r.unexpected(k, m)
		r.sent()
		r.count++
		r.add(2, 6, exact, r.bbuf) // one too many in the count would keep it dormant
		m = r.eager(6, 0, 4)
		r.matched(2, 6, 0, m[16:], r.bbuf)
		r.sent()
	}
	m = r.eager(7, 0, 5) // a receive that comes while the message waits takes it
	r.b.none()
	r.add(3, 7, exact, r.bbuf)
	r.b.e.until("the match", func() bool { return len(r.b.got) > 0 })
	r.matched(3, 7, 0, m[16:], r.bbuf)
	r.sent()
}

// testTagLimit: row 56, on the untagged buffers.
func testTagLimit(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(4)
	for range 2 {
		r.ok(r.srq.Modify(verbs.SRQAttr{Limit: 4}, verbs.SRQLimit))
		m := r.eager(6, 0, 1)
		r.unexpected(r.posted-4, m)
		r.sent()
		if ev := r.b.wantEvent(verbs.EventSRQLimitReached); ev.QP != r.srq.Num() {
			t.Errorf("%+v", ev)
		}
		r.untagged(1)
	}
	r.settle()
	if len(r.b.evs) > 0 {
		t.Errorf("%+v", r.b.evs)
	}
}

// testTagSources: row 42: each source's messages take the entries in list order, and a multi-packet message of one does
// not disturb those of others.
func testTagSources(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 511, 1200)
	const sources, each = 3, 40
	var qs []verbs.QP
	for range sources {
		qa, _ := r.connect(r.a, r.b, qpConf{}, r.conf())
		qs = append(qs, qa)
	}
	const room = 12_000
	for i := range each * sources {
		s, k := uint64(i%sources), uint64(i/sources)
		r.add(s<<32|k, s<<32, 0xffff<<32, r.bbuf[i*room:(i+1)*room])
	}
	for k := range each {
		for s, q := range qs {
			off := (k*sources + s) * room
			m := r.abuf[off:][:verbs.TMHSize+(k*s*3779)%(room-verbs.TMHSize)]
			verbs.TMH{Opcode: verbs.TMHEager, Tag: uint64(s)<<32 | uint64(k)}.Put(m)
			r.a.send(q, verbs.SendWR{Opcode: verbs.WRSend, SGList: sge(r.amr, m), Flags: verbs.SendSignaled})
		}
		for range sources {
			r.a.next()
		}
	}
	ended := 0
	for ended < each*sources {
		w := r.b.next()
		if w.Flags&verbs.WCFlagTMMatch != 0 && w.Tag != w.WRID {
			t.Fatalf("message %#x matched receive %#x", w.Tag, w.WRID)
		}
		if w.Flags&verbs.WCFlagTMDataValid != 0 {
			ended++
			i := int(w.WRID&0xffff)*sources + int(w.WRID>>32)
			if want := r.abuf[i*room+16:][:w.ByteLen]; !bytes.Equal(r.bbuf[i*room:][:w.ByteLen], want) {
				t.Fatalf("receive %#x has wrong data", w.WRID)
			}
		}
	}
}
