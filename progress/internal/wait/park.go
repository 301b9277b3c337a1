package wait

import (
	"context"
	"time"
)

// retryTick is the longest sleep while something that the transport has refused waits for room.
const retryTick = time.Millisecond

// waiter is a parked goroutine. All fields are guarded by Set.mu; tokens are sent under it too, so
// that draining ch under it is final.
type waiter struct {
	check      waiterCheck
	s          *Set          // constant
	ch         chan struct{} // capacity 1
	watch      Watch         // of the event that it waits for
	op         Operation     // what it waits for, and until when: for those who look, see Set.Parked
	ctx        context.Context
	began      time.Time
	woken      bool    // and has not run since: it is counted in Set.waking
	next, prev *waiter // in Set.parked; next also in Set.free
}

// Over wakes a waiter whose event has ended.
func (w *waiter) Over() { w.s.wake(w) }

// Waits is true: a waiter is a goroutine.
func (w *waiter) Waits() bool { return true }

type waiterList struct{ head, tail *waiter }

func (l *waiterList) push(w *waiter) {
	w.prev, w.next = l.tail, nil
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
}

func (l *waiterList) remove(w *waiter) {
	if w.prev == nil {
		l.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev = nil, nil
}

// park sleeps until generation gen of ev may have ended, the poller role is to be taken, or ctx has
// ended. It gives the role up, unless the waiter sleeps in the transport itself; it returns whether
// the caller has the role. began is when the wait has looked at a clock first; zero: not yet.
func (s *Set) park(ctx context.Context, ev *Event, op Operation, gen uint64, role bool, began *time.Time) bool {
	s.survey()
	w := s.newWaiter(ev)
	now := time.Now()
	if began.IsZero() {
		*began = now
	}
	w.op, w.ctx, w.began = op, ctx, *began
	s.parks++
	s.stopwatch.start(now)
	s.tells(op, true, now)
	if role && s.cfg.Manual && !s.stopping {
		s.sleep(ctx, w, gen)
	} else {
		if role {
			s.endRole()
			role = false
		}
		if !s.cfg.Manual && !s.polling.Load() {
			s.kick()
		}
		s.parkOnChannel(ctx, w)
	}
	now = time.Now()
	s.stopwatch.stop(now)
	s.tells(op, false, now)
	s.freeWaiter(w)
	return role
}

func (s *Set) parkOnChannel(ctx context.Context, w *waiter) {
	s.parked.push(w)
	s.mu.Unlock()
	if done := ctx.Done(); done == nil {
		<-w.ch
	} else {
		select {
		case <-w.ch:
		case <-done:
		}
	}
	s.mu.Lock()
	s.parked.remove(w)
	if s.successor == w {
		s.successor = nil
	}
}

// sleep sleeps in the transport, in Manual mode, with the poller role.
func (s *Set) sleep(ctx context.Context, w *waiter, gen uint64) {
	if err := s.tr.Arm(); err != nil {
		s.e.Fail(err)
		return
	}
	s.sleeper = w
	if s.e.Poll() == 0 && w.watch.Linked() && w.watch.ev.Pending(gen) {
		stop := s.wakeOn(ctx)
		s.waitTransport()
		stop()
	}
	s.sleeper = nil
	s.tr.Disarm()
	if s.stopping {
		s.awake.Broadcast()
	}
}

// waitTransport sleeps in the transport, which is armed. The caller has said so in a field.
func (s *Set) waitTransport() {
	var retry *time.Timer
	if s.e.Refused() {
		retry = time.AfterFunc(retryTick, s.wakeTransport)
	}
	s.sleeps++
	s.untimed = retry == nil
	s.tells(nil, true, time.Now())
	s.mu.Unlock()
	err := s.tr.Wait()
	s.mu.Lock()
	s.tells(nil, false, time.Now())
	s.untimed = false
	if retry != nil {
		retry.Stop()
	}
	if err != nil {
		s.e.Fail(err)
	}
}

// tells tells the engine that who waits for op goes to sleep, or goes on.
func (s *Set) tells(op Operation, asleep bool, now time.Time) {
	if s.cfg.Parks != nil {
		s.cfg.Parks(op, asleep, now)
	}
}

// Retry says that something waits for room in the transport, for the transport to drain, or for a
// connection, since now: who sleeps there until the next event wakes up and polls, and sleeps no
// longer than retryTick from then on where Engine.Refused says so.
func (s *Set) Retry() {
	if s.untimed {
		s.untimed = false
		s.tr.Wake()
	}
}

// wakeOn ends Transport.Wait when ctx ends.
func (s *Set) wakeOn(ctx context.Context) (stop func() bool) {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, s.wakeTransport)
}

// wakeTransport is for timers: it takes the lock. They may fire late, and a transport that is
// closed must not be woken.
func (s *Set) wakeTransport() {
	s.mu.Lock()
	if s.sleeper != nil || s.loop.asleep {
		s.tr.Wake()
	}
	s.mu.Unlock()
}

// wake wakes a waiter, wherever it sleeps.
func (s *Set) wake(w *waiter) {
	s.woke = true
	if w == s.sleeper {
		s.tr.Wake()
		return
	}
	if !w.woken {
		w.woken = true
		s.waking++
	}
	select {
	case w.ch <- struct{}{}:
	default:
	}
}

func (s *Set) newWaiter(ev *Event) *waiter {
	w := s.free
	if w == nil {
		w = &waiter{s: s, ch: make(chan struct{}, 1)}
	} else {
		s.free, w.next = w.next, nil
	}
	w.check.take(ev)
	w.watch.Link(ev, w)
	return w
}

// freeWaiter takes w back; if its operation has not ended it still names w.
func (s *Set) freeWaiter(w *waiter) {
	w.watch.Unlink()
	w.op, w.ctx = nil, nil
	if w.woken {
		w.woken = false
		s.waking--
	}
	select {
	case <-w.ch:
	default:
	}
	w.freed(s)
	w.next = s.free
	s.free = w
}

// Parked visits waiters that have parked, and whose operations have not ended: of most of them, but
// for the first skip, and reports whether there are more. Where nobody has parked between two calls
// (Counts) both together visit none twice. It needs the lock, and visit must keep neither.
func (s *Set) Parked(skip, most int, visit func(op Operation, ctx context.Context)) (more bool) {
	return s.eachParked(skip, most, func(w *waiter) { visit(w.op, w.ctx) })
}

func (s *Set) eachParked(skip, most int, visit func(*waiter)) (more bool) {
	w := s.parked.head
	if skip == 0 && s.sleeper != nil {
		s.sleeper.show(visit)
	}
	for ; w != nil && most > 0; w = w.next {
		if skip > 0 {
			skip--
			continue
		}
		most--
		w.show(visit)
	}
	return w != nil
}

func (w *waiter) show(visit func(*waiter)) {
	if w.watch.Linked() {
		visit(w)
	}
}
