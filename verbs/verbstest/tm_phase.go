package verbstest

import (
	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 5: the counters, what changes them, and how they affect the
// entries.

// testTagCounts: unexpected EAGER and RNDV messages are counted, once each however many packets
// they have; matched ones, NO_TAG and FIN are not. An entry becomes live only with the right count.
func testTagCounts(r *tagRig) {
	const long = 3000 // several packets
	send := func(op verbs.TMHOpcode, n int) []byte {
		r.t.Helper()
		r.stocked() // with more than needed, so that a wrong count shows at once
		m := r.message(op, 9, 0, n)
		r.raw(r.qa, m)
		r.sent()
		return m
	}
	for name, c := range map[string]struct {
		counts uint32
		run    func()
	}{
		"eager":         {1, func() { r.unexpected(send(verbs.TMHEager, 8)) }},
		"eager, long":   {1, func() { r.unexpected(send(verbs.TMHEager, long)) }},
		"rendezvous":    {1, func() { r.unexpected(send(verbs.TMHRndv, 16)) }},
		"NO_TAG":        {0, func() { r.noTag(send(verbs.TMHNoTag, 8)) }},
		"NO_TAG, long":  {0, func() { r.noTag(send(verbs.TMHNoTag, long)) }},
		"FIN":           {0, func() { r.noTag(send(verbs.TMHFin, 16)) }},
		"matched":       {0, func() { r.add(8, 8, exact, r.bbuf); r.hit(8, 8) }},
		"matched, long": {0, func() { r.add(8, 8, exact, r.bbuf); r.hits(8, 8, 0, long) }},
		"matched rendezvous": {0, func() {
			fin := r.finBuffer()
			r.add(8, 8, exact, r.bbuf)
			r.rndv(8, 3, 5000)
			r.matched(8, 8, 3, r.abuf[rndvOffset:][:5000], r.bbuf)
			r.wantFIN(8, 8, 3, fin)
		}},
	} {
		c.run()
		r.count += c.counts
		r.add(1, 5, exact, r.bbuf)
		r.eager(5, 1, 8)
		if w := r.b.next(); w.WRID != 1 {
			r.t.Fatalf("%s: does not count for %d: %+v", name, c.counts, w)
		}
		r.sent()
	}
}

// testTagH: each unexpected message is counted once, on any queue pair, with any number of packets
// and retries: entries become live exactly when that number is reported.
func testTagH(r *tagRig) {
	first := r.qa
	other, _ := r.connect(r.a, r.b, qpConf{}, r.conf())
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
			r.inUntagged()
			right++
		}
		r.untagged(4)
		r.count = right - 1 - uint32(round)
		r.add(5, 5, exact, r.bbuf)
		for _, wrong := range []uint32{right - 2, right + 2, right + 7, right - 1} {
			r.count = wrong
			r.sync()
			r.raw(first, r.message(verbs.TMHEager, 5, 0, 8))
			r.sent()
			r.inUntagged()
			right++ // so that no wrong count becomes the right one
		}
		r.count = right
		r.sync()
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
func testTagRule1(r *tagRig) {
	add := verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(1, 5, exact, r.bbuf)}
	r.tell(add)
	r.hit(1, 5)
	r.do(add, verbs.WCSuccess)
	r.hit(1, 5)
	r.count--
	r.do(add, verbs.WCSuccess) // the counts agreed before it
	r.count++
	r.miss(5)
	r.tell(add) // they do not agree
	r.miss(5)
	r.do(add, verbs.WCSuccess)
	for range 3 {
		r.hit(1, 5)
	}
}

// testTagRule2: a DEL removes its entry, sets S if it has a count, and then activates: also when it
// is too late.
func testTagRule2(r *tagRig) {
	r.miss(9)
	r.count--
	first := r.add(1, 5, exact, r.bbuf)
	r.add(2, 5, exact, r.bbuf)
	r.count++
	r.del(first, verbs.WCSuccess)
	done := r.add(3, 6, exact, r.bbuf)
	r.hit(2, 5)
	r.hit(3, 6)
	r.miss(5)
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
	r.miss(5)
	r.tell(verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: next})
	r.hit(7, 5)
}

// testTagRule3: a SYNC sets S if it has a count, and then activates in either case.
func testTagRule3(r *tagRig) {
	r.miss(9)
	r.count--
	r.add(1, 5, exact, r.bbuf)
	r.sync()
	r.tell(verbs.OpsWR{Opcode: verbs.WRTagSync})
	r.count++
	r.miss(5)
	r.sync()
	r.hit(1, 5)
	r.count++ // includes a future message
	r.sync()
	r.count--
	r.tell(verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(2, 5, exact, r.bbuf)})
	r.miss(5)
	r.tell(verbs.OpsWR{Opcode: verbs.WRTagSync})
	r.hit(2, 5)
}

// testTagRule4: when S == H every entry becomes live, that of the operation with the count and all
// before it, for each kind of operation; they are matched in list order.
func testTagRule4(r *tagRig) {
	for _, op := range []verbs.OpsOpcode{verbs.WRTagAdd, verbs.WRTagDel, verbs.WRTagSync} {
		r.add(1, 5, exact, r.bbuf) // live, at least until the next message
		r.miss(9)
		r.count--
		r.add(2, 6, exact, r.bbuf)
		r.count--
		r.add(3, 5, exact, r.bbuf)
		extra := r.add(4, 7, exact, r.bbuf)
		r.count += 2
		r.miss(6)
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
func testTagRule5(r *tagRig) {
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
	r.miss(5)
	r.handled(r.rndv(5, 8, 100))
	r.miss(5) // the three are counted: with this count the entry is live
	r.sync()
	r.hit(4, 5)
	r.hit(1, 6)
}

// testTagLiveStay: an unexpected message leaves live entries live or, with Dormant, makes every
// entry dormant until S == H. Entries appended after it are dormant in either case.
func testTagLiveStay(r *tagRig) {
	r.add(1, 5, exact, r.bbuf)
	r.add(2, 6, exact, r.bbuf)
	r.miss(9)
	r.count--
	r.add(3, 6, exact, r.bbuf)
	r.count++
	if r.opts.Dormant {
		r.miss(5)
		r.miss(6)
		r.sync()
		r.hit(2, 6)
		r.hit(3, 6)
		r.hit(1, 5)
		return
	}
	r.hit(2, 6)
	r.miss(6)
	r.hit(1, 5)
	r.sync()
	r.hit(3, 6)
}

// testTagOlderCount: an operation with an older count makes nothing dormant; it only delays
// activation.
func testTagOlderCount(r *tagRig) {
	r.miss(9)
	r.add(1, 5, exact, r.bbuf)
	r.count--
	r.sync()
	r.add(2, 6, exact, r.bbuf)
	r.count++
	r.hit(1, 5)
	r.miss(6)
	r.sync()
	r.hit(2, 6)
}
