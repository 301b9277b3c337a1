package ibverbs

import (
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/ccall"
)

// sharedQueue is a shared receive queue.
type sharedQueue struct {
	d      *device
	pd     *domain
	obj    uintptr // struct ibv_srq; 0: it is gone
	num    uint32
	maxSGE int
	users  int // queue pairs
	post   ccall.Call
	list   *tagList // nil: no tag matching
}

// CreateSRQ makes a basic SRQ, or one with tag matching.
func (p *domain) CreateSRQ(attr *verbs.SRQInitAttr) (verbs.SRQ, error) {
	const op = "create_srq"
	const known = verbs.SRQInitType | verbs.SRQInitPD | verbs.SRQInitXRCD | verbs.SRQInitCQ | verbs.SRQInitTM
	d := p.d
	typ := verbs.SRQTypeBasic
	if attr.Mask&verbs.SRQInitType != 0 {
		typ = attr.Type
	}
	switch {
	case p.obj == 0:
		return nil, errDeallocated(op)
	case attr.Mask&^known != 0 || typ != verbs.SRQTypeBasic && typ != verbs.SRQTypeTM:
		return nil, fail(op, syscall.EOPNOTSUPP, "this device has SRQs of the types basic and TM, without further attributes")
	case attr.MaxWR < 1 || int(attr.MaxWR) > d.attr.MaxSRQWR:
		return nil, fail(op, syscall.EINVAL, fmt.Sprintf("MaxWR is %d: use 1 to %d", attr.MaxWR, d.attr.MaxSRQWR))
	case int(attr.MaxSGE) > d.attr.MaxSGE:
		return nil, fail(op, syscall.EINVAL, fmt.Sprintf("MaxSGE is %d: use %d at most", attr.MaxSGE, d.attr.MaxSGE))
	case attr.Limit != 0:
		return nil, fail(op, syscall.EINVAL, "Limit is set by Modify")
	}
	s := &sharedQueue{d: d, pd: p}
	granted, err := s.create(attr, typ)
	if err != nil {
		return nil, err
	}
	attr.MaxWR, attr.MaxSGE = granted.MaxWR, min(granted.MaxSGE, uint32(d.attr.MaxSGE))
	s.maxSGE = int(attr.MaxSGE)
	s.post = ccall.Call{Fn: d.context().Ops.PostSRQRecv, Args: [6]uintptr{s.obj, addr(&d.mem.receives[0]), addr(&d.mem.bad)}}
	if s.list != nil {
		s.list.cq.users++
		s.list.post = ccall.Call{Fn: d.context().Op(postSRQOps), Args: [6]uintptr{s.obj, addr(&d.mem.ops[0]), addr(&d.mem.bad)}}
	}
	s.num = d.number(s.obj)
	d.async.name(s.obj, s.num)
	return s, nil
}

// create makes the object, and the list where there is one.
func (s *sharedQueue) create(attr *verbs.SRQInitAttr, typ verbs.SRQType) (granted abi.SRQAttr, err error) {
	d, pd := s.d, s.pd.obj
	a := abi.SRQAttr{MaxWR: attr.MaxWR, MaxSGE: max(attr.MaxSGE, 1)}
	if typ == verbs.SRQTypeTM {
		s.list = &tagList{}
		if s.list.cq, err = d.checkTags(attr); err != nil {
			return granted, err
		}
		s.obj, err = d.created(d.createTagSRQ(pd, s.list.cq.obj, a, abi.TMCap(attr.TM)))
		return d.mem.srqEx.Attr, err
	}
	d.mem.srq = abi.SRQInitAttr{Attr: a}
	s.obj, err = d.created(object("create_srq", d.lib.createSRQ, pd, addr(&d.mem.srq)))
	return d.mem.srq.Attr, d.named(err, fmt.Sprintf("a queue of %d receives", attr.MaxWR))
}

// number is that of an SRQ. Where the provider has none it is one of this device's own, which has
// more than the 24 bits of a provider's.
func (d *device) number(srq uintptr) uint32 {
	if op := d.context().Op(getSRQNum); op != 0 && status("get_srq_num", op, srq, addr(&d.mem.srqNum)) == nil {
		return d.mem.srqNum
	}
	d.srqs++
	return 1<<24 + d.srqs
}

// Num is the number that events of the SRQ have.
func (s *sharedQueue) Num() uint32 { return s.num }

func (s *sharedQueue) PostSRQRecv(wr *verbs.RecvWR) (*verbs.RecvWR, error) {
	if s.obj == 0 {
		return wr, fail("post_srq_recv", syscall.EINVAL, "the SRQ is destroyed")
	}
	return s.d.postReceives("post_srq_recv", &s.post, s.maxSGE, wr)
}

func (s *sharedQueue) Modify(attr verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	const op = "modify_srq"
	switch {
	case s.obj == 0:
		return fail(op, syscall.EINVAL, "the SRQ is destroyed")
	case mask == 0 || mask&^(verbs.SRQMaxWR|verbs.SRQLimit) != 0:
		return fail(op, syscall.EINVAL, "the mask has SRQMaxWR, SRQLimit or both")
	}
	a := &s.d.mem.srq.Attr
	*a = abi.SRQAttr{MaxWR: attr.MaxWR, SRQLimit: attr.Limit}
	return s.d.named(status(op, s.d.lib.modifySRQ, s.obj, addr(a), uintptr(mask)), "")
}

func (s *sharedQueue) Query() (verbs.SRQAttr, error) {
	const op = "query_srq"
	if s.obj == 0 {
		return verbs.SRQAttr{}, fail(op, syscall.EINVAL, "the SRQ is destroyed")
	}
	a := &s.d.mem.srq.Attr
	err := status(op, s.d.lib.querySRQ, s.obj, addr(a))
	return verbs.SRQAttr{MaxWR: a.MaxWR, MaxSGE: a.MaxSGE, Limit: a.SRQLimit}, s.d.named(err, "")
}

func (s *sharedQueue) Destroy() error {
	if s.users > 0 {
		return fail("destroy_srq", syscall.EBUSY, "queue pairs are attached")
	}
	obj := s.obj
	err := s.d.destroy("destroy_srq", s.d.lib.destroySRQ, &s.obj)
	if err == nil {
		s.d.async.name(obj, 0)
		if s.list != nil {
			s.list.cq.users--
		}
	}
	return err
}
