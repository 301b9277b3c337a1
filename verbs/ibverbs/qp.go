package ibverbs

import (
	"bytes"
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/ccall"
)

// queuePair is an RC queue pair.
type queuePair struct {
	d     *device
	obj   uintptr // struct ibv_qp; 0: it is gone
	num   uint32
	state verbs.QPState // as last set
	peer  []byte        // address of the device that it is connected to
	init  verbs.QPInitAttr
	send  ccall.Call
	recv  ccall.Call
}

// CreateQP makes a queue pair in RESET.
func (p *domain) CreateQP(attr *verbs.QPInitAttr) (verbs.QP, error) {
	const op = "create_qp"
	d := p.d
	scq, ok1 := attr.SendCQ.(*compQueue)
	rcq, ok2 := attr.RecvCQ.(*compQueue)
	var srq *sharedQueue
	ok3 := true
	if attr.SRQ != nil {
		srq, ok3 = attr.SRQ.(*sharedQueue)
	}
	c := &attr.Cap
	switch {
	case p.obj == 0:
		return nil, errDeallocated(op)
	case attr.Type != verbs.QPTRC:
		return nil, fail(op, syscall.EOPNOTSUPP, fmt.Sprintf("this device has RC queue pairs only, not %v", attr.Type))
	case !ok1 || !ok2 || scq.d != d || rcq.d != d || scq.obj == 0 || rcq.obj == 0:
		return nil, fail(op, syscall.EINVAL, "SendCQ and RecvCQ must be live completion queues of this device")
	case !ok3 || srq != nil && (srq.pd != p || srq.obj == 0):
		return nil, fail(op, syscall.EINVAL, "SRQ must be a live one of this protection domain")
	case int(c.MaxSendWR) > d.attr.MaxQPWR || srq == nil && int(c.MaxRecvWR) > d.attr.MaxQPWR:
		return nil, fail(op, syscall.EINVAL, fmt.Sprintf("MaxSendWR and MaxRecvWR are %d at most", d.attr.MaxQPWR))
	case int(c.MaxSendSGE) > d.attr.MaxSGE || srq == nil && int(c.MaxRecvSGE) > d.attr.MaxSGE:
		return nil, fail(op, syscall.EINVAL, fmt.Sprintf("MaxSendSGE and MaxRecvSGE are %d at most", d.attr.MaxSGE))
	case int(c.MaxInlineData) > d.attr.MaxInline:
		return nil, fail(op, syscall.EINVAL, fmt.Sprintf("MaxInlineData is %d: the device has %d", c.MaxInlineData, d.attr.MaxInline))
	}
	a := &d.mem.qpInit
	*a = abi.QPInitAttr{SendCQ: scq.obj, RecvCQ: rcq.obj, QPType: uint32(attr.Type),
		Cap: abi.QPCap{MaxSendWR: c.MaxSendWR, MaxSendSGE: max(c.MaxSendSGE, 1), MaxInlineData: c.MaxInlineData}}
	if srq != nil {
		a.SRQ = srq.obj
	} else {
		a.Cap.MaxRecvWR, a.Cap.MaxRecvSGE = c.MaxRecvWR, max(c.MaxRecvSGE, 1)
	}
	if attr.SQSigAll {
		a.SQSigAll = 1
	}
	obj, err := d.created(object(op, d.lib.createQP, p.obj, addr(a)))
	if err != nil {
		return nil, d.named(err, fmt.Sprintf("a queue pair of %d sends and %d receives", c.MaxSendWR, a.Cap.MaxRecvWR))
	}
	*c = verbs.QPCap{MaxSendWR: a.Cap.MaxSendWR, MaxRecvWR: a.Cap.MaxRecvWR, MaxSendSGE: min(a.Cap.MaxSendSGE, uint32(d.attr.MaxSGE)),
		MaxRecvSGE: min(a.Cap.MaxRecvSGE, uint32(d.attr.MaxSGE)), MaxInlineData: min(a.Cap.MaxInlineData, uint32(d.attr.MaxInline))}
	attr.ReadFaults = false
	q := &queuePair{d: d, obj: obj, num: at[abi.QP](obj).QPNum, init: *attr}
	ops := &d.context().Ops
	q.send = ccall.Call{Fn: ops.PostSend, Args: [6]uintptr{obj, addr(&d.mem.sends[0]), addr(&d.mem.bad)}}
	q.recv = ccall.Call{Fn: ops.PostRecv, Args: [6]uintptr{obj, addr(&d.mem.receives[0]), addr(&d.mem.bad)}}
	scq.users++
	rcq.users++
	if srq != nil {
		srq.users++
	}
	d.qps[q] = struct{}{}
	return q, nil
}

func (q *queuePair) Num() uint32          { return q.num }
func (q *queuePair) State() verbs.QPState { return q.state }

