package verbstest

import (
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 1.1 to 1.3 on making a tag-matching SRQ and its queue pairs.

// testTagFlag: a device makes a tag-matching SRQ if its flag says so, and only then.
func testTagFlag(t *testing.T, open Opener, _ TagOptions) {
	e := newEnv(t, open, 1)
	n := e.nodes[0]
	cq, err := n.dev.CreateCQ(verbs.CQInitAttr{CQE: 16, WCFlags: verbs.WCExWithTMInfo})
	if err == nil {
		n.onFree(cq.Destroy)
		var srq verbs.SRQ
		if srq, err = n.pd.CreateSRQ(tagAttr(cq, 1, 1)); err == nil {
			e.ok(srq.Destroy())
		}
	}
	if (err == nil) != n.matchesTags() {
		t.Errorf("%+v, and making a tag-matching SRQ gives: %v", n.dev.Attr().TM, err)
	}
}

// testTagCaps: the least capabilities of a device with the flag.
func testTagCaps(t *testing.T, open Opener, _ TagOptions) {
	n := newEnv(t, open, 1).nodes[0]
	tm := n.dev.Attr().TM
	if tm.MaxRndvHdrSize < verbs.TMHSize+verbs.RVHSize || tm.MaxNumTags == 0 || tm.MaxOps == 0 || tm.MaxSGE == 0 {
		t.Errorf("%+v", tm)
	}
}

func testTagUnsupported(t *testing.T, open Opener, _ TagOptions) {
	n := newEnv(t, open, 1).nodes[0]
	n.refusesTagSRQ(n.cq, map[string]tagFault{"nothing": {syscall.EOPNOTSUPP, func(*verbs.SRQInitAttr) {}}})
}

// tagFault is something wrong with the attributes of a tag-matching SRQ.
type tagFault struct {
	errno syscall.Errno
	spoil func(a *verbs.SRQInitAttr)
}

// refusesTagSRQ tries each fault. A refused creation has no effect: the CQ can be destroyed.
func (n *node) refusesTagSRQ(cq verbs.CQ, faults map[string]tagFault) {
	n.e.t.Helper()
	for name, f := range faults {
		attr := tagAttr(cq, 1, 1)
		f.spoil(attr)
		srq, err := n.pd.CreateSRQ(attr)
		if err == nil {
			n.e.t.Errorf("wrong with the SRQ: %s; but there is no error", name)
			n.e.ok(srq.Destroy())
			continue
		}
		n.e.errno(err, f.errno)
		if srq != nil {
			n.e.t.Errorf("wrong with the SRQ: %s; there is one, and an error", name)
		}
	}
}

func testTagUnknownMask(t *testing.T, open Opener, _ TagOptions) {
	n := newEnv(t, open, 1).nodes[0]
	n.refusesTagSRQ(n.tagCQ(16), map[string]tagFault{
		"bit 5":  {syscall.EOPNOTSUPP, func(a *verbs.SRQInitAttr) { a.Mask |= 1 << 5 }},
		"bit 31": {syscall.EOPNOTSUPP, func(a *verbs.SRQInitAttr) { a.Mask |= 1 << 31 }},
	})
}

// testTagNeeds: which attributes creation needs. The PD may be missing, as it is the receiver of
// the call.
func testTagNeeds(t *testing.T, open Opener, _ TagOptions) {
	n := newEnv(t, open, 1).nodes[0]
	cq := n.tagCQ(16)
	n.refusesTagSRQ(cq, map[string]tagFault{
		"no CQ bit": {syscall.EINVAL, func(a *verbs.SRQInitAttr) { a.Mask &^= verbs.SRQInitCQ }},
		"no TM bit": {syscall.EINVAL, func(a *verbs.SRQInitAttr) { a.Mask &^= verbs.SRQInitTM }},
		"no CQ":     {syscall.EINVAL, func(a *verbs.SRQInitAttr) { a.CQ = nil }},
		"no tags":   {syscall.EINVAL, func(a *verbs.SRQInitAttr) { a.TM.MaxNumTags = 0 }},
	})
	attr := tagAttr(cq, 1, 1)
	attr.Mask &^= verbs.SRQInitPD
	srq, err := n.pd.CreateSRQ(attr)
	n.e.ok(err)
	n.e.ok(srq.Destroy())
}

func testTagPlainCQ(t *testing.T, open Opener, _ TagOptions) {
	n := newEnv(t, open, 1).nodes[0]
	n.refusesTagSRQ(n.cq, map[string]tagFault{"a CQ without TM_INFO": {syscall.EINVAL, func(*verbs.SRQInitAttr) {}}})
}

// testTagTooLarge: creation succeeds with the device's limits, and fails with one more.
func testTagTooLarge(t *testing.T, open Opener, _ TagOptions) {
	n := newEnv(t, open, 1).nodes[0]
	most := n.dev.Attr()
	n.refusesTagSRQ(n.tagCQ(16), map[string]tagFault{
		"too many tags":    {syscall.EINVAL, func(a *verbs.SRQInitAttr) { a.TM.MaxNumTags = most.TM.MaxNumTags + 1 }},
		"too many ops":     {syscall.EINVAL, func(a *verbs.SRQInitAttr) { a.TM.MaxOps = most.TM.MaxOps + 1 }},
		"too many buffers": {syscall.EINVAL, func(a *verbs.SRQInitAttr) { a.MaxWR = uint32(most.MaxSRQWR) + 1 }},
		"too many SGEs":    {syscall.EINVAL, func(a *verbs.SRQInitAttr) { a.MaxSGE = uint32(most.SRQSGE) + 1 }},
	})
	n.tagSRQ(most.TM.MaxNumTags, most.TM.MaxOps)
}

// testTagNoSendQueue: the program cannot post to a send queue that the device uses, in RTS.
func testTagNoSendQueue(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 4)
	r.a.recv(r.qa, 8, nil)
	wr := &verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled}
	bad, err := r.qb.PostSend(wr)
	r.errno(err, syscall.ENOMEM)
	if bad != wr {
		t.Error("wrong failing request")
	}
	r.a.none()
	r.b.none()
}

