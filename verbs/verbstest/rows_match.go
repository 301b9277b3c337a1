package verbstest

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the scenarios of TMO 7.2 about messages and the entries that they match: 1, 2, 28,
// 30, 32, 35, 37 to 39, 42 and 53.

// testTagOneMTU is scenario 1: an eager message of one MTU: one completion with both flags, tag and
// priv, and the payload only in the buffer.
func testTagOneMTU(t *testing.T, open Opener, opts TagOptions) {
	const tag, ctx = 0x8000000000000005, 0xfffffff0
	r := newSmallRig(t, open, opts, 15, 64)
	n := r.mtu() - verbs.TMHSize
	clear(r.bbuf)
	r.add(1, tag, exact, r.bbuf)
	m := r.eager(tag, ctx, n)
	r.whole(1, tag, ctx, n)
	r.sent()
	if !bytes.Equal(r.bbuf[:n], m[verbs.TMHSize:]) || !bytes.Equal(r.bbuf[n:2*n], make([]byte, n)) {
		t.Error("the buffer does not have the payload, or has more")
	}
	r.b.none()
}

// testTagOthersBetween is scenario 2: eager messages of several MTUs while another source sends:
// their MATCH is before their DATA_VALID, messages of others may be between. All arrive.
func testTagOthersBetween(t *testing.T, open Opener, opts TagOptions) {
	const rounds, size, room = 6, 30_000, 32_000
	r := newSmallRig(t, open, opts, 63, 200)
	r.untagged(rounds)
	other, _ := r.connect(r.a, r.b, qpConf{}, r.conf())
	for i := range uint64(rounds) {
		r.add(i, 5, exact, r.bbuf[:room])
		r.add(100+i, 6, exact, r.bbuf[room:][i*1000:][:1000])
		m := r.eager(5, uint32(i), size)
		short := make([]byte, verbs.TMHSize+100)
		verbs.TMH{Opcode: verbs.TMHEager, Tag: 6, AppCtx: uint32(i)}.Put(short)
		r.a.send(other, inline(78, 0, short))
		r.a.send(other, inline(79, verbs.SendSignaled, []byte{0}))
		state := map[uint64]verbs.WCFlags{}
		for len(state) < 3 || state[i] != flagsBoth {
			w := r.b.next()
			if w.Status != verbs.WCSuccess || state[w.WRID]&w.Flags != 0 || w.Flags == flagData && state[w.WRID] != flagMatch {
				t.Fatalf("%+v after %v", w, state)
			}
			if state[w.WRID] |= w.Flags; w.Flags&flagMatch != 0 && w.Priv != uint32(i) {
				t.Fatalf("%+v in round %d", w, i)
			}
		}
		if state[100+i]&flagMatch == 0 || !bytes.Equal(r.bbuf[:size], m[verbs.TMHSize:]) {
			t.Fatalf("round %d: %v, or wrong data", i, state)
		}
		for state[100+i] != flagsBoth {
			w := r.b.want(100+i, verbs.WCSuccess)
			state[100+i] |= w.Flags
		}
		r.until("both sends' completions", func() bool { return len(r.a.got) == 2 })
		r.a.got = nil
	}
	r.b.none()
}

// testTagRNR is scenario 28: an unexpected message without an untagged buffer waits until one is
// posted. It is delivered once and counted once, and later messages stay behind it. If its receive
// is posted first, that gets it.
func testTagRNR(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	for k, n := range []int{3, 60_000} {
		m := bytes.Clone(r.eager(6, 1, n))
		r.b.none()
		m2 := make([]byte, verbs.TMHSize+3)
		verbs.TMH{Opcode: verbs.TMHEager, Tag: 6, AppCtx: 2}.Put(m2)
		r.raw(r.qa, false, m2)
		r.b.none()
		r.untagged(2)
		r.handled(2*k, m)
		r.handled(2*k+1, m2)
		r.sent()
		r.sent()
		r.b.none()
		r.add(2, 6, exact, r.bbuf) // a count that is one too high would keep it dormant
		r.hit(2, 6)
	}
	m := r.eager(7, 0, 5)
	r.b.none()
	r.add(3, 7, exact, r.bbuf)
	r.matched(3, 7, 0, m[verbs.TMHSize:], r.bbuf)
	r.sent()
}

