// Package invarianttest helps to test the checks of builds with -tags invariants.
package invarianttest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// Violates runs f, which must break rule, and returns the text of the Violation.
func Violates(t *testing.T, rule string, f func()) (text string) {
	t.Helper()
	var got any
	func() {
		defer func() { got = recover() }()
		f()
	}()
	v, ok := got.(*invariant.Violation)
	require.True(t, ok, "rule %s: no violation but %v", rule, got)
	require.Equal(t, rule, v.Rule, v.Text)
	return v.Text
}
