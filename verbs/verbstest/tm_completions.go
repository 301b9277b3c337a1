package verbstest

import (
	"bytes"
	"reflect"
	"testing"

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
	default:
		if want.Flags&flagsBoth == flagMatch {
			got.ByteLen, got.QPNum = 0, 0
		}
	}
	if !reflect.DeepEqual(got, want) {
		r.t.Fatalf("completion %+v, want %+v", got, want)
	}
}

// whole polls the one completion of an expected message of one packet with n bytes of payload.
func (r *tagRig) whole(id, tag uint64, ctx uint32, n int) {
	r.t.Helper()
	r.completes(verbs.WC{WRID: id, Opcode: verbs.WCTMRecv, Flags: flagsBoth, ByteLen: uint32(n), QPNum: r.qb.Num(), Tag: tag, Priv: ctx})
}

// halves polls the two completions of an expected message of several packets, or of a rendezvous.
func (r *tagRig) halves(id, tag uint64, ctx uint32, n int) {
	r.t.Helper()
	r.completes(verbs.WC{WRID: id, Opcode: verbs.WCTMRecv, Flags: flagMatch, Tag: tag, Priv: ctx})
	r.completes(verbs.WC{WRID: id, Opcode: verbs.WCTMRecv, Flags: flagData, ByteLen: uint32(n), QPNum: r.qb.Num()})
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

// untaggedWC is the completion of a message of n bytes in untagged buffer k.
func (r *tagRig) untaggedWC(k int, op verbs.WCOpcode, n int) verbs.WC {
	return verbs.WC{WRID: untaggedID + uint64(k), Opcode: op, ByteLen: uint32(n), QPNum: r.qb.Num()}
}

// unexpectedOp is the opcode of unexpected messages.
func (r *tagRig) unexpectedOp() verbs.WCOpcode {
	if r.opts.RecvUnexpected {
		return verbs.WCRecv
	}
	return verbs.WCTMRecv
}

// finBuffer posts a receive for a FIN, request 8, and returns its buffer.
func (r *tagRig) finBuffer() []byte {
	r.t.Helper()
	mr, buf := r.a.mem(64)
	r.a.recv(r.qa, 8, sge(mr, buf))
	return buf
}

// testTagOnePacket: an expected eager message of one packet has one completion, with both flags.
func testTagOnePacket(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	for _, n := range []int{0, 1, r.mtu() - verbs.TMHSize} {
		r.add(1, 5, exact, r.bbuf)
		r.eager(5, 6, n)
		r.whole(1, 5, 6, n)
		r.sent()
	}
	r.b.none()
}

// testTagSeveralPackets: an expected eager message of several packets has two completions of one
// recv_wr_id, MATCH and DATA_VALID.
func testTagSeveralPackets(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	for _, n := range []int{r.mtu() - verbs.TMHSize + 1, 3 * r.mtu(), 50_000} {
		r.add(1, 5, exact, r.bbuf)
		r.eager(5, 6, n)
		r.halves(1, 5, 6, n)
		r.sent()
	}
	r.b.none()
}

// testTagRndvFits: an expected rendezvous has two completions of one recv_wr_id, MATCH and
// DATA_VALID, however short it is.
func testTagRndvFits(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	for _, n := range []int{0, 1, 5000, 50_000} {
		fin := r.finBuffer()
		r.add(1, 5, exact, r.bbuf[:n])
		r.rndv(5, 6, n)
		r.halves(1, 5, 6, n)
		r.wantFIN(8, 5, 6, fin)
	}
	r.b.none()
}

// testTagIncomplete: an expected rendezvous that is too long is matched, with RNDV_INCOMPLETE and
// its TMH and RVH in the tagged buffer. There is one completion with both flags, or one with MATCH
// and that status, and a successful one with DATA_VALID.
func testTagIncomplete(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	for _, room := range []int{32, 33, 40, 5000} {
		clear(r.bbuf[:room+1])
		r.add(1, 5, exact, r.bbuf[:room])
		m := r.rndv(5, 6, room+1)
		r.incomplete(1, 5, 6)
		if !bytes.Equal(r.bbuf[:32], m[:32]) || !bytes.Equal(r.bbuf[32:room+1], make([]byte, room-31)) {
			t.Fatalf("a buffer of %d bytes has %x, want TMH and RVH of %x", room, r.bbuf[:40], m)
		}
	}
	r.b.none()
}

// testTagUnexpectedWC: an unexpected message has one completion, RECV or TM_RECV, without flags and
// with the wr_id of the untagged buffer, however many packets it has.
func testTagUnexpectedWC(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(4)
	r.add(1, 5, exact, r.bbuf)
	for k, send := range []func() []byte{
		func() []byte { return r.eager(9, 6, 0) },
		func() []byte { return r.eager(9, 6, 100) },
		func() []byte { return r.eager(9, 6, 3000) },
		func() []byte { return r.rndv(9, 6, 100) },
	} {
		m := send()
		r.completes(r.untaggedWC(k, r.unexpectedOp(), len(m)))
		if k < 3 {
			r.sent()
		}
	}
	r.b.none()
}

// testTagNoTagWC: a NO_TAG message and a FIN have one completion, TM_NO_TAG, without flags and with
// the wr_id of the untagged buffer.
func testTagNoTagWC(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	k := 0
	for op, sizes := range map[verbs.TMHOpcode][]int{verbs.TMHNoTag: {1, 15, 16, 3000}, verbs.TMHFin: {16, 32, 3000}} {
		for _, n := range sizes {
			r.untagged(1)
			m := r.message(op, 5, 6, n)[:n]
			r.a.send(r.qa, verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(r.amr, m)})
			r.completes(r.untaggedWC(k, verbs.WCTMNoTag, n))
			r.sent()
			k++
		}
	}
	r.b.none()
}

