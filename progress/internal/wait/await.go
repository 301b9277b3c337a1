package wait

import (
	"context"
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	holdPolls    = 128                   // polls under one hold of the lock, before the first look at a clock
	clockPolls   = 32                    // polls between looks at the clock and the context
	afterYield   = 16                    // polls after having yielded, before parking, at most
	followSpin   = 512                   // looks at the own operation while another goroutine polls
	spinMax      = 50 * time.Microsecond // budget of a poller
	spinTransfer = 2 * time.Millisecond  // most that a large message adds to the budget
	spinYield    = 20 * time.Microsecond // polling between yields, once only a large message is waited for
	spinBusy     = 3 * time.Microsecond  // budget where others could use the processor and would keep it
	spinKept     = time.Microsecond      // budget where somebody is known to keep it
	sharePolls   = 4                     // polls between yields of a processor that others may want
	takenPolls   = 1                     // the same where they have taken it
	shareRounds  = 64                    // rounds of polls, each with a yield, where the processor may be wanted
)

// Await waits until generation gen of ev, the Event of op, has ended, or ctx has: then it returns
// ctx's error. It lets go of the lock meanwhile, if somebody wants it or it takes long.
func (s *Set) Await(ctx context.Context, ev *Event, op Operation, gen uint64) error {
	s.mu.AssertHeld("the poller role")
	if !ev.Pending(gen) {
		return nil
	}
	if s.polling.Load() {
		return s.awaitSlow(ctx, ev, op, gen, false)
	}
	// The path of a message that is about to come: no clock, no context, the lock held throughout
	// unless somebody wants it. Nobody sees who polls before that.
	role := false
	for range s.hold {
		s.e.Poll()
		if !ev.Pending(gen) {
			s.polled(role)
			return nil
		}
		if s.othersWait() {
			if !role {
				s.takeRole()
				role = true
			}
			s.letOthers()
		}
	}
	if !role {
		s.takeRole()
	}
	return s.awaitSlow(ctx, ev, op, gen, true)
}

// AwaitOwn is Await for an operation that nobody else can name. Where it ends before the lock was
// let go of, its Event is left as it was: then unmarked is true, and the Event can be used again.
// That spares the message its stores with barriers.
func (s *Set) AwaitOwn(ctx context.Context, ev *Event, op Operation) (unmarked bool, err error) {
	if !s.polling.Load() {
		s.own = ev
		for range s.hold {
			s.e.Poll()
			if s.own == nil {
				s.polled(false)
				return true, nil
			}
			if s.othersWait() {
				break
			}
		}
		s.own = nil
	}
	return false, s.Await(ctx, ev, op, ev.Gen())
}

// awaitSlow is Await after the first polls; role reports whether the caller has the poller role.
func (s *Set) awaitSlow(ctx context.Context, ev *Event, op Operation, gen uint64, role bool) error {
	s.waited()
	var began time.Time // when it has looked at a clock first
	for {
		if !role {
			role = s.follow(ev, gen)
		}
		if role && ev.Pending(gen) {
			s.spin(ctx, ev, op, gen, &began)
		}
		var err error
		if ev.Pending(gen) {
			if err = ctx.Err(); err == nil {
				role = s.park(ctx, ev, op, gen, role, &began)
			}
		}
		if err != nil || !ev.Pending(gen) {
			if role {
				s.leaveRole()
			} else {
				s.pass()
			}
			return err
		}
	}
}

// Polling reports whether a waiter has the poller role.
func (s *Set) Polling() bool { return s.polling.Load() }

func (s *Set) takeRole() {
	s.role.Enter("the poller role")
	s.polling.Store(true)
}

func (s *Set) endRole() {
	s.mu.AssertHeld("the poller role")
	s.polling.Store(false)
	s.role.Leave()
}

// leaveRole gives the poller role up, by a waiter that goes.
func (s *Set) leaveRole() { s.polled(true) }

// polled has a waiter that goes, and has polled, give up the poller role, if role says that it has
// that.
func (s *Set) polled(role bool) {
	if role {
		s.endRole()
	}
	s.loop.polls++
	if s.Large != 0 && s.cfg.PollingEnded != nil {
		s.cfg.PollingEnded()
	}
	if s.parked.head != nil {
		s.handOver()
	}
}

