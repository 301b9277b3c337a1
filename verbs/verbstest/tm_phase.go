package verbstest

import (
	"bytes"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 5: the counters, what changes them, and how they affect the
// entries.

// miss sends a short message that must be unexpected, in untagged buffer k, and counts it as
// handled for the next operation with a count.
func (r *tagRig) miss(k int, tag uint64) {
	r.t.Helper()
	m := r.eager(tag, 0, 8)
	r.unexpected(k, m)
	r.sent()
	r.count++
}

// hit sends a short message that receive id must match.
func (r *tagRig) hit(id, tag uint64) {
	r.t.Helper()
	m := r.eager(tag, uint32(id), 8)
	r.matched(id, tag, uint32(id), m[verbs.TMHSize:], r.bbuf)
	r.sent()
}

// testTagCounts: unexpected EAGER and RNDV messages are counted, once each however many packets
// they have; matched ones, NO_TAG and FIN are not. An entry becomes live only with the right count.
func testTagCounts(t *testing.T, open Opener, opts TagOptions) {
	const long = 60_000
	r := newTagRig(t, open, opts, 15, 64)
	fmr, fin := r.a.mem(64)
	next := 0
	r.untagged(1) // one more than needed, so that a wrong count shows at once
	untagged := func(m []byte, op verbs.WCOpcode) {
		t.Helper()
		r.untagged(1)
		r.a.send(r.qa, verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(r.amr, m)})
		if w := r.b.want(untaggedID+uint64(next), verbs.WCSuccess); op == verbs.WCTMNoTag && w.Opcode != op {
			t.Fatalf("%+v", w)
		}
		next++
		r.sent()
	}
	for name, c := range map[string]struct {
		counts uint32
		run    func()
	}{
		"eager":        {1, func() { untagged(r.message(verbs.TMHEager, 9, 0, 8), verbs.WCTMRecv) }},
		"eager, long":  {1, func() { untagged(r.message(verbs.TMHEager, 9, 0, long), verbs.WCTMRecv) }},
		"rendezvous":   {1, func() { untagged(r.message(verbs.TMHRndv, 9, 0, 16), verbs.WCTMRecv) }},
		"NO_TAG":       {0, func() { untagged(r.message(verbs.TMHNoTag, 9, 0, 8), verbs.WCTMNoTag) }},
		"NO_TAG, long": {0, func() { untagged(r.message(verbs.TMHNoTag, 9, 0, long), verbs.WCTMNoTag) }},
		"FIN":          {0, func() { untagged(r.message(verbs.TMHFin, 9, 0, 16), verbs.WCTMNoTag) }},
		"matched":      {0, func() { r.add(8, 8, exact, r.bbuf); r.hit(8, 8) }},
		"matched, long": {0, func() {
			r.add(8, 8, exact, r.bbuf)
			m := r.eager(8, 0, long)
			r.matched(8, 8, 0, m[16:], r.bbuf)
			r.sent()
		}},
		"matched rendezvous": {0, func() {
			r.a.recv(r.qa, 1, sge(fmr, fin))
			r.add(8, 8, exact, r.bbuf)
			r.rndv(8, 3, 5000)
			r.matched(8, 8, 3, r.abuf[rndvOffset:][:5000], r.bbuf)
			r.wantFIN(1, 8, 3, fin)
		}},
	} {
		c.run()
		r.count += c.counts
		r.add(1, 5, exact, r.bbuf)
		r.eager(5, 1, 8)
		if w := r.b.next(); w.WRID != 1 {
			t.Fatalf("%s: does not count for %d: %+v", name, c.counts, w)
		}
		r.sent()
	}
}

// testTagCountLow16: only the low 16 bits of a count matter, whichever operation reports it.
func testTagCountLow16(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	for k, op := range []verbs.OpsOpcode{verbs.WRTagSync, verbs.WRTagDel, verbs.WRTagAdd} {
		r.miss(k, 9)
		count := r.count
		r.count-- // the device's value
		id := uint64(k)
		other := r.add(50, 50, exact, r.bbuf)
		r.add(id, 5, exact, r.bbuf)
		r.count = count + 1<<16*uint32(3+k)
		r.do(verbs.OpsWR{Opcode: op, Handle: other, Add: r.tagAdd(60, 60, exact, r.bbuf)}, verbs.WCSuccess)
		r.hit(id, 5)
		r.count = count
	}
}

