package verbstest

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

func (n *node) srqRecv(srq verbs.SRQ, wrid uint64, sg []verbs.SGE) {
	n.e.t.Helper()
	_, err := srq.PostSRQRecv(&verbs.RecvWR{WRID: wrid, SGList: sg})
	n.e.ok(err)
}

func testSRQPost(t *testing.T, open Opener) {
	e := newEnv(t, open, 2)
	b := e.nodes[1]
	srq := b.newSRQ(4)
	for i := range uint64(4) {
		b.srqRecv(srq, i, nil)
	}
	wr := &verbs.RecvWR{}
	bad, err := srq.PostSRQRecv(wr)
	e.errno(err, syscall.ENOMEM)
	if bad != wr {
		t.Error("wrong failing request")
	}
	_, err = b.newSRQ(4).PostSRQRecv(&verbs.RecvWR{SGList: make([]verbs.SGE, 3)})
	e.errno(err, syscall.EINVAL)
	_, qb := e.connect(e.nodes[0], b, qpConf{}, qpConf{srq: srq})
	_, err = qb.PostRecv(&verbs.RecvWR{})
	e.errno(err, syscall.EINVAL)
	e.errno(srq.Modify(verbs.SRQAttr{MaxWR: 8}, verbs.SRQMaxWR), syscall.EINVAL)
	at, err := srq.Query()
	e.ok(err)
	if at.MaxWR != 4 || at.MaxSGE != 2 || at.Limit != 0 {
		t.Errorf("%+v", at)
	}
}

func testSRQLimit(t *testing.T, open Opener) {
	e := newEnv(t, open, 2)
	a, b := e.nodes[0], e.nodes[1]
	srq := b.newSRQ(8)
	qa, _ := e.connect(a, b, qpConf{}, qpConf{srq: srq})
	for i := range uint64(8) {
		b.srqRecv(srq, i, nil)
	}
	e.ok(srq.Modify(verbs.SRQAttr{Limit: 6}, verbs.SRQLimit))
	take := func(i uint64) {
		a.send(qa, inline(0, 0, nil))
		b.want(i, verbs.WCSuccess)
	}
	take(0)
	take(1)
	if len(b.evs) != 0 {
		t.Fatalf("event at 6 of 6: %+v", b.evs)
	}
	take(2)
	if ev := b.wantEvent(verbs.EventSRQLimitReached); ev.QP != srq.Num() {
		t.Errorf("%+v", ev)
	}
	take(3)
	e.settle()
	if at, _ := srq.Query(); at.Limit != 0 || len(b.evs) != 0 {
		t.Error("the limit stays armed after its event")
	}
}

// testSRQOrder: many QPs of several devices on one SRQ. Order holds for each QP; receives are taken oldest first.
func testSRQOrder(t *testing.T, open Opener) {
	e := newEnv(t, open, 4)
	b := e.nodes[3]
	srq := b.newSRQ(1024)
	const qps, each = 5, 30
	src := map[uint32]int{}
	var out []verbs.QP
	var from []*node
	for _, a := range e.nodes[:3] {
		for range qps {
			qa, qb := e.connect(a, b, qpConf{}, qpConf{srq: srq})
			src[qb.Num()] = len(out)
			out, from = append(out, qa), append(from, a)
		}
	}
	mr, buf := b.mem(64)
	for i := range qps * 3 * each {
		b.srqRecv(srq, uint64(i), sge(mr, buf))
	}
	next := make([]int, len(out))
	seen := 0
	for k := range each {
		for i, q := range out {
			from[i].send(q, inline(0, 0, []byte{byte(i), byte(k)}))
		}
		e.poll()
	}
	for range qps * 3 * each {
		w := b.want(uint64(seen), verbs.WCSuccess)
		seen++
		i := src[w.QPNum]
		if w.Data != nil && (w.Data[0] != byte(i) || w.Data[1] != byte(next[i])) {
			t.Fatalf("QP %d: got %v, want message %d", i, w.Data, next[i])
		}
		next[i]++
	}
}

func testRNRForever(t *testing.T, open Opener) {
	e, a, b, qa, qb := pair(t, open)
	for i := range uint64(3) {
		a.send(qa, inline(i, verbs.SendSignaled, []byte{byte(i)}))
	}
	a.none()
	mr, buf := b.mem(64)
	for i := range uint64(3) {
		b.recv(qb, i, sge(mr, buf))
		if w := b.want(i, verbs.WCSuccess); received(w, buf)[0] != byte(i) {
			t.Fatal("out of order after RNR")
		}
		a.want(i, verbs.WCSuccess)
	}
	_ = e
}

func testRNRFinite(t *testing.T, open Opener) {
	for retry := range uint8(3) {
		e := newEnv(t, open, 2)
		a, b := e.nodes[0], e.nodes[1]
		qa, qb := e.connect(a, b, qpConf{rnr: retry, rnrSet: true}, qpConf{})
		a.send(qa, inline(1, 0, nil)) // errors complete unsignalled requests too
		a.send(qa, inline(2, 0, nil))
		a.want(1, verbs.WCRNRRetryExcErr)
		a.want(2, verbs.WCWRFlushErr)
		if qa.State() != verbs.QPSErr {
			t.Errorf("requester is in %v", qa.State())
		}
		b.none()
		_ = qb
	}
}

