package verbstest

import (
	"bytes"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 1.3, 2 and 4: what is on the wire, where it goes and how it is reported.

// raw sends bytes as they are.
func (r *tagRig) raw(qp verbs.QP, imm bool, m []byte) {
	r.t.Helper()
	wr := inline(77, verbs.SendSignaled, m)
	if imm {
		wr.Opcode, wr.Imm = verbs.WRSendWithImm, 0xabcd0123
	}
	r.a.send(qp, wr)
}

// testTagHeaderBytes: a device reads TMH and RVH big-endian at the offsets of TMO 2.1 and 2.2, and does not look at the reserved bytes.
func testTagHeaderBytes(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	fmr, fin := r.a.mem(64)
	r.a.recv(r.qa, 8, sge(fmr, fin))
	const tag, ctx = 0x0102030405060708, 0x090a0b0c
	head := []byte{3, 0xff, 0xfe, 0xfd, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8}
	r.add(1, tag, exact, r.bbuf)
	r.raw(r.qa, false, append(head, "payload"...))
	r.matched(1, tag, ctx, []byte("payload"), r.bbuf)
	r.sent()

	va, key := r.amr.Addr()+rndvOffset, r.amr.RKey()
	head[0] = 1
	for shift := 56; shift >= 0; shift -= 8 {
		head = append(head, byte(va>>shift))
	}
	for shift := 24; shift >= 0; shift -= 8 {
		head = append(head, byte(key>>shift))
	}
	head = append(head, 0, 0, 0x11, 0x22)
	r.add(2, tag, exact, r.bbuf)
	r.raw(r.qa, false, head)
	r.matched(2, tag, ctx, r.abuf[rndvOffset:][:0x1122], r.bbuf)
	r.until("FIN and completion", func() bool { return len(r.a.got) == 2 })
}

// testTagFIN: the FIN has the 32 bytes of the request's TMH, with its opcode changed, and RVH.
func testTagFIN(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	fmr, fin := r.a.mem(64)
	for _, n := range []int{0, 5000} {
		r.a.recv(r.qa, 8, sge(fmr, fin))
		r.add(1, 5, exact, r.bbuf)
		m := r.rndv(5, 0xfedcba98, n)
		r.matched(1, 5, 0xfedcba98, r.abuf[rndvOffset:][:n], r.bbuf)
		w := r.a.want(8, verbs.WCSuccess)
		m[0] = byte(verbs.TMHFin)
		if got := received(w, fin); !bytes.Equal(got, m[:32]) || w.Opcode != verbs.WCRecv || w.QPNum != r.qa.Num() {
			t.Errorf("FIN %x with %+v, want %x", got, w, m[:32])
		}
	}
}

// testTagRndvLargest: a rendezvous request may have max_rndv_hdr_size bytes; unexpected, all of them arrive.
func testTagRndvLargest(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(1)
	fmr, fin := r.a.mem(64)
	m := bytes.Repeat([]byte{0x5a}, int(r.b.dev.Attr().TM.MaxRndvHdrSize))
	verbs.TMH{Opcode: verbs.TMHRndv, Tag: 5}.Put(m)
	verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey(), Len: 3000}.Put(m[verbs.TMHSize:])
	r.raw(r.qa, false, m)
	r.unexpected(0, m)
	r.count++
	r.sent()
	r.a.recv(r.qa, 8, sge(fmr, fin))
	r.add(1, 5, exact, r.bbuf)
	r.raw(r.qa, false, m)
	r.matched(1, 5, 0, r.abuf[:3000], r.bbuf)
	r.until("FIN and completion", func() bool { return len(r.a.got) == 2 })
}

// testTagRndvRights: the device's read needs REMOTE_READ of the sender's region and queue pair. Without, the receive ends with an
// error, no FIN comes, and both queue pairs are in ERR.
func testTagRndvRights(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	closed := r.a.reg(make([]byte, 64), verbs.AccessLocalWrite)
	for what, c := range map[string]struct {
		conf qpConf
		mr   verbs.MR
	}{
		"region":     {qpConf{}, closed},
		"queue pair": {qpConf{access: verbs.AccessLocalWrite}, r.amr},
	} {
		if opts.OpenReads && c.mr != closed {
			continue
		}
		qa, qb := r.connect(r.a, r.b, c.conf, r.conf())
		r.add(1, 5, exact, r.bbuf)
		clear(r.bbuf[:64])
		r.a.recv(qa, 8, nil)
		r.rndvOn(qa, 5, 1, verbs.RVH{VA: c.mr.Addr(), RKey: c.mr.RKey(), Len: 64})
		if w := r.b.want(1, verbs.WCSuccess); w.Flags != verbs.WCFlagTMMatch {
			t.Fatalf("%s: %+v", what, w)
		}
		r.b.want(1, verbs.WCTMRndvIncomplete)
		r.until("both in ERR", func() bool { return qa.State() == verbs.QPSErr && qb.State() == verbs.QPSErr })
		if !bytes.Equal(r.bbuf[:64], make([]byte, 64)) {
			t.Errorf("%s: the buffer was written", what)
		}
		r.settle()
		for _, w := range r.a.got {
			if w.WRID == 8 && w.Status == verbs.WCSuccess {
				t.Errorf("%s: a FIN arrived", what)
			}
		}
		r.a.got = nil
	}
}

