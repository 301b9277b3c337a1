package verbstest

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has scenarios of TMO 7.2 about messages and the entries that they match: 2, 28, 29, 32,
// 35 to 39, 42 and 53.

// short sends a tagged message of one packet from any source, and returns it with its header.
func (r *tagRig) short(from *node, qp verbs.QP, tag uint64, ctx uint32, n int) []byte {
	r.t.Helper()
	m := make([]byte, verbs.TMHSize+n)
	copy(m[verbs.TMHSize:], pattern(n, int(ctx)))
	verbs.TMH{Opcode: verbs.TMHEager, Tag: tag, AppCtx: ctx}.Put(m)
	from.send(qp, inline(76, 0, m))
	return m
}

// hitByOther sends a short message from the other sender that receive id must match.
func (r *tagRig) hitByOther(id, tag uint64) {
	r.t.Helper()
	m := r.short(r.c, r.qc, tag, 3, 8)
	r.matched(id, tag, 3, m[verbs.TMHSize:], r.bbuf)
}

// testTagRNR is scenario 28: an unexpected message without an untagged buffer waits until one is
// posted. It is delivered once and counted once, and later messages stay behind it, expected or
// not. If its receive is posted first, that gets it. Other sources are not affected.
func testTagRNR(t *testing.T, open Opener, opts TagOptions) {
	r := newTrio(t, open, opts, 15, 64)
	for _, n := range []int{3, 10_000} {
		r.add(1, 5, exact, r.bbuf)
		r.add(2, 8, exact, r.bbuf)
		first := r.eager(6, 1, n)
		second, third := r.short(r.a, r.qa, 5, 2, 8), r.short(r.a, r.qa, 6, 3, 8)
		r.hitByOther(2, 8)
		r.b.none() // for many times the RNR timer
		r.untagged(1)
		r.handled(first)
		if opts.Dormant {
			r.untagged(1)
			r.handled(second)
		} else {
			r.matched(1, 5, 2, second[verbs.TMHSize:], r.bbuf)
		}
		r.b.none()
		r.untagged(1)
		r.handled(third)
		r.sent()
		r.b.none()
		r.add(3, 9, exact, r.bbuf) // a count that is one too high would keep it dormant
		r.hit(3, 9)
		if opts.Dormant {
			r.hit(1, 5)
		}
	}
	m := r.eager(7, 0, 5)
	r.b.none()
	r.add(3, 7, exact, r.bbuf)
	r.matched(3, 7, 0, m[verbs.TMHSize:], r.bbuf)
	r.sent()
}

// testTagRNRGivesUp is scenario 29: a sender with finite retries gives up; its message was not
// counted, and others are unaffected.
func testTagRNRGivesUp(r *tagRig) {
	for retries := range uint8(3) {
		impatient, _ := r.connect(r.a, r.b, qpConf{rnr: retries, rnrSet: true}, r.conf())
		r.add(1, 5, exact, r.bbuf)
		r.raw(impatient, r.message(verbs.TMHEager, 9, 0, 8))
		r.raw(impatient, r.message(verbs.TMHEager, 5, 0, 8))
		r.a.want(77, verbs.WCRNRRetryExcErr)
		r.a.want(77, verbs.WCWRFlushErr)
		if state(impatient) != verbs.QPSErr {
			r.t.Errorf("the sender is in %v", state(impatient))
		}
		r.b.none()
		r.hit(1, 5)
		r.add(2, 7, exact, r.bbuf)
		r.hit(2, 7)
	}
	r.miss(9)
	r.b.none()
}

// testTagTooLong is scenario 32: an eager message longer than its buffer, if only by its last byte,
// ends the receive with LOC_LEN_ERR and both queue pairs; others on the SRQ are unaffected.
func testTagTooLong(r *tagRig) {
	r.add(2, 6, exact, r.bbuf)
	for _, n := range []int{1, 240, 5000, 50_000} {
		qa, qb := r.connect(r.a, r.b, qpConf{}, r.conf())
		clear(r.bbuf[:n])
		h := r.add(1, 5, exact, r.bbuf[:n-1])
		r.raw(qa, r.message(verbs.TMHEager, 5, 0, n))
		r.raw(qa, []byte{0})
		if w := r.b.want(1, verbs.WCLocLenErr); w.QPNum != qb.Num() {
			r.t.Errorf("%+v, want queue pair %d", w, qb.Num())
		}
		r.a.want(77, verbs.WCRemInvReqErr)
		r.a.want(77, verbs.WCWRFlushErr)
		r.inErr(qa, qb)
		if r.bbuf[n-1] != 0 {
			r.t.Errorf("%d bytes: it was written behind the buffer", n)
		}
		r.del(h, verbs.WCTMErr)
	}
	r.hit(2, 6)
	r.b.none()
}

