package sim

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestShrinkUnsteady checks that a failure that does not happen again is kept.
func TestShrinkUnsteady(t *testing.T) {
	p, first := NewPlan(5), fail("some kind", "the first")
	for text, again := range map[string]error{
		"it did not fail when played again":                         nil,
		"it failed otherwise when played again: another: next time": fail("another", "next time"),
	} {
		runs := 0
		small, err := Shrink(t.Context(), p, first, func(*Plan) error { runs++; return again })
		require.Same(t, p, small)
		require.Equal(t, 1, runs)
		require.ErrorIs(t, err, first)
		require.ErrorIs(t, err, ErrUnsteady)
		require.ErrorContains(t, err, text)
		require.Equal(t, "some kind", KindOf(err))
	}
}

// TestShrinkStops checks that shrinking ends with its context, with the smallest plan so far.
func TestShrinkStops(t *testing.T) {
	p := NewPlan(5)
	for _, after := range []int{1, 2, 3} {
		ctx, cancel := context.WithCancel(t.Context())
		runs := 0
		small, err := Shrink(ctx, p, errors.New("it fails"), func(*Plan) error {
			if runs++; runs == after {
				cancel()
			}
			return errors.New("it fails")
		})
		require.Equal(t, after, runs)
		require.EqualError(t, err, "it fails")
		require.Equal(t, after > 1, len(small.Steps) < len(p.Steps))
	}
}
