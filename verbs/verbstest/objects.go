package verbstest

import (
	"strings"
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

func testAttributes(t *testing.T, open Opener) {
	e := newEnv(t, open, 2)
	a := e.nodes[0].dev.Attr()
	if a.MaxQP < 64 || a.MaxSGE < 2 || a.MaxCQE < 1024 || a.MaxInline < 64 || a.MaxMsgSize < 8<<20 || a.MaxQPRdAtom < 16 {
		t.Errorf("limits too small: %+v", a)
	}
	if len(e.nodes[0].dev.Address()) == 0 || string(e.nodes[0].dev.Address()) == string(e.nodes[1].dev.Address()) {
		t.Error("addresses must be there and differ")
	}
}

// testTransitions walks the table of ibv_modify_qp(3): each state, each target, each attribute left out.
func testTransitions(t *testing.T, open Opener) {
	e := newEnv(t, open, 1)
	n := e.nodes[0]
	full := map[verbs.QPState]func(qp verbs.QP) (*verbs.QPAttr, verbs.QPAttrMask){
		verbs.QPSInit: func(verbs.QP) (*verbs.QPAttr, verbs.QPAttrMask) { return initAttr(0) },
		verbs.QPSRTR:  func(qp verbs.QP) (*verbs.QPAttr, verbs.QPAttrMask) { return rtrAttr(n.dev, qp.Num()) },
		verbs.QPSRTS:  func(verbs.QP) (*verbs.QPAttr, verbs.QPAttrMask) { return rtsAttr(7) },
		verbs.QPSErr: func(verbs.QP) (*verbs.QPAttr, verbs.QPAttrMask) {
			return &verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState
		},
		verbs.QPSReset: func(verbs.QP) (*verbs.QPAttr, verbs.QPAttrMask) {
			return &verbs.QPAttr{State: verbs.QPSReset}, verbs.QPAttrState
		},
	}
	legal := map[[2]verbs.QPState]bool{
		{verbs.QPSReset, verbs.QPSInit}: true, {verbs.QPSInit, verbs.QPSInit}: true,
		{verbs.QPSInit, verbs.QPSRTR}: true, {verbs.QPSRTR, verbs.QPSRTS}: true,
	}
	path := []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS}
	for depth := 0; depth <= 4; depth++ {
		for to, attrs := range full {
			qp := n.newQP(qpConf{})
			for _, s := range path[:min(depth, 3)] {
				e.ok(qp.Modify(full[s](qp)))
			}
			if depth == 4 {
				e.ok(qp.Modify(full[verbs.QPSErr](qp)))
			}
			from := qp.State()
			attr, mask := attrs(qp)
			checkTransition(e, qp, from, to, attr, mask, legal[[2]verbs.QPState{from, to}] || to == verbs.QPSErr || to == verbs.QPSReset)
		}
	}
}

func checkTransition(e *env, qp verbs.QP, from, to verbs.QPState, attr *verbs.QPAttr, mask verbs.QPAttrMask, legal bool) {
	e.t.Helper()
	unchanged := func() {
		e.t.Helper()
		if qp.State() != from {
			e.t.Fatalf("%v to %v failed and left %v", from, to, qp.State())
		}
	}
	if legal && from != to {
		for bit := verbs.QPAttrMask(2); bit != 0; bit <<= 1 {
			if mask&bit != 0 { // leave one out
				err := qp.Modify(attr, mask&^bit)
				e.errno(err, syscall.EINVAL)
				if !strings.Contains(err.Error(), bit.String()) {
					e.t.Fatalf("%v to %v without %v: the error does not name it: %v", from, to, bit, err)
				}
				unchanged()
			}
		}
		e.errno(qp.Modify(attr, mask|verbs.QPAttrQKey), syscall.EINVAL)
		unchanged()
	}
	err := qp.Modify(attr, mask)
	if !legal {
		e.errno(err, syscall.EINVAL)
		unchanged()
		return
	}
	e.ok(err)
	if qp.State() != to {
		e.t.Fatalf("%v to %v ended in %v", from, to, qp.State())
	}
}

