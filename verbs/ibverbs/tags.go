package ibverbs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/ccall"
)

// tagMatching is the tag matching that a device announces and this port can do, or why there is
// none. A small list is made to find out: a program may then rest on what is announced.
func (p *port) tagMatching(c *abi.TMCaps) (tm verbs.TMCaps, why string, err error) {
	switch {
	case c.Flags&uint32(verbs.TMCapRC) == 0 && c.MaxNumTags == 0:
		return tm, "the device announces none", nil
	case c.Flags&uint32(verbs.TMCapRC) == 0:
		return tm, fmt.Sprintf("the device announces %d tags, but no rendezvous, which RC needs", c.MaxNumTags), nil
	case p.mem.port.LinkLayer != abi.LinkLayerInfiniBand:
		return tm, fmt.Sprintf("port %v is Ethernet: the kernel refuses the hidden queue pair of a tag list there, "+
			"which libibverbs connects without a GRH", p), nil
	}
	for name, op := range map[string]uintptr{"create_cq_ex": createCQEx, "create_srq_ex": createSRQEx, "post_srq_ops": postSRQOps} {
		if p.context().Op(op) == 0 {
			return tm, "the provider of " + p.name + " has no " + name + ", use a newer rdma-core", nil
		}
	}
	why, err = p.tryTags(abi.TMCap{MaxNumTags: min(c.MaxNumTags, 15), MaxOps: min(c.MaxOps, 32)})
	if why == "" {
		tm = verbs.TMCaps{MaxRndvHdrSize: c.MaxRndvHdrSize, MaxNumTags: c.MaxNumTags, Flags: verbs.TMCapFlags(c.Flags), MaxOps: c.MaxOps, MaxSGE: c.MaxSGE}
	}
	return tm, why, err
}

// tryTags makes a tag list and destroys it. why is why it cannot be made.
func (p *port) tryTags(tm abi.TMCap) (why string, err error) {
	pd, err := object("alloc_pd", p.lib.allocPD, p.ctx)
	if err != nil {
		return "", err
	}
	var refused error
	cq, refused := p.createCQEx(1, 0)
	if refused == nil {
		var srq uintptr
		if srq, refused = p.createTagSRQ(pd, cq, abi.SRQAttr{MaxWR: 1, MaxSGE: 1}, tm); refused == nil {
			err = status("destroy_srq", p.lib.destroySRQ, srq)
		}
		err = errors.Join(err, status("destroy_cq", p.lib.destroyCQ, cq))
	}
	if refused != nil {
		why = "the device announces it, and refuses it: " + refused.Error()
	}
	return why, errors.Join(err, status("dealloc_pd", p.lib.deallocPD, pd))
}

// createTagSRQ makes an SRQ with tag matching. What was granted is in p.mem.srqEx.
func (p *port) createTagSRQ(pd, cq uintptr, attr abi.SRQAttr, tm abi.TMCap) (uintptr, error) {
	a := &p.mem.srqEx
	*a = abi.SRQInitAttrEx{Attr: attr, SRQType: uint32(verbs.SRQTypeTM), PD: pd, CQ: cq, TMCap: tm,
		CompMask: uint32(verbs.SRQInitType | verbs.SRQInitPD | verbs.SRQInitCQ | verbs.SRQInitTM)}
	obj, err := object("create_srq_ex", p.context().Op(createSRQEx), p.ctx, addr(a))
	return obj, p.named(err, fmt.Sprintf("a list of %d tags and %d operations, with %d receives", tm.MaxNumTags, tm.MaxOps, attr.MaxWR))
}

// tags reports whether the device matches tags.
func (d *device) tags() bool { return d.attr.TM.Flags&verbs.TMCapRC != 0 }

func (d *device) errNoTags(op string) error {
	return fail(op, syscall.EOPNOTSUPP, "no tag matching: "+d.attr.NoTM)
}

