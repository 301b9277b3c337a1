package wait

import "time"

// stopwatch adds up how long goroutines have waited, those that still do included. A wait counts
// from its first look at a clock: a message that comes before needs none. Guarded by Set.mu.
type stopwatch struct {
	base    time.Time     // constant
	sum     time.Duration // ends less beginnings, both since base: it may wrap around, total does not
	running int           // beginnings without an end
}

func (w *stopwatch) start(at time.Time) {
	w.sum -= at.Sub(w.base)
	w.running++
}

func (w *stopwatch) stop(at time.Time) {
	w.sum += at.Sub(w.base)
	w.running--
}

func (w *stopwatch) total(now time.Time) time.Duration {
	return w.sum + time.Duration(w.running)*now.Sub(w.base)
}

// Waited is for how long goroutines have waited by the time now, all of them together, but for the
// polls before each has looked at a clock.
func (s *Set) Waited(now time.Time) time.Duration { return s.stopwatch.total(now) }

// Began visits when waits began, as far as they have looked at a clock: of most goroutines that
// have parked, but for the first skip, and with skip 0 of the one that polls. It reports whether
// there are more. It needs the lock.
func (s *Set) Began(skip, most int, visit func(time.Time)) (more bool) {
	if skip == 0 && !s.spinning.IsZero() {
		visit(s.spinning)
	}
	return s.eachParked(skip, most, func(w *waiter) { visit(w.began) })
}
