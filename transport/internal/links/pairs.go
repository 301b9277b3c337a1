package links

import (
	"errors"
	"slices"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// createPairs creates the queue pairs of a peer, in INIT.
func (o *objects) createPairs(p *peer) (err error) {
	if !o.recvQP {
		p.qp, err = o.createQP(o.sends, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
		return err
	}
	// Peers' messages and grants arrive at the second. At the first queue pair only their devices
	// act: RDMA READs of rendezvous, and FIN.
	if p.qp, err = o.createQP(o.sends, verbs.AccessRemoteRead); err == nil {
		p.recvQP, err = o.createQP(verbs.QPCap{}, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	}
	return err
}

func (o *objects) createQP(queues verbs.QPCap, access verbs.AccessFlags) (verbs.QP, error) {
	init := verbs.QPInitAttr{SendCQ: o.cq, RecvCQ: o.cq, SRQ: o.srq, Type: verbs.QPTRC, Cap: queues, ReadFaults: o.readFaults}
	qp, err := o.pd.CreateQP(&init)
	if err != nil {
		return nil, err
	}
	o.readFaults = init.ReadFaults
	if err := qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1, AccessFlags: access}, verbs.QPMaskInit); err != nil {
		return nil, errors.Join(err, qp.Destroy())
	}
	return qp, nil
}

// OfRead is the error of a read that a device ends with s alone; nil: that ends the link.
func (o *objects) OfRead(s verbs.WCStatus) error {
	switch {
	case !o.readFaults || !s.FailsAlone():
		return nil
	case s == verbs.WCRemOpErr:
		return transport.ErrUnreadable
	case s == verbs.WCLocAccessErr:
		return transport.ErrUnwritable
	}
	return transport.ErrDeregistered
}

// pairs are the queue pairs of a peer, in the order of HELLO.
func (p *peer) pairs() []verbs.QP {
	switch {
	case p.qp == nil:
		return nil
	case p.recvQP == nil:
		return []verbs.QP{p.qp}
	}
	return []verbs.QP{p.qp, p.recvQP}
}

// Timers of queue pairs, for devices that can lose packets (TMO 8.1).
const (
	minRNRTimer = 12 // 0.64 ms
	ackTimeout  = 18 // 1.07 s
	retryCount  = 6  // 7 is for ever to the kernel's software RDMA: a peer that is gone would never be missed
)

// connectPairs moves a peer's queue pairs to RTS, as the two HELLOs say: the second before the
// first, which posts. The first of each end is connected to the last of the other (TMO 1.3).
func (p *peer) connectPairs(device []byte, mine, theirs *format.Hello) error {
	p.maxRead = max(1, min(mine.Initiator, theirs.Target))
	p.cellAddr, p.cellRKey = theirs.CellAddr, theirs.CellRKey
	for i, qp := range slices.Backward(p.pairs()) {
		to := theirs.Pairs[len(theirs.Pairs)-1-i]
		rtr := verbs.QPAttr{State: verbs.QPSRTR, AV: verbs.AddressVector{Address: device}, DestQPN: to.Num, RQPSN: to.PSN,
			PathMTU: min(mine.MTU, theirs.MTU), MaxDestRdAtomic: uint8(max(1, min(mine.Target, theirs.Initiator))), MinRNRTimer: minRNRTimer}
		err := qp.Modify(&rtr, verbs.QPMaskRTR)
		if err == nil {
			rts := verbs.QPAttr{State: verbs.QPSRTS, SQPSN: mine.Pairs[i].PSN, MaxRdAtomic: uint8(p.maxRead), RetryCnt: retryCount, RNRRetry: 7, Timeout: ackTimeout}
			err = qp.Modify(&rts, verbs.QPMaskRTS)
		}
		if err != nil {
			return explained(err, "the device of this rank failed: making the connection to it")
		}
	}
	return nil
}
