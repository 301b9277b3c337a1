package progress

import (
	"math/bits"

	"github.com/tagmatch/tagmatch/progress/internal/flow"
)

// peer is what the engine knows of one rank, and does with it. Its methods are called under the
// engine's lock.
type peer struct {
	e       *Engine // constant
	rank    int     // constant
	lost    error   // why, nil while it is there
	name    uint64  // constant: its rank where Config.SourceMask has it
	names   uint64  // constant: SourceMask
	met     bool    // it is connected, see sink.Connected: before that the transport takes nothing for it
	reached bool    // see reach
	foreign bool    // its messages come by another device than that with the tag list
	dirty   bool    // is in Engine.dirty, or will be once it is met

	// Its messages are looked at when they arrive: it is foreign, or a probe may have asked for
	// one.
	inspected bool

	readq   opList // receives with reads that the transport has not taken yet
	revoked opList // receives that wait for the reason why it has deregistered their messages
	fins    []uint32
	ctrls   [][]byte

	from      int // receives from it in the posted-receive queue
	sentBytes moved
	out       flow.Sender[Op]
	requests  int // rendezvous sends that have a slot in Engine.sends
	cameBytes moved
	in        flow.Receiver
	withdraws []uint32 // requests that it has withdrawn, and that the device may have matched

	asked, heard uint64 // WANTs that it was told since the start, and those of it
}

// peer returns what is known of a rank, from now on also where nothing was: of a rank that this one
// has nothing to do with there is nothing but a nil in a table. It is small enough to be inlined.
func (e *Engine) peer(rank int) *peer {
	if p := e.peers[rank]; p != nil {
		return p
	}
	return e.makePeer(rank)
}

func (e *Engine) makePeer(rank int) *peer {
	names := e.cfg.SourceMask
	p := &peer{e: e, rank: rank, name: uint64(rank) << bits.TrailingZeros64(names), names: names}
	p.foreign = !e.off.covers(rank)
	p.inspected = p.foreign
	p.in = e.memory.Receiver(rank)
	p.out.Init(e.cfg.seed)
	e.peers[rank] = p
	e.made = append(e.made, p)
	return p
}

// meet asks the transport to connect to p, by a message that it refuses until Connected.
func (p *peer) meet() error { return p.e.tr.SendCtrl(p.rank, nil) }

// peers are by rank; nil where nothing is known of one.
type peers []*peer

// known returns what is known of a rank that a transport names; nil where that is nothing.
func (l peers) known(rank int) *peer {
	if uint(rank) < uint(len(l)) {
		return l[rank]
	}
	return nil
}

// heard returns the peer that a message is of; nil where its rank is lost, or nothing is known of
// it. It is small enough to be inlined.
func (l peers) heard(rank int) *peer {
	if p := l.known(rank); p != nil && p.lost == nil {
		return p
	}
	return nil
}

// loss is why a rank is lost, nil while it is there.
func (l peers) loss(rank int) error {
	if p := l[rank]; p != nil {
		return p.lost
	}
	return nil
}
