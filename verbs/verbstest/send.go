package verbstest

import (
	"bytes"
	"sync"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
)

func inline(wrid uint64, flags verbs.SendFlags, data []byte) verbs.SendWR {
	return verbs.SendWR{WRID: wrid, Opcode: verbs.WRSend, Flags: flags | verbs.SendInline, SGList: []verbs.SGE{{Data: data}}}
}

// pattern returns n bytes, up to 8 MiB and a little, others for each seed up to 256. They are only
// to be read.
func pattern(n, seed int) []byte { return patterns()[seed%256:][:n] }

// patterns is made once: that takes long with the race detector.
var patterns = sync.OnceValue(func() []byte {
	b := make([]byte, 8<<20+1024)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
})

func testSendRecv(e *env, a, b *node, qa, qb verbs.QP) {
	mr, buf := b.mem(4096)
	for i := range 200 {
		b.recv(qb, uint64(i), sge(mr, buf))
		msg := pattern(i%(maxInline+1), i)
		a.send(qa, inline(7, verbs.SendSignaled, msg))
		w := b.want(uint64(i), verbs.WCSuccess)
		if !bytes.Equal(received(w, buf), msg) || w.Opcode != verbs.WCRecv || w.QPNum != qb.Num() {
			e.t.Fatalf("message %d: %+v", i, w)
		}
		if w := a.want(7, verbs.WCSuccess); w.Opcode != verbs.WCSend || w.QPNum != qa.Num() {
			e.t.Fatalf("send completion %+v", w)
		}
	}
}

func testSendSelf(e *env, n *node) {
	q1, q2 := e.connect(n, n, qpConf{}, qpConf{})
	mr, buf := n.mem(64)
	n.recv(q2, 1, sge(mr, buf))
	n.send(q1, inline(2, 0, []byte("to myself")))
	if w := n.want(1, verbs.WCSuccess); string(received(w, buf)) != "to myself" {
		e.t.Fatalf("got %q", received(w, buf))
	}
}

func testSendImm(e *env, a, b *node, qa, qb verbs.QP) {
	mr, buf := b.mem(1 << 16)
	for _, size := range []int{0, 10, 40000} {
		b.recv(qb, 1, sge(mr, buf))
		amr, abuf := a.mem(size + 1)
		a.send(qa, verbs.SendWR{Opcode: verbs.WRSendWithImm, Imm: 0xdeadbeef, SGList: sge(amr, abuf[:size])})
		w := b.want(1, verbs.WCSuccess)
		if w.Flags&verbs.WCFlagWithImm == 0 || w.Imm != 0xdeadbeef || int(w.ByteLen) != size {
			e.t.Fatalf("no immediate data in %+v", w)
		}
	}
}

func testZeroLength(e *env, a, b *node, qa, qb verbs.QP) {
	b.recv(qb, 1, nil)
	b.recv(qb, 2, nil)
	a.send(qa, verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	a.send(qa, inline(2, verbs.SendSignaled, nil))
	for i := range uint64(2) {
		if w := b.want(i+1, verbs.WCSuccess); w.ByteLen != 0 || len(w.Data) != 0 {
			e.t.Fatalf("%+v", w)
		}
		a.want(i+1, verbs.WCSuccess)
	}
	a.send(qa, verbs.SendWR{WRID: 3, Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled})
	a.want(3, verbs.WCSuccess)
	a.send(qa, verbs.SendWR{WRID: 4, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled})
	a.want(4, verbs.WCSuccess)
}

func testMultiPacket(e *env, a, b *node, qa, qb verbs.QP) {
	const most = 3 << 20
	mr, buf := b.mem(most)
	amr, abuf := a.mem(most)
	for i, size := range []int{1, 1 << 10, 1<<10 + 1, 8 << 10, 8<<10 + 1, 100_000, 1 << 20, most} {
		copy(abuf, pattern(size, i))
		clear(buf)
		b.recv(qb, uint64(i), sge(mr, buf))
		a.send(qa, verbs.SendWR{WRID: 9, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(amr, abuf[:size])})
		w := b.want(uint64(i), verbs.WCSuccess)
		if int(w.ByteLen) != size || !bytes.Equal(received(w, buf), abuf[:size]) {
			e.t.Fatalf("%d bytes arrived wrong, %d by the completion", size, w.ByteLen)
		}
		a.want(9, verbs.WCSuccess)
	}
}

// testGather sends lists of entries into lists of entries.
func testGather(e *env, a, b *node, qa, qb verbs.QP) {
	amr, abuf := a.mem(30_000)
	bmr, bbuf := b.mem(30_000)
	copy(abuf, pattern(len(abuf), 1))
	for _, cut := range [][2]int{{0, 0}, {1, 1}, {10, 5000}, {9000, 9001}, {20_000, 30_000}} {
		clear(bbuf)
		b.recv(qb, 1, []verbs.SGE{{Data: bbuf[:100], LKey: bmr.LKey()}, {Data: bbuf[100:], LKey: bmr.LKey()}})
		list := []verbs.SGE{{Data: abuf[:cut[0]], LKey: amr.LKey()}, {Data: abuf[cut[0]:cut[1]], LKey: amr.LKey()},
			{Data: abuf[cut[1]:], LKey: amr.LKey()}}
		a.send(qa, verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: list})
		if w := b.want(1, verbs.WCSuccess); !bytes.Equal(received(w, bbuf), abuf) {
			e.t.Fatalf("cut at %v: wrong data", cut)
		}
		a.want(2, verbs.WCSuccess)
	}
}

