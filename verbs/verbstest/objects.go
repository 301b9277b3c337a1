package verbstest

import (
	"errors"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
)

func testAttributes(e *env, n, other *node) {
	a := n.dev.Attr()
	if a.MaxQP < 64 || a.MaxSGE < 2 || a.MaxCQE < 1024 || a.MaxInline < 64 || a.MaxMsgSize < 8<<20 ||
		a.MaxQPRdAtom < 16 || a.MaxQPInitRdAtom < 16 {
		e.t.Errorf("limits too small: %+v", a)
	}
	if len(n.dev.Address()) == 0 || string(n.dev.Address()) == string(other.dev.Address()) {
		e.t.Error("addresses must be there and differ")
	}
}

// testBusy: an object in use cannot be destroyed; one that is unused can.
func testBusy(e *env, n *node) {
	newQP := func(pd verbs.PD, send, recv verbs.CQ) func() error {
		qp, err := pd.CreateQP(&verbs.QPInitAttr{SendCQ: send, RecvCQ: recv, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 4}})
		e.ok(err)
		return qp.Destroy
	}
	for what, c := range map[string]struct {
		make func(pd verbs.PD, cq verbs.CQ) (destroy func() error)
		qp   bool // a queue pair, which uses the CQ too
	}{
		"region": {func(pd verbs.PD, _ verbs.CQ) func() error {
			mr, err := pd.RegMR(make([]byte, 8), 0)
			e.ok(err)
			return mr.Dereg
		}, false},
		"SRQ": {func(pd verbs.PD, _ verbs.CQ) func() error {
			srq, err := pd.CreateSRQ(&verbs.SRQInitAttr{SRQAttr: verbs.SRQAttr{MaxWR: 4}})
			e.ok(err)
			return srq.Destroy
		}, false},
		"queue pair that sends to the CQ":      {func(pd verbs.PD, cq verbs.CQ) func() error { return newQP(pd, cq, n.cq) }, true},
		"queue pair that receives from the CQ": {func(pd verbs.PD, cq verbs.CQ) func() error { return newQP(pd, n.cq, cq) }, true},
	} {
		pd, err := n.dev.AllocPD()
		e.ok(err)
		cq, err := n.dev.CreateCQ(verbs.CQInitAttr{CQE: 4})
		e.ok(err)
		destroy := c.make(pd, cq)
		if err := pd.Dealloc(); !errors.Is(err, syscall.EBUSY) {
			e.t.Fatalf("the PD of a %s: %v, want EBUSY", what, err)
		}
		if c.qp {
			e.errno(cq.Destroy(), syscall.EBUSY)
		}
		e.ok(destroy())
		if c.qp {
			e.errno(destroy(), syscall.EINVAL) // it is destroyed
		}
		e.ok(pd.Dealloc())
		e.ok(cq.Destroy())
	}
	if n.matchesTags() {
		used, _ := n.tagSRQ(1, 1)
		e.errno(used.Destroy(), syscall.EBUSY)
	}
	e.errno(n.dev.Close(), syscall.EBUSY)
}

// testSRQBusy: an SRQ, of each type that the device has, cannot be destroyed while a queue pair is
// attached.
func testSRQBusy(e *env, n *node) {
	attrs := []*verbs.SRQInitAttr{{SRQAttr: verbs.SRQAttr{MaxWR: 4}}}
	if n.matchesTags() {
		attrs = append(attrs, tagAttr(n.tagCQ(16), 7, 16))
	}
	for _, attr := range attrs {
		srq, err := n.pd.CreateSRQ(attr)
		e.ok(err)
		var qps []verbs.QP
		for range 2 {
			qps = append(qps, n.newQP(qpConf{srq: srq}))
		}
		for _, qp := range qps {
			e.errno(srq.Destroy(), syscall.EBUSY)
			n.srqRecv(srq, 1, nil) // it still works
			n.destroy(qp)
		}
		e.ok(srq.Destroy())
	}
}

// testTagMatchingUnsupported: list operations on an SRQ of a device without tag matching (TMO 3.3).
// None of them is reported as failing, since none was looked at.
func testTagMatchingUnsupported(e *env, n *node) {
	plain := n.newSRQ(4)
	for _, op := range []verbs.OpsOpcode{verbs.WRTagAdd, verbs.WRTagDel, verbs.WRTagSync, 7} {
		refuse(e, plain.PostSRQOps, &verbs.OpsWR{Opcode: op}, nil, syscall.EOPNOTSUPP)
	}
}

func testMRRules(e *env, n *node) {
	_, err := n.pd.RegMR(nil, 0)
	e.errno(err, syscall.EINVAL)
	// Neither is legal without AccessLocalWrite.
	for _, access := range []verbs.AccessFlags{verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic} {
		_, err = n.pd.RegMR(make([]byte, 8), access)
		e.errno(err, syscall.EINVAL)
	}
	seen := map[uint32]bool{}
	for range 2000 { // keys are not reused soon
		mr, err := n.pd.RegMR(make([]byte, 8), verbs.AccessRemoteRead)
		e.ok(err)
		if mr.RKey() == 0 || seen[mr.RKey()] || mr.Len() != 8 || mr.Addr() == 0 {
			e.t.Fatalf("bad region: key %#x, seen before: %v", mr.RKey(), seen[mr.RKey()])
		}
		seen[mr.RKey()] = true
		e.ok(mr.Dereg())
	}
}
