package rc

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// The purpose of a work request is in the top bits of its WRID, as only that is valid after an
// error status (ibv_poll_cq(3)). Receives have kind 0 and their slot below. Send requests have
// their sequence number in the low 32 bits and, where they use one, a slot above that.
// transport/tmsrq uses kinds from 8 on, in completion queues of its own.
const (
	kindRecv uint64 = iota << kindShift
	kindSend
	kindBounce // slot: bounce buffer
	kindRead   // slot: Links.reads

	kindShift = 60
	slotShift = 32
	slotMask  = 1<<(kindShift-slotShift) - 1
)

// LinksConfig configures Links. The device's objects belong to the transport.
type LinksConfig struct {
	Self      Address // NewLinks fills in QPNs, CellAddr and CellRKey
	Device    verbs.Device
	PD        verbs.PD
	CQ        verbs.CQ
	RecvCQ    verbs.CQ // of receives; nil: CQ
	SRQ       verbs.SRQ
	SendDepth int
	Sink      transport.Sink
	// Twin adds a second queue pair for each rank, without a send queue: peers' messages arrive
	// there, and a tag-matching SRQ sends on it (TMO 1.3). The first then receives only what the
	// peer's second sends.
	Twin bool
}

// maxBounce is how many messages that are too long for inline can be outstanding.
const maxBounce = 64

// Links are the queue pairs to all ranks, with their outgoing messages, reads and credits. The
// transport passes completions of send requests to Completed, those with an error status to Failed,
// and calls Settle after all completions were handled.
type Links struct {
	cfg      LinksConfig
	sink     transport.Sink
	peers    []peer
	byQPN    table
	maxEager int
	inline   int    // largest inline message, headers included
	depth    uint32 // of each send queue
	every    uint32 // at least one request of so many is signalled
	maxRead  uint64

	offers offers // registered send buffers

	eager  verbs.SendWR // two SGEs: header, payload; always inline
	small  verbs.SendWR // the same for the other messages
	write  verbs.SendWR // credit, flush
	read   verbs.SendWR
	eagerB [verbs.TMHSize]byte
	smallB [maxSmall]byte
	cellB  [8]byte
	eagerS [2]verbs.SGE
	smallS [2]verbs.SGE
	writeS [1]verbs.SGE
	readS  [1]verbs.SGE

	bounce Pool // for messages that are too long for inline
	reads  []read
	freeRd []uint32
	cells  cells

	waiting   int // signalled requests outstanding
	grantsDue int
	todo      bool // Settle or regrant has work
	inv       *Checks
}

// peer is the link to one rank. The transport's owner owns it.
type peer struct {
	qp   verbs.QP
	twin verbs.QP // with LinksConfig.Twin
	// Sequence numbers of send requests. Those from done to posted occupy slots of the send queue;
	// the completion of a signalled request frees all before it (TMO 8.2). signalled is behind the
	// newest signalled one. Invariant while the link is up: done <= signalled <= posted <=
	// done+limit, modulo 2^32.
	posted, signalled, done uint32
	// limit is the depth of the send queue while the link is up, else 0: posted-done < limit is the
	// one comparison that a post needs.
	limit uint32

	state   linkState
	waiting int // signalled requests outstanding
	reads   int // reads outstanding
	offered int // send buffers registered for it
	held    int // balance of Hold
	maxRead int

	cellAddr uint64 // of this rank's cell at the peer
	cellRKey uint32
	grantDue bool   // grant found no room and is still to be posted
	grant    uint64 // newest total granted, bytes; never shrinks

	cause cause // of err
	err   error // why the link is lost
}

type linkState uint8

const (
	linkNew   linkState = iota // not connected
	linkUp                     //
	linkDying                  // failed; PeerLost follows once reads have ended
	linkLost                   // PeerLost was called
)

var errNotConnected = errors.New("transport: the rank is not connected")

