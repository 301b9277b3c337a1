package tmsrq

import (
	"fmt"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

const (
	pollBatch = 32
	// eventEvery is how often, in polls, the device is asked for asynchronous events and errors of
	// sends; Arm makes the next poll ask.
	eventEvery = 256
)

// Kinds of requests, in the top bits of their WRID (rc's Links use those below 8). After an error
// status nothing else tells what a completion is of (ibv_poll_cq(3)).
//
//	kindTag                    generation 28 bits, slot 32 bits
//	kindAdd, kindDel, kindSync slot 28 bits, sequence number of the operation 32 bits
const (
	kindTag uint64 = iota + 8
	kindAdd
	kindDel
	kindSync

	kindShift = 60
	genMask   = 1<<28 - 1
)

// Poll makes progress and calls the sink for what happened. Sends are looked at only when one of
// them is to complete: a poll that finds nothing costs one pass of the device. They come first, so
// that messages that this pass brings are handled before anything is said of their sender's loss.
func (t *Transport) Poll() (int, error) {
	if invariant.Enabled {
		defer t.inv.Polling()()
	}
	if t.broken != nil {
		return 0, t.broken
	}
	t.until--
	all, n := true, 0
	if t.until < 0 || t.Waiting() || t.Todo() {
		m, err := t.scq.PollCQ(t.swcs[:])
		for i := range t.swcs[:m] {
			t.sent(&t.swcs[i])
		}
		if err != nil {
			t.breaks(err)
		}
		n, all = m, m < len(t.swcs)
	}
	m, err := t.rcq.PollCQ(t.wcs[:])
	for i := range t.wcs[:m] {
		t.completion(&t.wcs[i])
	}
	n += m
	if t.list.queued > 0 {
		n += t.list.flush()
	}
	if t.until < 0 || t.Todo() || err != nil || t.broken != nil {
		return t.tend(n, all && m < len(t.wcs), err)
	}
	return n, nil
}

func (t *Transport) sent(wc *verbs.WC) {
	if wc.Status == verbs.WCSuccess {
		t.Completed(wc)
	} else {
		t.Failed(wc)
	}
}

// tend does what not every poll needs: events, credits that found no room, peers that are lost. all
// says that there are no more completions.
func (t *Transport) tend(n int, all bool, err error) (int, error) {
	t.until = eventEvery
	if evErr := t.Events(); err == nil {
		err = evErr
	}
	if t.Todo() {
		n += t.Settle(all)
	}
	if err != nil {
		t.breaks(err)
	}
	return n, t.broken
}

// breaks ends the transport: its device does what it must not.
func (t *Transport) breaks(err error) {
	if t.broken == nil {
		t.broken = fmt.Errorf("transport/tmsrq: %w", err)
	}
}

// completion handles one completion of the SRQ's queue, in order (TMO 4.5).
func (t *Transport) completion(wc *verbs.WC) {
	switch wc.WRID >> kindShift {
	case 0:
		t.untagged(wc)
	case kindTag:
		t.list.received(wc)
	case kindAdd, kindDel, kindSync:
		t.list.done(wc)
	default:
		t.breaks(fmt.Errorf("the device completes a request, %#x, that was never posted", wc.WRID))
	}
}

// Arm asks for Wait to end at the next event.
func (t *Transport) Arm() error {
	if invariant.Enabled {
		defer t.inv.Enter("Arm")()
	}
	t.until = 0
	if err := t.scq.Arm(false); err != nil {
		return err
	}
	return t.rcq.Arm(false)
}

// Disarm takes Arm back.
func (t *Transport) Disarm() {
	if invariant.Enabled {
		defer t.inv.Enter("Disarm")()
	}
	t.scq.Disarm()
	t.rcq.Disarm()
}

// Wait blocks until an event, Wake or Close. Any goroutine, one at a time.
func (t *Transport) Wait() error { return t.channel.Wait() }

// Wake ends the Wait under way or the next one. Any goroutine.
func (t *Transport) Wake() { t.channel.Wake() }
