package verbstest

import (
	"reflect"
	"strings"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 8.1 on states: the transitions, their attributes, and what may be
// posted when.

// qpStates are the states in the order of their transitions.
var qpStates = []verbs.QPState{verbs.QPSReset, verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS, verbs.QPSErr}

// stateAlone returns the arguments of Modify for ERR and RESET.
func stateAlone(to verbs.QPState) (*verbs.QPAttr, verbs.QPAttrMask) {
	return &verbs.QPAttr{State: to}, verbs.QPAttrState
}

// stepTo returns the arguments of Modify that bring a queue pair of n, connected to itself, into a
// state from the one before.
func (n *node) stepTo(qp verbs.QP, to verbs.QPState) (*verbs.QPAttr, verbs.QPAttrMask) {
	switch to {
	case verbs.QPSInit:
		return initAttr(allAccess)
	case verbs.QPSRTR:
		return rtrAttr(n.dev, qp.Num())
	case verbs.QPSRTS:
		return rtsAttr(7)
	}
	return stateAlone(to)
}

// qpIn creates a queue pair in a state.
func (n *node) qpIn(state verbs.QPState) verbs.QP {
	n.e.t.Helper()
	qp := n.newQP(qpConf{})
	for i := 1; qp.State() != state; i++ {
		n.e.ok(qp.Modify(n.stepTo(qp, qpStates[i])))
	}
	return qp
}

// testTransitions: from each state to each, with the attributes of the table of ibv_modify_qp(3).
func testTransitions(e *env, n *node) {
	legal := map[[2]verbs.QPState]bool{
		{verbs.QPSReset, verbs.QPSInit}: true, {verbs.QPSInit, verbs.QPSInit}: true,
		{verbs.QPSInit, verbs.QPSRTR}: true, {verbs.QPSRTR, verbs.QPSRTS}: true,
	}
	for _, from := range qpStates {
		for _, to := range []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS, verbs.QPSSQD, verbs.QPSSQE, 7, 99} {
			if from == verbs.QPSRTS && (to == verbs.QPSRTS || to == verbs.QPSSQD) {
				continue // one takes other attributes, TMO is silent about the other
			}
			qp := n.qpIn(from)
			err := qp.Modify(n.stepTo(qp, to))
			want := from
			if legal[[2]verbs.QPState{from, to}] {
				e.ok(err)
				want = to
			} else {
				e.errno(err, syscall.EINVAL)
			}
			if qp.State() != want {
				e.t.Errorf("%v to %v ended in %v", from, to, qp.State())
			}
		}
	}
}

// testMasks: each transition, without one of its attributes, and with an illegal one.
func testMasks(e *env, n *node) {
	const all = verbs.QPMaskInit | verbs.QPMaskRTR | verbs.QPMaskRTS | verbs.QPAttrQKey
	optional := map[verbs.QPState]verbs.QPAttrMask{
		verbs.QPSRTR: verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex,
		verbs.QPSRTS: verbs.QPAttrAccessFlags | verbs.QPAttrMinRNRTimer,
	}
	qp := n.newQP(qpConf{})
	for _, to := range []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS} {
		attr, need := n.stepTo(qp, to)
		attr.AccessFlags, attr.MinRNRTimer = allAccess, 14
		for bit := verbs.QPAttrState << 1; bit <= all; bit <<= 1 {
			mask := need
			switch {
			case need&bit != 0:
				mask &^= bit
			case (all&^optional[to])&bit != 0:
				mask |= bit
			default:
				continue
			}
			err := qp.Modify(attr, mask)
			e.errno(err, syscall.EINVAL)
			if !strings.Contains(err.Error(), bit.String()) {
				e.t.Errorf("to %v with %v: the error does not name %v: %v", to, mask, bit, err)
			}
		}
		e.ok(qp.Modify(attr, need|optional[to]))
	}
	attr, mask := rtsAttr(7)
	e.errno(qp.Modify(attr, mask), syscall.EINVAL) // in RTS they are illegal
}

// testErrAndReset: from each state to ERR and to RESET; other attributes are illegal with that.
func testErrAndReset(e *env, n *node) {
	for _, from := range qpStates {
		for _, to := range []verbs.QPState{verbs.QPSErr, verbs.QPSReset} {
			qp := n.qpIn(from)
			attr, mask := stateAlone(to)
			attr.Port = 1
			e.errno(qp.Modify(attr, mask|verbs.QPAttrPort), syscall.EINVAL)
			e.ok(qp.Modify(attr, mask))
			if qp.State() != to {
				e.t.Errorf("%v to %v ended in %v", from, to, qp.State())
			}
		}
	}
}

