package rendezvous

import (
	"sync"
	"time"
)

// Waits is what a rank waits for while it joins, for who looks into it. The zero value is ready;
// any goroutine may call Now.
type Waits struct {
	mu    sync.Mutex // guards the fields below
	what  func() string
	since time.Time
}

// Begin notes that the rank waits for what, until end is called. There is no other Begin between.
// What may be called until shortly after that. Where w is nil it does nothing.
func (w *Waits) Begin(what func() string) (end func()) {
	if w == nil {
		return func() {}
	}
	w.set(what)
	return func() { w.set(nil) }
}

func (w *Waits) set(what func() string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.what, w.since = what, time.Now()
}

// Now says what the rank waits for, and since when; "": for nothing.
func (w *Waits) Now() (text string, since time.Time) {
	w.mu.Lock()
	what, since := w.what, w.since
	w.mu.Unlock()
	if what == nil {
		return "", since
	}
	return printable(what()), since
}
