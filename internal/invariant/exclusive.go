package invariant

import "sync/atomic"

// Exclusive finds calls that overlap. Unlike with Guard they must not nest either; so it need not
// know goroutines, and costs next to nothing.
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
