package verbstest

import (
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 1.1 to 1.3 on making a tag-matching SRQ and its queue pairs.

// testTagFlag: a device makes a tag-matching SRQ if its flag says so, and only then.
func testTagFlag(e *env, n *node) {
	cq, err := n.dev.CreateCQ(verbs.CQInitAttr{CQE: 16, WCFlags: verbs.WCExWithTMInfo})
	if err == nil {
		n.onFree(cq.Destroy)
		var srq verbs.SRQ
		if srq, err = n.pd.CreateSRQ(tagAttr(cq, 1, 1)); err == nil {
			e.ok(srq.Destroy())
		}
	}
	if (err == nil) != n.matchesTags() {
		e.t.Errorf("%+v, and making a tag-matching SRQ gives: %v", n.dev.Attr().TM, err)
	}
}

// testTagCaps: the least capabilities of a device with the flag.
func testTagCaps(e *env, n *node) {
	tm := n.dev.Attr().TM
	if tm.MaxRndvHdrSize < verbs.TMHSize+verbs.RVHSize || tm.MaxNumTags == 0 || tm.MaxOps == 0 || tm.MaxSGE == 0 {
		e.t.Errorf("%+v", tm)
	}
}

func testTagUnsupported(e *env, n *node) {
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

func testTagUnknownMask(e *env, n *node) {
	n.refusesTagSRQ(n.tagCQ(16), map[string]tagFault{
		"bit 5":  {syscall.EOPNOTSUPP, func(a *verbs.SRQInitAttr) { a.Mask |= 1 << 5 }},
		"bit 31": {syscall.EOPNOTSUPP, func(a *verbs.SRQInitAttr) { a.Mask |= 1 << 31 }},
	})
}

// testTagNeeds: which attributes creation needs. The PD may be missing, as it is the receiver of
// the call.
func testTagNeeds(e *env, n *node) {
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

func testTagPlainCQ(e *env, n *node) {
	n.refusesTagSRQ(n.cq, map[string]tagFault{"a CQ without TM_INFO": {syscall.EINVAL, func(*verbs.SRQInitAttr) {}}})
}

// testTagTooLarge: creation succeeds with the device's limits, and fails with one more.
func testTagTooLarge(e *env, n *node) {
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
func testTagNoSendQueue(r *tagRig) {
	r.a.recv(r.qa, 8, nil)
	wr := &verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled}
	refuse(r.env, r.qb.PostSend, wr, wr, syscall.ENOMEM)
	r.a.none()
	r.b.none()
}

// testTagGranted: exactly as many untagged buffers can be posted as creation has granted, which is
// at least what was asked for.
func testTagGranted(r *tagRig) {
	attr := tagAttr(r.tcq, 15, 64)
	attr.MaxWR, attr.MaxSGE = 5, 1
	srq, err := r.b.pd.CreateSRQ(attr)
	r.ok(err)
	r.b.onFree(srq.Destroy)
	if attr.MaxWR < 5 || attr.MaxSGE < 1 {
		r.t.Fatalf("granted %+v", attr.SRQAttr)
	}
	for i := range attr.MaxWR {
		r.b.srqRecv(srq, uint64(i), sge(r.bmr, r.bbuf[:64]))
	}
	wr := &verbs.RecvWR{SGList: sge(r.bmr, r.bbuf[:64])}
	refuse(r.env, srq.PostSRQRecv, wr, wr, syscall.ENOMEM)
}