// testTagSRQLimit: the limit of a TM-SRQ counts its untagged buffers, of which tagged messages take
// none.
func testTagSRQLimit(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 4)
	r.untagged(2)
	r.ok(r.srq.Modify(verbs.SRQAttr{Limit: 2}, verbs.SRQLimit))
	r.add(1, 5, exact, r.bbuf)
	r.hit(1, 5)
	r.settle()
	if len(r.b.evs) > 0 {
		t.Errorf("%+v after a tagged message", r.b.evs)
	}
	r.miss(0, 5)
	if ev := r.b.wantEvent(verbs.EventSRQLimitReached); ev.QP != r.srq.Num() {
		t.Errorf("%+v, want SRQ %d", ev, r.srq.Num())
	}
}

// testTagGranted: exactly as many untagged buffers can be posted as creation has granted, which is
// at least what was asked for.
func testTagGranted(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	attr := tagAttr(r.tcq, 15, 64)
	attr.MaxWR, attr.MaxSGE = 5, 1
	srq, err := r.b.pd.CreateSRQ(attr)
	r.ok(err)
	r.b.onFree(srq.Destroy)
	if attr.MaxWR < 5 || attr.MaxSGE < 1 {
		t.Fatalf("granted %+v", attr.SRQAttr)
	}
	for i := range attr.MaxWR {
		r.b.srqRecv(srq, uint64(i), sge(r.bmr, r.bbuf[:64]))
	}
	wr := &verbs.RecvWR{SGList: sge(r.bmr, r.bbuf[:64])}
	bad, err := srq.PostSRQRecv(wr)
	r.errno(err, syscall.ENOMEM)
	if bad != wr {
		t.Error("wrong failing request")
	}
}
