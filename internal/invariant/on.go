//go:build invariants

package invariant

import (
	"bytes"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Enabled reports whether the checks are built in.
const Enabled = true

// Thorough makes every check of a large list complete: by default only some are, or programs with
// deep queues would never end. Set it before any check.
var Thorough bool

// goroutine is the number of the calling goroutine, from its stack trace: "goroutine 12 [running]".
func goroutine() uint64 {
	var buf [32]byte
	s := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	s, _, _ = bytes.Cut(s, []byte(" "))
	n, err := strconv.ParseUint(string(s), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// Mutex is a lock that knows its owner.
type Mutex struct {
	mu    sync.Mutex
	owner atomic.Uintptr
}

// Lock takes the lock. Taking it twice is a Violation instead of a deadlock.
func (m *Mutex) Lock() {
	me := self()
	if m.owner.Load() == me {
		Broken("owner", "goroutine %d locks again what it holds", goroutine())
	}
	m.mu.Lock()
	m.owner.Store(me)
}

// TryLock takes the lock if it is free.
func (m *Mutex) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	m.owner.Store(self())
	return true
}

// Unlock frees the lock, which the calling goroutine must hold.
func (m *Mutex) Unlock() {
	m.AssertHeld("an unlock")
	m.owner.Store(0)
	m.mu.Unlock()
}

// AssertHeld panics unless the calling goroutine holds the lock. what names what it guards.
func (m *Mutex) AssertHeld(what string) {
	switch m.owner.Load() {
	case self():
	case 0:
		Broken("owner", "goroutine %d uses %s without the lock, which nobody holds", goroutine(), what)
	default:
		Broken("owner", "goroutine %d uses %s without the lock, which another holds", goroutine(), what)
	}
}

// Guard detects overlapping calls. Enter and Leave may nest on one goroutine.
type Guard struct {
	mu    sync.Mutex
	owner uintptr
	depth int
	what  string
}

// Enter begins a call.
func (g *Guard) Enter(what string) {
	me := self()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.depth > 0 && g.owner != me {
		Broken("owner", "goroutine %d calls %s while another is in %s", goroutine(), what, g.what)
	}
	g.owner = me
	g.what = what
	g.depth++
}

// Leave ends it.
func (g *Guard) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.depth--
}

// Stack is the stack of some call.
type Stack struct{ pcs []uintptr }

// Here returns the stack of the caller's caller.
func Here() Stack {
	pcs := make([]uintptr, 32)
	return Stack{pcs[:runtime.Callers(3, pcs)]}
}

// module is the path of the module that the library is.
const module = "github.com/tagmatch/tagmatch/"

// parts are the directories of the module whose functions are the library's.
var parts = []string{"coll", "internal", "p2p", "progress", "transport", "verbs"}

// Caller is the first frame that is not the library's: "main.go:73 main.exchange". Its tests are
// programs.
func (s Stack) Caller() string {
	frames := runtime.CallersFrames(s.pcs)
	for more := len(s.pcs) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		own, ours := strings.CutPrefix(f.Function, module)
		dir, _, _ := strings.Cut(own, "/")
		dir, _, _ = strings.Cut(dir, ".")
		if !ours || !slices.Contains(parts, dir) || strings.HasSuffix(f.File, "_test.go") {
			return fmt.Sprintf("%s:%d %s", path.Base(f.File), f.Line, path.Base(f.Function))
		}
	}
	return "unknown"
}

func (s Stack) String() string {
	var b strings.Builder
	frames := runtime.CallersFrames(s.pcs)
	for more := len(s.pcs) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return b.String()
}
