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
}

// CreateSRQ makes a basic SRQ.
func (p *domain) CreateSRQ(attr *verbs.SRQInitAttr) (verbs.SRQ, error) {
	const op = "create_srq"
	d := p.d
	typ := verbs.SRQTypeBasic
	if attr.Mask&verbs.SRQInitType != 0 {
		typ = attr.Type
	}
	switch {
	case p.obj == 0:
		return nil, errDeallocated(op)
	case typ != verbs.SRQTypeBasic:
		return nil, fail(op, syscall.EOPNOTSUPP, "this device has basic SRQs only")
	case attr.MaxWR < 1 || int(attr.MaxWR) > d.attr.MaxSRQWR:
		return nil, fail(op, syscall.EINVAL, fmt.Sprintf("MaxWR is %d: use 1 to %d", attr.MaxWR, d.attr.MaxSRQWR))
	case int(attr.MaxSGE) > d.attr.MaxSGE:
		return nil, fail(op, syscall.EINVAL, fmt.Sprintf("MaxSGE is %d: use %d at most", attr.MaxSGE, d.attr.MaxSGE))
	case attr.Limit != 0:
		return nil, fail(op, syscall.EINVAL, "Limit is set by Modify")
	}
	a := &d.mem.srq
	*a = abi.SRQInitAttr{Attr: abi.SRQAttr{MaxWR: attr.MaxWR, MaxSGE: max(attr.MaxSGE, 1)}}
	obj, err := d.created(object(op, d.lib.createSRQ, p.obj, addr(a)))
	if err != nil {
		return nil, d.named(err, fmt.Sprintf("a queue of %d receives", attr.MaxWR))
	}
	d.srqs++
	attr.MaxWR, attr.MaxSGE = a.Attr.MaxWR, min(a.Attr.MaxSGE, uint32(d.attr.MaxSGE))
	s := &sharedQueue{d: d, pd: p, obj: obj, num: d.srqs, maxSGE: int(attr.MaxSGE)}
	s.post = ccall.Call{Fn: d.context().Ops.PostSRQRecv, Args: [6]uintptr{obj, addr(&d.mem.receives[0]), addr(&d.mem.bad)}}
	d.async.name(obj, s.num)
	return s, nil
}

// Num is a number of this device's own: libibverbs has none for basic SRQs.
func (s *sharedQueue) Num() uint32 { return s.num }

func (s *sharedQueue) PostSRQRecv(wr *verbs.RecvWR) (*verbs.RecvWR, error) {
	if s.obj == 0 {
		return wr, fail("post_srq_recv", syscall.EINVAL, "the SRQ is destroyed")
	}
	return s.d.postReceives("post_srq_recv", &s.post, s.maxSGE, wr)
}

// PostSRQOps fails: the device has no tag matching.
func (s *sharedQueue) PostSRQOps(*verbs.OpsWR) (*verbs.OpsWR, error) {
	return nil, fail("post_srq_ops", syscall.EOPNOTSUPP, "this device has no tag matching")
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
	}
	return err
}