// testTagExpectedNeedsNone is scenario 30: expected messages of every kind are delivered while no
// untagged buffer is posted.
func testTagExpectedNeedsNone(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	fin := r.finBuffer()
	for _, n := range []int{0, 8, 20_000} {
		r.add(1, 5, exact, r.bbuf)
		m := r.eager(5, 6, n)
		r.matched(1, 5, 6, m[verbs.TMHSize:], r.bbuf)
		r.sent()
	}
	r.add(1, 5, exact, r.bbuf)
	r.rndv(5, 6, 20_000)
	r.matched(1, 5, 6, r.abuf[rndvOffset:][:20_000], r.bbuf)
	r.wantFIN(8, 5, 6, fin)
	r.add(1, 5, exact, r.bbuf[:40])
	r.rndv(5, 6, 20_000)
	r.incomplete(1, 5, 6)
	r.b.none()
}

// testTagTooLong is scenario 32: an eager message longer than its buffer ends the receive with
// LOC_LEN_ERR and both queue pairs; others on the SRQ are unaffected.
func testTagTooLong(t *testing.T, open Opener, opts TagOptions) {
	for _, n := range []int{1, 50_000} {
		r := newSmallRig(t, open, opts, 15, 64)
		r.untagged(8)
		q2, _ := r.connect(r.a, r.b, qpConf{}, r.conf())
		r.add(1, 5, exact, r.bbuf[:n-1])
		r.add(2, 6, exact, r.bbuf)
		r.eager(5, 0, n)
		r.b.want(1, verbs.WCLocLenErr)
		r.a.want(77, verbs.WCRemInvReqErr)
		r.until("ERR", func() bool { return r.qb.State() == verbs.QPSErr })
		r.qa = q2 // others are unaffected
		m := r.eager(6, 0, 8)
		r.matched(2, 6, 0, m[16:], r.bbuf)
		r.sent()
		r.b.none()
	}
}

// testTagZeroLength is scenario 35: an empty message, an empty buffer, and both: a length of 0 and
// both flags. A message that is not empty is too long for an empty buffer, as in scenario 32.
func testTagZeroLength(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.bbuf[0] = 0x5a
	for _, room := range []int{0, 1, 5000} {
		r.add(1, 5, exact, r.bbuf[:room])
		r.eager(5, 6, 0)
		r.whole(1, 5, 6, 0)
		r.sent()
	}
	r.add(1, 5, exact, r.bbuf[:0])
	r.eager(5, 6, 1)
	r.b.want(1, verbs.WCLocLenErr)
	r.a.want(77, verbs.WCRemInvReqErr)
	r.until("ERR", func() bool { return r.qb.State() == verbs.QPSErr })
	if r.bbuf[0] != 0x5a {
		t.Error("a buffer of length 0 was written")
	}
	r.b.none()
}

// testTagMatchesAll is scenario 37: mask 0 and tag 0 match any tagged message, in list order, and
// neither NO_TAG nor FIN.
func testTagMatchesAll(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	fin := r.finBuffer()
	for i, tag := range []uint64{0, exact, 1 << 63, 0x123456789} {
		r.add(uint64(i), 0, 0, r.bbuf)
		r.add(10, tag, exact, r.bbuf) // behind it
		m := r.message([]verbs.TMHOpcode{verbs.TMHNoTag, verbs.TMHFin}[i%2], tag, 1, 8)
		r.raw(r.qa, false, m)
		if w := r.b.want(untaggedID+uint64(i), verbs.WCSuccess); w.Opcode != verbs.WCTMNoTag {
			t.Fatalf("%+v", w)
		}
		r.sent()
		r.hit(uint64(i), tag)
		r.hit(10, tag)
	}
	r.add(7, 0, 0, r.bbuf)
	r.rndv(exact, 6, 100)
	r.halves(7, exact, 6, 100)
	r.wantFIN(8, exact, 6, fin)
	r.b.none()
}

