package progress

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/tagmatch/tagmatch/transport"
)

// lastPolls bounds how often PeerLost polls for what the rank has sent before it was lost. One poll
// that finds nothing does not say that nothing is there: a device that was idle, or has many
// connections, looks at some polls only.
const (
	lastPolls  = 1000
	emptyPolls = 64 // in a row say so
)

// PeerLost tells the engine of a loss that its transport cannot see: of a rank that it was never
// connected to, or one that has given up the connection at its own end. Messages of that rank that
// have arrived can still be received.
func (e *Engine) PeerLost(rank int, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if rank < 0 || rank >= len(e.peers) || e.wait.Stopping() {
		return
	}
	p := e.peer(rank)
	for i, empty := 0, 0; i < lastPolls && empty < emptyPolls && p.lost == nil; i++ {
		if empty++; e.pollLocked() != 0 {
			empty = 0
		}
	}
	if p.lost != nil || e.wait.Stopping() {
		return
	}
	p.end(cause)
	e.tr.Wake()
}

// lose declares p lost, which is reported by Config.Lost. Later calls do nothing.
func (p *peer) lose(cause error) {
	e := p.e
	if p.lost != nil {
		return
	}
	if e.cfg.Lost != nil && e.broken == nil {
		e.cfg.Lost(p.rank, cmp.Or(cause, ErrPeerLost))
	}
	if p.met && errors.Is(cause, ErrProtocol) && !errors.Is(cause, transport.ErrAccused) {
		_ = e.tr.SendCtrl(p.rank, ctrl{kind: ctrlAccused}.encode()) // if the link is up and has room
	}
	p.end(cause)
}

// end makes p lost, and ends all operations that depend on it.
func (p *peer) end(cause error) {
	e := p.e
	e.mu.AssertHeld("a peer")
	if cause == nil {
		cause = ErrPeerLost
	}
	level := slog.LevelWarn
	if e.leaving {
		level = slog.LevelDebug
	}
	e.log.Log(context.Background(), level, "peer lost", "rank", e.cfg.Rank, "peer", p.rank, "err", cause)
	p.lost = cause
	e.lost, e.unusual = append(e.lost, p.rank), true
	e.sources.lose(p.rank)
	e.m.PeersLost++
	p.dropPosts()
	p.withdraws = nil
	err := peerError(p.rank, cause)
	p.failSends(err)
	p.out.Close()
	p.in.Close()
	p.failReads(err)
	// Receives end before the requests, which nobody can read any more: none can match meanwhile.
	e.failReceivesLocked(func(op *Op) bool { return op.accepts(p.rank) }, err)
	p.consumed(e.unexp.DropLost(p.rank, e.contexts.space))
	e.tr.Disconnect(p.rank, p.lost) // ends its reads under way; and whom the rank still reaches it shall not wait for
	for name, m := range e.held {
		if name.src == p.rank {
			m.fail(err)
		}
	}
	p.checkLost()
	p.gone()
}

// failSends ends the sends to p, queued and requested.
func (p *peer) failSends(err error) {
	p.failQueue(err)
	p.e.failRequestsLocked(func(op *Op) bool { return op.peer == p.rank }, err)
}

func (e *Engine) failRequestsLocked(which func(*Op) bool, err error) {
	for i := range e.sends.entries {
		if op := e.sends.entries[i].op; op != nil && which(op) {
			op.endRequest(Status{}, err)
		}
	}
}

// failReads ends the receives that wait for room to read from p. Those with reads under way end
// with their last ReadDone: until then the transport may write to their buffers.
func (p *peer) failReads(err error) {
	for op := p.revoked.head; op != nil; op = p.revoked.head {
		p.endRevoked(op, err)
	}
	for op := p.readq.head; op != nil; op = p.readq.head {
		p.readq.remove(op)
		op.read.err = err
		if op.read.active == 0 {
			op.e.reads.release(op)
			op.complete(Status{}, err)
		}
	}
}

func (e *Engine) failReceivesLocked(which func(*Op) bool, err error) {
	for _, op := range e.posted.All() {
		switch {
		case !which(op):
		case op.state == opOffloaded:
			if !e.wait.Stopping() {
				op.del(err) // the device may write to the buffer
			}
		default:
			op.endPosted(err)
		}
	}
}

// lossOfLocked is the error that names some of the ranks that are lost.
func (e *Engine) lossOfLocked(which func(rank int) bool) error {
	err := &PeerError{}
	for _, r := range e.lost {
		if which(r) {
			err.Ranks = append(err.Ranks, r)
			err.Cause = e.peers[r].lost
		}
	}
	slices.Sort(err.Ranks)
	return err
}

// Loss is a *PeerError that names all ranks of m that are lost, also those that AckFailures was
// told of; nil where there are none.
func (e *Engine) Loss(m Members) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.ContainsFunc(e.lost, m.Contains) {
		return nil
	}
	return e.lossOfLocked(m.Contains)
}

// Failed lists the ranks that are known to be lost.
func (e *Engine) Failed() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return sortedRanks(e.lost)
}

// failAllLocked ends every operation, except receives whose buffers the transport may still write
// to: those end with their reads, by the device, or once the transport is closed.
func (e *Engine) failAllLocked(err error) {
	e.mu.AssertHeld("the engine")
	for _, p := range e.made {
		if !p.met {
			p.dropPosts() // nobody connects to it any more
		}
		p.failQueue(err)
		p.failReads(err)
	}
	e.failRequestsLocked(func(*Op) bool { return true }, err)
	e.failReceivesLocked(func(*Op) bool { return true }, err)
	for _, op := range slices.Concat(e.flushers, e.backlog.rooms) {
		op.complete(Status{}, err)
	}
	e.flushers, e.backlog.rooms = nil, nil
	e.held = nil // nobody can read them any more
	if e.closed {
		e.reads.fail(err)
		e.off.fail(err)
	}
	e.queues.wake()
}
