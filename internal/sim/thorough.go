//go:build invariants

package sim

import "github.com/tagmatch/tagmatch/internal/invariant"

// Worlds are small enough for it.
func init() { invariant.Thorough = true }
