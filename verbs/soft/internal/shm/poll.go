//go:build linux

package shm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/internal/spin"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/dial"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// dyingTime is how long the last packets of a peer that has ended are passed to a device that
// refuses them.
const dyingTime = time.Second

// lookEvery is after how many polls a Poll calls pollSlow even if nothing asks for it.
const lookEvery = 256

// looks is how often an idle Poll looks at the hot rings. More would hold up what else polls.
const looks = 4

// Poll receives. If nothing has arrived it costs a few loads for each hot ring and one for the
// inbox.
func (w *Wire) Poll(budget int) int {
	w.polls++
	n := 0
	if w.linger() && w.long != nil {
		w.prepareRing()
	}
	for i := range w.hot { // drain does not change it
		if h := &w.hot[i]; !h.probe.Empty() {
			n += w.drain(h.l, budget-n)
			h.probe = h.l.peer.rx.Probe()
		}
	}
	if w.attention || w.local.inbox.Pending() || w.polls%lookEvery == 0 {
		n += w.pollSlow(budget - n)
	}
	if n >= budget {
		wire.Rotate(w.hot)
	}
	return n
}

// linger waits a moment for a packet in a hot ring. Two processors of a machine are often one core:
// the way through the device and back would take the peer's share of it. It returns false if there
// is one.
func (w *Wire) linger() (idle bool) {
	for range looks - 1 {
		for i := range w.hot {
			if !w.hot[i].probe.Empty() {
				return false
			}
		}
		spin.Pause()
	}
	return true
}

// prepareRing readies the ring that the last long packet went to for another one.
func (w *Wire) prepareRing() {
	if l := w.long; l.state == shmUp {
		l.peer.tx.Prepare()
	}
	w.long = nil
}

// pollSlow serves cold rings, and links that come up or break.
func (w *Wire) pollSlow(budget int) int {
	n := 0
	w.unmapGone(false)
	if w.attention || w.polls%lookEvery == 0 && w.watch.due() {
		w.watch.look(w.lost)
		w.sweep()
	}
	if w.local.inbox.Pending() {
		w.local.inbox.Take(w.take)
	}
	if w.conn.Pending() {
		w.results(w.conn.Take())
	}
	for _, l := range w.ready {
		n += w.serve(l, budget-n)
	}
	w.ready = w.ready[:0]
	if len(w.dying) > 0 {
		n += w.drainDying(budget - n)
	}
	w.attention = w.armed || len(w.dying)+len(w.gone) > 0
	w.removeDead(true)
	return n
}

// serve receives from a ring that may have packets.
func (w *Wire) serve(l *link, budget int) int {
	n := w.drain(l, budget)
	w.reprobe(l)
	if l.state != shmUp {
		return n
	}
	if n > 0 && !l.hot {
		w.promote(l)
	}
	if !l.hot && !l.peer.rx.Empty() {
		w.local.inbox.Keep(l.peer.slot)
	}
	return n
}

// reprobe sets the probe of a hot ring after packets were received outside of Poll's loop. An old
// probe looks at a word that the writer may have cleared: the ring would seem empty for ever.
func (w *Wire) reprobe(l *link) {
	if !l.hot {
		return
	}
	for i := range w.hot {
		if w.hot[i].l == l {
			w.hot[i].probe = l.peer.rx.Probe()
		}
	}
}

// promote makes a ring hot if fewer than maxHot are, or one of them has been idle.
func (w *Wire) promote(l *link) {
	if len(w.hot) == maxHot {
		victim := 0
		for i, h := range w.hot {
			if h.l.last < w.hot[victim].l.last {
				victim = i
			}
		}
		if w.polls-w.hot[victim].l.last < hotPatience {
			return
		}
		w.demote(victim)
	}
	l.hot = true
	w.hot = append(w.hot, hotRing{l.peer.rx.Probe(), l})
	if !w.armed {
		l.peer.rx.SetHot(true)
	}
}

// demote makes hot ring i cold. It then looks once more for a packet that came without a signal.
func (w *Wire) demote(i int) {
	l := w.hot[i].l
	w.hot = slices.Delete(w.hot, i, i+1)
	l.hot = false
	l.peer.rx.SetHot(false)
	if !l.peer.rx.Empty() {
		w.local.inbox.Keep(l.peer.slot)
	}
}

// drain receives at most budget packets from a ring.
func (w *Wire) drain(l *link, budget int) int {
	n := 0
	for n < budget && l.state <= shmDying && l.peer != nil {
		rx := l.peer.rx
		meta, id, payload, ok := rx.PeekShort()
		if ok && knownOp(meta) {
			decodeShort(&w.h, meta, id, len(payload))
		} else if payload, ok = w.peek(l); !ok {
			break
		}
		taken, more := w.env.Receiver.Receive(l, &w.h, payload)
		if !taken || l.state > shmDying {
			break
		}
		rx.Advance()
		n++
		if rx.Owed() && rx.Release() {
			l.peer.signal(true) // it waits for room
		}
		if !more || rx.Empty() {
			break
		}
	}
	if n > 0 {
		l.last, w.alarm.after = w.polls, sweepEvery
	}
	return n
}

