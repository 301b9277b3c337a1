package wait

import (
	"runtime"
	"time"
)

// The progress goroutine. While application goroutines poll it must not compete with them: it looks
// once a tick whether they still do, and not even that where it finds the lock or the poller role
// taken. When nobody has polled since the last look, or a waiter has parked, it arms the transport,
// polls once more, and sleeps there. It alone sleeps there, so that a parking waiter has nothing to
// decide.

// tick is the time between two looks: an engine stays unattended for two of them after the
// application has stopped polling.
const tick = time.Millisecond

// busyTicks is how many ticks in a row may find the engine in use before the goroutine waits for
// the lock: an application that is in the engine whenever a tick comes, and never polls, is
// attended to after so many.
const busyTicks = 8

// loopState is guarded by Set.mu, but for the channels.
type loopState struct {
	running  bool
	armed    bool          // the transport ends Wait at the next event
	asleep   bool          // the goroutine is in transport.Wait
	watching bool          // the goroutine looks once a tick; a kick is worth its while
	polls    uint64        // rises when an application goroutine has polled
	seen     uint64        // polls at the last tick
	kick     chan struct{} // capacity 1
	done     chan struct{}
}

func (l *loopState) init() {
	l.kick = make(chan struct{}, 1)
	l.done = make(chan struct{})
}

// progress is the progress goroutine. It takes the lock.
func (s *Set) progress() {
	defer close(s.loop.done)
	timer := time.NewTimer(tick)
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopping {
		if !s.attended() {
			s.attend()
			continue
		}
		s.loop.watching = true
		s.mu.Unlock()
		s.rest(timer)
		s.loop.watching = false
	}
}

// rest sleeps for a tick, or until a kick, and takes the lock. Where somebody has the lock or the
// poller role at that moment it sleeps on: to wait for the lock would cost a poller that holds it
// several switches of threads. After busyTicks of them it waits for it all the same.
func (s *Set) rest(timer *time.Timer) {
	for n := 1; ; n++ {
		timer.Reset(tick)
		select {
		case <-timer.C:
		case <-s.loop.kick:
			n = busyTicks
		}
		if n >= busyTicks {
			s.mu.Lock()
			return
		}
		if !s.polling.Load() && s.mu.TryLock() {
			return
		}
	}
}

// attended reports whether application goroutines move the engine, or will: one that was woken and
// has not run yet may need this processor. It then polls, or kicks for others that are parked. To
// poll on instead would take a stream of messages from it, for which nobody posts receives
// meanwhile.
func (s *Set) attended() bool {
	l := &s.loop
	if s.polling.Load() || s.waking > 0 {
		l.seen = l.polls - 1 // and one tick more after that
		return true
	}
	if l.polls != l.seen && s.parked.head == nil {
		l.seen = l.polls
		return true
	}
	return false
}

// attend sleeps until the transport has something, and handles it.
func (s *Set) attend() {
	l := &s.loop
	if err := s.tr.Arm(); err != nil {
		s.e.Fail(err)
	}
	l.armed = true
	if s.e.Poll() == 0 {
		l.asleep = true
		s.waitTransport()
		l.asleep = false
	}
	s.disarm()
	s.e.Poll()
	if s.e.Broken() {
		l.seen = l.polls - 1
	}
	if s.Large != 0 && s.cfg.PollingEnded != nil {
		s.cfg.PollingEnded() // who was woken may leave without polling
	}
	if s.waking > 0 { // who waits again soon finds this goroutine ready
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
}

// disarm spares the peers their wake-ups while somebody polls. The progress goroutine, if it
// sleeps, is told to look once a tick instead.
func (s *Set) disarm() {
	s.mu.AssertHeld("the progress goroutine's state")
	l := &s.loop
	if !l.armed {
		return
	}
	l.armed = false
	s.tr.Disarm()
	if l.asleep {
		s.tr.Wake()
	}
}

// kick makes the progress goroutine attend to the engine now, not at its next tick.
func (s *Set) kick() {
	s.mu.AssertHeld("the progress goroutine's state")
	if s.loop.watching {
		s.loop.watching = false
		select {
		case s.loop.kick <- struct{}{}:
		default:
		}
	}
}
