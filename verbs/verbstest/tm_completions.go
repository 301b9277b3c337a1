package verbstest

import (
	"bytes"
	"reflect"
	"slices"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 4.2 and 4.4: which completions an event has, and which of their
// fields are valid.

const (
	flagMatch = verbs.WCFlagTMMatch
	flagData  = verbs.WCFlagTMDataValid
	flagsBoth = flagMatch | flagData
)

// mtu is the size in bytes above which an eager message has several packets.
func (r *tagRig) mtu() int {
	if r.opts.MTU != 0 {
		return r.opts.MTU
	}
	return verbs.MTU1024.Bytes()
}

// completes polls the receiver's next completion, whose valid fields must be those of want (TMO
// 4.4).
func (r *tagRig) completes(want verbs.WC) {
	r.t.Helper()
	got := r.b.next()
	got.Data, got.VendorErr = nil, 0
	switch want.Opcode {
	case verbs.WCTMAdd, verbs.WCTMDel, verbs.WCTMSync:
		got.ByteLen, got.QPNum = 0, 0
		if want.Status != verbs.WCSuccess {
			got.Opcode = want.Opcode
		}
	default:
		if want.Flags&flagsBoth == flagMatch {
			got.ByteLen, got.QPNum = 0, 0
		}
		if want.Flags&flagMatch != 0 && r.opts.Unnamed {
			want.QPNum = 0
		}
	}
	if !reflect.DeepEqual(got, want) {
		r.t.Fatalf("completion %+v, want %+v", got, want)
	}
}

// incomplete polls the completion, or the two, of a rendezvous that is longer than the buffer of
// receive id.
func (r *tagRig) incomplete(id, tag uint64, ctx uint32) {
	r.t.Helper()
	flags := flagsBoth
	if r.opts.TwoIncomplete {
		flags = flagMatch
	}
	if w := r.b.want(id, verbs.WCTMRndvIncomplete); w.Flags != flags || w.Tag != tag || w.Priv != ctx {
		r.t.Fatalf("%+v, want flags %#x, tag %#x and context %#x", w, flags, tag, ctx)
	}
	if !r.opts.TwoIncomplete {
		return
	}
	if w := r.b.want(id, verbs.WCSuccess); w.Opcode != verbs.WCTMRecv || w.Flags != flagData || w.Tag != 0 || w.Priv != 0 {
		r.t.Fatalf("%+v is no DATA_VALID", w)
	}
}

// testTagEager: a tagged buffer gets the payload of an expected eager message and nothing else. One
// of one packet has one completion, with both flags, one of several MATCH and DATA_VALID, of one
// recv_wr_id. Tag and context are those of the message. It is an ordinary SEND, from any list or
// inline.
func testTagEager(r *tagRig) {
	most := r.mtu() - verbs.TMHSize // in one packet
	for i, n := range []int{0, 1, 8, 48, 49, 1000, most, most + 1, 3 * r.mtu(), 4080, 4081, 8176, 8177, 50_000} {
		id, tag, ctx := uint64(i), uint64(i)<<40|1<<63, 0xfffffff0+uint32(i)
		clear(r.bbuf)
		r.add(id, tag, exact, r.bbuf[:n+i%2*100])
		m := r.eager(tag, ctx, n)
		if n <= most {
			r.whole(id, tag, ctx, n)
		} else {
			r.halves(id, tag, ctx, n)
		}
		r.sent()
		if !bytes.Equal(r.bbuf[:n], m[verbs.TMHSize:]) || !bytes.Equal(r.bbuf[n:n+100], make([]byte, 100)) {
			r.t.Fatalf("%d bytes: the buffer does not have the payload, or has more", n)
		}
		if len(m) <= maxInline { // inline, too
			r.add(id, tag, exact, r.bbuf)
			r.raw(r.qa, m)
			r.matched(id, tag, ctx, m[verbs.TMHSize:], r.bbuf)
			r.sent()
		}
	}
	r.b.none()
}

// testTagIncomplete: an expected rendezvous that is too long is matched, with RNDV_INCOMPLETE and
// its TMH and RVH in the tagged buffer, as far as they fit. There is one completion with both
// flags, or one with MATCH and that status, and a successful one with DATA_VALID. The device sends
// a FIN neither for it nor for an unexpected one.
func testTagIncomplete(r *tagRig) {
	r.finBuffer()
	r.stocked()
	r.handled(r.rndv(5, 1, 1000))
	for _, room := range []int{0, 1, 5, 15, 16, 31, 32, 33, 40, 999, 5000} {
		clear(r.bbuf[:room+100])
		h := r.add(1, 5, exact, r.bbuf[:room])
		m := r.rndv(5, 6, room+1)
		r.incomplete(1, 5, 6)
		n := min(room, 32)
		if !bytes.Equal(r.bbuf[:n], m[:n]) || !bytes.Equal(r.bbuf[n:room+100], make([]byte, room+100-n)) {
			r.t.Fatalf("a buffer of %d bytes has %x, want TMH and RVH of %x", room, r.bbuf[:40], m)
		}
		r.del(h, verbs.WCTMErr)
	}
	r.add(1, 5, exact, r.bbuf)
	r.hit(1, 5) // the QP still works
	r.a.none()
	r.b.none()
}

// testTagUnexpected: an untagged buffer gets an unexpected message with its headers. It has one
// completion, RECV or TM_RECV, without flags, tag and priv, however many packets it has.
func testTagUnexpected(r *tagRig) {
	r.add(1, 5, exact, r.bbuf)
	r.hit(1, 5) // gives the device a tag and priv to repeat
	r.add(1, 5, exact, r.bbuf)
	for _, n := range []int{0, 100, 3000, -1} {
		r.untagged(1)
		var m []byte
		if n < 0 {
			m = r.rndv(9, 6, 100)
		} else {
			m = r.eager(9, 6, n)
			r.sent()
		}
		if w := r.unexpected(m); w.QPNum != r.qb.Num() {
			r.t.Fatalf("%+v, want queue pair %d", w, r.qb.Num())
		}
	}
	r.b.none()
}

// testTagNoTag: a NO_TAG message, whose header is its first byte, and a FIN, which has its TMH at
// least, match no entry and are not counted: they have one completion, TM_NO_TAG, without flags and
// tag, and all of their bytes are in an untagged buffer.
func testTagNoTag(r *tagRig) {
	r.add(1, 0, 0, r.bbuf)
	r.add(2, 5, exact, r.bbuf)
	for op, sizes := range map[verbs.TMHOpcode][]int{
		verbs.TMHNoTag: {1, 2, 15, 16, 32, 3000}, verbs.TMHFin: {16, 17, 31, 32, 33, 64, 200, 3000},
	} {
		for _, n := range sizes {
			r.untagged(1)
			m := r.message(op, 5, 6, 3000)[:n]
			r.raw(r.qa, m)
			if w := r.noTag(m); w.Flags != 0 || w.QPNum != r.qb.Num() {
				r.t.Fatalf("%d bytes: %+v", n, w)
			}
			r.sent()
		}
		// The entry is live: the counts are equal.
		r.tell(verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(3, 6, exact, r.bbuf)})
	}
	r.hit(1, 5)
	r.hit(2, 5)
	r.hit(3, 6)
	r.hit(3, 6)
}

