//go:build !invariants

package wait

// What waiting checks of itself is in check.go, for builds with -tags invariants. This is what is
// left of it in others: nothing.

type waiterCheck struct{}

func (*waiterCheck) take(*Event) {}
func (*waiter) freed(*Set)       {}
