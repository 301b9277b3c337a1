// Package testlevel says how much a run of the tests plays: whoever changes the code waits less
// than a minute, CI has more cases, seeds and rounds.
package testlevel

import (
	"fmt"
	"os"
	"testing"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

const variable = "TAGMATCH_TEST_LEVEL"

// CI reports whether the tests play all that they have: TAGMATCH_TEST_LEVEL is ci. Else it is not
// set.
func CI() bool {
	switch level := os.Getenv(variable); level {
	case "":
		return false
	case "ci":
		return true
	default:
		panic(fmt.Sprintf("%s is %q: set it to ci, or not at all", variable, level))
	}
}

// Quick reports whether whole suites may be left out: the level is not ci, and this build has
// neither the race detector nor the checks of the invariants. CI plays those with fewer cases, but
// of everything.
func Quick() bool { return !CI() && !Race && !invariant.Enabled }

// SkipIfQuick skips a test that may be left out.
func SkipIfQuick(t testing.TB) {
	t.Helper()
	if Quick() {
		t.Skip("runs with " + variable + "=ci")
	}
}
