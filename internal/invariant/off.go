//go:build !invariants

package invariant

import "sync"

// Enabled reports whether the checks are built in.
const Enabled = false

// Thorough makes every check of a large list complete, in builds with checks.
const Thorough = false

// Mutex is a lock that knows its owner in builds with checks.
type Mutex struct{ sync.Mutex }

// AssertHeld panics unless the calling goroutine holds the lock. what names what it guards.
func (*Mutex) AssertHeld(what string) {}

// Guard detects overlapping calls. Enter and Leave may nest on one goroutine.
type Guard struct{}

// Enter begins a call.
func (*Guard) Enter(what string) {}

// Leave ends it.
func (*Guard) Leave() {}

// Stack is the stack of some call.
type Stack struct{}

// Here returns the stack of the caller's caller.
func Here() Stack { return Stack{} }

// Caller is empty.
func (Stack) Caller() string { return "" }

func (Stack) String() string { return "" }

// PoisonStart does nothing.
func PoisonStart(b []byte) {}

// RequirePoison does nothing.
func RequirePoison(b []byte, what string) {}

// seen does nothing.
func seen() {}