// testTagH: each unexpected message is counted once, on any queue pair, with any number of packets
// and retries: entries become live exactly when that number is reported.
func testTagH(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	first := r.qa
	other, _ := r.connect(r.a, r.b, qpConf{}, r.conf())
	k := 0
	for round := range 3 {
		right := r.count
		for i, send := range []func(){
			func() { r.eager(9, 0, 8); r.sent() },
			func() { r.qa = other; r.eager(9, 0, 3000); r.sent() },
			func() { r.rndv(9, 0, 100) },
			func() { r.qa = first; r.eager(9, 0, 0) }, // there is no buffer yet
		} {
			if i < 3 {
				r.untagged(1)
			}
			if send(); i == 3 {
				r.settle()
				r.untagged(1)
				r.sent()
			}
			r.b.want(untaggedID+uint64(k), verbs.WCSuccess)
			k++
			right++
		}
		r.untagged(4)
		r.count = right - 1 - uint32(round)
		r.add(5, 5, exact, r.bbuf)
		for _, wrong := range []uint32{right - 2, right + 2, right + 7, right - 1} {
			r.count = wrong
			r.sync()
			r.raw(first, false, r.message(verbs.TMHEager, 5, 0, 8))
			r.sent()
			if w := r.b.next(); w.WRID != untaggedID+uint64(k) {
				t.Fatalf("with %d messages unexpected, a count of %d makes an entry live: %+v", right-opts.InitialCount, wrong-opts.InitialCount, w)
			}
			k++
			right++ // so that no wrong count becomes the right one
		}
		r.count = right
		r.sync()
		r.hit(5, 5)
	}
}

// testTagS: the device keeps the last count reported with TM_SYNC, by any operation, even one that
// includes a future message.
func testTagS(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	for k, op := range []verbs.OpsOpcode{verbs.WRTagSync, verbs.WRTagDel, verbs.WRTagAdd} {
		for _, count := range []uint32{r.count + 9, r.count, r.count - 9, r.count + 1} {
			wr := r.counted(op, 50)
			if op == verbs.WRTagDel {
				wr.Handle = r.add(60, 60, exact, r.bbuf)
			}
			wr.UnexpectedCnt = count
			r.post(wr)
			r.b.want(wr.WRID, verbs.WCSuccess)
			if op == verbs.WRTagAdd {
				r.tell(verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: wr.Handle})
			}
		}
		r.tell(verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(5, 5, exact, r.bbuf)})
		r.miss(k, 5)
		r.tell(verbs.OpsWR{Opcode: verbs.WRTagSync})
		r.hit(5, 5)
	}
}

// tell posts a signalled operation without a count, which must succeed.
func (r *tagRig) tell(wr verbs.OpsWR) uint32 {
	r.t.Helper()
	wr.WRID, wr.Flags = 900, verbs.OpsSignaled
	r.post(&wr)
	r.b.want(900, verbs.WCSuccess)
	return wr.Handle
}

// testTagRule1: an ADD appends a dormant entry, sets S if it has a count, and then activates: its
// entry is live if S == H after that, whether the ADD had a count or not, and else dormant, even if
// they were equal before.
func testTagRule1(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	add := verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(1, 5, exact, r.bbuf)}
	r.tell(add)
	r.hit(1, 5)
	r.do(add, verbs.WCSuccess)
	r.hit(1, 5)
	r.count--
	r.do(add, verbs.WCSuccess) // the counts agreed before it
	r.count++
	r.miss(0, 5)
	r.tell(add) // they do not agree
	r.miss(1, 5)
	r.do(add, verbs.WCSuccess)
	for range 3 {
		r.hit(1, 5)
	}
}

// testTagRule2: a DEL removes its entry, sets S if it has a count, and then activates: also when it
// is too late.
func testTagRule2(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	r.miss(0, 9)
	r.count--
	first := r.add(1, 5, exact, r.bbuf)
	r.add(2, 5, exact, r.bbuf)
	r.count++
	r.del(first, verbs.WCSuccess)
	done := r.add(3, 6, exact, r.bbuf)
	r.hit(2, 5)
	r.hit(3, 6)
	r.miss(1, 5)
	r.count--
	r.add(4, 5, exact, r.bbuf)
	r.count++
	r.del(done, verbs.WCTMErr)
	r.hit(4, 5)
	next := r.add(5, 6, exact, r.bbuf)
	r.count++ // includes a future message
	r.del(next, verbs.WCSuccess)
	r.count--
	next = r.tell(verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(6, 6, exact, r.bbuf)})
	r.tell(verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(7, 5, exact, r.bbuf)})
	r.miss(2, 5)
	r.tell(verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: next})
	r.hit(7, 5)
}

// testTagRule3: a SYNC sets S if it has a count, and then activates in either case.
func testTagRule3(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	r.miss(0, 9)
	r.count--
	r.add(1, 5, exact, r.bbuf)
	r.sync()
	r.tell(verbs.OpsWR{Opcode: verbs.WRTagSync})
	r.count++
	r.miss(1, 5)
	r.sync()
	r.hit(1, 5)
	r.count++ // includes a future message
	r.sync()
	r.count--
	r.tell(verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(2, 5, exact, r.bbuf)})
	r.miss(2, 5)
	r.tell(verbs.OpsWR{Opcode: verbs.WRTagSync})
	r.hit(2, 5)
}

