package verbstest

import (
	"bytes"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 8.3: which status an error has, on which side, and what follows.

// testTooLong: a message longer than its receive, of one packet and of several.
func testTooLong(e *env, a, b *node) {
	amr, abuf := a.mem(100_000)
	copy(abuf, pattern(len(abuf), 1))
	bmr, bbuf := b.mem(100_000)
	for _, n := range []int{10, 100_000} {
		qa, qb := e.connect(a, b, qpConf{}, qpConf{})
		b.recv(qb, 1, sge(bmr, bbuf[:n-1]))
		a.send(qa, verbs.SendWR{WRID: 5, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(amr, abuf[:n])})
		a.want(5, verbs.WCRemInvReqErr)
		b.want(1, verbs.WCLocLenErr)
		if state(qb) != verbs.QPSErr {
			e.t.Errorf("the responder is in %v", state(qb))
		}
		if n == 10 && !bytes.Equal(bbuf[:n], make([]byte, n)) {
			e.t.Error("the buffer was written")
		}
	}
}

// testNoReceive: a responder without receives sends RNR and is otherwise unaffected: its next
// receive works.
func testNoReceive(e *env, a, b *node) {
	qa, qb := e.connect(a, b, qpConf{rnrSet: true}, qpConf{})
	a.send(qa, inline(1, verbs.SendSignaled, nil))
	a.want(1, verbs.WCRNRRetryExcErr)
	b.none()
	if state(qb) != verbs.QPSRTS || len(b.evs) > 0 {
		e.t.Errorf("the responder is in %v, with events %+v", state(qb), b.evs)
	}
	b.recv(qb, 2, nil) // not matched by the message that its sender gave up
	b.none()
}

// testBadRKey: bounds, keys and rights of the region are checked at the target, which gets an
// event.
func testBadRKey(e *env, a, b *node) {
	amr, abuf := a.mem(64)
	bbuf := make([]byte, 64)
	all := b.reg(bbuf, allAccess)
	none := b.reg(make([]byte, 64), verbs.AccessLocalWrite)
	local := sge(amr, abuf)
	copy(abuf, pattern(len(abuf), 1))
	for _, op := range []verbs.SendOpcode{verbs.WRRDMARead, verbs.WRRDMAWrite} {
		bad := []verbs.SendWR{rdma(op, 1, local, all, 1), rdma(op, 1, local, all, -1), rdma(op, 1, local, none, 0)}
		key := rdma(op, 1, local, all, 0)
		key.RKey ^= 1 << 20
		zero := rdma(op, 1, local, all, 0)
		zero.RKey = 0
		wrap := rdma(op, 1, local, all, 0)
		wrap.RemoteAddr = ^uint64(0) - 10
		for i, wr := range append(bad, key, zero, wrap) {
			qa, qb := e.connect(a, b, qpConf{}, qpConf{})
			a.send(qa, wr)
			if w := a.next(); !e.refused(w.Status, verbs.WCRemAccessErr) {
				e.t.Fatalf("%v, case %d: %v", op, i, w.Status)
			}
			b.wantFailure(verbs.EventQPAccessErr, qb)
			if state(qb) != verbs.QPSErr {
				e.t.Fatalf("%v, case %d: the responder is in %v", op, i, state(qb))
			}
		}
	}
	if !bytes.Equal(bbuf, make([]byte, 64)) {
		e.t.Error("memory was written")
	}
}

// testBadLKey: local keys of sends and receives are checked, and the side that used them gets the
// error.
func testBadLKey(e *env, a, b *node) {
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
			e.t.Fatalf("%s: %+v", name, w)
		}
		if w := a.next(); w.WRID != 2 || w.Status != verbs.WCLocProtErr {
			e.t.Fatalf("%s: %+v", name, w)
		}
		b.want(1, verbs.WCSuccess)
	}
	bmr, _ := b.mem(8)
	bro := make([]byte, 8)
	for _, sg := range [][]verbs.SGE{{{Data: make([]byte, 8), LKey: 77}}, sge(bmr, make([]byte, 8)), sge(b.reg(bro, 0), bro)} {
		qa, qb := e.connect(a, b, qpConf{}, qpConf{})
		b.recv(qb, 1, sg)
		a.send(qa, inline(2, 0, []byte("x")))
		b.want(1, verbs.WCLocProtErr)
		a.want(2, verbs.WCRemOpErr)
	}
}