// checkTags refuses what cannot be an SRQ with tag matching, and returns its completion queue.
func (d *device) checkTags(attr *verbs.SRQInitAttr) (*compQueue, error) {
	const op = "create_srq"
	const needed = verbs.SRQInitCQ | verbs.SRQInitTM
	cq, ok := attr.CQ.(*compQueue)
	most := &d.attr.TM
	switch {
	case !d.tags():
		return nil, d.errNoTags(op)
	case attr.Mask&needed != needed:
		return nil, fail(op, syscall.EINVAL, "tag matching needs SRQInitCQ and SRQInitTM")
	case !ok || cq.d != d || cq.obj == 0 || cq.extended == nil:
		return nil, fail(op, syscall.EINVAL, "CQ must be a live one of this device, with WCExWithTMInfo")
	case attr.TM.MaxNumTags < 1 || attr.TM.MaxNumTags > most.MaxNumTags:
		return nil, fail(op, syscall.EINVAL, fmt.Sprintf("MaxNumTags is %d: use 1 to %d", attr.TM.MaxNumTags, most.MaxNumTags))
	case attr.TM.MaxOps > most.MaxOps:
		return nil, fail(op, syscall.EINVAL, fmt.Sprintf("MaxOps is %d: use %d at most", attr.TM.MaxOps, most.MaxOps))
	}
	return cq, nil
}

// tagList is what an SRQ with tag matching has beside others.
type tagList struct {
	cq    *compQueue
	post  ccall.Call
	known uint64 // one more than the greatest handle that the device has given
}

// PostSRQOps posts up to 32 operations in one call.
func (s *sharedQueue) PostSRQOps(wr *verbs.OpsWR) (*verbs.OpsWR, error) {
	const op = "post_srq_ops"
	switch {
	case !s.d.tags():
		return nil, s.d.errNoTags(op)
	case s.obj == 0 || s.list == nil:
		return wr, fail(op, syscall.EINVAL, "the SRQ is destroyed, or has no tag matching")
	}
	for wr != nil {
		n, rest, fault := s.fillOps(wr)
		if n > 0 {
			if bad, err := s.postOps(wr, n); err != nil {
				return bad, err
			}
		}
		if fault != nil {
			return rest, fault
		}
		wr = rest
	}
	return nil, nil
}

// fillOps makes the operations of a chain, as queuePair.fill does requests.
func (s *sharedQueue) fillOps(wr *verbs.OpsWR) (n int, rest *verbs.OpsWR, err error) {
	m := s.d.mem
	for ; wr != nil && n < batch; wr, n = wr.Next, n+1 {
		if err = s.checkOp(wr); err != nil {
			break
		}
		w := &m.ops[n]
		*w = abi.OpsWR{WRID: wr.WRID, Next: addr(w) + sizeof(w), Opcode: uint32(wr.Opcode), Flags: int32(wr.Flags), UnexpectedCnt: wr.UnexpectedCnt,
			Handle: wr.Handle}
		if wr.Opcode == verbs.WRTagAdd {
			w.RecvWRID, w.Tag, w.Mask = wr.Add.RecvWRID, wr.Add.Tag, wr.Add.Mask
			w.SGList, w.NumSGE, _ = entries(&m.sges[n], wr.Add.SGList)
		}
	}
	if n > 0 {
		m.ops[n-1].Next = 0
	}
	return n, wr, err
}

// postOps posts the operations that were filled in, n from wr on, and takes the handles of those
// that are posted.
func (s *sharedQueue) postOps(wr *verbs.OpsWR, n int) (*verbs.OpsWR, error) {
	m, l := s.d.mem, s.list
	posted := m.posted(&l.post)
	if !posted {
		n = index(&m.ops[0], n, m.bad)
	}
	for i := range n {
		if wr.Opcode == verbs.WRTagAdd {
			wr.Handle = m.ops[i].Handle
			l.known = max(l.known, uint64(wr.Handle)+1)
		}
		wr = wr.Next
	}
	if !posted {
		return wr, s.d.named(refused("post_srq_ops", &l.post), "")
	}
	return nil, nil
}

// checkOp refuses what the provider does not check: it would take a part, or the memory that a
// handle leads to.
func (s *sharedQueue) checkOp(wr *verbs.OpsWR) error {
	const op = "post_srq_ops"
	most := min(int(s.d.attr.TM.MaxSGE), s.d.attr.MaxSGE)
	switch {
	case wr.Opcode > verbs.WRTagSync || wr.Flags&^(verbs.OpsSignaled|verbs.OpsTMSync) != 0:
		return fail(op, syscall.EINVAL, fmt.Sprintf("opcode %d with flags %#x", wr.Opcode, uint32(wr.Flags)))
	case wr.Opcode == verbs.WRTagAdd && len(wr.Add.SGList) > most:
		return fail(op, syscall.EINVAL, fmt.Sprintf("%d entries: the device has %d", len(wr.Add.SGList), most))
	case wr.Opcode == verbs.WRTagDel && uint64(wr.Handle) >= s.list.known:
		return fail(op, syscall.EINVAL, fmt.Sprintf("handle %d was never given", wr.Handle))
	}
	return nil
}