// NewLinks makes the queue pairs, in INIT.
func NewLinks(l *Links, cfg LinksConfig) error {
	attr := cfg.Device.Attr()
	n := cfg.Self.Size
	*l = Links{cfg: cfg, sink: cfg.Sink, peers: make([]peer, n), byQPN: newTable(2 * n), maxEager: cfg.Self.MaxEager,
		depth: uint32(cfg.SendDepth), maxRead: attr.MaxMsgSize}
	l.offers.init(attr.MaxMR, n)
	if invariant.Enabled {
		l.inv = cfg.Sink.(*Checks)
	}
	if l.cfg.RecvCQ == nil {
		l.cfg.RecvCQ = cfg.CQ
	}
	l.inline = min(attr.MaxInline, BufferSize(l.maxEager))
	l.every = max(l.depth/2, 1)
	l.eager = verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, SGList: l.eagerS[:]}
	l.small = verbs.SendWR{Opcode: verbs.WRSend, SGList: l.smallS[:]}
	l.write = verbs.SendWR{Opcode: verbs.WRRDMAWrite}
	l.read = verbs.SendWR{Opcode: verbs.WRRDMARead}
	l.eagerS[0].Data = l.eagerB[:]
	if err := l.cells.open(cfg.PD, n); err != nil {
		return err
	}
	l.cfg.Self.CellAddr, l.cfg.Self.CellRKey = l.cells.mr.Addr(), l.cells.mr.RKey()
	if size := BufferSize(l.maxEager); size > l.inline {
		if err := l.bounce.Open(cfg.PD, min(cfg.SendDepth, maxBounce), size, 0); err != nil {
			return err
		}
	}
	sends := verbs.QPCap{MaxSendWR: l.depth, MaxSendSGE: 2, MaxInlineData: uint32(l.inline)}
	if !cfg.Twin {
		return l.openQPs(sends, verbs.AccessRemoteRead|verbs.AccessRemoteWrite, func(p *peer) *verbs.QP { return &p.qp })
	}
	// Peers' messages arrive at the twin. At the first queue pair only their devices act: RDMA
	// READs of rendezvous, and FIN.
	err := l.openQPs(sends, verbs.AccessRemoteRead, func(p *peer) *verbs.QP { return &p.qp })
	if err != nil {
		return err
	}
	return l.openQPs(verbs.QPCap{}, verbs.AccessRemoteRead|verbs.AccessRemoteWrite, func(p *peer) *verbs.QP { return &p.twin })
}

// openQPs creates a queue pair for every rank, in INIT, and adds their numbers to the address.
func (l *Links) openQPs(queues verbs.QPCap, access verbs.AccessFlags, place func(*peer) *verbs.QP) error {
	qpns := make([]uint32, len(l.peers))
	for rank := range l.peers {
		p := &l.peers[rank]
		qp, err := l.cfg.PD.CreateQP(&verbs.QPInitAttr{SendCQ: l.cfg.CQ, RecvCQ: l.cfg.RecvCQ, SRQ: l.cfg.SRQ, Type: verbs.QPTRC,
			Cap: queues, ReadFaults: l.cfg.Device.Attr().ReadFaults})
		if err == nil {
			*place(p) = qp
			err = qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1, AccessFlags: access}, verbs.QPMaskInit)
		}
		if err != nil {
			return fmt.Errorf("queue pair for rank %d: %w", rank, err)
		}
		qpns[rank] = qp.Num()
		l.byQPN.add(qp.Num(), rank)
	}
	l.cfg.Self.QPNs = append(l.cfg.Self.QPNs, qpns)
	return nil
}

// Address is what the peers pass to Connect.
func (l *Links) Address() []byte { return l.cfg.Self.Encode() }

// Connect makes rank reachable. addr is its Address.
func (l *Links) Connect(rank int, addr []byte) error {
	if invariant.Enabled {
		defer l.inv.Enter("Connect")()
	}
	err := l.connect(rank, addr)
	if err != nil {
		return fmt.Errorf("transport/%s: connect rank %d: %w", l.cfg.Self.Mode, rank, err)
	}
	return nil
}

