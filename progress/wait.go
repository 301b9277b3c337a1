package progress

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// Waiting. One waiter at a time has the poller role; it polls for all. The others watch their own
// operation for a moment, take the role if it becomes free, and park. Whoever leaves the role wakes
// a parked waiter to take it over, and whoever was parked and leaves does the same if the role is
// free: so the role cannot get lost with a waiter that did not need it.
//
// A poller whose budget is used up parks as well. Then the progress goroutine sleeps in the
// transport for everybody, or, in Manual mode, the poller itself does and keeps the role.
//
// models/role.pml is this as a model that is searched through, models/park.pml what happens below
// Arm, Wait and Wake.

const (
	holdPolls    = 128                   // polls under one hold of the lock, before the first look at a clock
	clockPolls   = 32                    // polls between looks at the clock and the context
	afterYield   = 16                    // polls after having yielded, before parking
	followSpin   = 512                   // looks at the own operation while another goroutine polls
	spinMax      = 50 * time.Microsecond // budget of a poller
	spinTransfer = 2 * time.Millisecond  // most that a large message adds to the budget
	spinOffer    = 20 * time.Microsecond // polling between offers of the processor, once only a large message is waited for
	spinBusy     = 3 * time.Microsecond  // budget where others could use the processor and would keep it
	sharePolls   = 4                     // polls between offers of a processor that others want
	shareRounds  = 64                    // rounds of polls, each with an offer, where the processor may be wanted
	roomTick     = time.Millisecond      // longest sleep while something waits for room in the transport
)

// waitState is the engine's part of waiting. Fields without a word are guarded by Engine.mu.
type waitState struct {
	polling    atomic.Bool // somebody has the poller role; written under mu
	limit      time.Duration
	role       invariant.Guard // finds a second poller
	oneP       bool            // GOMAXPROCS is 1; refreshed at each park; read without mu only by its poller
	hold       int             // polls before the first look at a clock; refreshed likewise
	neighbours neighbours
	yield      func() time.Duration // timedYield, or a test's
	parked     waiterList
	heir       *waiter // was woken to take the role and has not looked yet
	sleeper    *waiter // Manual: who is in transport.Wait
	awake      sync.Cond
	runnable   []metrics.Sample // the poller's
}

func (w *waitState) init(limit time.Duration) {
	w.limit = limit
	w.yield = timedYield
	w.runnable = []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}}
}

// waiter is a parked goroutine. All fields are guarded by Engine.mu; tokens are sent under it too,
// so that draining ch under it is final.
type waiter struct {
	inv        waiterCheck
	ch         chan struct{} // capacity 1
	op         *Op
	nextOnOp   *waiter
	next, prev *waiter // in waitState.parked; next also in the free list
}

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

// awaitLocked waits until op's life is not the given one any more, or ctx has ended: then it
// returns ctx's error. The lock is held on entry and on return.
func (e *Engine) awaitLocked(ctx context.Context, op *Op, life uint64) error {
	e.mu.AssertHeld("the poller role")
	if op.life.Load() != life {
		return nil
	}
	if e.wait.polling.Load() {
		return e.awaitSlowLocked(ctx, op, life, false)
	}
	// The path of a message that is about to come: no clock, no context, the lock held throughout
	// unless somebody wants it.
	e.takeRoleLocked()
	for range e.wait.hold {
		e.pollLocked()
		if op.life.Load() != life {
			e.leaveLocked()
			return nil
		}
		if e.want.Load() != 0 {
			e.giveWayLocked()
		}
	}
	return e.awaitSlowLocked(ctx, op, life, true)
}

// awaitSlowLocked is awaitLocked after the first polls; role says whether the caller has the poller
// role.
func (e *Engine) awaitSlowLocked(ctx context.Context, op *Op, life uint64, role bool) error {
	e.wait.neighbours.waited()
	for {
		if !role {
			role = e.followLocked(op, life)
		}
		if role && op.life.Load() == life {
			e.spinLocked(ctx, op, life)
		}
		var err error
		if op.life.Load() == life {
			if err = ctx.Err(); err == nil {
				role = e.parkLocked(ctx, op, life, role)
			}
		}
		if err != nil || op.life.Load() != life {
			if role {
				e.leaveLocked()
			} else {
				e.passLocked()
			}
			return err
		}
	}
}