// testTagRndvImm: a request's immediate data comes with its DATA_VALID, not with its MATCH, and with an unexpected request.
func testTagRndvImm(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(1)
	fmr, fin := r.a.mem(64)
	r.a.recv(r.qa, 8, sge(fmr, fin))
	m := make([]byte, 32)
	verbs.TMH{Opcode: verbs.TMHRndv, Tag: 5}.Put(m)
	verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey(), Len: 3000}.Put(m[verbs.TMHSize:])
	r.raw(r.qa, true, m)
	w := r.unexpected(0, m)
	r.count++
	r.sent()
	r.add(1, 5, exact, r.bbuf)
	r.raw(r.qa, true, m)
	if match := r.b.want(1, verbs.WCSuccess); match.Flags != verbs.WCFlagTMMatch {
		t.Errorf("%+v", match)
	}
	for _, w := range []verbs.WC{w, r.b.want(1, verbs.WCSuccess)} {
		if w.Flags&verbs.WCFlagWithImm == 0 || w.Imm != 0xabcd0123 {
			t.Errorf("no immediate data in %+v", w)
		}
	}
	r.until("FIN and completion", func() bool { return len(r.a.got) == 2 })
}

// testTagRecvCQ: receive completions go to the SRQ's CQ, not to the queue pair's.
func testTagRecvCQ(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(2)
	conf := r.conf()
	conf.cq = r.b.newCQ(16)
	r.qa, _ = r.connect(r.a, r.b, qpConf{}, conf)
	r.add(1, 5, exact, r.bbuf)
	r.hit(1, 5)
	r.miss(0, 5)
	r.raw(r.qa, false, []byte{0})
	r.b.want(untaggedID+1, verbs.WCSuccess)
	k, err := conf.cq.PollCQ(r.b.wc[:])
	if k != 0 || err != nil {
		t.Errorf("%d completions in the queue pair's CQ, %v", k, err)
	}
}

// testTagGlobalOrder: all queue pairs of an SRQ share one list and one count: each message takes the first entry, whoever sent it.
func testTagGlobalOrder(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	other, _ := r.connect(r.a, r.b, qpConf{}, r.conf())
	qs := []verbs.QP{r.qa, other}
	for i := range uint64(8) {
		r.add(i, 0, 0, r.bbuf)
	}
	for i := range uint64(8) {
		r.qa = qs[i*5/2%2]
		r.hit(i, 100+i)
	}
	r.miss(0, 5)
	r.count--
	r.add(9, 5, exact, r.bbuf)
	r.count++
	r.qa = qs[0] // the other one's unexpected message keeps the entry dormant for this one too
	r.miss(1, 5)
	r.sync()
	r.hit(9, 5)
}

// testTagTwoCompletions: an expected message of one packet is one completion with both flags; of several, or a rendezvous, MATCH and
// DATA_VALID apart. Tag and priv are there with MATCH, the length with DATA_VALID.
func testTagTwoCompletions(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	fmr, fin := r.a.mem(64)
	mtu := opts.MTU
	if mtu == 0 {
		mtu = verbs.MTU1024.Bytes()
	}
	check := func(flags verbs.WCFlags, n int) {
		t.Helper()
		w := r.b.want(1, verbs.WCSuccess)
		want := verbs.WC{WRID: 1, Opcode: verbs.WCTMRecv, Flags: flags, QPNum: w.QPNum}
		if flags&verbs.WCFlagTMMatch != 0 {
			want.Tag, want.Priv = 5, 6
		}
		if flags&verbs.WCFlagTMDataValid != 0 {
			want.ByteLen, want.QPNum = uint32(n), r.qb.Num()
		} else {
			w.ByteLen = 0
		}
		w.VendorErr, w.Data = 0, nil
		if w.Flags != want.Flags || w.Tag != want.Tag || w.Priv != want.Priv || w.ByteLen != want.ByteLen || w.QPNum != want.QPNum ||
			w.Opcode != want.Opcode {
			t.Fatalf("%d bytes: %+v, want %+v", n, w, want)
		}
	}
	const match, data = verbs.WCFlagTMMatch, verbs.WCFlagTMDataValid
	for _, n := range []int{0, mtu - verbs.TMHSize, mtu - verbs.TMHSize + 1, 3 * mtu} {
		r.add(1, 5, exact, r.bbuf)
		r.eager(5, 6, n)
		if n+verbs.TMHSize <= mtu {
			check(match|data, n)
		} else {
			check(match, n)
			check(data, n)
		}
		r.sent()
	}
	for _, n := range []int{0, 1, 5000} {
		r.a.recv(r.qa, 8, sge(fmr, fin))
		r.add(1, 5, exact, r.bbuf)
		r.rndv(5, 6, n)
		check(match, n)
		check(data, n)
		r.wantFIN(8, 5, 6, fin)
	}
	r.add(1, 5, exact, r.bbuf[:40])
	r.rndv(5, 6, 41)
	w := r.b.want(1, verbs.WCTMRndvIncomplete)
	if opts.TwoIncomplete == (w.Flags&data != 0) || w.Flags&match == 0 {
		t.Errorf("%+v", w)
	}
	if opts.TwoIncomplete {
		if w = r.b.want(1, verbs.WCSuccess); w.Flags != data || w.Tag != 0 || w.Priv != 0 {
			t.Errorf("%+v", w)
		}
	}
	r.b.none()
}