func testPostStates(t *testing.T, open Opener) {
	e := newEnv(t, open, 1)
	n := e.nodes[0]
	qp := n.newQP(qpConf{})
	mr, buf := n.mem(64)
	rwr, swr := &verbs.RecvWR{SGList: sge(mr, buf)}, &verbs.SendWR{Opcode: verbs.WRSend, WRID: 3}
	recvFails := func(want bool) {
		t.Helper()
		bad, err := qp.PostRecv(rwr)
		if (err != nil) != want || want && bad != rwr {
			t.Fatalf("PostRecv in %v: %v", qp.State(), err)
		}
	}
	sendFails := func() {
		t.Helper()
		bad, err := qp.PostSend(swr)
		if bad != swr {
			t.Fatalf("PostSend in %v: %v", qp.State(), err)
		}
		e.errno(err, syscall.EINVAL)
	}
	recvFails(true)
	sendFails()
	e.ok(qp.Modify(initAttr(0)))
	recvFails(false)
	sendFails()
	e.ok(qp.Modify(rtrAttr(n.dev, qp.Num())))
	sendFails()
	e.ok(qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
	n.want(0, verbs.WCWRFlushErr)
	n.send(qp, *swr) // taken, and flushed at once
	n.want(3, verbs.WCWRFlushErr)
	recvFails(false)
	n.want(0, verbs.WCWRFlushErr)
}

func testDestroyOrder(t *testing.T, open Opener) {
	e := newEnv(t, open, 1)
	n := e.nodes[0]
	pd, err := n.dev.AllocPD()
	e.ok(err)
	cq, err := n.dev.CreateCQ(verbs.CQInitAttr{CQE: 4})
	e.ok(err)
	srq, err := pd.CreateSRQ(&verbs.SRQInitAttr{SRQAttr: verbs.SRQAttr{MaxWR: 4}})
	e.ok(err)
	init := &verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, SRQ: srq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 4}}
	qp, err := pd.CreateQP(init)
	e.ok(err)
	mr, err := pd.RegMR(make([]byte, 8), 0)
	e.ok(err)
	e.errno(cq.Destroy(), syscall.EBUSY)
	e.errno(srq.Destroy(), syscall.EBUSY)
	e.errno(pd.Dealloc(), syscall.EBUSY)
	e.errno(n.dev.Close(), syscall.EBUSY)
	e.ok(qp.Destroy())
	e.errno(qp.Destroy(), syscall.EINVAL)
	e.ok(srq.Destroy())
	e.ok(cq.Destroy())
	e.errno(pd.Dealloc(), syscall.EBUSY)
	e.ok(mr.Dereg())
	e.ok(pd.Dealloc())
	for _, typ := range []verbs.QPType{verbs.QPTUC, verbs.QPTUD, verbs.QPTXRCSend} {
		init.Type, init.SRQ, init.SendCQ, init.RecvCQ = typ, nil, n.cq, n.cq
		_, err = n.pd.CreateQP(init)
		e.errno(err, syscall.EOPNOTSUPP)
	}
}

// testTagMatchingUnsupported: a device without tag matching says so (TMO 1.1, 1.2, 3.3).
func testTagMatchingUnsupported(t *testing.T, open Opener) {
	e := newEnv(t, open, 1)
	n := e.nodes[0]
	srq, err := n.pd.CreateSRQ(tagAttr(n.cq, 16, 16))
	e.errno(err, syscall.EOPNOTSUPP)
	if srq != nil {
		t.Error("an SRQ, and an error")
	}
	plain := n.newSRQ(4)
	for _, op := range []verbs.OpsOpcode{verbs.WRTagAdd, verbs.WRTagDel, verbs.WRTagSync, 7} {
		bad, err := plain.PostSRQOps(&verbs.OpsWR{Opcode: op})
		e.errno(err, syscall.EOPNOTSUPP)
		if bad != nil {
			t.Errorf("opcode %d: %+v is reported as failing, none was looked at", op, bad)
		}
	}
}

func testMRRules(t *testing.T, open Opener) {
	e := newEnv(t, open, 1)
	n := e.nodes[0]
	_, err := n.pd.RegMR(nil, 0)
	e.errno(err, syscall.EINVAL)
	_, err = n.pd.RegMR(make([]byte, 8), verbs.AccessRemoteWrite)
	e.errno(err, syscall.EINVAL)
	seen := map[uint32]bool{}
	for range 2000 { // keys do not come back soon
		mr, err := n.pd.RegMR(make([]byte, 8), verbs.AccessRemoteRead)
		e.ok(err)
		if mr.RKey() == 0 || seen[mr.RKey()] || mr.Len() != 8 || mr.Addr() == 0 {
			t.Fatalf("bad region: key %#x, seen before: %v", mr.RKey(), seen[mr.RKey()])
		}
		seen[mr.RKey()] = true
		e.ok(mr.Dereg())
	}
}