// failing posts a request of a that fails with status, as request 1.
type failing struct {
	status verbs.WCStatus
	conf   qpConf // of the sender's queue pair
	post   func(qa, qb verbs.QP)
}

// failings are ways to fail, with signalled requests or without.
func failings(a, b *node, flags verbs.SendFlags) map[string]failing {
	amr, abuf := a.mem(64)
	bmr, _ := b.mem(8)
	return map[string]failing{
		"local key": {verbs.WCLocProtErr, qpConf{}, func(qa, _ verbs.QP) {
			a.send(qa, verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, Flags: flags, SGList: []verbs.SGE{{Data: abuf, LKey: 77}}})
		}},
		"remote key": {verbs.WCRemAccessErr, qpConf{}, func(qa, _ verbs.QP) {
			wr := rdma(verbs.WRRDMAWrite, 1, sge(amr, abuf), bmr, 1<<20)
			wr.Flags = flags
			a.send(qa, wr)
		}},
		"too long": {verbs.WCRemInvReqErr, qpConf{}, func(qa, qb verbs.QP) {
			b.recv(qb, 7, nil)
			a.send(qa, inline(1, flags, []byte{1}))
		}},
		"receive's key": {verbs.WCRemOpErr, qpConf{}, func(qa, qb verbs.QP) {
			b.recv(qb, 7, []verbs.SGE{{Data: make([]byte, 8), LKey: 77}})
			a.send(qa, inline(1, flags, []byte{1}))
		}},
		"no receive": {verbs.WCRNRRetryExcErr, qpConf{rnrSet: true}, func(qa, _ verbs.QP) { a.send(qa, inline(1, flags, nil)) }},
	}
}

// testErrorsComplete: of unsignalled requests those complete that fail or are flushed, and no
// others: not one that was executed, acknowledged or not. What is behind the error is flushed in
// order.
func testErrorsComplete(e *env, a, b *node) {
	for what, f := range failings(a, b, 0) {
		for _, acked := range []bool{false, true} {
			qa, qb := e.connect(a, b, f.conf, qpConf{})
			b.recv(qb, 5, nil)
			a.send(qa, inline(8, 0, nil))
			b.want(5, verbs.WCSuccess)
			if acked {
				b.recv(qb, 6, nil)
				a.send(qa, inline(9, verbs.SendSignaled, nil))
				a.want(9, verbs.WCSuccess)
				b.want(6, verbs.WCSuccess)
			}
			f.post(qa, qb)
			for i := range uint64(3) {
				a.send(qa, inline(2+i, 0, nil))
			}
			a.want(1, f.status)
			for i := range uint64(3) {
				if w := a.next(); w.WRID != 2+i || w.Status != verbs.WCWRFlushErr {
					e.t.Fatalf("%s: %+v behind the error, want request %d flushed", what, w, 2+i)
				}
			}
			a.none()
			b.got = nil
		}
	}
}

// testFirstError: when the first error is polled, its queue pair is in ERR, whatever failed.
func testFirstError(e *env, a, b *node) {
	for what, f := range failings(a, b, verbs.SendSignaled) {
		qa, qb := e.connect(a, b, f.conf, qpConf{})
		f.post(qa, qb)
		a.want(1, f.status)
		if state(qa) != verbs.QPSErr {
			e.t.Errorf("%s: the requester is in %v", what, state(qa))
		}
		if f.status == verbs.WCRemInvReqErr || f.status == verbs.WCRemOpErr {
			if w := b.next(); w.WRID != 7 || w.Status == verbs.WCSuccess || state(qb) != verbs.QPSErr {
				e.t.Errorf("%s: the responder has %+v in %v", what, w, state(qb))
			}
		}
		e.settle()
		b.got = nil
	}
}