// Modify checks what all devices check, and leaves the rest to the kernel.
func (q *queuePair) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	const op = "modify_qp"
	d := q.d
	if q.obj == 0 {
		return fail(op, syscall.EINVAL, "the queue pair is destroyed")
	}
	if err := verbs.CheckTransition(q.state, attr, mask); err != nil {
		return err
	}
	a := &d.mem.qp
	*a = abi.QPAttr{QPState: uint32(attr.State), PathMTU: uint32(attr.PathMTU), RQPSN: attr.RQPSN, SQPSN: attr.SQPSN, DestQPNum: attr.DestQPN,
		QPAccessFlags: uint32(attr.AccessFlags), MaxRdAtomic: attr.MaxRdAtomic, MaxDestRdAtomic: attr.MaxDestRdAtomic,
		MinRNRTimer: attr.MinRNRTimer, PortNum: d.num, Timeout: attr.Timeout, RetryCnt: attr.RetryCnt, RNRRetry: attr.RNRRetry}
	switch {
	case mask&verbs.QPAttrPathMTU != 0 && attr.PathMTU > d.attr.MaxMTU:
		return fail(op, syscall.EINVAL, fmt.Sprintf("the path MTU is above that of the port, %d bytes", d.attr.MaxMTU.Bytes()))
	case mask&verbs.QPAttrMaxQPRdAtomic != 0 && int(attr.MaxRdAtomic) > d.attr.MaxQPInitRdAtom,
		mask&verbs.QPAttrMaxDestRdAtomic != 0 && int(attr.MaxDestRdAtomic) > d.attr.MaxQPRdAtom:
		return fail(op, syscall.EINVAL, "MaxRdAtomic or MaxDestRdAtomic is above the device's MaxQPInitRdAtom or MaxQPRdAtom")
	}
	if mask&verbs.QPAttrAV != 0 {
		to, err := d.location(op, attr.AV.Address)
		if err != nil {
			return err
		}
		if _, err := d.here.wire(&to); err != nil {
			return fail(op, syscall.EINVAL, err.Error())
		}
		a.AH = d.here.to(&to, d.num, d.gidIndex)
	}
	if err := status(op, d.lib.modifyQP, q.obj, addr(a), uintptr(mask)); err != nil {
		return d.named(err, fmt.Sprintf("queue pair %d", q.num))
	}
	if mask&verbs.QPAttrState != 0 {
		q.state = attr.State
	}
	if mask&verbs.QPAttrAV != 0 {
		q.peer = bytes.Clone(attr.AV.Address)
	}
	if q.state == verbs.QPSReset {
		q.peer = nil
		q.forget()
	}
	return nil
}

// forget drops completions that were polled.
func (q *queuePair) forget() {
	q.init.SendCQ.(*compQueue).forget(q.num)
	q.init.RecvCQ.(*compQueue).forget(q.num)
	if s, ok := q.init.SRQ.(*sharedQueue); ok && s.list != nil {
		s.list.cq.forget(q.num)
	}
}

// queried are the attributes that Query asks for.
const queried = verbs.QPMaskInit | verbs.QPMaskRTR | verbs.QPMaskRTS

func (q *queuePair) Query() (verbs.QPAttr, verbs.QPInitAttr, error) {
	const op = "query_qp"
	d := q.d
	if q.obj == 0 {
		return verbs.QPAttr{}, verbs.QPInitAttr{}, fail(op, syscall.EINVAL, "the queue pair is destroyed")
	}
	a := &d.mem.qp
	if err := status(op, d.lib.queryQP, q.obj, addr(a), uintptr(queried), addr(&d.mem.qpInit)); err != nil {
		return verbs.QPAttr{}, verbs.QPInitAttr{}, d.named(err, fmt.Sprintf("queue pair %d", q.num))
	}
	attr := verbs.QPAttr{State: verbs.QPState(a.QPState), PathMTU: verbs.MTU(a.PathMTU), RQPSN: a.RQPSN, SQPSN: a.SQPSN, DestQPN: a.DestQPNum,
		AccessFlags: verbs.AccessFlags(a.QPAccessFlags), AV: verbs.AddressVector{Address: q.peer}, PKeyIndex: a.PKeyIndex,
		MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic, MinRNRTimer: a.MinRNRTimer, Timeout: a.Timeout,
		RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry}
	if a.PortNum != 0 {
		attr.Port = 1 // the one that the device was opened with
	}
	return attr, q.init, nil
}

// Destroy waits until each event of the queue pair was acknowledged, which is soon.
func (q *queuePair) Destroy() error {
	if err := q.d.destroy("destroy_qp", q.d.lib.destroyQP, &q.obj); err != nil {
		return err
	}
	q.forget()
	q.d.async.drop(q.num) // another one may get its number
	q.init.SendCQ.(*compQueue).users--
	q.init.RecvCQ.(*compQueue).users--
	if s, ok := q.init.SRQ.(*sharedQueue); ok {
		s.users--
	}
	delete(q.d.qps, q)
	return nil
}
