package progress

import (
	"cmp"
	"slices"
)

// lastPolls bounds how often PeerLost polls for what the rank has sent before it was lost. One poll
// that finds nothing does not say that nothing is there: a device that was idle, or has many
// connections, looks at some polls only.
const (
	lastPolls  = 1000
	emptyPolls = 64 // in a row say so
)

// PeerLost tells the engine of a loss that its transport has not noticed: it knows nothing of ranks
// that it was never connected to, nor of the other end of a connection that has given it up. What
// has arrived of the rank stays.
func (e *Engine) PeerLost(rank int, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if rank < 0 || rank >= len(e.peers) || e.wait.Stopping() {
		return
	}
	p := &e.peers[rank]
	for i, empty := 0, 0; i < lastPolls && empty < emptyPolls && p.lost == nil; i++ {
		if empty++; e.pollLocked() != 0 {
			empty = 0
		}
	}
	if p.lost != nil || e.wait.Stopping() {
		return
	}
	e.endPeerLocked(p, cause)
	e.tr.Disconnect(rank, p.lost) // ends its reads under way; and whom the rank still reaches it shall not wait for
	e.tr.Wake()
}

// lostLocked gives p up. It may be called again.
func (e *Engine) lostLocked(p *peer, cause error) {
	if p.lost != nil {
		return
	}
	if e.cfg.Lost != nil && e.broken == nil {
		e.cfg.Lost(p.rank, cmp.Or(cause, ErrPeerLost))
	}
	e.endPeerLocked(p, cause)
}

// endPeerLocked ends everything that depends on p, which is lost from here on.
func (e *Engine) endPeerLocked(p *peer, cause error) {
	e.mu.AssertHeld("a peer")
	if cause == nil {
		cause = ErrPeerLost
	}
	e.log.Warn("peer lost", "rank", e.cfg.Rank, "peer", p.rank, "err", cause)
	p.lost = cause
	e.lost = append(e.lost, p.rank)
	e.unacked++
	e.m.PeersLost++
	p.fins, p.ctrls, p.unknown = nil, nil, nil
	err := peerError(p.rank, cause)
	e.failSendsLocked(p, err)
	e.forgetLocked(p)
	e.failReadsLocked(p, err)
	// Receives go before the requests that nobody can read any more: neither can match the other.
	e.failReceivesLocked(func(op *Op) bool { return op.peer == p.rank || op.peer == AnySource }, err)
	for m := p.rndvs; m != nil; m = p.rndvs {
		e.unlinkRndvLocked(m)
		e.dropRndvLocked(m)
	}
	e.checkLostLocked(p)
}

// failSendsLocked ends the sends to p, queued and requested.
func (e *Engine) failSendsLocked(p *peer, err error) {
	e.failQueueLocked(p, err)
	e.failRequestsLocked(func(op *Op) bool { return op.peer == p.rank }, err)
}

func (e *Engine) failRequestsLocked(which func(*Op) bool, err error) {
	for i := range e.sends.entries {
		if op := e.sends.entries[i].op; op != nil && which(op) {
			e.endRequestLocked(op, Status{}, err)
		}
	}
}

// failReadsLocked ends the receives that wait for room to read from p. Those with reads under way
// end with their last ReadDone: until then the transport has their buffers.
func (e *Engine) failReadsLocked(p *peer, err error) {
	for op := p.readq.head; op != nil; op = p.readq.head {
		p.readq.remove(op)
		op.read.err = err
		if op.read.active == 0 {
			e.releaseReadLocked(op)
			e.completeLocked(op, Status{}, err)
		}
	}
}

func (e *Engine) failReceivesLocked(which func(*Op) bool, err error) {
	for _, op := range e.posted.All() {
		switch {
		case !which(op):
		case op.state == opOffered:
			if !e.wait.Stopping() {
				e.recallLocked(op, err) // the device has the buffer
			}
		default:
			e.endPostedLocked(op, err)
		}
	}
}

// lossLocked is the error of receives from any source: it names the ranks that AckFailures was not
// told.
func (e *Engine) lossLocked() error {
	err := &PeerError{}
	for _, r := range e.lost {
		if p := &e.peers[r]; !p.acked {
			err.Ranks = append(err.Ranks, r)
			err.Cause = p.lost
		}
	}
	slices.Sort(err.Ranks)
	return err
}

// Failed lists the ranks that are known to be lost.
func (e *Engine) Failed() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return sortedRanks(e.lost)
}

// AckFailures lets receives from any source go on without these ranks.
func (e *Engine) AckFailures(ranks ...int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range ranks {
		if r < 0 || r >= len(e.peers) {
			continue
		}
		if p := &e.peers[r]; p.lost != nil && !p.acked {
			p.acked = true
			e.unacked--
		}
	}
}

// failAllLocked ends every operation, except receives whose buffers the transport still has: those
// end with their reads, by the device, or when the transport is closed.
func (e *Engine) failAllLocked(err error) {
	e.mu.AssertHeld("the engine")
	for i := range e.peers {
		p := &e.peers[i]
		e.failQueueLocked(p, err)
		e.failReadsLocked(p, err)
	}
	e.failRequestsLocked(func(*Op) bool { return true }, err)
	e.failReceivesLocked(func(*Op) bool { return true }, err)
	for _, op := range slices.Concat(e.flushers, e.rooms) {
		e.completeLocked(op, Status{}, err)
	}
	e.flushers, e.rooms = nil, nil
	if e.closed {
		e.dropReadsLocked(err)
		e.dropTaggedLocked(err)
	}
}

// dropReadsLocked ends the receives that were reading; the transport is closed and has let go of
// their buffers.
func (e *Engine) dropReadsLocked(err error) {
	for i := range e.reads.entries {
		op := e.reads.entries[i].op
		if op == nil {
			continue
		}
		e.releaseReadLocked(op)
		if op.state == opAbandoned {
			e.freeLocked(op)
		} else {
			e.completeLocked(op, Status{}, err)
		}
	}
}