// testTagListOps: a signalled operation has one completion: TM_ADD, TM_DEL or TM_SYNC with its
// wr_id, 64 bits of any value, and no tag, even just after a match. A receive has its recv_wr_id.
func testTagListOps(r *tagRig) {
	ids := []uint64{0, 1, 1 << 63, ^uint64(0), 0x0123456789abcdef}
	for i := range ids {
		id := func(k int) uint64 { return ids[(i+k)%len(ids)] }
		r.add(60, 60, exact, r.bbuf)
		add, del, sync := r.counted(verbs.WRTagAdd, 5), r.counted(verbs.WRTagDel, 0), r.counted(verbs.WRTagSync, 0)
		add.WRID, add.Add.RecvWRID, del.WRID, sync.WRID = id(0), id(1), id(2), id(3)
		r.post(add)
		r.completes(verbs.WC{WRID: id(0), Opcode: verbs.WCTMAdd})
		del.Handle = add.Handle
		status := verbs.WCSuccess
		if i%2 == 0 {
			r.hits(id(1), 5, 3, 2000)
			status = verbs.WCTMErr
		} else {
			r.hit(60, 60)
		}
		r.post(del)
		r.completes(verbs.WC{WRID: id(2), Opcode: verbs.WCTMDel, Status: status})
		r.post(sync)
		r.completes(verbs.WC{WRID: id(3), Opcode: verbs.WCTMSync})
	}
	r.b.none()
}

// arrival is an expected message for receive 1, which has room for 20,000 bytes.
type arrival struct {
	send func() // and wait until it was matched
	ends func() // takes the completions of the receive
}

// arrivals are messages of each kind.
func (r *tagRig) arrivals(tag uint64, ctx uint32) map[string]arrival {
	eager := func(n int) func() { return func() { r.eager(tag, ctx, n); r.sent() } }
	return map[string]arrival{
		"eager":       {eager(8), func() { r.whole(1, tag, ctx, 8) }},
		"eager, long": {eager(17_771), func() { r.halves(1, tag, ctx, 17_771) }},
		"rendezvous": {func() {
			fin := r.finBuffer()
			r.rndv(tag, ctx, 3333)
			r.wantFIN(8, tag, ctx, fin)
		}, func() { r.halves(1, tag, ctx, 3333) }},
		"rendezvous, too long": {func() {
			r.raw(r.qa, r.rawRndv(verbs.TMHRndv, tag, ctx, 30_000))
			r.sent()
		}, func() { r.incomplete(1, tag, ctx) }},
	}
}