func (l *Links) connect(rank int, addr []byte) error {
	if uint(rank) >= uint(len(l.peers)) {
		return fmt.Errorf("the job has %d ranks", len(l.peers))
	}
	p := &l.peers[rank]
	if p.state != linkNew {
		return errors.New("it is connected already")
	}
	a, err := DecodeAddress(addr)
	if err != nil {
		return err
	}
	if err := l.cfg.Self.Accept(a, rank); err != nil {
		return err
	}
	if err := l.raiseAll(p, a); err != nil {
		return err
	}
	p.cellAddr, p.cellRKey = a.CellAddr+8*uint64(l.cfg.Self.Rank), a.CellRKey
	p.maxRead = max(1, min(l.cfg.Self.RdAtomic, a.RdAtomic))
	p.state, p.limit = linkUp, l.depth
	return nil
}

// Wire names the wire to a rank.
func (l *Links) Wire(rank int) string {
	if p := &l.peers[rank]; p.qp != nil {
		attr, _ := p.qp.Query()
		return attr.AV.Wire
	}
	return ""
}

// Timers of queue pairs, for devices that can lose packets (TMO 8.1).
const (
	minRNRTimer = 12 // 0.64 ms
	ackTimeout  = 18 // 1.07 s
)

// raiseAll moves a peer's queue pairs to RTS. The first of each end is connected to the second of
// the other (TMO 1.3).
func (l *Links) raiseAll(p *peer, a *Address) error {
	if p.twin == nil {
		return l.raise(p.qp, a, 0, 0)
	}
	if err := l.raise(p.twin, a, 1, 0); err != nil {
		return err
	}
	return l.raise(p.qp, a, 0, 1)
}

// raise moves a queue pair to RTS. own and theirs are the sets of Address.QPNs that it and its
// partner belong to.
func (l *Links) raise(qp verbs.QP, a *Address, own, theirs int) error {
	self := &l.cfg.Self
	depth := uint8(max(1, min(self.RdAtomic, a.RdAtomic)))
	dest := a.QPNs[theirs][self.Rank]
	// The first sequence number of each direction follows from the sender's queue pair number: both
	// ends know it, and it differs between successive connections.
	rtr := verbs.QPAttr{State: verbs.QPSRTR, AV: verbs.AddressVector{Address: a.Device}, DestQPN: dest, RQPSN: dest & (1<<24 - 1),
		PathMTU: verbs.MTU(min(self.MTU, a.MTU)), MaxDestRdAtomic: depth, MinRNRTimer: minRNRTimer}
	if err := qp.Modify(&rtr, verbs.QPMaskRTR); err != nil {
		return err
	}
	rts := verbs.QPAttr{State: verbs.QPSRTS, SQPSN: self.QPNs[own][a.Rank] & (1<<24 - 1), MaxRdAtomic: depth,
		RetryCnt: 7, RNRRetry: 7, Timeout: ackTimeout}
	return qp.Modify(&rts, verbs.QPMaskRTS)
}

// Rank finds the rank of a queue pair number, or -1.
func (l *Links) Rank(qpn uint32) int { return l.byQPN.find(qpn) }

// CloseQPs destroys the queue pairs. Close frees the rest, after SRQ and CQ were destroyed.
func (l *Links) CloseQPs() error {
	if invariant.Enabled && l.inv != nil {
		l.inv.Closed()
	}
	var errs []error
	for i := range l.peers {
		p := &l.peers[i]
		if p.qp != nil {
			errs = append(errs, p.qp.Destroy())
		}
		if p.twin != nil {
			errs = append(errs, p.twin.Destroy())
		}
		p.limit, p.grantDue, p.state = 0, false, linkLost
		if p.err == nil {
			p.err = errClosed
		}
	}
	return errors.Join(errs...)
}

var errClosed = errors.New("transport: closed")

// Close deregisters memory.
func (l *Links) Close() error {
	errs := []error{l.bounce.Close(), l.cells.close()}
	for i := range l.reads {
		if mr := l.reads[i].mr; mr != nil {
			errs = append(errs, mr.Dereg())
		}
	}
	l.reads = nil
	return errors.Join(errs...)
}
