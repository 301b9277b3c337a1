package invariant

import "sync"

// Exclusive detects overlapping calls. Unlike with Guard calls must not nest either; so it need not
// identify goroutines, and costs almost nothing.
type Exclusive struct {
	mu   sync.Mutex
	call string // that is under way; "": none
}

// Enter begins a call, whose name is not empty.
func (e *Exclusive) Enter(call string) {
	e.mu.Lock()
	other := e.call
	if other == "" {
		e.call = call
	}
	e.mu.Unlock()
	if other != "" {
		Broken("owner", "%s while %s is under way", call, other)
	}
}

// Leave ends it.
func (e *Exclusive) Leave() {
	e.mu.Lock()
	e.call = ""
	e.mu.Unlock()
}
