package links

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// peer is the link to one rank.
type peer struct {
	qp     verbs.QP // for sends; never nil once Links are open
	recvQP verbs.QP // for what the peer sends, with Config.RecvQP; else nil

	// Sequence numbers of send requests. Those from done to posted occupy slots of the send queue;
	// the completion of a signalled request frees all before it (TMO 8.2). signalled is one more
	// than the number of the newest signalled one. Invariant while the link is up: done <=
	// signalled <= posted <= done+limit, modulo 2^32.
	posted, signalled, done uint32
	// limit is the depth of the send queue while the link is up, else 0: posted-done < limit is the
	// one comparison that a post needs.
	limit uint32

	state      linkState
	reads      int // reads outstanding: each has a slot in Links.reads
	maxRead    int // reads that may be outstanding: what the peer answers concurrently, at least 1
	registered int // send buffers registered for it, see regions
	rank       int
	unended    int // operations that must end before the loss is reported: the balance of DeferLoss

	cellAddr uint64 // of this rank's cell at the peer
	cellRKey uint32
	grantDue bool   // grant found no room and is still to be posted
	grant    uint64 // with grantDue: newest total granted, bytes; it never shrinks

	cause cause // of err
	err   error // why the link is lost; nil in states linkNew and linkUp
}

// linkState only ever grows.
type linkState uint8

const (
	linkNew   linkState = iota // not connected
	linkUp                     // takes send requests, limit permitting
	linkDying                  // failed; Sink.PeerLost is called once its reads and the operations of DeferLoss have ended
	linkLost                   // Sink.PeerLost was called, or the Links are closed
)

var errNotConnected = errors.New("transport: the rank is not connected")

// Connect makes rank reachable. addr is its Address.
func (l *Links) Connect(rank int, addr []byte) error {
	err := fmt.Errorf("the job has %d ranks", len(l.peers))
	if uint(rank) < uint(len(l.peers)) {
		err = l.peers[rank].connect(&l.self, addr, l.depth)
	}
	if err != nil {
		return fmt.Errorf("transport/%s: connect rank %d: %w", l.cfg.Mode, rank, err)
	}
	return nil
}

// connect makes p usable, by the addresses of both ends and the depth of a send queue.
func (p *peer) connect(self *format.Address, addr []byte, depth uint32) error {
	if p.state != linkNew {
		return errors.New("it is connected already")
	}
	a, err := format.DecodeAddress(addr)
	if err != nil {
		return err
	}
	if err := self.Accept(a, p.rank); err != nil {
		return err
	}
	if err := p.raise(self, a); err != nil {
		return err
	}
	p.cellAddr, p.cellRKey = a.CellAddr+8*uint64(self.Rank), a.CellRKey
	p.maxRead = max(1, min(self.RdAtomic, a.RdAtomic))
	p.state, p.limit = linkUp, depth
	return nil
}

// Connected reports whether Connect was called for a rank, whatever the state of the link.
func (l *Links) Connected(rank int) bool { return l.peers[rank].state != linkNew }

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

// raise moves a peer's queue pairs to RTS. The first of each end is connected to the second of the
// other (TMO 1.3).
func (p *peer) raise(self, a *format.Address) error {
	if p.recvQP == nil {
		return raise(p.qp, self, a, 0, 0)
	}
	if err := raise(p.recvQP, self, a, 1, 0); err != nil {
		return err
	}
	return raise(p.qp, self, a, 0, 1)
}

// raise moves a queue pair to RTS. own and theirs are the sets of Address.QPNs that it and its
// partner belong to.
func raise(qp verbs.QP, self, a *format.Address, own, theirs int) error {
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

// Rank returns the rank that a queue pair, by its number, is connected to or made for; -1 for a
// number that is none of this transport's.
func (l *Links) Rank(qpn uint32) int { return l.byQPN.Find(uint64(qpn)) }

// close destroys a peer's queue pairs; all calls for it fail from then on.
func (p *peer) close() error {
	p.limit, p.grantDue, p.state = 0, false, linkLost
	if p.err == nil {
		p.err = errClosed
	}
	var errs []error
	for _, qp := range []verbs.QP{p.qp, p.recvQP} {
		if qp != nil {
			errs = append(errs, qp.Destroy())
		}
	}
	return errors.Join(errs...)
}