// testInline: the buffer, which needs no region, may be changed as soon as PostSend has returned,
// whether the packet was sent or not. Up to max_inline_data bytes are accepted.
func testInline(e *env, a, b *node, qa, qb verbs.QP) {
	_, init := e.query(qa)
	most := int(init.Cap.MaxInlineData)
	mr, buf := b.mem(60 * most)
	const n = 60
	for i := range n {
		b.recv(qb, uint64(i), sge(mr, buf[i*most:(i+1)*most]))
	}
	msg := make([]byte, most)
	for i := range n {
		copy(msg, pattern(len(msg), i))
		a.send(qa, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, SGList: []verbs.SGE{{Data: msg, LKey: uint32(i) << 8}}})
		clear(msg)
	}
	for i := range n {
		if w := b.want(uint64(i), verbs.WCSuccess); !bytes.Equal(received(w, buf[i*most:]), pattern(len(msg), i)) {
			e.t.Fatalf("message %d was overwritten", i)
		}
	}
	wr := inline(1, 0, make([]byte, most+1))
	_, err := qa.PostSend(&wr)
	e.errno(err, syscall.EINVAL)
}

// testChainFails: the first failing request is reported, those before it are posted, those behind
// it are not.
func testChainFails(e *env, a, b *node, qa, qb verbs.QP) {
	mr, buf := b.mem(256)
	r3 := &verbs.RecvWR{WRID: 3, SGList: sge(mr, buf)}
	r2 := &verbs.RecvWR{WRID: 2, SGList: make([]verbs.SGE, 5), Next: r3}
	r1 := &verbs.RecvWR{WRID: 1, SGList: sge(mr, buf), Next: r2}
	refuse(e, qb.PostRecv, r1, r2, syscall.EINVAL)
	s3 := inline(13, verbs.SendSignaled, nil)
	s2 := verbs.SendWR{WRID: 12, Opcode: verbs.WRTSO, Next: &s3}
	s1 := inline(11, verbs.SendSignaled, nil)
	s1.Next = &s2
	refuse(e, qa.PostSend, &s1, &s2, syscall.EINVAL)
	b.want(1, verbs.WCSuccess)
	a.want(11, verbs.WCSuccess)
	b.recv(qb, 4, nil) // for the request behind the failing one, if that was posted
	a.none()
	b.none()
}

