package wait

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// The Go scheduler looks for sockets that are ready when it finds no goroutine to run, and else
// every 10 ms. So where GOMAXPROCS is 1 a poller, however often it yields, keeps the goroutines
// that wait for sockets, those of an HTTP server for instance, from running for so long. Therefore
// it steps aside at times: it waits for a descriptor of its own that is ready, which the scheduler
// can only find together with all others that are. Beside a goroutine that is runnable it does not,
// as it would be found after 10 ms itself: there a yield is right.

const (
	asideLeast  = 10 * time.Microsecond  // from one time to the next, where others have run
	asideMost   = 200 * time.Microsecond // at most, where nobody has: it doubles each time
	asideShared = time.Millisecond       // always, where there are more ranks than processors
	asideTaken  = 4 * time.Microsecond   // what takes so long, and not 1.3 us, has let a goroutine run
)

// aside is when a poller steps aside, and how. Guarded by Set.mu, but for step.
type aside struct {
	every time.Duration
	next  time.Time
	bell  *bell                // nil: not made yet, or it cannot be
	tried bool                 // to make it
	step  func() time.Duration // constant: nil, or a test's
}

// stepAside steps aside if that is due at the time now. It lets go of the lock meanwhile.
func (s *Set) stepAside(now time.Time) {
	a := &s.aside
	if now.Before(a.next) || !a.ready(s.stopping) {
		return
	}
	if s.goroutinesWait() {
		a.next = now.Add(asideLeast)
		return
	}
	step := a.step
	if step == nil {
		step = a.bell.step
	}
	a.next = now.Add(asideShared) // nobody else does meanwhile
	s.mu.Unlock()
	took := step()
	s.mu.Lock()
	a.took(now, took, s.sharing.oversubscribed())
}

// took takes down how long it took to step aside at the time now. Where ranks share processors that
// says nothing, as another rank may have run.
func (a *aside) took(now time.Time, took time.Duration, shared bool) {
	switch {
	case shared:
		a.every = asideShared
	case took >= asideTaken:
		a.every = max(asideLeast, took/2)
	default:
		a.every = min(2*a.every, asideMost)
	}
	a.next = now.Add(took + a.every)
}

// ready makes the bell when it is needed first. Without one the scheduler's 10 ms remain.
func (a *aside) ready(stopping bool) bool {
	if !a.tried && !stopping && a.step == nil {
		a.tried = true
		a.every = asideLeast
		a.bell = newBell()
	}
	return a.bell != nil && !stopping || a.step != nil
}

// close frees the bell; who steps aside at that moment comes back.
func (a *aside) close() {
	if a.bell != nil {
		_ = a.bell.file.Close()
	}
}

// bell is a descriptor that Go's netpoller watches.
type bell struct {
	file *os.File
	raw  syscall.RawConn
}

// step waits until the bell, which it rings itself, is found to be ready, and lets those run who
// were found with it.
func (b *bell) step() time.Duration {
	start, rung := time.Now(), false
	_ = b.raw.Read(func(fd uintptr) bool {
		if rung {
			return true
		}
		rung = true
		return !ring(int(fd)) // false: wait until it is ready
	})
	runtime.Gosched()
	return time.Since(start)
}
