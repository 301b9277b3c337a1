//go:build invariants

package sim

import "github.com/tagmatch/tagmatch/internal/invariant"

// Worlds are small enough for complete checks.
func init() { invariant.Thorough = true }