// testTagInfo: completions that are not of a MATCH have no tag and no priv.
func testTagInfo(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(3)
	r.add(1, 5, exact, r.bbuf)
	r.hit(1, 5) // so that the device has some at hand
	none := func(w verbs.WC) {
		t.Helper()
		if w.Tag != 0 || w.Priv != 0 || w.Flags&verbs.WCFlagTMMatch != 0 {
			t.Errorf("%+v", w)
		}
	}
	for k, op := range []verbs.TMHOpcode{verbs.TMHEager, verbs.TMHNoTag, verbs.TMHFin} {
		m := r.message(op, 7, 8, 20)
		r.raw(r.qa, false, m)
		w := r.b.want(untaggedID+uint64(k), verbs.WCSuccess)
		none(w)
		if w.QPNum != r.qb.Num() || int(w.ByteLen) != len(m) {
			t.Errorf("%+v", w)
		}
		r.sent()
	}
	r.count++
	for _, op := range []verbs.OpsOpcode{verbs.WRTagAdd, verbs.WRTagSync} {
		r.post(&verbs.OpsWR{Opcode: op, WRID: 3, Flags: verbs.OpsSignaled, Add: r.tagAdd(2, 9, exact, r.bbuf)})
		none(r.b.want(3, verbs.WCSuccess))
	}
}

// testTagRNRGivesUp: row 29: a sender with finite retries gives up; its message was not counted, and others notice nothing.
func testTagRNRGivesUp(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	impatient, peer := r.connect(r.a, r.b, qpConf{rnr: 1, rnrSet: true}, r.conf())
	m := r.message(verbs.TMHEager, 9, 0, 8)
	r.raw(impatient, false, m)
	r.raw(impatient, false, m)
	r.a.want(77, verbs.WCRNRRetryExcErr)
	r.a.want(77, verbs.WCWRFlushErr)
	if impatient.State() != verbs.QPSErr {
		t.Errorf("the sender is in %v", impatient.State())
	}
	r.add(1, 5, exact, r.bbuf)
	r.hit(1, 5)
	r.untagged(1)
	r.miss(0, 9)
	_ = peer
}

// testTagRNROrder: row 28: what a source has sent behind a message that waits for an untagged buffer waits too, expected or not.
func testTagRNROrder(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.add(1, 5, exact, r.bbuf)
	first := bytes.Clone(r.message(verbs.TMHEager, 9, 0, 8))
	second := bytes.Clone(r.message(verbs.TMHEager, 5, 0, 8))
	r.raw(r.qa, false, first)
	r.raw(r.qa, false, second)
	r.b.none()
	r.untagged(1)
	r.unexpected(0, first)
	r.count++
	if opts.Dormant {
		r.untagged(1)
		r.unexpected(1, second)
		return
	}
	r.matched(1, 5, 0, second[16:], r.bbuf)
}

// testTagRndvReceiverGone: rows 44 and 46: the receiver fails between MATCH and FIN. The sender gets no FIN but its queue pair's
// error: all that it has posted comes back flushed, once.
func testTagRndvReceiverGone(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.a.recv(r.qa, 8, nil) // too short for a FIN: none may come
	r.add(1, 5, exact, r.bbuf)
	r.rndv(5, 6, 4<<20-rndvOffset)
	r.b.want(1, verbs.WCSuccess)
	r.ok(r.qb.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
	r.b.next() // the end of the receive
	r.raw(r.qa, false, []byte{0})
	r.until("ERR", func() bool { return r.qa.State() == verbs.QPSErr })
	r.settle()
	ends := map[uint64]int{}
	for _, w := range r.a.got {
		if w.Status == verbs.WCSuccess {
			t.Errorf("%+v", w)
		}
		ends[w.WRID]++
	}
	if ends[8] != 1 {
		t.Errorf("the receive for the FIN ended %d times", ends[8])
	}
	r.b.none()
}