// testAttributeValues: the smallest and the largest value of each attribute are legal, the next
// ones are not.
func testAttributeValues(e *env, n *node) {
	most := uint32(n.dev.Attr().MaxMTU)
	for what, c := range map[string]struct {
		to       verbs.QPState
		min, max uint32
		set      func(a *verbs.QPAttr, v uint32)
		get      func(a verbs.QPAttr) uint32
	}{
		"PathMTU": {verbs.QPSRTR, 1, most, func(a *verbs.QPAttr, v uint32) { a.PathMTU = verbs.MTU(v) },
			func(a verbs.QPAttr) uint32 { return uint32(a.PathMTU) }},
		"RQPSN": {verbs.QPSRTR, 0, 1<<24 - 1, func(a *verbs.QPAttr, v uint32) { a.RQPSN = v }, func(a verbs.QPAttr) uint32 { return a.RQPSN }},
		"SQPSN": {verbs.QPSRTS, 0, 1<<24 - 1, func(a *verbs.QPAttr, v uint32) { a.SQPSN = v }, func(a verbs.QPAttr) uint32 { return a.SQPSN }},
		"MinRNRTimer": {verbs.QPSRTR, 0, 31, func(a *verbs.QPAttr, v uint32) { a.MinRNRTimer = uint8(v) },
			func(a verbs.QPAttr) uint32 { return uint32(a.MinRNRTimer) }},
		"Timeout": {verbs.QPSRTS, 0, 31, func(a *verbs.QPAttr, v uint32) { a.Timeout = uint8(v) },
			func(a verbs.QPAttr) uint32 { return uint32(a.Timeout) }},
		"RetryCnt": {verbs.QPSRTS, 0, 7, func(a *verbs.QPAttr, v uint32) { a.RetryCnt = uint8(v) },
			func(a verbs.QPAttr) uint32 { return uint32(a.RetryCnt) }},
		"RNRRetry": {verbs.QPSRTS, 0, 7, func(a *verbs.QPAttr, v uint32) { a.RNRRetry = uint8(v) },
			func(a verbs.QPAttr) uint32 { return uint32(a.RNRRetry) }},
	} {
		if what == "PathMTU" && most > uint32(verbs.MTU4096) {
			e.t.Errorf("MaxMTU is %d", most)
		}
		before := qpStates[uint32(c.to)-1]
		for _, v := range []uint32{c.min - 1, c.min, c.max, c.max + 1} {
			qp := n.qpIn(before)
			attr, mask := n.stepTo(qp, c.to)
			c.set(attr, v)
			if c.get(*attr) != v {
				continue // below 0
			}
			err := qp.Modify(attr, mask)
			if v < c.min || v > c.max {
				e.errno(err, syscall.EINVAL)
				continue
			}
			e.ok(err)
			if a, _ := e.query(qp); c.get(a) != v {
				e.t.Errorf("%s is %d, was set to %d", what, c.get(a), v)
			}
		}
	}
}

// testRefusedUnchanged: a refused Modify, because of a value or its mask, changes nothing.
func testRefusedUnchanged(e *env, n *node) {
	qp := n.newQP(qpConf{})
	faults := map[verbs.QPState]map[string]func(a *verbs.QPAttr, mask *verbs.QPAttrMask){
		verbs.QPSInit: {
			"Port":        func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.Port = 9 },
			"PKeyIndex":   func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.PKeyIndex = 60_000 },
			"AccessFlags": func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.AccessFlags = 1 << 30 },
		},
		verbs.QPSRTR: {
			"PathMTU":         func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.PathMTU = 0 },
			"RQPSN":           func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.RQPSN = 1 << 24 },
			"DestQPN":         func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.DestQPN = 1 << 24 },
			"MinRNRTimer":     func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.MinRNRTimer = 32 },
			"MaxDestRdAtomic": func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.MaxDestRdAtomic = 255 },
			"address":         func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.AV.Address = []byte("nowhere") },
		},
		verbs.QPSRTS: {
			"SQPSN":       func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.SQPSN = 1 << 24 },
			"RetryCnt":    func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.RetryCnt = 8 },
			"RNRRetry":    func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.RNRRetry = 8 },
			"Timeout":     func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.Timeout = 32 },
			"MaxRdAtomic": func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.MaxRdAtomic = 255 },
		},
	}
	for _, to := range []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS} {
		spoil := faults[to]
		spoil["mask, the state alone"] = func(_ *verbs.QPAttr, mask *verbs.QPAttrMask) { *mask = verbs.QPAttrState }
		spoil["mask, with a foreign attribute"] = func(_ *verbs.QPAttr, mask *verbs.QPAttrMask) { *mask |= verbs.QPAttrQKey }
		spoil["state"] = func(a *verbs.QPAttr, _ *verbs.QPAttrMask) { a.State = verbs.QPSSQE }
		for what, f := range spoil {
			attr, mask := n.stepTo(qp, to)
			f(attr, &mask)
			before, _ := e.query(qp)
			e.errno(qp.Modify(attr, mask), syscall.EINVAL)
			if after, _ := e.query(qp); !sameAttr(before, after) || qp.State() != before.State {
				e.t.Fatalf("to %v, with a bad %s: changed %+v to %+v", to, what, before, after)
			}
		}
		e.ok(qp.Modify(n.stepTo(qp, to)))
	}
	if a, _ := e.query(qp); a.Port != 1 || a.PKeyIndex != 0 || a.RNRRetry != 7 || a.RetryCnt != 6 || a.MinRNRTimer != 14 ||
		a.AccessFlags != allAccess || a.State != verbs.QPSRTS {
		e.t.Errorf("%+v", a)
	}
}

