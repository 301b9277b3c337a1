//go:build invariants

package invarianttest

import (
	"testing"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// Thorough sets invariant.Thorough until the test ends, which must be the only one that runs.
func Thorough(t *testing.T) {
	before := invariant.Thorough
	invariant.Thorough = true
	t.Cleanup(func() { invariant.Thorough = before })
}
