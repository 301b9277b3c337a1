//go:build linux

package shm

import (
	"time"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// A packet whose bit in the inbox a peer has cleared, or whose wake-up one has taken on and left
// undone, is seen at the next sweep. A device that polls sweeps every sweepEvery; one that sleeps
// does so ever more rarely while nothing arrives, at last every sweepIdle. In nanoseconds.
const (
	sweepEvery = int64(100 * time.Millisecond)
	sweepIdle  = int64(time.Second)
)

// alarm wakes a device that sleeps, so that it sweeps.
type alarm struct {
	timer *time.Timer // nil before the first sleep
	at    int64       // when it rings, or rang last, by wire.Monotonic
	after int64       // how long after a sweep it is to ring next
}

// sweep looks at all cold rings, once in sweepEvery: their bits are in the inbox, unless a peer has
// cleared them. The time is that of the last look for peers that have ended.
func (w *Wire) sweep() {
	if w.watch.last-w.swept < sweepEvery {
		return
	}
	w.swept = w.watch.last
	for _, l := range w.rings {
		if !l.hot && !l.peer.rx.Empty() {
			w.ready = append(w.ready, l)
		}
	}
}

// sweepLater sees to the next sweep of a device that is about to sleep. One peer harms itself only.
func (w *Wire) sweepLater() {
	if len(w.rings) < 2 {
		return
	}
	now, a := wire.Monotonic(), &w.alarm
	at := w.swept + a.after
	if now-w.swept >= sweepEvery { // the poll that follows sweeps
		at = now + a.after
	}
	if now < a.at && a.at <= at {
		return
	}
	a.at, a.after = at, min(2*a.after, sweepIdle)
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Duration(at-now), w.notif.Wake)
	} else {
		a.timer.Reset(time.Duration(at - now))
	}
}
