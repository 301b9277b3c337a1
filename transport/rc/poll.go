package rc

import (
	"fmt"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

const (
	pollBatch = 32
	// eventEvery is the number of polls between checks for asynchronous events; Arm makes the next
	// poll check. So a poller learns of the death of a silent peer within microseconds, and a
	// waiter before it sleeps.
	eventEvery = 256
)

// Poll makes progress and calls the sink for what happened.
func (t *Transport) Poll() (int, error) {
	if invariant.Enabled {
		defer t.inv.Polling()()
	}
	if t.broken != nil {
		return 0, t.broken
	}
	n, err := t.cq.PollCQ(t.wcs[:])
	for i := range t.wcs[:n] {
		wc := &t.wcs[i]
		if wc.WRID>>kindShift != 0 || wc.Status != verbs.WCSuccess {
			t.other(wc)
			continue
		}
		t.received(wc)
	}
	if t.until--; t.until < 0 || t.todo || err != nil {
		return t.tend(n, err)
	}
	return n, nil
}

// received handles a message.
func (t *Transport) received(wc *verbs.WC) {
	t.ring.Took(wc.WRID)
	rank := t.byQPN.find(wc.QPNum)
	if rank < 0 || t.peers[rank].state > linkUp && t.Deaf(rank) {
		t.ring.Handled(wc.WRID)
		t.repost(wc.WRID)
		return
	}
	msg := wc.Data
	if msg == nil {
		msg = t.ring.Filled(wc.WRID, wc.ByteLen)
	}
	if err := Deliver(t.sink, rank, Opcode(msg), msg, t.maxEager, &t.rndv); err != nil {
		t.Violation(rank, err)
	}
	t.ring.Handled(wc.WRID)
	t.repost(wc.WRID)
}

func (t *Transport) repost(slot uint64) {
	if err := t.ring.Done(slot); err != nil {
		t.broken = fmt.Errorf("transport/rc: %w", err)
	}
}

// other handles a completion that is not a received message.
func (t *Transport) other(wc *verbs.WC) {
	if wc.Status == verbs.WCSuccess {
		t.Completed(wc)
		return
	}
	t.Failed(wc)
	if wc.WRID>>kindShift == 0 {
		t.ring.Took(wc.WRID)
		t.ring.Handled(wc.WRID)
		t.repost(wc.WRID) // a failed receive has used its buffer too
	}
}

// tend does what not every poll needs: events, deferred grants, losses.
func (t *Transport) tend(n int, err error) (int, error) {
	t.until = eventEvery
	if evErr := t.Events(); err == nil {
		err = evErr
	}
	if t.todo {
		n += t.Settle(n < len(t.wcs))
	}
	if err != nil && t.broken == nil {
		t.broken = fmt.Errorf("transport/rc: %w", err)
	}
	return n, t.broken
}

// Arm asks for Wait to end at the next event.
func (t *Transport) Arm() error {
	if invariant.Enabled {
		defer t.inv.Enter("Arm")()
	}
	t.until = 0
	return t.cq.Arm(false)
}

// Disarm takes Arm back.
func (t *Transport) Disarm() {
	if invariant.Enabled {
		defer t.inv.Enter("Disarm")()
	}
	t.cq.Disarm()
}

// Wait blocks until an event, Wake or Close. Any goroutine, one at a time.
func (t *Transport) Wait() error { return t.channel.Wait() }

// Wake ends the Wait under way or the next one. Any goroutine.
func (t *Transport) Wake() { t.channel.Wake() }