// peek decodes the next packet of a ring, which may be of any form, into w.h.
func (w *Wire) peek(l *link) (payload []byte, ok bool) {
	ok, err := l.peer.rx.Peek(&w.pkt)
	if err == nil && ok {
		err = decodePacket(&w.pkt, &w.h)
	}
	if err != nil {
		l.breakOff(violated, fmt.Errorf("%w: %w", verbs.ErrProtocol, err))
		return nil, false
	}
	return w.pkt.Payload, ok
}

// results handles connections that were made in the background, or have failed.
func (w *Wire) results(of []dial.Result) {
	for _, r := range of {
		l := w.links[r.Peer.ID]
		if r.Err != nil {
			switch {
			case l == nil || l.state != shmConnecting:
			case r.Yielded:
				_, _ = w.Yield(l.addr, r.Err)
				w.env.Receiver.LinkYielded(l, l.addr, r.Err)
			default:
				w.down(l, r.Err)
			}
			continue
		}
		if l != nil && l.peer != nil {
			w.down(l, errors.New("the peer has opened another connection"))
			w.removeDead(true)
			l = nil
		}
		if l == nil || l.state == shmDead {
			l = w.newLink(r.Peer)
		}
		_ = r.Conn.Close() // remote.sock is a duplicate
		w.up(l, r.Upgraded.(*remote))
	}
}

// up makes a link usable.
func (w *Wire) up(l *link, p *remote) {
	l.peer = p
	if err := w.watch.add(l); err != nil {
		l.breakOff(exhausted, err)
		return
	}
	l.state = shmUp
	w.rings = append(w.rings, l)
	w.bySlot[p.slot] = l
	// The bit for packets that the peer has sent already may have been taken from the inbox before
	// bySlot was set. This poll must receive them, since it may be the last one before a sleep.
	w.ready = append(w.ready, l)
}

// lost begins the end of a link whose peer has ended. What that has sent will still be received.
func (w *Wire) lost(l *link, err error) {
	if l.state != shmUp {
		return
	}
	l.state, l.err = shmDying, err
	l.deadline = wire.Monotonic() + int64(dyingTime)
	w.dying = append(w.dying, l)
}

// drainDying receives the last packets of peers that have ended.
func (w *Wire) drainDying(budget int) int {
	n, keep := 0, w.dying[:0]
	for _, l := range w.dying {
		n += w.drain(l, budget-n)
		w.reprobe(l)
		switch {
		case l.state != shmDying:
		case l.peer.rx.Empty() || wire.Monotonic() > l.deadline:
			w.down(l, l.err)
		default:
			keep = append(keep, l)
		}
	}
	clear(w.dying[len(keep):])
	w.dying = keep
	if len(keep) > 0 && w.armed {
		time.AfterFunc(10*time.Millisecond, w.notif.Wake)
	}
	return n
}

// down breaks a link. The device hears of it from removeDead, when the poll no longer uses the
// ring. A new link to the same peer may send before that.
func (w *Wire) down(l *link, err error) {
	if l.state == shmDead {
		return
	}
	l.state, l.err = shmDead, err
	if l.peer != nil {
		w.conn.Forget(l.addr.ID)
	}
	w.dead = append(w.dead, l)
	w.attention = true
}

// removeDead removes dead links, and reports those that the device has not closed itself if tell is
// set.
func (w *Wire) removeDead(tell bool) {
	for len(w.dead) > 0 { // LinkDown may add more
		l := w.dead[0]
		w.dead = w.dead[1:]
		w.forget(l)
		if tell && l.err != nil {
			w.env.Receiver.LinkDown(l, fmt.Errorf("shm: link to rank %d (pid %d): %w", l.addr.Rank, l.addr.PID, l.err))
		}
	}
}

// forget removes a dead link from all that refers to it.
func (w *Wire) forget(l *link) {
	if w.links[l.addr.ID] == l {
		delete(w.links, l.addr.ID)
	}
	p := l.peer
	if p == nil {
		return
	}
	w.hot = slices.DeleteFunc(w.hot, func(h hotRing) bool { return h.l == l })
	l.hot = false
	w.rings = slices.DeleteFunc(w.rings, func(o *link) bool { return o == l })
	if w.bySlot[p.slot] == l {
		w.bySlot[p.slot] = nil
	}
	w.watch.remove(p)
	w.gone = append(w.gone, p)
	w.attention = true
}

// unmapGone frees the connections of links that died before this poll, unless closing but for those
// that tell when the peer has written its last byte here.
func (w *Wire) unmapGone(closing bool) {
	w.gone = slices.DeleteFunc(w.gone, func(p *remote) bool {
		if !closing && p.writes(p.late) {
			return false
		}
		_ = p.Close()
		return true
	})
}