// testTagRule4: when S == H every entry becomes live, that of the operation with the count and all
// before it, for each kind of operation; they are matched in list order.
func testTagRule4(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	for k, op := range []verbs.OpsOpcode{verbs.WRTagAdd, verbs.WRTagDel, verbs.WRTagSync} {
		r.add(1, 5, exact, r.bbuf) // live, at least until the next message
		r.miss(2*k, 9)
		r.count--
		r.add(2, 6, exact, r.bbuf)
		r.count--
		r.add(3, 5, exact, r.bbuf)
		extra := r.add(4, 7, exact, r.bbuf)
		r.count += 2
		r.miss(2*k+1, 6)
		r.do(verbs.OpsWR{Opcode: op, Handle: extra, Add: r.tagAdd(8, 0, 0, r.bbuf)}, verbs.WCSuccess)
		r.hit(2, 6)
		r.hit(1, 5)
		r.hit(3, 5)
		if op != verbs.WRTagDel {
			r.hit(4, 7)
		}
		if op == verbs.WRTagAdd {
			r.hit(8, 10)
		}
	}
}

// testTagRule5: an eager message or a rendezvous request consumes the first live entry that
// matches, and no other. If there is none it is counted, and goes into an untagged buffer.
func testTagRule5(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	fin := r.finBuffer()
	r.add(1, 6, exact, r.bbuf)
	r.add(2, 5, exact, r.bbuf)
	r.add(3, 0, 0, r.bbuf)
	r.count++
	r.add(4, 5, exact, r.bbuf) // dormant
	r.count--
	r.hit(2, 5)
	r.rndv(5, 7, 100)
	r.halves(3, 5, 7, 100)
	r.wantFIN(8, 5, 7, fin)
	r.miss(0, 5)
	m := r.rndv(5, 8, 100)
	r.unexpected(1, m)
	r.count++
	r.miss(2, 5) // the three are counted: with this count the entry is live
	r.sync()
	r.hit(4, 5)
	r.hit(1, 6)
}

// testTagLiveStay: an unexpected message leaves live entries live or, with Dormant, makes every
// entry dormant until S == H. Entries appended after it are dormant in either case.
func testTagLiveStay(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	r.add(1, 5, exact, r.bbuf)
	r.add(2, 6, exact, r.bbuf)
	r.miss(0, 9)
	r.count--
	r.add(3, 6, exact, r.bbuf)
	r.count++
	if opts.Dormant {
		r.miss(1, 5)
		r.miss(2, 6)
		r.sync()
		r.hit(2, 6)
		r.hit(3, 6)
		r.hit(1, 5)
		return
	}
	r.hit(2, 6)
	r.miss(1, 6)
	r.hit(1, 5)
	r.sync()
	r.hit(3, 6)
}

// testTagRule6: NO_TAG messages and FINs go into untagged buffers: they match no entry, and are not
// counted.
func testTagRule6(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(10)
	r.add(1, 0, 0, r.bbuf)
	r.add(2, 5, exact, r.bbuf)
	k := 0
	for _, op := range []verbs.TMHOpcode{verbs.TMHNoTag, verbs.TMHFin} {
		for _, n := range []int{16, 32, 3000} {
			m := r.message(op, 5, 0, n)[:n]
			r.a.send(r.qa, verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(r.amr, m)})
			if w := r.b.want(untaggedID+uint64(k), verbs.WCSuccess); w.Opcode != verbs.WCTMNoTag || !bytes.Equal(received(w, r.ubuf[k*r.room:]), m) {
				t.Fatalf("%+v", w)
			}
			r.sent()
			k++
		}
		// The entry is live: the counts are equal.
		r.tell(verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(3, 6, exact, r.bbuf)})
	}
	r.hit(1, 5)
	r.hit(2, 5)
	r.hit(3, 6)
	r.hit(3, 6)
}

// testTagOlderCount: an operation with an older count makes nothing dormant; it only delays
// activation.
func testTagOlderCount(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	r.miss(0, 9)
	r.add(1, 5, exact, r.bbuf)
	r.count--
	r.sync()
	r.add(2, 6, exact, r.bbuf)
	r.count++
	r.hit(1, 5)
	r.miss(1, 6)
	r.sync()
	r.hit(2, 6)
}

// testTagForcedDel: an unsignalled DEL of a dormant entry cannot fail, whether its count includes
// the message for which software removes the entry or not. It has no completion, and no message
// matches the entry.
func testTagForcedDel(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 64)
	r.untagged(32)
	for i := range 8 {
		r.miss(2*i, 5)
		r.count--
		h := r.add(1, 5, exact, r.bbuf)
		r.count++
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h, Flags: verbs.OpsTMSync, UnexpectedCnt: r.count - uint32(i%2)})
		r.add(2, 6, exact, r.bbuf)
		r.miss(2*i+1, 5)
		r.sync()
		r.hit(2, 6)
	}
	r.b.none()
	r.noEvents()
}

// testTagModulo: the counts are compared modulo 2^16: they are equal if 65536 unexpected messages
// are not handled, and differ for 65535.
func testTagModulo(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.flood(1, func(verbs.WCFlags) {})
	r.add(1, 5, exact, r.bbuf) // dormant: nothing is handled
	r.flood(1<<16-2, func(verbs.WCFlags) {})
	r.tell(verbs.OpsWR{Opcode: verbs.WRTagSync})
	r.untagged(1)
	m := r.eager(5, 0, 8)
	r.unexpected(r.posted-1, m)
	r.sent()
	r.tell(verbs.OpsWR{Opcode: verbs.WRTagSync})
	r.hit(1, 5)
}
