package links

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// Connect says how rank is reached; addr is its Address, which is kept.
func (l *Links) Connect(rank int, addr []byte) error {
	if err := l.connect(rank, addr); err != nil {
		return fmt.Errorf("transport/%s: connect rank %d: %w", l.cfg.Mode, rank, err)
	}
	return nil
}

func (l *Links) connect(rank int, addr []byte) error {
	switch {
	case uint(rank) >= uint(len(l.peers)):
		return fmt.Errorf("the job has %d ranks", len(l.peers))
	case l.addrs[rank] != nil:
		return errors.New("it is connected already")
	}
	a, err := format.DecodeAddress(addr)
	if err != nil {
		return err
	}
	if err := l.self.Accept(&a, rank); err != nil {
		return err
	}
	if _, err := l.cfg.Device.Reaches(a.Device); err != nil {
		return err
	}
	key := l.deviceKey(a.Device)
	if other := l.byDevice.Find(key); other >= 0 { // or, once in 2^64 pairs, one with the same hash
		return fmt.Errorf("its device is that of rank %d: one of the two addresses is false", other)
	}
	l.byDevice.Add(key, uint32(rank))
	l.addrs[rank] = a.Device
	return nil
}

// deviceKey is the key in byDevice of the device at an address: a hash of its identity.
func (l *Links) deviceKey(device []byte) uint64 {
	if d, ok := l.cfg.Device.(verbs.Identifier); ok {
		device = d.Identity(device)
	}
	return maphash.Bytes(l.seed, device)
}

// making is a connection while it is being made.
type making struct {
	handshake
	mine, theirs *format.Hello // once this end has told it, or is to; once the peer has
	reminder     *time.Timer   // nil: none
	listed       bool          // it is in Links.unmade
}

// begin begins the connection to a peer, unless it has begun.
func (l *Links) begin(p *peer) *making {
	if p.making == nil {
		p.making = &making{reminder: l.remind(p.rank)}
		l.goesOn(p)
	}
	return p.making
}

// goesOn has the next poll, or this one, do what is due for a connection that is being made.
func (l *Links) goesOn(p *peer) {
	if l.todo = true; !p.making.listed {
		p.making.listed = true
		l.unmade = append(l.unmade, p)
	}
}

// patience is how long a rank may take to answer before the log says so. Nothing else follows: it
// may compute, and a host that is gone ends the line.
const patience = 10 * time.Second

func (l *Links) remind(rank int) *time.Timer {
	log := l.cfg.Logger
	if log == nil || rank == l.self.Rank {
		return nil
	}
	own := l.self.Rank
	return time.AfterFunc(patience, func() {
		log.Warn("a rank has not answered yet, so that messages to it wait: it computes, or is stopped", "rank", own, "peer", rank, "after", patience)
	})
}

// endMaking ends the making of a connection, whether it has succeeded or not.
func (p *peer) endMaking() {
	if m := p.making; m != nil && m.reminder != nil {
		m.reminder.Stop()
	}
	p.making = nil
}

// makeSome moves the connections that are being made on, and returns how much was done. At most one
// of them makes or connects queue pairs, for which a NIC takes a millisecond: other peers are to be
// attended to in between.
func (l *Links) makeSome() (n int) {
	var slow *peer
	short := false                       // of memory: others need not try
	for i := 0; i < len(l.unmade); i++ { // Sink.Connected may begin more
		p := l.unmade[i]
		for p.state == linkNew {
			a := p.making.due()
			if a == nothing || a.slow() && slow != nil && slow != p || a == makePairs && short {
				break
			}
			if !l.do(p, a) {
				short = short || a == makePairs
				l.again()
				break
			}
			if a.slow() {
				slow = p
			}
			n++
		}
	}
	l.unmade = slices.DeleteFunc(l.unmade, func(p *peer) bool {
		if p.state == linkNew {
			p.making.listed = p.making.due() != nothing
			return !p.making.listed
		}
		return true
	})
	return n
}

// retryTick is how soon who sleeps polls again for what had no room.
const retryTick = time.Millisecond

// again has who sleeps poll again soon: of room for what is to be told, or registered, a device
// tells nobody.
func (l *Links) again() {
	if l.retry == nil {
		l.retry = time.AfterFunc(retryTick, l.Wake)
	} else {
		l.retry.Reset(retryTick)
	}
}

// do does what is due for a connection. It returns false if that cannot be done now, or never.
func (l *Links) do(p *peer, a action) bool {
	m := p.making
	var err error
	switch a {
	case makePairs:
		if err = l.makePairs(p); err == transport.ErrAgain {
			return false
		}
	case tellHello:
		if !l.tell(p, m.mine.Encode()) {
			return false
		}
	case connectPairs:
		err = l.connectPairs(p)
	case tellReady:
		if !l.tell(p, (&format.Ready{Number: m.theirs.Number}).Encode()) {
			return false
		}
	case open:
		l.opened(p)
	}
	if err != nil {
		l.lose(p, causeLocal, err)
		return false
	}
	m.next()
	return true
}

