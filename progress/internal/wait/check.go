//go:build invariants

package wait

import "github.com/tagmatch/tagmatch/internal/invariant"

// waiterCheck is what such a build knows of a waiter.
type waiterCheck struct {
	inUse bool
	gen   uint64          // of the event that it waits for
	by    invariant.Stack // who waits, the last time
}

// take looks at a waiter that comes out of the pool.
func (c *waiterCheck) take(ev *Event) {
	invariant.Check(!c.inUse, "waiter", "a waiter is used twice: %s", c.by)
	*c = waiterCheck{true, ev.Gen(), invariant.Here()}
}

// freed looks at a waiter that goes: nothing may wake it any more.
func (w *waiter) freed(s *Set) {
	invariant.Check(w.check.inUse, "waiter", "a waiter is freed twice: %s", w.check.by)
	invariant.Check(w.next == nil && w.prev == nil && s.parked.head != w && s.successor != w && s.sleeper != w, "waiter",
		"a waiter is freed in a list: %s", w.check.by)
	w.check.inUse = false
}

// Check checks those that have parked.
func (s *Set) Check() {
	successor, woken := s.successor == nil, 0
	for w := s.parked.head; w != nil; w = w.next {
		invariant.Check(w.check.inUse, "waiter", "a waiter that is free is parked: %s", w.check.by)
		invariant.Check(!w.watch.Linked() || w.watch.ev.Gen() == w.check.gen, "waiter", "a waiter is parked for an operation that is consumed: %s", w.check.by)
		successor = successor || w == s.successor
		if w.woken {
			woken++
		}
	}
	invariant.Check(woken == s.waking, "waiter", "%d waiters have not run since they were woken, %d are counted", woken, s.waking)
	invariant.Check(successor, "waiter", "the waiter that is to take the poller role is not parked")
	invariant.Check(s.sleeper == nil || s.polling.Load(), "waiter", "a goroutine sleeps in the transport without the poller role")
}

// CheckUnused looks at an Event in the pool: nobody waits for it.
func (ev *Event) CheckUnused() {
	invariant.Check(ev.watches == nil && ev.done == nil, "waiter", "an operation in the pool is waited for")
}
