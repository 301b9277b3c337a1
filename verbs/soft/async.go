package soft

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/notify"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

const (
	// asyncTick is how long nobody runs the device after its program has stopped to poll without a
	// call of PollingEnded.
	asyncTick = time.Millisecond
	// A program that has polled again within asyncSoon of PollingEnded, asyncPatience times in a
	// row, is not computing. Arming the wires for it would cost both ends a wake-up for nearly
	// every message: its calls of PollingEnded are ignored until it has not polled for a tick.
	asyncSoon     = 50 * time.Microsecond
	asyncPatience = 8
)

// async is the asynchronous mode: a goroutine that runs the device while the program computes, as a
// NIC's processor does. It sleeps in the device's notifier; the program, when it waits, sleeps in
// parked instead, and the goroutine wakes it there.
//
// The program holds its own lock, owner, whenever it calls the device, and the goroutine takes the
// same lock: no other synchronisation is needed, and payloads that a poll has lent are no longer in
// use when the program unlocks. While the program polls, the wires are not armed, and the goroutine
// sleeps except for a look at each tick. It arms the wires, and polls once more, when it finds that
// the program has not polled for a tick. The program arms them itself when it calls PollingEnded,
// or posts a list operation, while entries of a tag list wait for messages, unless it is known to
// return soon (asyncPatience). The program's next poll disarms them.
type async struct {
	d      *Device
	owner  sync.Locker
	parked *notify.Chan  // where the program sleeps
	done   chan struct{} // closed when the goroutine has ended
	stop   atomic.Bool

	// Under owner.
	timer        *time.Timer // wakes the goroutine at the next tick
	ticking      bool        // the timer runs, or has fired; always true while the wires are not armed
	programArmed bool        // the program has armed a CQ: it sleeps, or is about to
	alone        bool        // the goroutine is making a pass of the device
	polls        uint64      // PollCQs of the program that made a pass
	seen         uint64      // polls at the last tick
	listed       int         // entries of tag lists that wait for a message
	armedAt      int64       // when PollingEnded armed the wires, by wire.Monotonic; 0: it has not
	soon         int         // how often in a row the program polled within asyncSoon of PollingEnded
}

// Async starts the asynchronous mode: from now on a goroutine of the device runs it whenever nobody
// holds owner. Who calls the device, or an object made from it, must hold owner, except for Close,
// CompChannel.Wait and CompChannel.Wake, and must not use payloads that a poll has lent after
// unlocking it. Async may be called once, before the first Wait.
func (d *Device) Async(owner sync.Locker) error {
	if d.async != nil || d.closed {
		return fail("async", syscall.EINVAL, "the device works by itself already, or is closed")
	}
	a := &async{d: d, owner: owner, parked: notify.NewChan(), done: make(chan struct{})}
	a.timer = time.AfterFunc(asyncTick, d.notif.Wake)
	a.ticking = true
	d.async = a
	bound := make(chan error)
	go a.run(bound)
	if err := <-bound; err != nil {
		<-a.done
		d.async = nil
		a.timer.Stop()
		return fail("async", syscall.EINVAL, fmt.Sprintf("AsyncCPUs is %v: %v", d.cfg.AsyncCPUs, err))
	}
	return nil
}

// PollingEnded tells a device in asynchronous mode that the program stops polling for now, so that
// it does not need a tick to find that out. It is cheap if no entry of a tag list waits for a
// message.
func (d *Device) PollingEnded() {
	if invariant.Enabled {
		defer d.enter("polling_ended")()
	}
	d.attendLists()
}

// attendLists hands the tag lists to the goroutine if the device has one and an entry waits.
func (d *Device) attendLists() {
	if a := d.async; a != nil && a.listed > 0 {
		a.attend()
	}
}

// run is the goroutine. It sends on bound whether it could be bound to Config.AsyncCPUs. A thread
// that was bound ends with the goroutine.
func (a *async) run(bound chan<- error) {
	defer close(a.done)
	defer func() { _ = a.parked.Close() }()
	if cpus := a.d.cfg.AsyncCPUs; len(cpus) > 0 {
		runtime.LockOSThread()
		if err := bind(cpus); err != nil {
			bound <- err
			return
		}
	}
	bound <- nil
	for !a.stop.Load() {
		a.owner.Lock()
		again := a.turn()
		a.owner.Unlock()
		if again {
			runtime.Gosched() // the program may want the lock
		} else if a.d.notif.Wait() != nil {
			return
		}
	}
}

// turn makes one pass of the device, unless the program has polled since the last tick. It returns
// true if there is more to do. Else the goroutine can sleep: the wires are armed, and the pass came
// after that, or the timer runs.
func (a *async) turn() (again bool) {
	if invariant.Enabled {
		defer a.d.enter("a turn of the asynchronous mode")()
	}
	d := a.d
	if !d.armed && a.polls != a.seen {
		a.seen = a.polls
		for _, w := range d.wires {
			if s, ok := w.(wire.Signaller); ok {
				s.Unsignal()
			}
		}
		a.tick()
		return false
	}
	if !d.armed {
		a.soon, a.armedAt = 0, 0
	}
	a.ticking = false
	d.armWires()
	a.alone = true
	d.progress(0)
	a.alone = false
	if d.news && a.programArmed { // the program may wait for an RDMA WRITE, which has no completion here
		a.parked.Wake()
	}
	return d.took || d.more || len(d.readers) > 0
}

// tick starts the timer.
func (a *async) tick() {
	a.ticking = true
	a.timer.Reset(asyncTick)
}

// polled is called when the program makes a pass of the device.
func (a *async) polled() {
	a.polls++
	if !a.d.armed || a.programArmed {
		return
	}
	a.disarm()
	if a.armedAt != 0 && wire.Monotonic()-a.armedAt < int64(asyncSoon) {
		a.soon++
	} else {
		a.soon = 0
	}
}

// disarm disarms the wires, so that the timer has to run.
func (a *async) disarm() {
	a.d.disarmWires()
	if !a.ticking {
		a.tick()
	}
}

// attend arms the wires, which then wake the goroutine, because the program stops polling.
func (a *async) attend() {
	d := a.d
	if d.armed || a.soon >= asyncPatience {
		return
	}
	a.armedAt = wire.Monotonic()
	d.armWires()
	for _, w := range d.wires {
		if s, ok := w.(wire.Signaller); ok && s.Pending() {
			d.notif.Wake()
		}
	}
	if d.dirty {
		d.flush()
	}
}

// alone reports whether the device's goroutine runs it.
func (d *Device) alone() bool { return d.async != nil && d.async.alone }

// close ends the goroutine and waits for that.
func (a *async) close() {
	a.stop.Store(true)
	a.d.notif.Wake()
	<-a.done
	a.timer.Stop()
}

// sleeper returns the notifier in which the program sleeps.
func (d *Device) sleeper() wire.Notifier {
	if d.async != nil {
		return d.async.parked
	}
	return d.notif
}

// listed adds n to the number of entries of tag lists that wait for a message.
func (d *Device) listed(n int) {
	if d.async != nil {
		d.async.listed += n
	}
}