// opened lets messages be posted to a peer.
func (l *Links) opened(p *peer) {
	greeting := p.making.theirs.Greeting
	p.endMaking()
	p.state, p.limit = linkUp, l.depth
	if err := l.sink.Connected(p.rank, greeting); err != nil {
		l.lose(p, causeLocal, err)
	}
}

// makePairs makes the credit cell and the queue pairs of a peer, and what HELLO says of them. With
// ErrAgain it has made nothing: memory is short, and some will be given back.
func (l *Links) makePairs(p *peer) error {
	cell := cellBytes(&p.cell)
	mr, err := l.pd.RegMR(cell, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err = l.unregistered(len(cell), err); err == transport.ErrAgain {
		return err
	}
	if err != nil {
		return &lossError{"this rank has no credit cell for it (" + err.Error() + ")", err}
	}
	p.cellMR = mr
	attr := l.cfg.Device.Attr()
	if err := l.createPairs(p); err != nil {
		return &lossError{"this rank has no queue pair for it: its device has " + fmt.Sprint(attr.MaxQP) + " (" + err.Error() + ")", err}
	}
	h := &format.Hello{Rank: l.self.Rank, Number: l.number, MTU: max(attr.MaxMTU, verbs.MTU256),
		Target: min(attr.MaxQPRdAtom, maxRdAtomic), Initiator: min(attr.MaxQPInitRdAtom, maxRdAtomic),
		CellAddr: mr.Addr(), CellRKey: mr.RKey(), Greeting: l.sink.Greeting(p.rank)}
	for _, qp := range p.pairs() {
		h.Pairs = append(h.Pairs, format.Pair{Num: qp.Num(), PSN: rand.Uint32N(1 << 24)})
		l.byQPN.Add(uint64(qp.Num()), uint32(p.rank))
	}
	m := p.making
	m.mine = h
	if p.rank == l.self.Rank { // it has nothing to wait for
		m.theirs, m.hello, m.ready = h, true, true
	}
	return nil
}

// createPairs creates the queue pairs of a peer, in INIT.
func (l *Links) createPairs(p *peer) (err error) {
	sends := verbs.QPCap{MaxSendWR: l.depth, MaxSendSGE: 2, MaxInlineData: uint32(l.inline)}
	if !l.cfg.RecvQP {
		p.qp, err = l.createQP(sends, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
		return err
	}
	// Peers' messages and grants arrive at the second. At the first queue pair only their devices
	// act: RDMA READs of rendezvous, and FIN.
	if p.qp, err = l.createQP(sends, verbs.AccessRemoteRead); err == nil {
		p.recvQP, err = l.createQP(verbs.QPCap{}, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	}
	return err
}

func (l *Links) createQP(queues verbs.QPCap, access verbs.AccessFlags) (verbs.QP, error) {
	init := verbs.QPInitAttr{SendCQ: l.cq, RecvCQ: l.cq, SRQ: l.srq, Type: verbs.QPTRC, Cap: queues, ReadFaults: l.readFaults}
	qp, err := l.pd.CreateQP(&init)
	if err != nil {
		return nil, err
	}
	l.readFaults = init.ReadFaults
	if err := qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1, AccessFlags: access}, verbs.QPMaskInit); err != nil {
		return nil, errors.Join(err, qp.Destroy())
	}
	return qp, nil
}

// Timers of queue pairs, for devices that can lose packets (TMO 8.1).
const (
	minRNRTimer = 12 // 0.64 ms
	ackTimeout  = 18 // 1.07 s
	retryCount  = 6  // 7 is for ever to the kernel's software RDMA: a peer that is gone would never be missed
)

// connectPairs moves a peer's queue pairs to RTS, the second before the first, which posts. The
// first of each end is connected to the last of the other (TMO 1.3).
func (l *Links) connectPairs(p *peer) error {
	mine, theirs := p.making.mine, p.making.theirs
	p.maxRead = max(1, min(mine.Initiator, theirs.Target))
	p.cellAddr, p.cellRKey = theirs.CellAddr, theirs.CellRKey
	for i, qp := range slices.Backward(p.pairs()) {
		to := theirs.Pairs[len(theirs.Pairs)-1-i]
		rtr := verbs.QPAttr{State: verbs.QPSRTR, AV: verbs.AddressVector{Address: l.addrs[p.rank]}, DestQPN: to.Num, RQPSN: to.PSN,
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
