package verbstest

import (
	"bytes"
	"encoding/binary"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 1.3, 2 and 4: the format of messages, which buffer receives them,
// and how they complete.

// rawRndv are the bytes of a rendezvous request, or of its FIN, for n bytes of the sender's memory.
func (r *tagRig) rawRndv(op verbs.TMHOpcode, tag uint64, ctx uint32, n int) []byte {
	m := append([]byte{byte(op)}, 0, 0, 0)
	m = binary.BigEndian.AppendUint32(m, ctx)
	m = binary.BigEndian.AppendUint64(m, tag)
	m = binary.BigEndian.AppendUint64(m, r.amr.Addr()+rndvOffset)
	m = binary.BigEndian.AppendUint32(m, r.amr.RKey())
	return binary.BigEndian.AppendUint32(m, uint32(n))
}

// testTagHeaders: the offsets of the fields of TMH and RVH, whose numbers are big-endian, as the
// device reads them and as it writes them. Reserved bytes are ignored. The device reads exactly the
// bytes that RVH describes.
func testTagHeaders(r *tagRig) {
	const tag, ctx, n = 0x0102030405060708, 0x090a0b0c, 0x1122
	head := []byte{3, 0xff, 0xfe, 0xfd, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8}
	r.add(1, 0x01<<56, 0xff<<56, r.bbuf)
	r.raw(r.qa, append(bytes.Clone(head), "payload"...))
	r.matched(1, tag, ctx, []byte("payload"), r.bbuf)
	r.sent()
	r.untagged(1)
	r.add(2, tag, exact, r.bbuf)
	head[0] = 0 // NO_TAG: its other bytes do not matter
	r.raw(r.qa, head)
	r.noTag(head)
	r.sent()
	fin := r.finBuffer()
	clear(r.bbuf)
	r.a.send(r.qa, inline(77, 0, r.rawRndv(verbs.TMHRndv, tag, ctx, n)))
	r.matched(2, tag, ctx, r.abuf[rndvOffset:][:n], r.bbuf)
	if r.bbuf[n] != 0 {
		r.t.Error("more was read than the length says")
	}
	want := r.rawRndv(verbs.TMHFin, tag, ctx, n)
	if got := received(r.a.want(8, verbs.WCSuccess), fin); !bytes.Equal(got[:min(32, len(got))], want) {
		r.t.Errorf("FIN %x, want %x", got, want)
	}
}

// testTagRndvLargest: a rendezvous request may have max_rndv_hdr_size bytes, which an unexpected
// one delivers all.
func testTagRndvLargest(r *tagRig) {
	r.untagged(1)
	r.finBuffer()
	hmr, m := r.a.mem(int(r.b.dev.Attr().TM.MaxRndvHdrSize)) // which may be longer than inline
	copy(m, bytes.Repeat([]byte{0x5a}, len(m)))
	request := verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(hmr, m)}
	verbs.TMH{Opcode: verbs.TMHRndv, Tag: 5}.Put(m)
	verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey(), Len: 3000}.Put(m[verbs.TMHSize:])
	r.a.send(r.qa, request)
	r.handled(m)
	r.sent()
	r.add(1, 5, exact, r.bbuf)
	r.a.send(r.qa, request)
	r.matched(1, 5, 0, r.abuf[:3000], r.bbuf)
	r.until("FIN and completion", func() bool { return len(r.a.got) == 2 })
}

// testTagImm: immediate data is in the completion of its packet, the message's last: with
// DATA_VALID and not with MATCH, and in that of a message that no entry has matched.
func testTagImm(r *tagRig) {
	r.untagged(1)
	send := func(m []byte) []byte {
		r.t.Helper()
		r.a.send(r.qa, verbs.SendWR{WRID: 77, Opcode: verbs.WRSendWithImm, Imm: 0xabcd0123, Flags: verbs.SendSignaled,
			SGList: sge(r.amr, m)})
		r.sentKeepingFINs()
		r.untagged(1)
		return m
	}
	check := func(w verbs.WC) {
		r.t.Helper()
		if w.Flags&verbs.WCFlagWithImm == 0 || w.Imm != 0xabcd0123 {
			r.t.Fatalf("no immediate data in %+v", w)
		}
	}
	for _, n := range []int{10, 3000} {
		m := send(r.message(verbs.TMHEager, 5, 1, n))
		check(r.unexpected(m))
		r.count++
		r.add(1, 5, exact, r.bbuf)
		send(m)
		check(r.matched(1, 5, 1, m[verbs.TMHSize:], r.bbuf))
		check(r.noTag(send(r.message(verbs.TMHNoTag, 5, 1, n))))
	}
	m := send(r.abuf[:copy(r.abuf, r.rawRndv(verbs.TMHRndv, 5, 1, 3000))])
	check(r.unexpected(m))
	r.count++
	r.finBuffer()
	r.add(1, 5, exact, r.bbuf)
	send(m)
	r.match(1, 5, 1)
	check(r.b.want(1, verbs.WCSuccess))
}

// testTagRecvCQ: receive completions go to the SRQ's CQ, not to the queue pair's.
func testTagRecvCQ(r *tagRig) {
	conf := r.conf()
	conf.cq = r.b.newCQ(16)
	r.qa, _ = r.connect(r.a, r.b, qpConf{}, conf)
	r.add(1, 5, exact, r.bbuf)
	r.hit(1, 5)
	r.miss(5)
	r.raw(r.qa, []byte{0})
	r.noTag([]byte{0})
	k, err := Poll(conf.cq, r.b.wc[:])
	if k != 0 || err != nil {
		r.t.Errorf("%d completions in the queue pair's CQ, %v", k, err)
	}
}

// testTagGlobalOrder: all queue pairs of an SRQ share one list and one count: each message matches
// the first entry, whatever its source.
func testTagGlobalOrder(r *tagRig) {
	other, _ := r.connect(r.a, r.b, qpConf{}, r.conf())
	qs := []verbs.QP{r.qa, other}
	for i := range uint64(8) {
		r.add(i, 0, 0, r.bbuf)
	}
	for i := range uint64(8) {
		r.qa = qs[i*5/2%2]
		r.hit(i, 100+i)
	}
	r.miss(5)
	r.count--
	r.add(9, 5, exact, r.bbuf)
	r.count++
	r.qa = qs[0] // the other one's unexpected message keeps the entry dormant here too
	r.miss(5)
	r.sync()
	r.hit(9, 5)
}