// testTagOutsideMask is scenario 38: an entry whose tag has bits outside its mask never matches,
// not even its own tag; a strict device refuses it. It can be deleted as any other.
func testTagOutsideMask(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 2, 64)
	for _, c := range []struct{ tag, mask uint64 }{{0xf1, 0xf0}, {1, 0}, {1 << 63, exact >> 1}} {
		wr := r.counted(verbs.WRTagAdd, 1)
		wr.Add.Tag, wr.Add.Mask = c.tag, c.mask
		if opts.Strict {
			r.refused(wr, wr, syscall.EINVAL)
		} else {
			r.post(wr)
			r.b.want(wr.WRID, verbs.WCSuccess)
			r.passed(c.tag)
			r.passed(c.tag & c.mask)
			r.passed(0)
		}
		r.add(2, 0, 0, r.bbuf) // it affects no other entry
		r.hit(2, c.tag)
		if !opts.Strict {
			r.del(wr.Handle, verbs.WCSuccess)
			r.del(wr.Handle, verbs.WCTMErr)
		}
	}
}

// testTagListOrder is scenario 39: of wildcard and exact entries, the first in list order matches
// the message.
func testTagListOrder(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.add(1, 0, 0, r.bbuf)
	r.add(2, 9, exact, r.bbuf)
	r.add(3, 0xf00, 0xf00, r.bbuf)
	r.add(4, 0xf09, exact, r.bbuf)
	r.add(5, 0xf09, 0xfff, r.bbuf)
	r.add(6, 0, 0, r.bbuf)
	r.add(7, 0xf09, exact, r.bbuf)
	r.hit(1, 9)
	r.hit(2, 9)
	for _, id := range []uint64{3, 4, 5, 6} {
		r.hit(id, 0xf09)
	}
	r.add(8, 0, 0, r.bbuf)
	r.hit(8, exact)
	r.add(9, 0, 0, r.bbuf)
	r.hit(7, 0xf09)
	r.hit(9, 0xf09)
}

// testTagNoTagBetween is scenario 53: NO_TAG messages between tagged ones, expected and not, change
// neither their order nor the count.
func testTagNoTagBetween(t *testing.T, open Opener, opts TagOptions) {
	const rounds = 8
	r := newSmallRig(t, open, opts, 63, 200)
	r.untagged(5 * rounds)
	for i := range uint64(rounds) {
		r.add(i, 5, exact, r.bbuf)
	}
	var want []uint64
	k := uint64(untaggedID)
	r.unpolled(func() {
		for i := range uint64(rounds) {
			for _, n := range []int{1, 16, 3000} {
				m := r.message(verbs.TMHNoTag, 5, 0, n)[:n]
				r.a.send(r.qa, verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(r.amr, m)})
				want, k = append(want, k), k+1
				r.sent()
			}
			r.eager(5, uint32(i), 8)
			want = append(want, i)
			r.sent()
			if !opts.Dormant { // such a device would make the entries dormant
				r.eager(6, 0, 8)
				want, k = append(want, k), k+1
				r.sent()
			}
		}
	})
	for _, id := range want {
		r.b.want(id, verbs.WCSuccess)
	}
	if !opts.Dormant {
		r.count += rounds
	}
	r.add(100, 7, exact, r.bbuf)
	r.hit(100, 7)
	r.b.none()
}

// testTagSources is scenario 42: each source's messages consume the entries in list order, and a
// multi-packet message of one does not affect those of others.
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
