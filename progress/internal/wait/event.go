package wait

import "sync/atomic"

// Event is the end of an operation, which embeds it. An Event has generations, one for each use of
// the operation's memory: what names an older one finds that it is over. The zero value is
// generation 0, which has not ended.
type Event struct {
	// life is generation<<eventGen, with eventEnded once the operation has ended, and eventGiven
	// once its outcome was given away. Both bits are set with the lock; the goroutine whose Take
	// succeeds begins the next generation, without it. With eventBorn, which never changes, each
	// generation has ended from its beginning on.
	life atomic.Uint64

	watches *Watch        // what its end is told; guarded by the lock
	done    chan struct{} // closes at the end; nil unless Set.Done was called; guarded by the lock
}

const (
	eventEnded = 1 << iota
	eventGiven
	eventBorn
	eventGen = iota // where the generation begins
)

// GenBits is how many bits a generation has. At ten million uses a second of one Event they begin
// anew after five days: a handle that is as old, and used again in that very moment, is believed.
const GenBits = 42

// next is the life of the generation after that of life.
func next(life uint64) uint64 {
	n := (life>>eventGen + 1) & (1<<GenBits - 1) << eventGen
	if life&eventBorn != 0 {
		n |= eventEnded | eventBorn
	}
	return n
}

// Operation is what a goroutine waits for, beside its Event.
type Operation interface {
	// InFlight is how many bytes of a large message are on their way for the operation: while there
	// are some a waiter polls longer before it parks. It is called with the lock held.
	InFlight() uint64
}

// Gen is the present generation.
func (ev *Event) Gen() uint64 { return ev.life.Load() >> eventGen }

// Pending reports whether generation gen has neither ended nor been given away: it can be waited
// for. It and the other methods of an Event without a word may be called by any goroutine.
func (ev *Event) Pending(gen uint64) bool { return ev.life.Load() == gen<<eventGen }

// Active reports whether the outcome of generation gen is still to be had by Take, now or later.
func (ev *Event) Active(gen uint64) bool {
	return ev.life.Load()&^(eventEnded|eventBorn) == gen<<eventGen
}

// UnderWay reports whether generation gen has not ended, given away or not.
func (ev *Event) UnderWay(gen uint64) bool { return ev.life.Load()&^eventGiven == gen<<eventGen }

// Ended reports whether the present generation has ended.
func (ev *Event) Ended() bool { return ev.life.Load()&eventEnded != 0 }

// Has reports whether generation gen has ended and its outcome is to be had by Take.
func (ev *Event) Has(gen uint64) bool {
	return ev.life.Load()&^eventBorn == gen<<eventGen|eventEnded
}

// SetEnded ends the present generation, which has not ended, of an Event that nobody can wait for;
// others end by Set.End.
func (ev *Event) SetEnded() { ev.life.Add(eventEnded) }

// SetBorn makes a new Event one of which each generation has ended from its beginning on. Nobody
// ever waits for it, and to use it again costs no store that others could see.
func (ev *Event) SetBorn() { ev.life.Store(eventEnded | eventBorn) }

// Take begins the generation after gen, if gen has ended, was not given away, and nobody has taken
// it before: then the operation and its outcome are the caller's.
func (ev *Event) Take(gen uint64) bool {
	life := ev.life.Load()
	return life&^eventBorn == gen<<eventGen|eventEnded && ev.life.CompareAndSwap(life, next(life))
}

// Give gives the outcome of generation gen away, which it reports: no Take gets it from then on. It
// fails where the outcome was taken or given away before. Those who wait are woken, and find it
// over. The caller holds the lock; if the generation has not ended it links a Watch, and whoever
// has the outcome calls Retire.
func (ev *Event) Give(gen uint64) bool {
	life := gen << eventGen
	if ev.life.CompareAndSwap(life, life|eventGiven) {
		ev.tell()
		return true
	}
	life = ev.life.Load()
	return life&^eventBorn == gen<<eventGen|eventEnded && ev.life.CompareAndSwap(life, life|eventGiven)
}

// Retire begins the next generation. The present one has ended, and its outcome is the caller's,
// because it was given away to it or because nobody else knows the operation.
func (ev *Event) Retire() { ev.life.Store(next(ev.life.Load())) }

// End ends the present generation, which has not ended, and tells those who wait for it. The caller
// holds the lock.
func (s *Set) End(ev *Event) {
	if ev == s.own {
		s.own = nil
		return
	}
	ev.SetEnded()
	if ev.watches != nil || ev.done != nil {
		ev.announce()
	}
}

// announce tells the end of ev. It is kept out of End, so that this is inlined where most
// operations end without anybody to tell.
//
//go:noinline
func (ev *Event) announce() {
	ev.tell()
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
// look after it. It is closed already for one that was given away; one that was asked for before
// closes at the end.
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
