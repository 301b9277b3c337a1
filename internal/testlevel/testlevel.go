// Package testlevel says how much a run of the tests plays: whoever changes the code waits less
// than a minute, CI has more cases, seeds and rounds.
package testlevel

import (
	"fmt"
	"os"
	"testing"
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

// NeedCI skips a test of which nothing runs below level ci.
func NeedCI(t testing.TB) {
	t.Helper()
	if !CI() {
		t.Skip("runs with " + variable + "=ci")
	}
}
