package sim

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// TestPanics checks that a panic is a failure like any other.
func TestPanics(t *testing.T) {
	w := newWorld(NewPlan(1))
	w.wrap = func(int, opener) opener { panic("oops") }
	_, err := w.run()
	require.ErrorContains(t, err, "panic: oops\n")
	require.Equal(t, "panic in internal/sim.TestPanics.func1: oops", KindOf(err))
}

// TestPanicKinds checks that the kind of a panic is its rule, or its text, and its function.
func TestPanicKinds(t *testing.T) {
	kind := func(f func()) string {
		var failure *Failure
		func() {
			defer func() { failure = panicked(recover()) }()
			f()
		}()
		return KindOf(fmt.Errorf("wrapped: %w", failure))
	}
	for _, ranks := range []int{3, 4} { // numbers are those of the plan
		w := &world{ranks: make([]*rank, ranks)}
		require.Equal(t, "panic in internal/sim.(*world).apart: runtime error: index out of range [#] with length #",
			kind(func() { w.apart(2*ranks, 0) }))
	}

	var none *world
	require.Equal(t, "panic in internal/sim.(*world).faults: runtime error: invalid memory address or nil pointer dereference",
		kind(func() { none.faults() }))
	require.NotEqual(t, kind(func() { none.faults() }), kind(func() { none.killed() }))

	broken := func(rule string) string { return kind(func() { invariant.Broken(rule, "%d is not %d", 2, 3) }) }
	require.Regexp(t, `^invariant V4 in internal/sim\.TestPanicKinds`, broken("V4"))
	require.NotEqual(t, broken("V4"), broken("V5"))
	own := kind(func() { panic(fail("content", "of a call")) })
	require.Equal(t, "content", own)
}
