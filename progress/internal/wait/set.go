package wait

import (
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// Engine is what those who wait move on. All methods are called with the lock held.
type Engine interface {
	// Poll looks for what has arrived, once, and returns the number of events.
	Poll() int
	// Refused reports whether something that the transport has refused waits for room, or for the
	// transport to drain: devices are not held to report either as an event.
	Refused() bool
	// Broken reports whether the transport may be of no more use: its Wait may not block.
	Broken() bool
	// Fail ends all operations because Arm or Wait has failed.
	Fail(err error)
}

// Transport is the part of transport.Transport that one sleeps by; see there.
type Transport interface {
	Arm() error
	Disarm()
	Wait() error
	Wake()
}

// Config of a Set.
type Config struct {
	SpinLimit    time.Duration // polling before a waiter parks; 0 adaptive, at most 50 us; below 0 parks at once
	Manual       bool          // no progress goroutine: a waiter sleeps in the transport
	PollingEnded func()        // called with the lock held when nobody polls any more, unless Set.Large is 0; nil: nothing

	// Parks is called with the lock held when a goroutine that waits for op goes to sleep, and when
	// it goes on; op is nil where it sleeps until the transport has something. nil: nothing.
	Parks func(op Operation, asleep bool, now time.Time)
}

// Set is the goroutines that wait on one engine, the progress goroutine included. Fields without a
// word are guarded by mu.
type Set struct {
	mu  *Lock // constant, as all up to cfg
	e   Engine
	tr  Transport
	cfg Config

	// Large is how many messages are under way that a device could move while nobody polls. The
	// engine counts them.
	Large int

	polling   atomic.Bool     // somebody has the poller role; written under mu
	role      invariant.Guard // finds a second poller
	own       *Event          // of AwaitOwn, which holds the lock; nil once it has ended
	oneP      bool            // GOMAXPROCS is 1; refreshed at each park
	turns     bool            // who is woken may have to wait for the poller's processor; refreshed likewise
	hold      int             // polls before the first look at a clock; refreshed also where load changes
	woke      bool            // a waiter was woken, and nobody has yielded to it
	sharing   sharing
	aside     aside
	vain      vain
	outrun    atomic.Uint32        // calls that have found the lock taken; needs no lock
	yield     func() time.Duration // constant: timedYield, or a test's
	parked    waiterList
	waking    int              // waiters that were woken and have not run yet
	successor *waiter          // was woken to take the role and has not looked yet
	sleeper   *waiter          // Manual: who is in Transport.Wait, with the role
	untimed   bool             // somebody is in Transport.Wait and leaves it by an event only
	free      *waiter          // the pool, linked by next
	runnable  []metrics.Sample // the poller's
	loop      loopState
	stopping  bool      // Stop was called
	awake     sync.Cond // stopping: the sleeper has left Transport.Wait
	spinning  time.Time // when the wait of the poller began, while it looks at the clock; else zero
	stopwatch stopwatch
	parks     uint64 // waiters that have parked so far
	sleeps    uint64 // waits for events in the transport so far
}

// Init makes a Set of the zero value, for those who wait on e, which mu guards. tr is what e polls.
func (s *Set) Init(mu *Lock, e Engine, tr Transport, cfg Config) {
	s.mu, s.e, s.tr, s.cfg = mu, e, tr, cfg
	s.yield = timedYield
	s.runnable = []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}}
	s.awake.L = mu
	s.stopwatch.base = time.Now()
	s.loop.init()
	s.survey()
}

// Start begins the progress goroutine, once, unless the mode is Manual.
func (s *Set) Start() {
	if !s.cfg.Manual && !s.loop.running && !s.stopping {
		s.loop.running = true
		go s.progress()
	}
}

// Stop ends the progress goroutine, and returns when nobody is inside of Transport.Wait, nor will
// be. It lets go of the lock meanwhile. Waiters stay: their operations are to end.
func (s *Set) Stop() {
	s.stopping = true
	s.kick()
	s.tr.Wake()
	if s.loop.running {
		s.mu.Unlock()
		<-s.loop.done
		s.mu.Lock()
	}
	for s.sleeper != nil {
		s.awake.Wait()
	}
	s.aside.close()
}

// Stopping reports whether Stop was called.
func (s *Set) Stopping() bool { return s.stopping }

// Counts returns how many waiters have parked so far, and how often somebody has slept in the
// transport.
func (s *Set) Counts() (parks, sleeps uint64) { return s.parks, s.sleeps }
