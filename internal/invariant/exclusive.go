package invariant

import "sync/atomic"

// Exclusive detects overlapping calls. Unlike with Guard calls must not nest either; so it need not
// identify goroutines, and costs almost nothing.
type Exclusive struct {
	call atomic.Pointer[string]
}

// Enter begins a call.
func (e *Exclusive) Enter(call string) {
	if !e.call.CompareAndSwap(nil, &call) {
		other := "another call"
		if c := e.call.Load(); c != nil {
			other = *c
		}
		Broken("owner", "%s while %s is under way", call, other)
	}
}

// Leave ends it.
func (e *Exclusive) Leave() { e.call.Store(nil) }