// testTagListOpWC: a signalled operation has one completion: TM_ADD, TM_DEL or TM_SYNC with its
// wr_id.
func testTagListOpWC(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	var h uint32
	for i, c := range []struct {
		op   verbs.OpsOpcode
		want verbs.WCOpcode
	}{{verbs.WRTagSync, verbs.WCTMSync}, {verbs.WRTagAdd, verbs.WCTMAdd}, {verbs.WRTagDel, verbs.WCTMDel}, {verbs.WRTagSync, verbs.WCTMSync}} {
		wr := r.counted(c.op, uint64(i))
		wr.WRID, wr.Handle = 1<<63|uint64(i), h
		r.post(wr)
		r.completes(verbs.WC{WRID: wr.WRID, Opcode: c.want})
		h = wr.Handle
	}
	r.b.none()
}

// counted returns a signalled operation with the count; an ADD is of receive id for tag id.
func (r *tagRig) counted(op verbs.OpsOpcode, id uint64) *verbs.OpsWR {
	wr := &verbs.OpsWR{Opcode: op, WRID: 1000 + id, Flags: verbs.OpsSignaled | verbs.OpsTMSync, UnexpectedCnt: r.count}
	if op == verbs.WRTagAdd {
		wr.Add = r.tagAdd(id, id, exact, r.bbuf)
	}
	return wr
}

// testTagDelLost: a DEL of an entry that was matched fails with TM_ERR, and the receive has its
// normal completions, whatever message has matched it.
func testTagDelLost(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	fin := r.finBuffer()
	for name, c := range map[string]struct {
		send func() // returns when the message was matched
		ends func()
	}{
		"eager":             {func() { r.eager(5, 6, 8); r.sent() }, func() { r.whole(1, 5, 6, 8) }},
		"eager, long":       {func() { r.eager(5, 6, 20_000); r.sent() }, func() { r.halves(1, 5, 6, 20_000) }},
		"rendezvous":        {func() { r.rndv(5, 6, 3000); r.wantFIN(8, 5, 6, fin) }, func() { r.halves(1, 5, 6, 3000) }},
		"rendezvous, short": {func() { r.rndv(5, 6, 30_000); r.raw(r.qa, false, []byte{0}); r.sent() }, func() { r.incomplete(1, 5, 6) }},
	} {
		r.untagged(1) // for the NO_TAG message behind the last one
		h := r.add(1, 5, exact, r.bbuf[:20_000])
		r.unpolled(c.send)
		wr := r.counted(verbs.WRTagDel, 2)
		wr.Handle = h
		r.post(wr)
		r.settle()
		lost := false
		kept := r.b.got[:0:0]
		for _, w := range r.b.got {
			switch {
			case w.WRID == wr.WRID && w.Status == verbs.WCTMErr:
				lost = true
			case w.Opcode != verbs.WCTMNoTag:
				kept = append(kept, w)
			}
		}
		if !lost {
			t.Fatalf("%s: the DEL does not fail: %+v", name, r.b.got)
		}
		r.b.got = kept
		c.ends()
		r.b.none()
	}
}

