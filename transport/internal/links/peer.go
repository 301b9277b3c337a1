package links

import (
	"errors"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// peer is the link to one rank. It is made when the rank is first talked to, or talks to this one:
// all other ranks have roster.fresh in common.
type peer struct {
	qp     verbs.QP // for sends; nil until the connection begins
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

	cell     uint64   // credit that the peer has granted to this rank, see Granted
	cellMR   verbs.MR // of cell; nil until the connection begins
	cellAddr uint64   // of this rank's cell at the peer
	cellRKey uint32
	grantAt  int    // place in grants.due, plus one; 0: no grant is due
	grant    uint64 // while one is due: newest total granted, bytes; it never shrinks

	making *making // the connection, while it is being made
	number uint64  // of the peer's transport, once it has told HELLO
	line   bool    // there is a line between the devices, as far as this end knows

	cause cause // of err
	err   error // why the link is lost; nil in states linkNew and linkUp
	quiet bool  // in state linkDying: a poll has begun since its queue pairs are in ERR
}

// linkState only ever grows.
type linkState uint8

const (
	linkNew   linkState = iota // not connected; what has arrived from the peer is delivered
	linkUp                     // takes send requests, limit permitting
	linkDying                  // failed; Sink.PeerLost is called once its reads and the operations of DeferLoss have ended
	linkLost                   // Sink.PeerLost was called, or the Links are closed
)

var errNotConnected = errors.New("transport: the rank is not connected")

// roster is the links to all ranks of the job.
type roster struct {
	peers []*peer // by rank; never nil
	fresh peer    // of all ranks that have no other: its limit is 0
	made  []*peer // all but fresh
	byQPN Index   // rank of each queue pair
}

func (r *roster) init(size int) {
	r.peers, r.byQPN = make([]*peer, size), NewIndex(0)
	for rank := range r.peers {
		r.peers[rank] = &r.fresh
	}
}

// peer returns the link to a rank, which it makes if there is none yet.
func (r *roster) peer(rank int) *peer {
	p := r.peers[rank]
	if p != &r.fresh {
		return p
	}
	p = &peer{rank: rank}
	r.peers[rank] = p
	r.made = append(r.made, p)
	return p
}

// noRoom returns why a peer takes no request now; one that is not connected it connects to. One
// that is dying has no room until its loss was reported: an error before that would name a loss
// that nobody knows of.
func (l *Links) noRoom(to int) error {
	p := l.peers[to]
	switch p.state {
	case linkUp, linkDying:
		return transport.ErrAgain
	case linkNew:
		if l.addrs[to] == nil {
			return errNotConnected
		}
		if p.making == nil {
			l.conn.begin(l.peer(to))
			l.Wake() // who sleeps is to make the connection
		}
		return transport.ErrAgain
	}
	return p.err
}

// Connected reports whether a rank may have sent something: the connection to it has begun,
// whatever has become of it.
func (l *Links) Connected(rank int) bool {
	p := l.peers[rank]
	return p.qp != nil && (p.recvQP != nil || !l.cfg.RecvQP)
}

// Wire names the wire to a rank.
func (l *Links) Wire(rank int) string {
	if p := l.peers[rank]; p.qp != nil {
		if attr, _, err := p.qp.Query(); err == nil && attr.AV.Wire != "" {
			return attr.AV.Wire
		}
	}
	if l.addrs[rank] == nil {
		return ""
	}
	wire, _ := l.cfg.Device.Reaches(l.addrs[rank]) // Connect has asked
	return wire
}

// Rank returns the rank that a queue pair, by its number, is connected to or made for; -1 for a
// number that is none of this transport's.
func (r *roster) Rank(qpn uint32) int { return r.byQPN.Find(uint64(qpn)) }

// DeferLoss with n = 1 defers the report of a rank's loss, as an operation of that rank must end
// first; n = -1, when it has ended, takes that back. Calls are counted.
func (r *roster) DeferLoss(rank, n int) { r.peers[rank].unended += n }

// ResetRecv resets the queue pair that receives from a rank whose link is lost: its device then
// owes no completion of what the rank has sent.
func (r *roster) ResetRecv(rank int) error {
	return r.peers[rank].recvQP.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPAttrState)
}

// Discards reports whether what a rank sends is to be discarded: its link has ended, and not only
// by a failure that earlier messages may have overtaken.
func (r *roster) Discards(rank int) bool { return r.peers[rank].discards() }

func (p *peer) discards() bool {
	return p.state > linkUp && (p.state == linkLost || p.cause == causeLocal)
}

// close destroys a peer's queue pairs; all calls for it fail from then on.
func (p *peer) close() error {
	p.limit, p.grantAt, p.state = 0, 0, linkLost
	p.endMaking()
	if p.err == nil {
		p.err = errClosed
	}
	var errs []error
	for _, qp := range p.pairs() {
		errs = append(errs, qp.Destroy())
	}
	return errors.Join(errs...)
}
