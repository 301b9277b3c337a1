package wait

import "sync/atomic"

// Event is the end of an operation, which embeds it. An Event has generations, one for each use of
// the operation's memory: what names an older one finds that it is over. The zero value is
// generation 0, which has not ended.
type Event struct {
	// life is generation<<1, plus 1 once the operation has ended. Set.End sets the low bit, with
	// the lock; the goroutine whose Take succeeds begins the next generation, without it.
	life atomic.Uint64

	waiters *waiter       // that have parked for it; guarded by the lock
	done    chan struct{} // closes at the end; nil unless Set.Done was called; guarded by the lock
}

// Operation is what a goroutine waits for, beside its Event.
type Operation interface {
	// InFlight is how many bytes of a large message are on their way for the operation: while there
	// are some a waiter polls longer before it parks. It is called with the lock held.
	InFlight() uint64
}

// Gen is the present generation.
func (ev *Event) Gen() uint64 { return ev.life.Load() >> 1 }

// Pending reports whether generation gen has not ended. It and the other methods of an Event may be
// called by any goroutine.
func (ev *Event) Pending(gen uint64) bool { return ev.life.Load() == gen<<1 }

// Ended reports whether the present generation has ended.
func (ev *Event) Ended() bool { return ev.life.Load()&1 != 0 }

// SetEnded ends the present generation, which is pending, of an Event that nobody can wait for;
// others end by Set.End.
func (ev *Event) SetEnded() { ev.life.Add(1) }

// Take begins the generation after gen, if gen has ended and nobody has before: then the operation
// and its outcome are the caller's.
func (ev *Event) Take(gen uint64) bool { return ev.life.CompareAndSwap(gen<<1|1, (gen+1)<<1) }

// End ends the present generation, which is pending, and wakes those who wait for it.
func (s *Set) End(ev *Event) {
	ev.SetEnded()
	if ev.waiters != nil || ev.done != nil {
		s.announce(ev)
	}
}

// announce wakes whoever waits for ev alone.
func (s *Set) announce(ev *Event) {
	for w := ev.waiters; w != nil; w = ev.waiters {
		ev.waiters = w.nextOnEvent
		w.nextOnEvent, w.ev = nil, nil
		s.wake(w)
	}
	if ev.done != nil {
		close(ev.done)
		ev.done = nil
	}
}

// Closed is a channel that is closed.
var Closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done gives a channel that closes when generation gen of ev ends, and has the progress goroutine
// look after it.
func (s *Set) Done(ev *Event, gen uint64) <-chan struct{} {
	if !ev.Pending(gen) {
		return Closed
	}
	if ev.done == nil {
		ev.done = make(chan struct{})
	}
	s.kick()
	return ev.done
}
