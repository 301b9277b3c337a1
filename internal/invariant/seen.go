//go:build invariants

package invariant

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// seenFile is where coverage.sh learns which checks have failed: a check that no test sees fail is
// no check.
var seenFile = os.Getenv("TAGMATCH_INVARIANTS_SEEN")

// seen notes the place of the check that calls Broken, by itself or through Check: the two callers
// are both noted.
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