// handOver wakes a parked waiter to take the poller role, if nobody has it.
func (s *Set) handOver() {
	w := s.parked.head
	if w == nil || s.successor != nil || s.polling.Load() {
		return
	}
	s.successor = w
	s.wake(w)
}

// pass is for a waiter that goes without having had the role: it may have been the successor.
func (s *Set) pass() {
	if s.parked.head == nil || s.polling.Load() {
		return
	}
	if s.cfg.Manual {
		s.handOver()
	} else {
		s.kick() // sleeping for all is cheaper than waking one more
	}
}

// follow watches an operation that somebody else polls for. It reports true when the role was free
// and is now the caller's.
func (s *Set) follow(ev *Event, gen uint64) bool {
	spin := followSpin
	if s.cfg.SpinLimit < 0 || s.turns {
		spin = 0 // where turns are taken the poller may have no processor meanwhile
	}
	s.mu.Unlock()
	for range spin {
		if !ev.Pending(gen) || !s.polling.Load() {
			break
		}
	}
	s.mu.Lock()
	if !ev.Pending(gen) || s.polling.Load() {
		return false
	}
	s.takeRole()
	return true
}

// spin polls, with the role, until op or ctx has ended or the budget is used up. At its end it has
// yielded to the Go scheduler, and, unless that is known to be costly, to the kernel.
func (s *Set) spin(ctx context.Context, ev *Event, op Operation, gen uint64, began *time.Time) {
	if !s.parksSoon() { // else it would have to arm again
		s.disarm()
	}
	if s.cfg.SpinLimit >= 0 && s.timedRounds(ctx, ev, op, gen, began) {
		return
	}
	s.mu.Unlock()
	runtime.Gosched()
	s.mu.Lock()
	if s.sharing.load != loadLong {
		s.yieldOnce()
	}
	s.pollFor(ev, gen, min(afterYield, s.hold))
}

// timedRounds is rounds, and counts its time. A round in which op ends is not counted.
func (s *Set) timedRounds(ctx context.Context, ev *Event, op Operation, gen uint64, began *time.Time) bool {
	t := newTurn(!s.parksSoon() && s.goroutinesWait())
	if began.IsZero() {
		*began = t.start
	}
	s.spinning = *began
	s.stopwatch.start(t.start)
	over := s.rounds(ctx, ev, op, gen, &t)
	s.stopwatch.stop(t.start.Add(t.elapsed))
	s.spinning = time.Time{}
	return over
}

// rounds polls as the policy says, and reports whether op or ctx has ended.
func (s *Set) rounds(ctx context.Context, ev *Event, op Operation, gen uint64, t *turn) bool {
	for {
		p := s.sharing.policy(s.cfg.SpinLimit, t.runnable, transferTime(op))
		if t.over(&p) {
			return false
		}
		if s.oneP && !s.parksSoon() {
			s.stepAside(t.start.Add(t.elapsed))
		}
		if s.pollFor(ev, gen, p.polls) || ctx.Err() != nil {
			return true
		}
		s.endRound(t, &p)
	}
}

// pollFor polls up to n times and reports whether the operation has ended.
func (s *Set) pollFor(ev *Event, gen uint64, n int) bool {
	for range n {
		if !ev.Pending(gen) {
			return true
		}
		s.letOthers()
		s.e.Poll()
	}
	return !ev.Pending(gen)
}

// othersWait reports whether somebody wants the lock, or this processor.
func (s *Set) othersWait() bool { return s.mu.Wanted() || s.woke && s.turns }

// letOthers lets those go on who want the lock, or this processor. A poller keeps the role
// meanwhile.
func (s *Set) letOthers() {
	if s.mu.Wanted() {
		s.mu.giveWay(s.oneP)
	}
	if s.woke && s.turns {
		s.woke = false
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
}

// goroutinesWait reports whether other goroutines of this process wait for a processor.
func (s *Set) goroutinesWait() bool {
	metrics.Read(s.runnable)
	v := s.runnable[0].Value
	return v.Kind() == metrics.KindUint64 && v.Uint64() > 0
}

// transferTime is what a waiter adds to its budget while a large message is on its way, at 1 GB/s:
// a wake-up would cost it more than watching the transfer, and a receiver that polls is itself what
// moves the bytes.
func transferTime(op Operation) time.Duration {
	return min(time.Duration(op.InFlight())*time.Nanosecond, spinTransfer)
}
