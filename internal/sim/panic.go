package sim

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// panicked turns a recovered panic into a failure. Its kind is the broken rule, or the text, and
// the function that panicked.
func panicked(v any) *Failure {
	if f, ok := v.(*Failure); ok { // of a call, which has its own stack
		return f
	}
	f := &Failure{Kind: "panic", Err: fmt.Errorf("panic: %v", v), Stack: debug.Stack()}
	what := ": " + numbers.ReplaceAllString(fmt.Sprint(v), "#")
	if b, ok := v.(*invariant.Violation); ok {
		f.Kind, what = "invariant "+b.Rule, ""
	}
	if in := panicsIn(); in != "" {
		f.Kind += " in " + in
	}
	f.Kind += what
	return f
}

// numbers are ignored in kinds, as they change while a plan shrinks.
var numbers = regexp.MustCompile(`0x[0-9a-f]+|[0-9]+`)

const module = "github.com/tagmatch/tagmatch/"

// panicsIn is the function of this module that panicked, checking functions excluded.
func panicsIn() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for panics := false; ; {
		frame, more := frames.Next()
		name, ours := strings.CutPrefix(frame.Function, module)
		switch {
		case frame.Function == "runtime.gopanic":
			panics = true
		case panics && ours && !strings.HasPrefix(name, "internal/invariant."):
			return name
		}
		if !more {
			return ""
		}
	}
}