func testTooLong(t *testing.T, open Opener) {
	e, a, b, qa, qb := pair(t, open)
	mr, buf := b.mem(64)
	b.recv(qb, 1, sge(mr, buf[:9]))
	b.recv(qb, 2, sge(mr, buf))
	a.send(qa, inline(5, 0, make([]byte, 10)))
	a.send(qa, inline(6, verbs.SendSignaled, nil))
	a.want(5, verbs.WCRemInvReqErr)
	a.want(6, verbs.WCWRFlushErr)
	b.want(1, verbs.WCLocLenErr)
	b.want(2, verbs.WCWRFlushErr)
	if qa.State() != verbs.QPSErr || qb.State() != verbs.QPSErr {
		t.Errorf("states %v, %v", qa.State(), qb.State())
	}
	if !bytes.Equal(buf, make([]byte, 64)) {
		t.Error("the buffer was written")
	}
	_ = e
}

func testTooLongMultiPacket(t *testing.T, open Opener) {
	_, a, b, qa, qb := pair(t, open)
	mr, buf := b.mem(100_000)
	amr, abuf := a.mem(100_000)
	b.recv(qb, 1, sge(mr, buf[:99_999]))
	a.send(qa, verbs.SendWR{WRID: 5, Opcode: verbs.WRSend, SGList: sge(amr, abuf)})
	b.want(1, verbs.WCLocLenErr)
	a.want(5, verbs.WCRemInvReqErr)
}

// testBadLKey: local keys are checked, except with SendInline.
func testBadLKey(t *testing.T, open Opener) {
	e := newEnv(t, open, 2)
	a, b := e.nodes[0], e.nodes[1]
	mr, buf := a.mem(64)
	ro := a.reg(make([]byte, 64), 0)
	roBuf := make([]byte, 64)
	outside := make([]byte, 64)
	cases := map[string]verbs.SendWR{
		"unknown key":    {Opcode: verbs.WRSend, SGList: []verbs.SGE{{Data: buf, LKey: 0x7fffffff}}},
		"outside":        {Opcode: verbs.WRSend, SGList: sge(mr, outside)},
		"read into r/o":  {Opcode: verbs.WRRDMARead, SGList: sge(ro, roBuf)},
		"read, no key":   {Opcode: verbs.WRRDMARead, SGList: []verbs.SGE{{Data: buf}}},
		"write, bad key": {Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{{Data: buf, LKey: 1}}},
	}
	for name, wr := range cases {
		qa, qb := e.connect(a, b, qpConf{}, qpConf{})
		b.recv(qb, 1, nil)
		a.send(qa, inline(1, verbs.SendSignaled, nil))
		wr.WRID = 2
		a.send(qa, wr)
		if w := a.next(); w.WRID != 1 || w.Status != verbs.WCSuccess {
			t.Fatalf("%s: %+v", name, w)
		}
		if w := a.next(); w.WRID != 2 || w.Status != verbs.WCLocProtErr {
			t.Fatalf("%s: %+v", name, w)
		}
		b.want(1, verbs.WCSuccess)
	}
}

func testBadRecvLKey(t *testing.T, open Opener) {
	_, a, b, qa, qb := pair(t, open)
	_, err := qb.PostRecv(&verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{{Data: make([]byte, 8), LKey: 77}}})
	if err != nil {
		t.Fatal(err)
	}
	a.send(qa, inline(2, 0, []byte("x")))
	b.want(1, verbs.WCLocProtErr)
	a.want(2, verbs.WCRemOpErr)
}

// testFlush: moving to ERR flushes everything that is outstanding, in order, and further posts at once.
func testFlush(t *testing.T, open Opener) {
	e, a, b, qa, qb := pair(t, open)
	for i := range uint64(5) {
		a.send(qa, inline(i, verbs.SendSignaled, nil)) // nobody receives: RNR for ever
	}
	a.recv(qa, 50, nil)
	e.ok(qa.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
	for i := range uint64(5) {
		a.want(i, verbs.WCWRFlushErr)
	}
	a.want(50, verbs.WCWRFlushErr)
	a.none()
	_, _ = b, qb
}

// testFlushOnlyOwn: receives of an SRQ are not flushed (TMO 8.3); the QP's last request is announced.
func testFlushOnlyOwn(t *testing.T, open Opener) {
	e := newEnv(t, open, 2)
	a, b := e.nodes[0], e.nodes[1]
	srq := b.newSRQ(8)
	_, q1 := e.connect(a, b, qpConf{}, qpConf{srq: srq})
	p2, _ := e.connect(a, b, qpConf{}, qpConf{srq: srq})
	b.srqRecv(srq, 1, nil)
	e.ok(q1.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
	if ev := b.wantEvent(verbs.EventQPLastWQEReached); ev.QP != q1.Num() {
		t.Errorf("%+v", ev)
	}
	b.none()
	a.send(p2, inline(9, 0, nil))
	b.want(1, verbs.WCSuccess)
}

// testReset: RESET forgets everything without completions, and the QP can be used again.
func testReset(t *testing.T, open Opener) {
	e, a, b, qa, qb := pair(t, open)
	b.recv(qb, 9, nil) // once through, so that the link is up and what the resets send is not late
	a.send(qa, inline(8, verbs.SendSignaled, nil))
	b.want(9, verbs.WCSuccess)
	a.want(8, verbs.WCSuccess)
	a.send(qa, inline(1, verbs.SendSignaled, nil))
	a.recv(qa, 2, nil)
	for _, q := range []verbs.QP{qa, qb} {
		e.ok(q.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
		e.ok(q.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPAttrState))
	}
	e.settle()
	a.got, b.got = nil, nil
	a.raise(qa, b.dev, qb.Num(), qpConf{})
	b.raise(qb, a.dev, qa.Num(), qpConf{})
	b.recv(qb, 4, nil)
	a.send(qa, inline(3, verbs.SendSignaled, nil))
	b.want(4, verbs.WCSuccess)
	a.want(3, verbs.WCSuccess)
}
