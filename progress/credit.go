package progress

import "github.com/tagmatch/tagmatch/transport"

// Eager data is covered by credit. The receiver's window for each peer is a share of its UnexpectedLimit; a sender charges each
// eager message before it goes, and may have charged at most the window more than the receiver has granted back. Both counts
// only grow, so that a grant may overtake or replace another. Without credit a message goes as a rendezvous request and
// stays in its sender's memory.

const (
	// messageOverhead is charged for each eager message beside its bytes: what the receiver spends to remember it.
	messageOverhead = 64

	// minWindow keeps very large jobs moving: the bound of a receiver is the larger of UnexpectedLimit and Size times this.
	minWindow = 4 << 10
)

func creditWindow(limit int64, size int) uint64 {
	return max(uint64(max(limit, 0))/uint64(size), minWindow)
}

func eagerCost(n int) uint64 { return uint64(n) + messageOverhead }

// credit is the sender's side.
type credit struct {
	window  uint64 // told by the peer's address
	charged uint64 // in all
	granted uint64 // in all, as last read
}

// coversLocked tells whether an eager message may go to p. The peer's cell is only read when the last value does not do.
func (e *Engine) coversLocked(p *peer, cost uint64) bool {
	c := &p.credit
	if c.charged+cost-c.granted <= c.window {
		return true
	}
	granted := e.tr.Granted(p.rank)
	// A peer that grants more than was charged only hurts itself, but the difference must not wrap.
	c.granted = max(c.granted, min(granted, c.charged))
	return c.charged+cost-c.granted <= c.window
}

// account is the receiver's side.
type account struct {
	window   uint64
	received uint64 // in all, charged by the peer's messages
	consumed uint64 // in all, of those that left our memory
	granted  uint64 // last told
}

func (a *account) init(window uint64) { a.window = window }

// receive charges a message; false means that the peer had no credit for it.
func (a *account) receive(cost uint64) bool {
	a.received += cost
	return a.received-a.granted <= a.window
}

// consumeCreditLocked gives cost back to p, in large enough pieces.
func (e *Engine) consumeCreditLocked(p *peer, cost uint64) {
	a := &p.account
	a.consumed += cost
	if a.consumed-a.granted > a.window/4 {
		e.grantLocked(p)
	}
}

func (e *Engine) grantLocked(p *peer) {
	if p.lost != nil {
		return
	}
	a := &p.account
	err := e.tr.Grant(p.rank, a.consumed)
	switch {
	case err == nil:
		a.granted = a.consumed
		e.m.Grants++
	case err == transport.ErrAgain:
		e.markDirtyLocked(p)
	}
}

// grantDueLocked tells whether a grant was refused for lack of room.
func (p *peer) grantDue() bool { return p.account.consumed-p.account.granted > p.account.window/4 }
