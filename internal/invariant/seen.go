//go:build invariants

package invariant

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// seenFile collects the failed checks for coverage.sh: a check that no test sees fail is worthless.
var seenFile = os.Getenv("TAGMATCH_INVARIANTS_SEEN")

// seen records the place of the check that called Broken, directly or through Check: both callers
// are recorded.
func seen() {
	if seenFile == "" {
		return
	}
	f, err := os.OpenFile(seenFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	var pcs [2]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	caller, _ := frames.Next()
	above, _ := frames.Next()
	_, err = fmt.Fprintf(f, "%s:%d\n%s:%d\n", caller.File, caller.Line, above.File, above.Line)
	if err := errors.Join(err, f.Close()); err != nil {
		panic(err)
	}
}