func sameAttr(a, b verbs.QPAttr) bool {
	same := string(a.AV.Address) == string(b.AV.Address)
	a.AV.Address, b.AV.Address = nil, nil // a copy may be empty or nil
	return same && reflect.DeepEqual(a, b)
}

// testRecvFromInit: receives are accepted in INIT and all later states, not before.
func testRecvFromInit(e *env, n *node) {
	qp := n.newQP(qpConf{})
	wr := &verbs.RecvWR{WRID: 99}
	refuse(e, qp.PostRecv, wr, wr, syscall.EINVAL)
	for i, to := range []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS} {
		e.ok(qp.Modify(n.stepTo(qp, to)))
		n.recv(qp, uint64(i), nil)
	}
	e.ok(qp.Modify(stateAlone(verbs.QPSErr)))
	for i := range uint64(3) {
		n.want(i, verbs.WCWRFlushErr)
	}
	n.none()
}

// testAcceptFromRTR: a receive posted in INIT gets a packet once its queue pair is in RTR, not
// before.
func testAcceptFromRTR(e *env, a, b *node) {
	qa, qb := a.newQP(qpConf{}), b.newQP(qpConf{})
	e.ok(qb.Modify(initAttr(allAccess)))
	b.recv(qb, 1, nil)
	a.raise(qa, b.dev, qb.Num(), qpConf{})
	a.send(qa, inline(2, verbs.SendSignaled, nil))
	b.none()
	e.ok(qb.Modify(rtrAttr(a.dev, qa.Num())))
	b.want(1, verbs.WCSuccess)
	a.want(2, verbs.WCSuccess)
}

// testSendFromRTS: sends are refused before RTS, and have no effect later.
func testSendFromRTS(e *env, n *node) {
	qp := n.newQP(qpConf{})
	for _, state := range qpStates {
		if state != verbs.QPSReset {
			e.ok(qp.Modify(n.stepTo(qp, state)))
		}
		wr := inline(uint64(state), verbs.SendSignaled, nil)
		if state == verbs.QPSRTS {
			n.recv(qp, 9, nil) // it is connected to itself
			n.send(qp, wr)
			break
		}
		refuse(e, qp.PostSend, &wr, &wr, syscall.EINVAL)
	}
	e.until("the send and the receive", func() bool { return len(n.got) == 2 })
	for _, w := range n.got {
		if w.Status != verbs.WCSuccess || w.WRID != 9 && w.WRID != uint64(verbs.QPSRTS) {
			e.t.Errorf("%+v", w)
		}
	}
}

// testReset: RESET discards everything without completions, and the QP can be used again.
func testReset(e *env, a, b *node, qa, qb verbs.QP) {
	wa, wb := e.connect(a, b, qpConf{}, qpConf{})
	a.send(qa, inline(1, verbs.SendSignaled, nil))
	a.recv(qa, 2, nil)
	for _, q := range []verbs.QP{qa, qb} {
		e.ok(q.Modify(stateAlone(verbs.QPSErr)))
		e.ok(q.Modify(stateAlone(verbs.QPSReset)))
	}
	// Packets of the queue pairs' former connection must be gone: all their packets use the link of
	// these two.
	b.recv(wb, 5, nil)
	a.send(wa, inline(6, 0, nil))
	b.wantLast(5)
	a.recv(wa, 7, nil)
	b.send(wb, inline(8, 0, nil))
	a.wantLast(7)
	e.settle() // notices may leave behind what was sent after them
	a.raise(qa, b.dev, qb.Num(), qpConf{})
	b.raise(qb, a.dev, qa.Num(), qpConf{})
	b.recv(qb, 4, nil)
	a.send(qa, inline(3, verbs.SendSignaled, nil))
	b.want(4, verbs.WCSuccess)
	a.want(3, verbs.WCSuccess)
}
