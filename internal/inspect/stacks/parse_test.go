package stacks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// taker is the goroutine of the program that has written the stacks in testdata.
var taker = inspect.Place{At: "main.go:52 main.main.func2", N: 1, State: "running"}

// TestPrograms reads stacks of real programs, which differ in what goroutine 1 does.
func TestPrograms(t *testing.T) {
	at := func(at, state string) inspect.Place { return inspect.Place{At: at, N: 1, State: state} }
	for name, want := range map[string]struct {
		calls   []inspect.Call
		outside []inspect.Place
	}{
		"recv":     {[]inspect.Call{{Name: "Comm.Recv", Place: at("main.go:73 main.broken", "chan receive")}}, nil},
		"shutdown": {[]inspect.Call{{Name: "World.Shutdown", Place: at("main.go:56 main.main", "select")}}, nil},
		"dup":      {[]inspect.Call{{Name: "Comm.Dup", Place: at("main.go:160 main.broken", "select")}}, nil},
		"loop":     {nil, []inspect.Place{at("main.go:141 main.broken", "runnable")}},
		"sleep":    {nil, []inspect.Place{at("main.go:156 main.broken", "sleep")}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
			require.NoError(t, err)
			calls, outside, whole := Parse(text)
			require.True(t, whole)
			require.Equal(t, want.calls, calls)
			require.Contains(t, outside, taker)
			require.Subset(t, outside, want.outside)
			require.Len(t, outside, 1+len(want.outside))
		})
	}
}

// stack makes a goroutine of lines "function file:line".
func stack(head string, frames ...string) string {
	b := "goroutine 7 [" + head + "]:\n"
	for _, f := range frames {
		function, at, _ := strings.Cut(f, " ")
		b += function + "(0x1, {0x2, 0x3}, 0x4?)\n\t/a b/" + at + " +0x1d\n"
	}
	return b + "created by main.main in goroutine 1\n\t/a b/main.go:1 +0x1\n"
}

func TestGoroutines(t *testing.T) {
	const (
		recv  = module + "p2p.(*Comm).Recv comm.go:120"
		inner = module + "progress.(*Engine).Recv recv.go:41"
	)
	for name, c := range map[string]struct {
		text string
		want string // name at place, state, age; or the place, state
	}{
		"a call":                    {stack("select, 5 minutes", inner, recv, "main.f main.go:3"), "Comm.Recv at main.go:3 main.f, select, 300000"},
		"locked to a thread":        {stack("select, 1 minutes, locked to thread", recv, "main.f main.go:3"), "Comm.Recv at main.go:3 main.f, select, 60000"},
		"by the standard library":   {stack("select", inner, "sync.(*Once).Do once.go:4", recv, "sync.(*Once).Do once.go:4", "main.f main.go:3"), "Comm.Recv at main.go:3 main.f, select, 0"},
		"of another module":         {stack("select", recv, "example.com/x.v2/lib.(*T[...]).Do do.go:9", "main.f main.go:3"), "Comm.Recv at do.go:9 lib.(*T[...]).Do, select, 0"},
		"a generic function":        {stack("select", recv, module+"coll.AllReduce[...] all.go:9", "main.f main.go:3"), "coll.AllReduce at main.go:3 main.f, select, 0"},
		"a closure of the library":  {stack("select", module+"p2p.(*World).Each.func1 world.go:9", "main.f main.go:3"), "World.Each at main.go:3 main.f, select, 0"},
		"a loop over the library":   {stack("select", module+"p2p.(*World).Each-range1 world.go:9", "main.f main.go:3"), "World.Each at main.go:3 main.f, select, 0"},
		"a go statement":            {stack("select", recv, "main.main.gowrap1 main.go:8"), "Comm.Recv at main.go:8 main.main.gowrap1, select, 0"},
		"a test of the library":     {stack("select", recv, module+"p2p.TestX x_test.go:8", "testing.tRunner testing.go:9"), "Comm.Recv at x_test.go:8 p2p.TestX, select, 0"},
		"an example":                {stack("select", recv, module+"examples/ddp/train.Step step.go:8"), "Comm.Recv at step.go:8 train.Step, select, 0"},
		"worlds in one process":     {stack("select", recv, "main.f main.go:3", module+"p2p/p2ptest.Run.func1 run.go:7"), "Comm.Recv at main.go:3 main.f, select, 0"},
		"a system call inside":      {stack("syscall", "golang.org/x/sys/unix.Poll poll.go:1", inner, recv, "main.f main.go:3"), "Comm.Recv at main.go:3 main.f, syscall, 0"},
		"outside":                   {stack("runnable", "main.f main.go:3"), "main.go:3 main.f, runnable"},
		"outside, scanned":          {stack("runnable (scan)", "main.f main.go:3"), "main.go:3 main.f, runnable"},
		"outside, sleeping":         {stack("sleep, 2 minutes", "time.Sleep time.go:8", "main.f main.go:3"), "main.go:3 main.f, sleep"},
		"a callback of the library": {stack("runnable", "main.add main.go:9", module+"coll.Reduce red.go:7", "main.f main.go:3"), "coll.Reduce at main.go:3 main.f, runnable, 0; main.go:9 main.add, runnable"},
		"the library's own":         {stack("IO wait", inner, "sync.(*WaitGroup).Go.func1 wg.go:8"), ""},
		"its own, with a callback":  {stack("runnable", "main.log main.go:9", inner), "main.go:9 main.log, runnable"},
		"the standard library's":    {stack("syscall", "os/signal.signal_recv sigqueue.go:8", "os/signal.loop signal.go:23"), ""},
		"its own that waits":        {stack("select", module+"progress/internal/wait.(*Set).Await await.go:8", inner, module+"coll.start.func1 run.go:9"), "coll.start at , select, 0"},
		"a started collective":      {stack("runnable", module+"coll.(*Group).run run.go:2", module+"coll.StartScan[...].func1 calls.go:5", module+"coll.start.func1 run.go:9", "sync.f s.go:1"), "coll.StartScan at , runnable, 0"},
		"without a place":           {stack("IO wait", "net/http.(*conn).serve server.go:8"), ", IO wait"},
		"begun by the library":      {"goroutine 5 [select]:\nnet.f()\n\t/n/n.go:3 +0x1\ncreated by " + module + "p2p.(*World).watch in goroutine 1\n\t/a/b.go:3 +0x1\n", ""},
		"NotifyContext":             {stack("select", "os/signal.NotifyContext.func1 signal.go:288"), ""},
		"of the runtime":            {"goroutine 5 [GC worker (idle)]:\nruntime.gopark(0x1)\n\t/r/proc.go:4 +0x1\n", ""},
		"a panic":                   {"goroutine 5 [select]:\npanic({0x1, 0x2})\n\t/r/panic.go:4 +0x1\nmain.f()\n\t/m/main.go:3 +0x1\n", "main.go:3 main.f, select"},
		"cut off in the middle":     {"goroutine 5 [select]:\nmain.f()\n\t/m/main.go:3 +0x1\nmain.ma", "main.go:3 main.f, select"},
		"deep":                      {"goroutine 5 [select]:\nmain.f()\n\t/m/main.go:3 +0x1\n...12 frames elided...\nmain.main()\n\t/m/main.go:9 +0x1\n", "main.go:3 main.f, select"},
		"no goroutine":              {"panic: oh\n", ""},
		"without a head":            {"goroutine 5 [sel", ""},
	} {
		t.Run(name, func(t *testing.T) {
			calls, outside, _ := Parse([]byte("\n\n" + c.text))
			require.Equal(t, c.want, describe(calls, outside))
		})
	}
}