// testFlush: an error, or ERR itself, flushes all outstanding requests, in order; later ones at
// once.
func testFlush(e *env, a, b *node, qa, qb verbs.QP) {
	mr, buf := b.mem(64)
	b.recv(qb, 1, sge(mr, buf[:9]))
	b.recv(qb, 2, sge(mr, buf))
	a.recv(qa, 4, nil)
	a.send(qa, inline(5, 0, make([]byte, 10))) // too long
	a.send(qa, inline(6, verbs.SendSignaled, nil))
	a.want(5, verbs.WCRemInvReqErr)
	a.want(6, verbs.WCWRFlushErr)
	a.want(4, verbs.WCWRFlushErr)
	b.want(1, verbs.WCLocLenErr)
	b.want(2, verbs.WCWRFlushErr)

	qa, _ = e.connect(a, b, qpConf{}, qpConf{})
	for i := range uint64(5) {
		a.send(qa, inline(i, verbs.SendSignaled, nil)) // no receive: RNR for ever
	}
	a.recv(qa, 50, nil)
	e.ok(qa.Modify(stateAlone(verbs.QPSErr)))
	for i := range uint64(5) {
		a.want(i, verbs.WCWRFlushErr)
	}
	a.want(50, verbs.WCWRFlushErr)
	for i := range uint64(3) {
		a.send(qa, inline(60+i, 0, nil))
		a.want(60+i, verbs.WCWRFlushErr)
		a.recv(qa, 70+i, nil)
		a.want(70+i, verbs.WCWRFlushErr)
	}
	a.none()
}

// testSRQNotFlushed: receives of an SRQ stay for its other queue pairs.
func testSRQNotFlushed(e *env, a, b *node) {
	srq := b.newSRQ(8)
	_, q1 := e.connect(a, b, qpConf{}, qpConf{srq: srq})
	p2, _ := e.connect(a, b, qpConf{}, qpConf{srq: srq})
	b.srqRecv(srq, 1, nil)
	e.ok(q1.Modify(stateAlone(verbs.QPSErr)))
	b.none()
	a.send(p2, inline(9, 0, nil))
	b.want(1, verbs.WCSuccess)
}

// testLastWQE: a queue pair that stops using its SRQ raises the event once, whether a message or
// its program moved it to ERR.
func testLastWQE(e *env, a, b *node) {
	srq := b.newSRQ(8)
	p1, q1 := e.connect(a, b, qpConf{}, qpConf{srq: srq})
	_, q2 := e.connect(a, b, qpConf{}, qpConf{srq: srq})
	_, own := e.connect(a, b, qpConf{}, qpConf{})
	b.srqRecv(srq, 1, nil)
	a.send(p1, inline(9, 0, []byte("too long")))
	b.want(1, verbs.WCLocLenErr)
	if ev := b.wantEvent(verbs.EventQPLastWQEReached); ev.QP != q1.Num() {
		e.t.Errorf("%+v, want queue pair %d", ev, q1.Num())
	}
	e.ok(own.Modify(stateAlone(verbs.QPSErr)))
	e.ok(q2.Modify(stateAlone(verbs.QPSErr)))
	if ev := b.wantEvent(verbs.EventQPLastWQEReached); ev.QP != q2.Num() {
		e.t.Errorf("%+v, want queue pair %d", ev, q2.Num())
	}
	e.settle()
	for _, ev := range b.evs {
		if ev.Type == verbs.EventQPLastWQEReached {
			e.t.Errorf("%+v comes too", ev)
		}
	}
}

// testErrorFields: an error completion identifies its request and queue pair, also when several
// fail on one CQ.
func testErrorFields(e *env, a, b *node) {
	mr, buf := a.mem(64)
	rmr, _ := b.mem(8)
	want := map[uint64]uint32{}
	for i := range uint64(4) {
		qa, qb := e.connect(a, b, qpConf{}, qpConf{})
		b.recv(qb, 100+i, nil)
		a.send(qa, rdma(verbs.WRRDMAWrite, i, sge(mr, buf), rmr, 1<<20))
		a.send(qa, inline(50+i, 0, nil))
		want[i], want[50+i], want[100+i] = qa.Num(), qa.Num(), qb.Num()
	}
	e.until("all completions", func() bool { return len(a.got) == 8 && len(b.got) == 4 })
	for _, w := range append(a.got, b.got...) {
		if want[w.WRID] != w.QPNum || w.Status == verbs.WCSuccess || e.refused(w.Status, verbs.WCRemAccessErr) != (w.WRID < 50) {
			e.t.Errorf("%+v, want QP %d", w, want[w.WRID])
		}
		delete(want, w.WRID)
	}
	if len(want) > 0 {
		e.t.Errorf("no completions of %v", want)
	}
}
