//go:build !invariants

package invariant

import "sync"

// Enabled tells whether the checks are built in.
const Enabled = false

// Thorough is set where large lists are to be looked at whole each time, in builds with the checks.
const Thorough = false

// Mutex is a lock that knows its owner where the checks are built in.
type Mutex struct{ sync.Mutex }

// AssertHeld panics unless the calling goroutine holds the lock. what names what it guards.
func (*Mutex) AssertHeld(what string) {}

// Guard finds calls that should not overlap. Enter and Leave may nest on one goroutine.
type Guard struct{}

// Enter begins a call.
func (*Guard) Enter(what string) {}

// Leave ends it.
func (*Guard) Leave() {}

// Stack is where something happened.
type Stack struct{}

// Here is the stack of the caller's caller.
func Here() Stack { return Stack{} }

func (Stack) String() string { return "" }

// seen does nothing.
func seen() {}
