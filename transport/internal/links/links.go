package links

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/check"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// Links are the links to all ranks of a job, this one included. Open makes them.
type Links struct {
	cfg  Config         // with defaults
	self format.Address // of this rank
	sink transport.Sink
	inv  *check.Sink

	objects
	peers []peer // by rank
	byQPN Index  // rank of each queue pair

	maxRead uint64 // largest read, bytes
	inline  int    // largest message that is posted inline, bytes with headers
	depth   uint32 // of each send queue
	every   uint32 // a posting to a peer that makes so many since the last signalled one is signalled

	// Work requests are made once and reused by every call. eager is always inline, small is for
	// all other messages and for long ones, marked for those of SendMarked; write is for grants and
	// for Drained. Those of messages and grants have two SGEs, of which the second is the payload.
	eager, small, marked, write, read verbs.SendWR
	eagerS, smallS                    [2]verbs.SGE // smallS is of small, marked and write
	readS                             [1]verbs.SGE
	eagerB                            [verbs.TMHSize]byte   // header in eager
	smallB                            [format.MaxSmall]byte // header, or all of a short message, in small
	chain                             chain

	ring    ring  // receive buffers of the SRQ
	bounce  Pool  // send buffers of messages that are too long for inline
	cells   cells // credit that peers granted to this rank
	regions regions
	reads   reads
	grants  grants

	until   int // calls of Begin until End does its rare work
	last    lastFrom
	todo    bool  // End has work now: a grant, a loss or a fatal error
	fatal   error // why the transport as a whole cannot continue; nil while it can
	stopped bool  // the last Drain was ended by Enough
	closed  bool
}

// lastFrom is what the last message was from, to spare the next one a search for it. Its link is
// up.
type lastFrom struct {
	qpn  uint32 // of the queue pair that received it; 0: there was none
	rank int
}

// maxBounce is the most messages that can be outstanding of those that are too long for inline.
const maxBounce = 64

// Open makes the objects that cfg asks for; no rank is reachable before Connect. cfg is filled
// already (Config.Fill). With an error nothing is left open. sink and inv are those of check.New.
func Open(l *Links, cfg Config, sink transport.Sink, inv *check.Sink) error {
	n := cfg.Size
	attr := cfg.Device.Attr()
	*l = Links{cfg: cfg, self: cfg.address(), sink: sink, inv: inv, peers: make([]peer, n), byQPN: NewIndex(2 * n), maxRead: attr.MaxMsgSize,
		inline: min(attr.MaxInline, format.BufferSize(cfg.MaxEager)), depth: uint32(cfg.SendDepth), every: uint32(max(cfg.SendDepth/2, 1))}
	l.regions.init(attr.MaxMR, n)
	l.eager = verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, SGList: l.eagerS[:]}
	l.small = verbs.SendWR{Opcode: verbs.WRSend}
	l.marked = verbs.SendWR{Opcode: verbs.WRSendWithImm}
	l.write = verbs.SendWR{Opcode: verbs.WRRDMAWrite}
	l.read = verbs.SendWR{Opcode: verbs.WRRDMARead}
	l.eagerS[0].Data = l.eagerB[:]
	l.chain.init(min(l.inline-verbs.TMHSize, cfg.MaxEager))
	for rank := range l.peers {
		l.peers[rank].rank = rank
	}
	if err := l.open(); err != nil {
		return fmt.Errorf("transport/%s: open: %w", cfg.Mode, errors.Join(err, l.Close()))
	}
	return nil
}

func (l *Links) open() (err error) {
	c := &l.cfg
	if err = l.objects.open(c); err != nil {
		return err
	}
	size := format.BufferSize(c.MaxEager)
	if err = l.ring.open(l.pd, l.srq, c.SRQDepth, size); err != nil {
		return err
	}
	if size > l.inline {
		if err = l.bounce.Open(l.pd, min(c.SendDepth, maxBounce), size, 0); err != nil {
			return err
		}
	}
	if err = l.cells.open(l.pd, c.Size); err != nil {
		return err
	}
	l.self.CellAddr, l.self.CellRKey = l.cells.mr.Addr(), l.cells.mr.RKey()
	return l.openPeers()
}

// openPeers makes the queue pairs of all ranks, in INIT.
func (l *Links) openPeers() error {
	sends := verbs.QPCap{MaxSendWR: l.depth, MaxSendSGE: 2, MaxInlineData: uint32(l.inline)}
	first := func(p *peer) *verbs.QP { return &p.qp }
	if !l.cfg.RecvQP {
		return l.openQPs(sends, verbs.AccessRemoteRead|verbs.AccessRemoteWrite, first)
	}
	// Peers' messages and grants arrive at the second. At the first queue pair only their devices
	// act: RDMA READs of rendezvous, and FIN.
	if err := l.openQPs(sends, verbs.AccessRemoteRead, first); err != nil {
		return err
	}
	return l.openQPs(verbs.QPCap{}, verbs.AccessRemoteRead|verbs.AccessRemoteWrite, func(p *peer) *verbs.QP { return &p.recvQP })
}

// openQPs creates a queue pair for every rank, in INIT, at the place that place returns, and adds
// their numbers to the address as another set.
func (l *Links) openQPs(queues verbs.QPCap, access verbs.AccessFlags, place func(*peer) *verbs.QP) error {
	qpns := make([]uint32, len(l.peers))
	for rank := range l.peers {
		qp, err := l.pd.CreateQP(&verbs.QPInitAttr{SendCQ: l.cq, RecvCQ: l.cq, SRQ: l.srq, Type: verbs.QPTRC,
			Cap: queues, ReadFaults: l.cfg.Device.Attr().ReadFaults})
		if err == nil {
			*place(&l.peers[rank]) = qp
			err = qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1, AccessFlags: access}, verbs.QPMaskInit)
		}
		if err != nil {
			return fmt.Errorf("queue pair for rank %d: %w", rank, err)
		}
		qpns[rank] = qp.Num()
		l.byQPN.Add(uint64(qp.Num()), uint32(rank))
	}
	l.self.QPNs = append(l.self.QPNs, qpns)
	return nil
}

// Caps returns the capabilities of the transport.
func (l *Links) Caps() transport.Caps {
	attr := l.cfg.Device.Attr()
	return transport.Caps{Name: l.cfg.Mode, Device: l.cfg.Device.Name(), MaxEager: l.cfg.MaxEager, MaxCtrl: format.MaxCtrl,
		MaxRead: attr.MaxMsgSize, MaxHdr: format.MaxExtra, Revoke: attr.ReadFaults}
}

// Address is what the peers pass to Connect.
func (l *Links) Address() []byte { return l.self.Encode() }

var errClosed = errors.New("transport: closed")

// Close ends all connections and frees everything, whatever fails on the way: queue pairs, SRQ,
// queues, then memory (scenario 55 of TMO 7.2).
func (l *Links) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	if l.fatal == nil {
		l.fatal = errClosed
	}
	l.inv.Closes()
	var errs []error
	for i := range l.peers {
		if err := l.peers[i].close(); err != nil {
			errs = append(errs, fmt.Errorf("rank %d: %w", i, err))
		}
	}
	errs = append(errs, l.closeQueues(), l.ring.close(), l.bounce.Close(), l.cells.close(), l.reads.close())
	if l.cfg.Free != nil {
		errs = append(errs, l.cfg.Free())
	}
	errs = append(errs, l.closeDomain())
	return errors.Join(errs...)
}
