package progress

import "time"

// The progress goroutine. While application goroutines poll it must not compete with them: it looks
// once a tick whether they still do. When nobody polled for a tick, or a waiter has parked, it arms
// the transport, polls once more, and sleeps there. It alone sleeps there, so that a parking waiter
// has nothing to decide.

// tick is how long an engine may stay unattended after the application stopped polling.
const tick = time.Millisecond

// loopState is guarded by Engine.mu, but for the channels.
type loopState struct {
	running  bool
	armed    bool          // the transport ends Wait at the next event
	asleep   bool          // the goroutine is in transport.Wait
	watching bool          // the goroutine looks once a tick; a kick is worth its while
	woke     bool          // a waiter was woken; it is likely to poll soon
	polls    uint64        // rises when an application goroutine has polled
	seen     uint64        // polls at the last tick
	kick     chan struct{} // capacity 1
	done     chan struct{}
}

func (l *loopState) init() {
	l.kick = make(chan struct{}, 1)
	l.done = make(chan struct{})
}

func (e *Engine) progressLoop() {
	defer close(e.loop.done)
	timer := time.NewTimer(tick)
	defer timer.Stop()
	e.lock()
	defer e.mu.Unlock()
	for !e.closing {
		if !e.attendedLocked() {
			e.attendLocked()
			continue
		}
		e.loop.watching = true
		e.mu.Unlock()
		timer.Reset(tick)
		select {
		case <-timer.C:
		case <-e.loop.kick:
		}
		e.lock()
		e.loop.watching = false
	}
}

// attendedLocked tells whether application goroutines move the engine.
func (e *Engine) attendedLocked() bool {
	l := &e.loop
	if e.wait.polling.Load() {
		l.seen = l.polls - 1 // and one tick more after that
		return true
	}
	if l.polls != l.seen && e.wait.parked.head == nil {
		l.seen = l.polls
		return true
	}
	return false
}

// attendLocked sleeps until the transport has something, and handles it.
func (e *Engine) attendLocked() {
	l := &e.loop
	if err := e.tr.Arm(); err != nil {
		e.breakLocked(err)
	}
	l.armed = true
	if e.pollLocked() == 0 && !e.closing {
		room := e.roomTimerLocked()
		l.asleep = true
		e.m.Sleeps++
		e.mu.Unlock()
		err := e.tr.Wait()
		e.lock()
		l.asleep = false
		if room != nil {
			room.Stop()
		}
		if err != nil {
			e.breakLocked(err)
		}
	}
	e.disarmLocked()
	e.pollLocked()
	if l.woke || e.broken != nil { // a failed transport may not block any more
		l.seen = l.polls - 1
	}
	l.woke = false
}

// disarmLocked spares the peers their wake-ups while somebody polls. The progress goroutine, if it
// sleeps, is told to look once a tick instead.
func (e *Engine) disarmLocked() {
	e.mu.AssertHeld("the progress goroutine's state")
	l := &e.loop
	if !l.armed {
		return
	}
	l.armed = false
	e.tr.Disarm()
	if l.asleep {
		e.tr.Wake()
	}
}

// kickLocked makes the progress goroutine attend to the engine now, not at its next tick.
func (e *Engine) kickLocked() {
	e.mu.AssertHeld("the progress goroutine's state")
	if e.loop.watching {
		e.loop.watching = false
		select {
		case e.loop.kick <- struct{}{}:
		default:
		}
	}
}