func testSelectiveSignalling(e *env, a, b *node, qa, qb verbs.QP) {
	mr, buf := b.mem(64)
	for i := range 30 {
		b.recv(qb, uint64(i), sge(mr, buf))
		var flags verbs.SendFlags
		if i%10 == 9 {
			flags = verbs.SendSignaled
		}
		a.send(qa, inline(uint64(100+i), flags, []byte{1}))
		b.want(uint64(i), verbs.WCSuccess)
	}
	for _, id := range []uint64{109, 119, 129} {
		a.want(id, verbs.WCSuccess)
	}
	a.none()
	q1, q2 := e.connect(a, b, qpConf{sigAll: true}, qpConf{})
	b.recv(q2, 1, sge(mr, buf))
	a.send(q1, inline(5, 0, nil))
	a.want(5, verbs.WCSuccess)
	b.want(1, verbs.WCSuccess)
}

// testUnsignaledReclaim: slots of unsignalled requests come back only when a later signalled
// completion is polled (TMO 8.2).
func testUnsignaledReclaim(e *env, a, b *node) {
	conf := qpConf{cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 32, MaxInlineData: 16}, cq: a.newCQ(16)}
	qa, qb := e.connect(a, b, conf, qpConf{})
	mr, buf := b.mem(64)
	for i := range uint64(8) {
		b.recv(qb, i, sge(mr, buf))
	}
	full := func() {
		e.t.Helper()
		wr := inline(99, 0, nil)
		_, err := qa.PostSend(&wr)
		e.errno(err, syscall.ENOMEM)
	}
	for i := range uint64(3) {
		a.send(qa, inline(i, 0, nil))
	}
	a.send(qa, inline(3, verbs.SendSignaled, nil))
	full()
	for i := range uint64(4) {
		b.want(i, verbs.WCSuccess)
	}
	e.settle() // the completion is in its CQ, but that was not polled
	full()
	e.until("the completion", func() bool { a.pollCQ(conf.cq); return len(a.got) > 0 })
	a.want(3, verbs.WCSuccess)
	for i := range uint64(4) {
		a.send(qa, inline(i, 0, nil))
	}
	full()
}

// testBacklog posts more than the wire takes at once, on several QPs, of all sizes.
func testBacklog(e *env, a, b *node) {
	const qps, each = 4, 40
	amr, abuf := a.mem(20_000)
	copy(abuf, pattern(len(abuf), 3))
	bmr, bbuf := b.mem(qps * each * 20_000)
	src := map[uint32]int{}
	var pairs [qps][2]verbs.QP
	for i := range pairs {
		pairs[i][0], pairs[i][1] = e.connect(a, b, qpConf{}, qpConf{})
		src[pairs[i][1].Num()] = i
	}
	size := func(i, k int) int { return (k*k*13 + i*5) % 20_000 }
	for k := range each {
		for i := range pairs {
			at := (i*each + k) * 20_000
			b.recv(pairs[i][1], uint64(at), sge(bmr, bbuf[at:at+20_000]))
			a.send(pairs[i][0], verbs.SendWR{WRID: uint64(k), Opcode: verbs.WRSend, SGList: sge(amr, abuf[:size(i, k)])})
		}
	}
	next := [qps]int{}
	for range qps * each {
		w := b.next()
		i := src[w.QPNum]
		k := next[i]
		next[i]++
		if w.Status != verbs.WCSuccess || w.WRID != uint64((i*each+k)*20_000) || int(w.ByteLen) != size(i, k) ||
			!bytes.Equal(received(w, bbuf[w.WRID:]), abuf[:size(i, k)]) {
			e.t.Fatalf("QP %d message %d: %+v", i, k, w.WRID)
		}
	}
}

// pollOther polls a CQ without completions, so that those of the node's own CQ pass through its
// ring.
func (n *node) pollOther() {
	cq, err := n.dev.CreateCQ(verbs.CQInitAttr{CQE: 1})
	n.e.ok(err)
	_, err = Poll(cq, n.wc[:])
	n.e.ok(err)
	n.e.ok(cq.Destroy())
}

func testCQOverrun(e *env, a, b *node) {
	small := qpConf{cq: b.newCQ(2)}
	qa, qb := e.connect(a, b, qpConf{}, small)
	for i := range uint64(40) {
		b.recv(qb, i, nil)
		a.send(qa, inline(i, 0, nil))
	}
	b.wantEvent(verbs.EventCQErr)
	if _, err := Poll(small.cq, b.wc[:]); err == nil {
		e.t.Error("an overrun CQ can be polled")
	}
}