// testTagZeroLength is scenarios 35 and 36: an empty message or rendezvous, a buffer of length 0,
// which may have no scatter/gather entry, and both: a length of 0 and both flags. An empty
// rendezvous ends like any other without a read: its key is ignored, and its sender need not
// answer. A message that is not empty is too long for an empty buffer, as in scenario 32.
func testTagZeroLength(r *tagRig) {
	clear(r.bbuf[:64])
	for name, list := range map[string][]verbs.SGE{"none": nil, "empty": {}, "length 0": sge(r.bmr, r.bbuf[:0]),
		"length 1": sge(r.bmr, r.bbuf[:1]), "length 5000": sge(r.bmr, r.bbuf[:5000])} {
		for range 2 {
			wr := r.counted(verbs.WRTagAdd, 5)
			wr.Add.SGList = list
			r.post(wr)
			if w := r.b.next(); w.WRID != wr.WRID || w.Status != verbs.WCSuccess {
				r.t.Fatalf("%s: %+v", name, w)
			}
		}
		r.eager(5, 6, 0)
		r.whole(5, 5, 6, 0)
		r.sent()
		fin := r.finBuffer()
		r.rndvOn(r.qa, 5, 7, verbs.RVH{VA: 1, RKey: r.amr.RKey() ^ 1<<20})
		r.a.dead = r.opts.played // its device is not polled
		r.halves(5, 5, 7, 0)
		r.a.dead = false
		r.wantFIN(8, 5, 7, fin)
	}
	r.add(1, 5, exact, r.bbuf[:0])
	r.eager(5, 6, 1)
	r.b.want(1, verbs.WCLocLenErr)
	r.a.want(77, verbs.WCRemInvReqErr)
	r.inErr(r.qb)
	if !bytes.Equal(r.bbuf[:64], make([]byte, 64)) {
		r.t.Error("a buffer was written, though nothing was sent")
	}
	r.b.none()
}

// testTagMatchesAll is scenario 37: mask 0 and tag 0 match any tagged message, in list order, and
// neither NO_TAG nor FIN.
func testTagMatchesAll(r *tagRig) {
	r.untagged(4)
	fin := r.finBuffer()
	for i, tag := range []uint64{0, exact, 1 << 63, 0x123456789} {
		r.add(uint64(i), 0, 0, r.bbuf)
		r.add(10, tag, exact, r.bbuf) // behind it
		m := r.message([]verbs.TMHOpcode{verbs.TMHNoTag, verbs.TMHFin}[i%2], tag, 1, 8)
		r.raw(r.qa, m)
		r.noTag(m)
		r.sent()
		r.hit(uint64(i), tag)
		r.hit(10, tag)
	}
	r.add(7, 0, 0, r.bbuf)
	r.rndv(exact, 6, 100)
	r.halves(7, exact, 6, 100)
	r.wantFIN(8, exact, 6, fin)
	r.miss(0)
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
func testTagListOrder(r *tagRig) {
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
	inUntagged := func() {
		want = append(want, untaggedID+uint64(r.used))
		r.used++
	}
	r.unpolled(func() {
		for i := range uint64(rounds) {
			for _, n := range []int{1, 16, 3000} {
				r.raw(r.qa, r.message(verbs.TMHNoTag, 5, 0, n)[:n])
				inUntagged()
				r.sent()
			}
			r.eager(5, uint32(i), 8)
			want = append(want, i)
			r.sent()
			if !opts.Dormant { // such a device would make the entries dormant
				r.eager(6, 0, 8)
				inUntagged()
				r.count++
				r.sent()
			}
		}
	})
	for _, id := range want {
		r.b.want(id, verbs.WCSuccess)
	}
	r.add(100, 7, exact, r.bbuf)
	r.hit(100, 7)
	r.b.none()
}

// testTagSources is scenarios 2 and 42: messages of three sources, two of them on one device, most
// of many packets, consume the entries in the order of arrival, those of one source in the order of
// sending. The MATCH of each is before its DATA_VALID, and others may be between.
func testTagSources(t *testing.T, open Opener, opts TagOptions) {
	const each, room = 20, 8000
	r := newTrio(t, open, opts, 63, 200)
	second, _ := r.connect(r.a, r.b, qpConf{}, r.conf())
	mr, buf := r.c.mem(each * room)
	sources := []struct {
		from *node
		qp   verbs.QP
		mr   verbs.MR
		buf  []byte
		sent [][]byte
	}{{r.a, r.qa, r.amr, r.abuf, nil}, {r.a, second, r.amr, r.abuf[each*room:], nil}, {r.c, r.qc, mr, buf, nil}}
	for id := range each * len(sources) {
		r.add(uint64(id), 0, 0, r.bbuf[id*room:][:room])
	}
	for k := range each {
		for i := range sources {
			s := &sources[i]
			m := s.buf[k*room:][:verbs.TMHSize+(k*3779+i*2500)%(room-verbs.TMHSize)]
			copy(m, pattern(len(m), i*100+k))
			verbs.TMH{Opcode: verbs.TMHEager, Tag: uint64(i)<<32 | uint64(k)}.Put(m)
			s.from.send(s.qp, verbs.SendWR{Opcode: verbs.WRSend, SGList: sge(s.mr, m)})
			s.sent = append(s.sent, m)
		}
	}
	got := map[uint64][]byte{}
	turns, last := 0, -1
	for ended := 0; ended < each*len(sources); {
		w := r.b.next()
		if w.Flags&flagMatch != 0 {
			i := int(w.Tag >> 32)
			s := &sources[i]
			if k := each - len(s.sent); w.WRID != uint64(len(got)) || w.Tag&0xffff != uint64(k) {
				t.Fatalf("%+v, want receive %d, message %d of source %d", w, len(got), k, i)
			}
			got[w.WRID], s.sent = s.sent[0], s.sent[1:]
			if i != last {
				turns, last = turns+1, i
			}
		}
		if w.Flags&flagData != 0 {
			if m := got[w.WRID]; w.Status != verbs.WCSuccess || m == nil || !bytes.Equal(m[verbs.TMHSize:], r.bbuf[w.WRID*room:][:w.ByteLen]) {
				t.Fatalf("%+v: no MATCH was before it, or receive %d has wrong data", w, w.WRID)
			}
			ended++
		}
	}
	if opts.played && turns < each/2 {
		t.Errorf("the sources took %d turns, they did not interleave", turns)
	}
}
