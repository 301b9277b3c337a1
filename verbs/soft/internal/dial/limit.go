package dial

import (
	"sync"
	"time"
)

// limit calls a function after a time in which this process ran. It looks at intervals and counts
// the looks: while a process is stopped, or has no processor, it hears nobody, and must not blame
// the others for that.
type limit struct {
	every time.Duration
	f     func() // called with mu held

	mu    sync.Mutex
	timer *time.Timer // nil: it has ended
	count int         // looks so far
}

// looks is how many looks a limit has.
const looks = 32

// newLimit starts a limit. The caller calls stop.
func newLimit(d time.Duration, f func()) *limit {
	l := &limit{every: max(d/looks, 1), f: f}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.every, l.look)
	return l
}

func (l *limit) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil {
		return
	}
	if l.count++; l.count < looks {
		l.timer.Reset(l.every)
		return
	}
	l.timer = nil
	l.f()
}

// stop ends the limit, and returns how much of its time has passed.
func (l *limit) stop() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	return time.Duration(l.count) * l.every
}