func (e *Engine) takeRoleLocked() {
	e.wait.role.Enter("the poller role")
	e.wait.polling.Store(true)
}

func (e *Engine) endRoleLocked() {
	e.mu.AssertHeld("the poller role")
	e.wait.polling.Store(false)
	e.wait.role.Leave()
}

// leaveLocked gives the poller role up.
func (e *Engine) leaveLocked() {
	e.endRoleLocked()
	e.loop.polls++
	if e.cfg.Left != nil {
		e.leaveDeviceLocked()
	}
	if e.wait.parked.head != nil {
		e.handOverLocked()
	}
}

// handOverLocked wakes a parked waiter to take the poller role, if nobody has it.
func (e *Engine) handOverLocked() {
	w := e.wait.parked.head
	if w == nil || e.wait.heir != nil || e.wait.polling.Load() {
		return
	}
	e.wait.heir = w
	e.wakeLocked(w)
}

// passLocked is for a waiter that goes without having had the role: it may have been the heir.
func (e *Engine) passLocked() {
	if e.wait.parked.head == nil || e.wait.polling.Load() {
		return
	}
	if e.cfg.Manual {
		e.handOverLocked()
	} else {
		e.kickLocked() // sleeping for all is cheaper than waking one more
	}
}

// followLocked watches an operation that somebody else polls for. It reports true when the role was
// free and is now the caller's.
func (e *Engine) followLocked(op *Op, life uint64) bool {
	e.mu.Unlock()
	spin := followSpin
	if e.wait.limit < 0 {
		spin = 0
	}
	for range spin {
		if op.life.Load() != life || !e.wait.polling.Load() {
			break
		}
	}
	e.lock()
	if op.life.Load() != life || e.wait.polling.Load() {
		return false
	}
	e.takeRoleLocked()
	return true
}

// spinLocked polls, with the role, until op or ctx has ended or the budget is used up. At its end
// it has yielded to the Go scheduler, and, unless that is known to be dear, to the kernel.
func (e *Engine) spinLocked(ctx context.Context, op *Op, life uint64) {
	e.disarmLocked()
	if e.wait.limit >= 0 && e.roundsLocked(ctx, op, life) {
		return
	}
	e.mu.Unlock()
	runtime.Gosched()
	e.lock()
	if e.wait.neighbours.load != loadLate {
		e.yieldLocked()
	}
	e.pollForLocked(op, life, afterYield)
}

// roundsLocked polls as the neighbours allow, and reports whether op or ctx has ended.
func (e *Engine) roundsLocked(ctx context.Context, op *Op, life uint64) bool {
	start, runnable := time.Now(), e.runnableLocked()
	offered := -spinOffer // when, the last time
	for round, elapsed := 0, time.Duration(0); ; round, elapsed = round+1, time.Since(start) {
		m := e.wait.neighbours.manners(e.wait.limit, runnable, op.transferTimeLocked())
		if round >= m.rounds && elapsed >= m.budget {
			return false
		}
		if e.pollForLocked(op, life, m.polls) || ctx.Err() != nil {
			return true
		}
		if m.offers && elapsed >= m.keep && elapsed >= offered+m.every {
			e.yieldLocked() // the peer, or its device, may work on this processor
			offered = elapsed
		}
	}
}

// pollForLocked polls up to n times and reports whether op has ended.
func (e *Engine) pollForLocked(op *Op, life uint64, n int) bool {
	for range n {
		if op.life.Load() != life {
			return true
		}
		if e.want.Load() != 0 {
			e.giveWayLocked()
		}
		e.pollLocked()
	}
	return op.life.Load() != life
}

// runnableLocked tells whether other goroutines of this process wait for a processor.
func (e *Engine) runnableLocked() bool {
	w := &e.wait
	metrics.Read(w.runnable)
	v := w.runnable[0].Value
	return v.Kind() == metrics.KindUint64 && v.Uint64() > 0
}