// testTagAddSucceeds: an ADD has no failure completion. It succeeds also while the counts differ,
// with a buffer that is not registered, and for a tag that another entry has.
func testTagAddSucceeds(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(1)
	r.miss(0, 9)
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
				t.Fatalf("%s: %+v", name, w)
			}
		}
	}
	r.b.none()
}

// testTagMatchInfo: a completion with MATCH has all bits of the message's tag and app_ctx, whatever
// tag and mask of the entry are.
func testTagMatchInfo(t *testing.T, open Opener, opts TagOptions) {
	const tag, ctx = 0xfedcba9876543210, 0x89abcdef
	r := newSmallRig(t, open, opts, 15, 64)
	fin := r.finBuffer()
	for name, send := range map[string]func(){
		"eager":             func() { r.eager(tag, ctx, 8); r.sent() },
		"eager, long":       func() { r.eager(tag, ctx, 19_000); r.sent() },
		"rendezvous":        func() { r.rndv(tag, ctx, 3000); r.wantFIN(8, tag, ctx, fin) },
		"rendezvous, short": func() { r.rndv(tag, ctx, 30_000) },
	} {
		r.add(1, 0, 0, r.bbuf[:20_000])
		send()
		w := r.b.next()
		if w.WRID != 1 || w.Flags&flagMatch == 0 || w.Tag != tag || w.Priv != ctx {
			t.Fatalf("%s: %+v", name, w)
		}
		for w.Flags&flagData == 0 {
			w = r.b.next()
		}
	}
}

// testTagDataInfo: a completion with DATA_VALID has the length of the payload, which may be less
// than that of the buffer. Without MATCH it has no tag.
func testTagDataInfo(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	fin := r.finBuffer()
	for name, c := range map[string]struct {
		n     int
		send  func(n int)
		alone bool
	}{
		"eager":       {8, func(n int) { r.eager(5, 6, n); r.sent() }, false},
		"eager, long": {17_771, func(n int) { r.eager(5, 6, n); r.sent() }, true},
		"rendezvous":  {3333, func(n int) { r.rndv(5, 6, n); r.wantFIN(8, 5, 6, fin) }, true},
	} {
		r.add(1, 5, exact, r.bbuf[:20_000])
		c.send(c.n)
		w := r.b.next()
		for w.Flags&flagData == 0 {
			w = r.b.next()
		}
		if alone := w.Flags&flagMatch == 0; w.WRID != 1 || int(w.ByteLen) != c.n || alone != c.alone || alone && (w.Tag != 0 || w.Priv != 0) {
			t.Fatalf("%s, %d bytes: %+v", name, c.n, w)
		}
	}
}

// testTagListOpInfo: completions of list operations have no tag, no priv and no flags of receives,
// even just after a match.
func testTagListOpInfo(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	done := r.add(1, 5, exact, r.bbuf)
	for _, op := range []verbs.OpsOpcode{verbs.WRTagAdd, verbs.WRTagDel, verbs.WRTagSync} {
		r.add(2, 6, exact, r.bbuf)
		wr := r.counted(op, 7)
		wr.Handle = done
		if op == verbs.WRTagDel {
			r.hit(1, 5) // so that it fails
		}
		r.hit(2, 6)
		r.post(wr)
		w := r.b.next()
		if failed := w.Status == verbs.WCTMErr; w.WRID != wr.WRID || failed != (op == verbs.WRTagDel) || w.Tag != 0 || w.Priv != 0 || w.Flags&flagsBoth != 0 {
			t.Errorf("%+v", w)
		}
	}
	r.del(r.add(3, 6, exact, r.bbuf), verbs.WCSuccess)
}

// testTagErrorInfo: an error completion has wr_id and queue pair, for tagged receives, matched
// before or not, and for untagged ones.
func testTagErrorInfo(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
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
			r.raw(qa, false, r.message(verbs.TMHEager, c.tag, 6, c.n))
		}
		w := r.b.next()
		for w.Status == verbs.WCSuccess {
			w = r.b.next()
		}
		if w.WRID != uint64(i) || w.Status != c.status || w.QPNum != qb.Num() {
			t.Fatalf("case %d: %+v, want %v on QP %d", i, w, c.status, qb.Num())
		}
		r.settle()
		r.b.got = nil // DATA_VALID of the incomplete one, if it comes apart
	}
}
