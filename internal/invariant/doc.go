// Package invariant has the checks of a build with -tags invariants: state is accessed by its owner
// only, nothing ends twice, memory is not used after its life, and the rules V1 to V19 of
// docs/tag-matching-offload.md, section 7.1, hold where a running program shows them. A broken rule
// panics with a *Violation: such a build is for tests and for finding mistakes in a program, not
// for production.
//
// In other builds Enabled is the constant false. Code that only serves a check is guarded by "if
// invariant.Enabled", so that the compiler removes it; Mutex is a sync.Mutex, Guard and Stack are
// empty, PoisonStart and RequirePoison do nothing: they need no guard where their arguments cost
// nothing.
//
// Concurrency: Mutex and Guard may be used by any goroutine, the rest are pure functions.
package invariant

import (
	"fmt"
	"strings"
)

// Violation is the panic value of a broken rule.
type Violation struct {
	Rule string // "V1" to "V19", or a word such as "owner"
	Text string
}

func (v *Violation) Error() string { return fmt.Sprintf("invariant %s: %s", v.Rule, v.Text) }

// Check panics unless ok. The format describes what was found.
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

// PoisonByte fills memory after its life.
const PoisonByte = 0xdb

// poisonMost is how much of a buffer PoisonStart overwrites: all of a large one would take too
// long.
const poisonMost = 4 << 10

// Poison overwrites memory that must not be read any more, so that a use of it shows.
func Poison(b []byte) {
	for i := range b {
		b[i] = PoisonByte
	}
}
