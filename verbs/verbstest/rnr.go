package verbstest

import (
	"bytes"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 8.1 on RNR.

// rnrPair connects two nodes, with the retries of the requester and the timer of the responder.
func (e *env) rnrPair(from, to *node, retries, timer uint8) (verbs.QP, verbs.QP) {
	e.t.Helper()
	q, p := from.newQP(qpConf{}), to.newQP(qpConf{})
	from.raise(q, to.dev, p.Num(), qpConf{rnr: retries, rnrSet: true})
	attr, mask := rtrAttr(from.dev, q.Num())
	attr.MinRNRTimer = timer
	e.ok(p.Modify(initAttr(allAccess)))
	e.ok(p.Modify(attr, mask))
	e.ok(p.Modify(rtsAttr(7)))
	return q, p
}

const (
	rnrLongest  = 0 // 655.36 ms
	rnrShortest = 1 // 10 us
)

// testRNRFinite: up to 6 retries are finite; more retries take longer: a message with six of them
// is still received when a later one with fewer, to the same timer, was given up.
func testRNRFinite(e *env, a, b, c *node) {
	for retries := range uint8(7) {
		qa, _ := e.rnrPair(a, b, retries, rnrShortest)
		a.send(qa, inline(uint64(retries), verbs.SendSignaled, nil))
		a.want(uint64(retries), verbs.WCRNRRetryExcErr)
	}
	long, peer := e.rnrPair(a, b, 6, rnrLongest)
	none, _ := e.rnrPair(c, b, 0, rnrLongest)
	e.outlasts(long, peer, none)
}

// testRNRTimer: the responder's timer determines how long a requester with finite retries waits:
// with the longest one a message is still received when a later one, to the shortest timer, was
// given up.
func testRNRTimer(e *env, a, b, c *node) {
	long, peer := e.rnrPair(a, b, 6, rnrLongest)
	short, _ := e.rnrPair(c, b, 6, rnrShortest)
	e.outlasts(long, peer, short)
}

// outlasts sends a message from the first node, and then one from the third to the second, which
// has no receive: when that one was given up, a receive for the first one, at peer, still gets it.
func (e *env) outlasts(long, peer, short verbs.QP) {
	e.t.Helper()
	a, b, c := e.nodes[0], e.nodes[1], e.nodes[2]
	a.send(long, inline(1, verbs.SendSignaled, nil))
	c.send(short, inline(2, verbs.SendSignaled, nil))
	c.want(2, verbs.WCRNRRetryExcErr)
	a.none()
	b.recv(peer, 3, nil)
	a.want(1, verbs.WCSuccess)
	b.want(3, verbs.WCSuccess)
}

// testRNRForever: with 7 retries a message waits for its receive without limit.
func testRNRForever(e *env, a, b *node) {
	qa, qb := e.rnrPair(a, b, 7, rnrShortest)
	for i := range uint64(3) {
		a.send(qa, inline(i, verbs.SendSignaled, []byte{byte(i)}))
	}
	a.none()
	mr, buf := b.mem(64)
	for i := range uint64(3) {
		b.recv(qb, i, sge(mr, buf))
		if w := b.want(i, verbs.WCSuccess); received(w, buf)[0] != byte(i) {
			e.t.Fatal("out of order after RNR")
		}
		a.want(i, verbs.WCSuccess)
	}
}

// testHeadOfLine: a request behind a message without a receive is not executed before it, whether
// it needs a receive or not.
func testHeadOfLine(e *env, a, b *node, qa, qb verbs.QP) {
	mr, buf := a.mem(64)
	copy(buf, pattern(64, 1))
	rmr, rbuf := b.mem(64)
	a.send(qa, inline(1, verbs.SendSignaled, nil))
	a.send(qa, rdma(verbs.WRRDMAWrite, 2, sge(mr, buf), rmr, 0))
	a.none()
	if !bytes.Equal(rbuf, make([]byte, 64)) {
		e.t.Error("the write passed the send")
	}
	b.recv(qb, 3, nil)
	a.want(1, verbs.WCSuccess)
	a.want(2, verbs.WCSuccess)
	b.want(3, verbs.WCSuccess)
	if !bytes.Equal(rbuf, buf) {
		e.t.Error("wrong data")
	}
}
