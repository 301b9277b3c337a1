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
	p.lost, e.unusual = cause, true
	e.sources.lose(p.rank, cause)
	e.m.PeersLost++
	p.dropPosts()
	p.withdraws = nil
	err := peerError(p.rank, cause)
	p.failSends(err)
	p.out.Close()
	p.in.Close()
	p.failReads(err)
	// Receives end before the requests, which nobody can read any more: none can match meanwhile.
	for _, op := range e.posted.All() {
		if op.accepts(p.rank) {
			op.fail(err)
		}
	}
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
	for op := range p.e.sends.ops() {
		if op.peer == p.rank {
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

// fail ends a receive that is posted. Once nobody polls any more one that the device has, which may
// write to the buffer, stays until the transport is closed.
func (op *Op) fail(err error) {
	if op.state != opOffloaded {
		op.endPosted(err)
	} else if !op.e.wait.Stopping() {
		op.del(err)
	}
}

// Loss is a *PeerError that names all ranks of m that are lost, also those that AckFailures was
// told of; nil where there are none.
func (e *Engine) Loss(m Members) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sources.lossOf(m.Contains)
}

// Failed lists the ranks that are known to be lost.
func (e *Engine) Failed() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ranks []int
	for _, l := range e.sources.lost {
		ranks = append(ranks, l.Rank)
	}
	slices.Sort(ranks)
	return ranks
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
	for op := range e.sends.ops() {
		op.endRequest(Status{}, err)
	}
	for _, op := range e.posted.All() {
		op.fail(err)
	}
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
