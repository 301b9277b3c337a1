package wait

import (
	"runtime"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// Lock is an engine's lock. A poller holds it while it polls, and lets go of it when somebody wants
// it: sync.Mutex alone would let the poller take it again at once and starve the others for a
// millisecond. The zero value is free.
type Lock struct {
	invariant.Mutex
	wanted atomic.Int32 // goroutines that wait for the lock
}

// Lock takes the lock; a poller that holds it for long sees that it is wanted.
func (l *Lock) Lock() {
	if !l.TryLock() {
		l.wanted.Add(1)
		l.Mutex.Lock()
		l.wanted.Add(-1)
	}
}

// Wanted reports whether somebody waits for the lock.
func (l *Lock) Wanted() bool { return l.wanted.Load() != 0 }

// mostYields is how often Yield yields the processor. Who has parked for the lock needs some 50 us
// to run.
const mostYields = 1000

// Yield lets those have the lock, which the caller has let go of, who want it: else sync.Mutex
// would give it to this goroutine again.
func (l *Lock) Yield() {
	for i := 0; l.Wanted() && i < mostYields; i++ {
		runtime.Gosched()
	}
}

// giveWay lets those who want the lock have it. With oneP there is one processor for all goroutines
// of this process.
func (l *Lock) giveWay(oneP bool) {
	l.Unlock()
	for i := 1; l.Wanted() && i < 1024; i++ {
		if i%256 == 0 || oneP {
			runtime.Gosched()
		}
	}
	l.Mutex.Lock()
}
