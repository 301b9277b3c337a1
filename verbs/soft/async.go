package soft

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/notify"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// async is the asynchronous mode: a goroutine that runs the device while the program computes, as a
// NIC's processor does. It sleeps in the device's notifier; the program, when it waits, sleeps in
// parked instead, and the goroutine wakes it there.
//
// The program holds its own lock, owner, whenever it calls the device, and the goroutine takes the
// same lock: no other synchronisation is needed. While the program polls, the wires are not armed,
// and the goroutine sleeps. The program's call of PollingEnded makes a last pass for what has come,
// and arms them, unless it is not heard; its next poll disarms them.
//
// A wake-up is a loss for a program that soon polls again: judge decides which calls of
// PollingEnded are heard.
type async struct {
	d      *Device
	owner  sync.Locker
	parked *notify.Chan  // where the program sleeps
	done   chan struct{} // closed when the goroutine has ended
	stop   atomic.Bool

	// Under owner.
	programArmed bool // the program has armed a CQ: it sleeps, or is about to
	alone        bool // a pass is being made that is nobody's poll
	judge        judge
}

// Async implements verbs.Async: from now on a goroutine of the device runs it whenever nobody holds
// owner.
func (d *Device) Async(owner sync.Locker) error {
	if d.async != nil || d.closed {
		return fail("async", syscall.EINVAL, "the device works by itself already, or is closed")
	}
	a := &async{d: d, owner: owner, parked: notify.NewChan(), done: make(chan struct{})}
	d.async = a
	go a.run()
	return nil
}

// PollingEnded implements verbs.Async: until the program's next poll the device moves what is under
// way by itself, unless that was in vain lately. It does nothing by itself without that call,
// except while the program sleeps in CompChannel.Wait. Over shared memory SENDs that are not
// solicited, and RDMA WRITEs, do not wake it: they wait for the program's poll.
//
// What has come already the call receives itself, with completions for the next poll: it may copy
// up to a few hundred KiB then.
func (d *Device) PollingEnded() {
	if invariant.Enabled {
		defer d.enter("polling_ended")()
	}
	if a := d.async; a != nil && !d.armed && a.judge.hears() {
		a.attend()
	}
}

// run is the goroutine.
func (a *async) run() {
	defer close(a.done)
	defer func() { _ = a.parked.Close() }()
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

// turn makes one pass of the device, unless the program has polled since the goroutine was woken.
// It returns true if there is more to do. Else the goroutine can sleep: the wires are armed, and
// the pass came after that, or the program polls.
func (a *async) turn() (again bool) {
	if invariant.Enabled {
		defer a.d.enter("a turn of the asynchronous mode")()
	}
	d := a.d
	if !d.armed {
		a.judge.late()
		for _, w := range d.wires {
			if s, ok := w.(wire.Signaller); ok {
				s.Unsignal()
			}
		}
		return false
	}
	d.armWires(a.programArmed)
	a.judge.wakes()
	again = a.pass()
	if d.news && a.programArmed { // the program may wait for an RDMA WRITE, which has no completion here
		d.sleeper().Wake()
	}
	return again
}

// pass makes a pass of the device that is nobody's poll. It returns true if there is more to do.
func (a *async) pass() (again bool) {
	a.alone = true
	a.d.progress(0)
	a.alone = false
	again = a.d.copies()
	if again || a.d.took {
		a.judge.moves()
	}
	return again
}

// polled disarms the wires for a pass that the program makes, unless it waits.
func (a *async) polled() {
	if a.programArmed {
		return
	}
	a.d.disarmWires()
	a.judge.polled()
}

// attend arms the wires, which then wake the goroutine. For what there is to send or to receive
// already it makes a pass itself: a wake-up would take longer, and have the goroutine wait for
// owner.
func (a *async) attend() {
	d := a.d
	d.armWires(false)
	idle := len(d.work) == 0 && !slices.ContainsFunc(d.wires, pending)
	switch {
	case !idle:
		a.pass()
	case d.dirty:
		d.flush()
	}
}

// pending reports whether something has arrived that no signal announces.
func pending(w wire.Wire) bool {
	s, ok := w.(wire.Signaller)
	return ok && s.Pending()
}

// alone reports whether the device works by itself now, and not for a poll of the program.
func (d *Device) alone() bool { return d.async != nil && d.async.alone }

// close ends the goroutine and waits for that.
func (a *async) close() {
	a.stop.Store(true)
	a.d.notif.Wake()
	<-a.done
}

// sleeper returns the notifier in which the program sleeps.
func (d *Device) sleeper() wire.Notifier {
	if d.async != nil {
		return d.async.parked
	}
	return d.notif
}
