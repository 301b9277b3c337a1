// Package invariant is what a build with -tags invariants checks while it runs: that state is
// touched by its owner only, that nothing ends twice, that memory is not used after its life, and
// the rules V1 to V19 of docs/tag-matching-offload.md, section 7.1, where a running program shows
// them. A broken rule panics with a *Violation: such a build is for tests and for finding the
// mistake in a program, not for production.
//
// In other builds Enabled is the constant false. Code that only serves a check stands behind "if
// invariant.Enabled", so that the compiler removes it; Mutex is a sync.Mutex, Guard and Stack are
// empty.
//
// Concurrency: Mutex and Guard may be used by any goroutine, the rest are pure functions. This
// package carries no compatibility promise yet.
package invariant

import (
	"fmt"
	"strings"
)

// Violation is what a broken rule panics with.
type Violation struct {
	Rule string // "V1" to "V19", or a word such as "owner"
	Text string
}

func (v *Violation) Error() string { return fmt.Sprintf("invariant %s: %s", v.Rule, v.Text) }

// Check panics unless ok. The format says what was found.
func Check(ok bool, rule, format string, args ...any) {
	if !ok {
		Broken(rule, format, args...)
	}
}

// Broken panics.
func Broken(rule, format string, args ...any) {
	seen()
	panic(&Violation{rule, strings.TrimRight(fmt.Sprintf(format, args...), "\n")})
}

// PoisonByte fills memory whose life has ended.
const PoisonByte = 0xdb

// Poison overwrites memory that nobody may read any more, so that a use of it shows.
func Poison(b []byte) {
	for i := range b {
		b[i] = PoisonByte
	}
}