// transferTimeLocked is what a waiter adds to its budget while a large message is on its way: a
// wake-up would cost it more than watching the transfer, and a receiver that polls is itself what
// moves the bytes.
func (op *Op) transferTimeLocked() time.Duration {
	var n uint64
	switch op.state {
	case opRequested, opMatched:
		n = uint64(len(op.buf))
	case opReading:
		n = op.read.want
	}
	return min(time.Duration(n)*time.Nanosecond, spinTransfer) // at 1 GB/s
}

// parkLocked sleeps until op may have ended, the poller role is offered, or ctx has ended. It gives
// the role up, unless the waiter sleeps in the transport itself; it returns whether the caller has
// the role.
func (e *Engine) parkLocked(ctx context.Context, op *Op, life uint64, role bool) bool {
	e.surveyLocked()
	w := e.newWaiterLocked(op)
	e.m.Parks++
	if role && e.cfg.Manual && !e.closing {
		e.sleepLocked(ctx, w, life)
	} else {
		if role {
			e.endRoleLocked()
			role = false
		}
		if !e.cfg.Manual {
			e.kickLocked()
		}
		e.parkOnChannelLocked(ctx, w)
	}
	e.freeWaiterLocked(w)
	return role
}

func (e *Engine) parkOnChannelLocked(ctx context.Context, w *waiter) {
	e.wait.parked.push(w)
	e.mu.Unlock()
	if done := ctx.Done(); done == nil {
		<-w.ch
	} else {
		select {
		case <-w.ch:
		case <-done:
		}
	}
	e.lock()
	e.wait.parked.remove(w)
	if e.wait.heir == w {
		e.wait.heir = nil
	}
}

// sleepLocked sleeps in the transport, in Manual mode, with the poller role.
func (e *Engine) sleepLocked(ctx context.Context, w *waiter, life uint64) {
	if err := e.tr.Arm(); err != nil {
		e.breakLocked(err)
		return
	}
	e.wait.sleeper = w
	if e.pollLocked() == 0 && w.op != nil && w.op.life.Load() == life {
		stop := e.wakeOn(ctx)
		room := e.roomTimerLocked()
		e.m.Sleeps++
		e.mu.Unlock()
		err := e.tr.Wait()
		e.lock()
		if room != nil {
			room.Stop()
		}
		stop()
		if err != nil {
			e.breakLocked(err)
		}
	}
	e.wait.sleeper = nil
	e.tr.Disarm()
	if e.closing {
		e.wait.awake.Broadcast()
	}
}

// wakeOn ends transport.Wait when ctx ends.
func (e *Engine) wakeOn(ctx context.Context) (stop func() bool) {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, e.wakeTransport)
}

// roomTimerLocked bounds a sleep while something that the transport has refused waits for room, or
// for the transport to drain: devices are not held to report that as an event.
func (e *Engine) roomTimerLocked() *time.Timer {
	if len(e.dirty) == 0 && len(e.flushers) == 0 {
		return nil
	}
	return time.AfterFunc(roomTick, e.wakeTransport)
}

// wakeTransport is for timers, which may fire late: a transport that is closed must not be woken.
func (e *Engine) wakeTransport() {
	e.lock()
	if !e.closed {
		e.tr.Wake()
	}
	e.mu.Unlock()
}

// wakeLocked wakes a waiter, wherever it sleeps.
func (e *Engine) wakeLocked(w *waiter) {
	e.loop.woke = true
	if w == e.wait.sleeper {
		e.tr.Wake()
		return
	}
	select {
	case w.ch <- struct{}{}:
	default:
	}
}

func (e *Engine) newWaiterLocked(op *Op) *waiter {
	w := e.waiters
	if w == nil {
		w = &waiter{ch: make(chan struct{}, 1)}
	} else {
		e.waiters, w.next = w.next, nil
	}
	w.inv.take(op)
	w.op, w.nextOnOp = op, op.waiters
	op.waiters = w
	return w
}

// freeWaiterLocked takes w back; if its operation has not ended it still names w.
func (e *Engine) freeWaiterLocked(w *waiter) {
	if w.op != nil {
		for at := &w.op.waiters; *at != nil; at = &(*at).nextOnOp {
			if *at == w {
				*at = w.nextOnOp
				break
			}
		}
		w.op, w.nextOnOp = nil, nil
	}
	select {
	case <-w.ch:
	default:
	}
	w.free(e)
	w.next = e.waiters
	e.waiters = w
}
