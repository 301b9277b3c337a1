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
	// asyncTick is how long a device may go unattended after its host has stopped polling without
	// saying so (Left).
	asyncTick = time.Millisecond
	// A host that was back within asyncSoon, asyncPatience times in a row, is not computing. Arming
	// for it would cost both sides a wake-up for nearly every message, so that its word does not
	// count until it has been away for a tick.
	asyncSoon     = 50 * time.Microsecond
	asyncPatience = 8
)

// async is the asynchronous mode: a goroutine that makes the device work while the program
// computes, as a NIC's processor does. It is the only one that sleeps in the device's notifier; a
// host that waits sleeps in host, and is woken from there.
//
// It takes turns with the host by the host's own lock, so that the host pays nothing: it holds that
// lock anyway, and what a poll has lent is done with when it lets go. While the host polls, the
// wires signal nothing and the goroutine sleeps, but for one look a tick. The wires are armed, and
// then looked at once more, by the goroutine when it finds that nobody has polled for a tick; and
// at once when the host leaves, or posts to the tag list, with receives there that want to be
// matched, unless it has always come back very soon. The next poll disarms them.
type async struct {
	d     *Device
	owner sync.Locker
	host  *notify.Chan
	done  chan struct{}
	stop  atomic.Bool

	// The owner's.
	timer     *time.Timer // of the tick
	ticking   bool        // the timer runs, or has just fired; always so when the wires are not armed
	hostArmed bool        // the host sleeps, or is about to
	alone     bool        // the goroutine runs the device
	polls     uint64      // by the host
	seen      uint64      // of those, at the last tick
	listed    int         // entries of tag lists that wait for a message
	left      int64       // when the wires were armed because the host left; 0: for another reason
	soon      int         // how often in a row it was back at once
	pushed    uint64      // rendezvous whose bytes peers have copied
}

// Async starts the asynchronous mode: from now on a goroutine of the device's own works on it
// whenever nobody holds owner. Whoever calls the device, or anything made from it, must hold owner,
// but for Close, CompChannel.Wait and CompChannel.Wake; and must be done with what a poll has lent
// before letting go of it. To be called at most once, before the first Wait.
func (d *Device) Async(owner sync.Locker) error {
	if d.async != nil || d.closed {
		return fail("async", syscall.EINVAL, "the device works by itself already, or is closed")
	}
	a := &async{d: d, owner: owner, host: notify.NewChan(), done: make(chan struct{})}
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

// Left tells a device in asynchronous mode that nobody polls for now: it need not wait a tick to
// find out. By the holder of the owner's lock; cheap when no receive waits in a tag list.
func (d *Device) Left() {
	if invariant.Enabled {
		defer d.enter("left")()
	}
	d.left()
}

func (d *Device) left() {
	if a := d.async; a != nil && a.listed > 0 {
		a.attend()
	}
}

// run is the goroutine. It says on bound whether it could go where it belongs. A thread that was
// sent to other processors ends with it.
func (a *async) run(bound chan<- error) {
	defer close(a.done)
	defer func() { _ = a.host.Close() }()
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
			runtime.Gosched() // the host may want the lock
		} else if a.d.notif.Wait() != nil {
			return
		}
	}
}

// turn makes one pass of the device, unless the host has polled lately. It returns true when there
// is more to do at once; else the wires are armed, and were looked at after that, or the timer
// runs.
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
		a.soon, a.left = 0, 0
	}
	a.ticking = false
	d.armWires()
	a.alone = true
	d.progress(0)
	a.alone = false
	if d.news && a.hostArmed { // not everything that a host waits for has a completion: credit is written to its memory
		a.host.Wake()
	}
	return d.took || d.more || len(d.readers) > 0
}

// tick makes the goroutine look again in a while.
func (a *async) tick() {
	a.ticking = true
	a.timer.Reset(asyncTick)
}

// polled is called at each poll of the host.
func (a *async) polled() {
	a.polls++
	if !a.d.armed || a.hostArmed {
		return
	}
	a.disarm()
	if a.left != 0 && wire.Monotonic()-a.left < int64(asyncSoon) {
		a.soon++
	} else {
		a.soon = 0
	}
}

func (a *async) disarm() {
	a.d.disarmWires()
	if !a.ticking {
		a.tick()
	}
}

// attend makes the wires wake the goroutine from now on, because the host has left.
func (a *async) attend() {
	d := a.d
	if d.armed || a.soon >= asyncPatience {
		return
	}
	a.left = wire.Monotonic()
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

// close ends the goroutine.
func (a *async) close() {
	a.stop.Store(true)
	a.d.notif.Wake()
	<-a.done
	a.timer.Stop()
}

// sleeper is where the host sleeps.
func (d *Device) sleeper() wire.Notifier {
	if d.async != nil {
		return d.async.host
	}
	return d.notif
}

// listed counts entries that are put into tag lists, n above 0, or leave them.
func (d *Device) listed(n int) {
	if d.async != nil {
		d.async.listed += n
	}
}
