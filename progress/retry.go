package progress

import (
	"bytes"

	"github.com/tagmatch/tagmatch/transport"
)

// FINs, control messages, reads and sends are posted again where the transport had no room for them
// in a send queue. Grants, DELs and forced DELs it queues by itself.

// markDirty has the next poll post again what p has waiting. For one that is not met nothing is
// tried before it is, however long that takes; but the transport, which is to connect, is polled
// now, also where somebody sleeps in it.
func (p *peer) markDirty() {
	e := p.e
	e.mu.AssertHeld("a peer's queues")
	if p.dirty {
		return
	}
	p.dirty = true
	if p.met {
		e.dirty = append(e.dirty, p.rank)
	}
	e.wait.Retry()
}

// connected follows that the transport takes messages for p from now on. The window is the credit
// that p gives at the start.
func (p *peer) connected(window uint64) {
	p.met = true
	p.out.Allow(window)
	if p.dirty {
		p.e.dirty = append(p.e.dirty, p.rank)
	}
}

// retry posts again what had no room, and returns how much of it was posted.
func (w *waitEngine) retry() (n int) {
	work := w.dirty
	w.dirty, w.again = w.again[:0], work
	for _, rank := range work {
		p := w.peers[rank]
		p.dirty = false
		n += p.drain()
		if !p.readq.empty() || len(p.fins) != 0 || len(p.ctrls) != 0 {
			p.markDirty()
		}
	}
	return n
}

// drain posts what p has waiting: first what frees memory or ends operations at p, sends last.
func (p *peer) drain() int {
	e := p.e
	n := 0
	for len(p.fins) != 0 && e.tr.SendFin(p.rank, p.fins[0]) != transport.ErrAgain {
		p.fins = p.fins[1:]
		e.backlog.posts--
		n++
	}
	for len(p.ctrls) != 0 && e.tr.SendCtrl(p.rank, p.ctrls[0]) != transport.ErrAgain {
		p.ctrls = p.ctrls[1:]
		e.backlog.posts--
		n++
	}
	if p.lost == nil {
		p.tellHeld()
		p.tell()
	}
	for op := p.readq.head; op != nil; op = p.readq.head {
		p.readq.remove(op)
		if !op.readMore() {
			break // it is in the queue again
		}
		n++
	}
	return n + p.pump()
}

// fin sends the FIN of a rendezvous, unless the peer is lost: the message was read.
func (p *peer) fin(appCtx uint32) {
	if p.lost != nil {
		return
	}
	if len(p.fins) == 0 {
		if p.e.tr.SendFin(p.rank, appCtx) != transport.ErrAgain {
			return // sent, or the peer is to be lost
		}
	}
	p.fins = append(p.fins, appCtx)
	p.e.backlog.posts++
	p.markDirty()
}

// tryCtrl sends a control message of flow control, and reports whether there was room. If not it is
// not queued: drain makes a new one, of the state at that time. To a peer that is lost nothing is
// sent, which counts as success.
func (p *peer) tryCtrl(c ctrl) bool {
	if p.e.tr.SendCtrl(p.rank, c.encode()) == transport.ErrAgain {
		p.markDirty()
		return false
	}
	return true
}

// reply sends what a request of p asks for. Where one that is the same, up to the first key bytes
// of the body, still waits for room it sends nothing and returns false: so as many are queued as p
// may ask for at once, whether it reads or not.
func (p *peer) reply(c ctrl, key int) bool {
	head := c.encode()[:ctrlLen+key]
	for _, queued := range p.ctrls {
		if bytes.HasPrefix(queued, head) {
			return false
		}
	}
	p.sendCtrl(c)
	return true
}

// sendCtrl sends a control message, unless the peer is lost: where that was never connected, what
// waits for it would wait for ever.
func (p *peer) sendCtrl(c ctrl) {
	if p.lost != nil {
		return
	}
	msg := c.encode()
	if len(p.ctrls) == 0 {
		if p.e.tr.SendCtrl(p.rank, msg) != transport.ErrAgain {
			return
		}
	}
	p.ctrls = append(p.ctrls, msg)
	p.e.backlog.posts++
	p.markDirty()
}

// dropPosts forgets the FINs and control messages that wait.
func (p *peer) dropPosts() {
	p.e.backlog.posts -= len(p.fins) + len(p.ctrls)
	p.fins, p.ctrls = nil, nil
}
