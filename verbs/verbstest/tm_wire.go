package verbstest

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 1.3, 2 and 4: the format of messages, which buffer receives them,
// and how they complete.

// raw sends bytes unchanged.
func (r *tagRig) raw(qp verbs.QP, imm bool, m []byte) {
	r.t.Helper()
	wr := inline(77, verbs.SendSignaled, m)
	if imm {
		wr.Opcode, wr.Imm = verbs.WRSendWithImm, 0xabcd0123
	}
	r.a.send(qp, wr)
}

// testTagTMH: the offsets of the fields of TMH, with values that are the same in both byte orders.
// Reserved bytes are ignored.
func testTagTMH(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(1)
	const tag, ctx = 0x0102030404030201, 0x090a0a09
	head := []byte{3, 0xff, 0xfe, 0xfd, 9, 10, 10, 9, 1, 2, 3, 4, 4, 3, 2, 1}
	r.add(1, tag, exact, r.bbuf)
	r.raw(r.qa, false, append(bytes.Clone(head), "payload"...))
	r.matched(1, tag, ctx, []byte("payload"), r.bbuf)
	r.sent()
	head[0] = 0
	r.add(2, tag, exact, r.bbuf)
	r.raw(r.qa, false, head)
	r.b.want(untaggedID, verbs.WCSuccess) // its opcode is NO_TAG, its other bytes do not matter
	r.sent()
}

// rawRndv are the bytes of a rendezvous request, or of its FIN, for n bytes of the sender's memory.
func (r *tagRig) rawRndv(op byte, tag uint64, ctx uint32, n int) []byte {
	m := append([]byte{op}, 0, 0, 0)
	m = binary.BigEndian.AppendUint32(m, ctx)
	m = binary.BigEndian.AppendUint64(m, tag)
	m = binary.BigEndian.AppendUint64(m, r.amr.Addr()+rndvOffset)
	m = binary.BigEndian.AppendUint32(m, r.amr.RKey())
	return binary.BigEndian.AppendUint32(m, uint32(n))
}

// testTagRVH: the offsets of the fields of RVH. The device reads exactly the bytes that they
// describe.
func testTagRVH(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	for _, n := range []int{0x22, 0x1122} {
		fin := r.forFIN(8)
		clear(r.bbuf)
		r.add(1, 5, exact, r.bbuf)
		r.a.send(r.qa, inline(77, 0, r.rawRndv(1, 5, 6, n)))
		r.matched(1, 5, 6, r.abuf[rndvOffset:][:n], r.bbuf)
		if r.bbuf[n] != 0 {
			t.Error("more was read than the length says")
		}
		r.wantFIN(8, 5, 6, fin)
	}
}

// testTagByteOrder: each number of the headers is big-endian, as the device reads it and as it
// writes it.
func testTagByteOrder(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	const tag, ctx, n = 0x0102030405060708, 0x090a0b0c, 0x1122
	r.add(1, 0x01<<56, 0xff<<56, r.bbuf)
	r.raw(r.qa, false, []byte{3, 0, 0, 0, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8})
	r.matched(1, tag, ctx, nil, r.bbuf)
	r.sent()
	fin := r.forFIN(8)
	r.add(2, tag, exact, r.bbuf)
	r.a.send(r.qa, inline(77, 0, r.rawRndv(1, tag, ctx, n)))
	r.matched(2, tag, ctx, r.abuf[rndvOffset:][:n], r.bbuf)
	if got := received(r.a.want(8, verbs.WCSuccess), fin); !bytes.Equal(got[:min(32, len(got))], r.rawRndv(2, tag, ctx, n)) {
		t.Errorf("FIN %x, want %x", got, r.rawRndv(2, tag, ctx, n))
	}
}

// testTagEagerSends: an eager message is an ordinary SEND: inline or not, its header in any number
// of entries, of any length, behind an RDMA WRITE.
func testTagEagerSends(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	other, _ := r.b.mem(64)
	for i, c := range []struct {
		n    int
		cuts [2]int
	}{{0, [2]int{0, 0}}, {0, [2]int{1, 15}}, {1, [2]int{16, 16}}, {100, [2]int{7, 17}}, {5000, [2]int{3, 1000}}, {20_000, [2]int{16, 9000}}} {
		id := uint64(i)
		r.add(id, 5, exact, r.bbuf)
		m := r.message(verbs.TMHEager, 5, uint32(i), c.n)
		key := r.amr.LKey()
		r.a.send(r.qa, rdma(verbs.WRRDMAWrite, 78, sge(r.amr, m[:8]), other, 0))
		r.a.want(78, verbs.WCSuccess)
		r.a.send(r.qa, verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{
			{Data: m[:c.cuts[0]], LKey: key}, {Data: m[c.cuts[0]:c.cuts[1]], LKey: key}, {Data: m[c.cuts[1]:], LKey: key}}})
		r.matched(id, 5, uint32(i), m[verbs.TMHSize:], r.bbuf)
		r.sent()
		if len(m) <= 200 {
			r.add(id, 5, exact, r.bbuf)
			r.raw(r.qa, false, m)
			r.matched(id, 5, uint32(i), m[verbs.TMHSize:], r.bbuf)
			r.sent()
		}
	}
}

// testTagRndvLargest: a rendezvous request may have max_rndv_hdr_size bytes, which an unexpected
// one delivers all.
func testTagRndvLargest(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(1)
	fmr, fin := r.a.mem(64)
	hmr, m := r.a.mem(int(r.b.dev.Attr().TM.MaxRndvHdrSize)) // which may be longer than inline
	copy(m, bytes.Repeat([]byte{0x5a}, len(m)))
	request := verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(hmr, m)}
	verbs.TMH{Opcode: verbs.TMHRndv, Tag: 5}.Put(m)
	verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey(), Len: 3000}.Put(m[verbs.TMHSize:])
	r.a.send(r.qa, request)
	r.unexpected(0, m)
	r.count++
	r.sent()
	r.a.recv(r.qa, 8, sge(fmr, fin))
	r.add(1, 5, exact, r.bbuf)
	r.a.send(r.qa, request)
	r.matched(1, 5, 0, r.abuf[:3000], r.bbuf)
	r.until("FIN and completion", func() bool { return len(r.a.got) == 2 })
}

// testTagRndvRights: the device's read needs REMOTE_READ on the sender's region and queue pair.
// Otherwise the receive ends with an error, there is no FIN, and both queue pairs are in ERR.
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

// testTagRndvImm: a request's immediate data is in the completion with DATA_VALID, not in that with
// MATCH, and in that of an unexpected request.
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

// testTagGlobalOrder: all queue pairs of an SRQ share one list and one count: each message matches
// the first entry, whatever its source.
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
	r.qa = qs[0] // the other one's unexpected message keeps the entry dormant here too
	r.miss(1, 5)
	r.sync()
	r.hit(9, 5)
}

// testTagInfo: completions without MATCH have no tag and no priv.
func testTagInfo(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(3)
	r.add(1, 5, exact, r.bbuf)
	r.hit(1, 5) // gives the device a tag and priv to repeat
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

// testTagRNRGivesUp: scenario 29: a sender with finite retries gives up; its message was not
// counted, and others are unaffected.
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

// testTagRNROrder: scenario 28: messages behind one that waits for an untagged buffer wait too,
// expected or not.
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

// testTagRndvReceiverGone: scenarios 44 and 46: the receiver fails between MATCH and FIN. The
// sender gets its queue pair's error instead of a FIN: all posted requests are flushed, once.
func testTagRndvReceiverGone(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.a.recv(r.qa, 8, nil) // too short for a FIN, which must not come
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