// testTagExpected: an expected message of each kind needs no untagged buffer. MATCH comes with all
// bits of its tag and app_ctx, whatever tag and mask of the entry are; DATA_VALID with the length
// of the payload, which may be less than that of the buffer, and alone without a tag.
func testTagExpected(r *tagRig) {
	for _, c := range r.arrivals(0xfedcba9876543210, 0x89abcdef) {
		r.add(1, 0, 0, r.bbuf[:20_000])
		c.send()
		c.ends()
	}
	r.b.none()
}

// testTagDelLost: a DEL of an entry that was matched fails with TM_ERR, and the receive has its
// normal completions, whatever message has matched it, and whether the host knows of it or not.
func testTagDelLost(r *tagRig) {
	for name, c := range r.arrivals(5, 6) {
		h := r.add(1, 5, exact, r.bbuf[:20_000])
		c.send()
		c.ends()
		r.del(h, verbs.WCTMErr)

		wr := r.counted(verbs.WRTagDel, 2)
		wr.Handle = r.add(1, 5, exact, r.bbuf[:20_000])
		r.unpolled(c.send)
		r.post(wr)
		r.settle()
		lost := slices.IndexFunc(r.b.got, func(w verbs.WC) bool { return w.WRID == wr.WRID && w.Status == verbs.WCTMErr })
		if lost < 0 {
			r.t.Fatalf("%s: the DEL does not fail: %+v", name, r.b.got)
		}
		r.b.got = slices.Delete(r.b.got, lost, lost+1)
		c.ends()
		r.b.none()
	}
}

// testTagAddSucceeds: an ADD has no failure completion. It succeeds also while the counts differ,
// with a buffer that is not registered, and for a tag that another entry has.
func testTagAddSucceeds(r *tagRig) {
	r.miss(9)
	for name, change := range map[string]func(wr *verbs.OpsWR){
		"up to date": func(*verbs.OpsWR) {},
		"behind":     func(wr *verbs.OpsWR) { wr.UnexpectedCnt-- },
		"ahead":      func(wr *verbs.OpsWR) { wr.UnexpectedCnt += 1000 },
		"no count":   func(wr *verbs.OpsWR) { wr.Flags = verbs.OpsSignaled },
		"no buffer":  func(wr *verbs.OpsWR) { wr.Add.SGList = nil },
		"no region":  func(wr *verbs.OpsWR) { wr.Add.SGList[0].LKey ^= 1 << 20 },
	} {
		for range 2 {
			wr := r.counted(verbs.WRTagAdd, 3)
			change(wr)
			r.post(wr)
			if w := r.b.next(); w.WRID != wr.WRID || w.Status != verbs.WCSuccess || w.Opcode != verbs.WCTMAdd {
				r.t.Fatalf("%s: %+v", name, w)
			}
		}
	}
	r.b.none()
}

// testTagErrorInfo: an error completion has wr_id and queue pair, for tagged receives, matched
// before or not, and for untagged ones.
func testTagErrorInfo(r *tagRig) {
	r.b.srqRecv(r.srq, 4, sge(r.umr, r.ubuf[:20]))
	for i, c := range []struct {
		status verbs.WCStatus
		lkey   uint32 // is changed by so much
		tag    uint64
		rndv   bool
		n      int
	}{
		{verbs.WCLocLenErr, 0, 5, false, 9},
		{verbs.WCLocProtErr, 1 << 20, 5, false, 8},
		{verbs.WCTMRndvIncomplete, 0, 5, true, 9},
		{verbs.WCTMRndvIncomplete, 0, 5, true, 8}, // its read fails
		{verbs.WCLocLenErr, 0, 6, false, 8},
	} {
		qa, qb := r.connect(r.a, r.b, qpConf{}, r.conf())
		if c.tag == 5 {
			wr := r.counted(verbs.WRTagAdd, 5)
			wr.Add.RecvWRID, wr.Add.SGList = uint64(i), []verbs.SGE{{Data: r.bbuf[:8], LKey: r.bmr.LKey() ^ c.lkey}}
			r.post(wr)
			r.b.want(wr.WRID, verbs.WCSuccess)
		}
		if c.rndv {
			r.rndvOn(qa, c.tag, 6, verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey() ^ 1<<20, Len: uint32(c.n)})
		} else {
			r.raw(qa, r.message(verbs.TMHEager, c.tag, 6, c.n))
		}
		w := r.b.next()
		for w.Status == verbs.WCSuccess {
			w = r.b.next()
		}
		if w.WRID != uint64(i) || w.Status != c.status || w.QPNum != qb.Num() {
			r.t.Fatalf("case %d: %+v, want %v on QP %d", i, w, c.status, qb.Num())
		}
		r.settle()
		r.b.got = nil // DATA_VALID of the incomplete one, if it comes apart
	}
}
