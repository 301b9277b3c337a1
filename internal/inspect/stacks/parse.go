package stacks

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// most is how many calls, and how many places, are told apart.
const most = 100

// module is the path of the module that the library is.
const module = "github.com/tagmatch/tagmatch/"

// origin is who has written a function.
type origin uint8

const (
	programs origin = iota
	library
	neither // the standard library, and what only carries calls from one to the other
)

// standard are the first elements of the import paths of the standard library.
var standard = strings.Fields(`archive arena bufio bytes cmp compress container context crypto database debug
	embed encoding errors expvar flag fmt go hash html image index internal io iter log maps math mime net
	os path plugin reflect regexp runtime simd slices sort strconv strings structs sync syscall testing text
	time unicode unique unsafe vendor weak`)

// originOf says who has written the functions of a package.
func originOf(pkg string) origin {
	own, ours := strings.CutPrefix(pkg, module)
	first, _, _ := strings.Cut(own, "/")
	switch {
	case ours && (first == "launch" || own == "p2p/p2ptest"):
		return neither
	case ours && !slices.Contains([]string{"bench", "cmd", "examples", "test"}, first):
		return library
	case ours:
		return programs
	case slices.Contains(standard, first), strings.HasPrefix(pkg, "golang.org/x/sys/"), strings.HasPrefix(pkg, "github.com/ebitengine/purego"):
		return neither
	}
	return programs
}

// frame is a function that has not returned.
type frame struct {
	origin
	pkg, name string // the name without the package
	at        string // "main.go:73"
}

// place is the frame as inspect.Place has it.
func (f *frame) place() string { return f.at + " " + path.Base(f.pkg) + "." + f.name }

// call is the name of a function of the library, for people: without what the compiler adds.
func (f *frame) call() string {
	name := strings.NewReplacer("(*", "", ")", "", "[...]", "").Replace(f.name)
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if i > 0 && (strings.HasPrefix(part, "func") || strings.HasPrefix(part, "gowrap") || strings.HasPrefix(part, "deferwrap")) {
			parts = parts[:i]
			break
		}
	}
	name, _, _ = strings.Cut(strings.Join(parts, "."), "-range")
	name = cmp.Or(name, f.name)
	if f.pkg == module+"p2p" {
		return name
	}
	return path.Base(f.pkg) + "." + name
}

// Parse reads what runtime.Stack has written of all goroutines, which may be cut off. Lists are
// sorted: calls by name and place; places with those first where a goroutine runs, then those where
// one sleeps or is in a system call. whole reports whether nothing was left out of them.
//
// A goroutine of the library's own that waits for messages is in a call without a place: as many
// goroutines as wait for messages are in calls.
func Parse(text []byte) (calls []inspect.Call, outside []inspect.Place, whole bool) {
	c, o := map[inspect.Call]inspect.Age{}, map[inspect.Place]int{}
	counts := map[inspect.Call]int{}
	whole = len(text) != 0 && len(text) < mostBytes
	for each := range bytes.SplitSeq(text, []byte("\n\n")) {
		g, ok := parse(string(each))
		if !ok {
			continue
		}
		if call, ok := g.call(); ok {
			if counts[call] == 0 && len(counts) == most {
				whole = false
			} else {
				counts[call]++
				c[call] = max(c[call], g.age)
			}
		}
		if place, ok := g.outside(); ok {
			if o[place] == 0 && len(o) == most {
				whole = false
			} else {
				o[place]++
			}
		}
	}
	for call, age := range c {
		call.N, call.Age = counts[call], age
		calls = append(calls, call)
	}
	for place, n := range o {
		place.N = n
		outside = append(outside, place)
	}
	slices.SortFunc(calls, func(a, b inspect.Call) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.At, b.At), cmp.Compare(a.State, b.State))
	})
	slices.SortFunc(outside, func(a, b inspect.Place) int {
		return cmp.Or(cmp.Compare(rest(a.State), rest(b.State)), cmp.Compare(a.At, b.At), cmp.Compare(a.State, b.State))
	})
	return calls, outside, whole
}

// rest orders states: who runs comes first.
func rest(state string) int {
	switch state {
	case "running", "runnable":
		return 0
	case "sleep", "syscall":
		return 1
	}
	return 2
}

// goroutine is one of the text.
type goroutine struct {
	state  string
	age    inspect.Age
	frames []frame // the innermost first
	ours   bool    // the library has begun it
}

// parse reads one goroutine.
func parse(text string) (g goroutine, ok bool) {
	head, rest, _ := strings.Cut(strings.TrimLeft(text, "\n"), "\n")
	if !strings.HasPrefix(head, "goroutine ") {
		return g, false
	}
	_, head, _ = strings.Cut(head, "[")
	head, _, ok = strings.Cut(head, "]:")
	if !ok {
		return g, false
	}
	words := strings.Split(head, ", ")
	g.state = strings.TrimSuffix(words[0], " (scan)")
	for _, word := range words[1:] {
		if n, ok := strings.CutSuffix(word, " minutes"); ok {
			if minutes, err := strconv.ParseInt(n, 10, 32); err == nil && minutes > 0 {
				g.age = inspect.Age(time.Duration(minutes) * time.Minute / time.Millisecond)
			}
		}
	}
	g.frames, g.ours = frames(rest)
	return g, true
}

// frames reads pairs of lines: a function with its arguments, and where it is. ours reports whether
// a function of the library has begun the goroutine.
func frames(text string) (list []frame, ours bool) {
	for text != "" {
		var function, at string
		function, text, _ = strings.Cut(text, "\n")
		if creator, ok := strings.CutPrefix(function, "created by "); ok {
			f, ok := newFrame(creator+"()", "\t")
			return list, ok && f.origin == library
		}
		if strings.HasPrefix(function, "...") {
			break // what comes behind is not known
		}
		at, text, _ = strings.Cut(text, "\n")
		if f, ok := newFrame(function, at); ok {
			list = append(list, f)
		}
	}
	return list, false
}

func newFrame(function, at string) (f frame, ok bool) {
	i := strings.LastIndexByte(function, '(')
	at, indented := strings.CutPrefix(at, "\t")
	if i <= 0 || !indented {
		return f, false
	}
	full := function[:i]
	dot := strings.LastIndexByte(full, '/') + 1
	n := strings.IndexByte(full[dot:], '.')
	if n < 0 { // a function of the runtime's that has no package, such as panic
		return frame{origin: neither, name: full, at: at}, true
	}
	file, _, _ := strings.Cut(at, " +0x")
	f.pkg, f.name, f.at = full[:dot+n], full[dot+n+1:], file[strings.LastIndexByte(file, '/')+1:]
	if f.name == "" {
		return f, false
	}
	if f.origin = originOf(f.pkg); f.origin == library && strings.Contains(f.at, "_test.go:") {
		f.origin = programs
	}
	return f, true
}

// call is the innermost call of the library that a function of the program is in. A goroutine of
// the library's own is in none, unless it waits for messages, or may do so.
func (g *goroutine) call() (c inspect.Call, ok bool) {
	inner := slices.IndexFunc(g.frames, func(f frame) bool { return f.origin == library })
	if inner < 0 {
		return c, false
	}
	own := slices.IndexFunc(g.frames[inner:], func(f frame) bool { return f.origin == programs })
	c.State = g.state
	if own < 0 {
		outer := g.frames[inner:]
		for outer[len(outer)-1].origin != library {
			outer = outer[:len(outer)-1]
		}
		c.Name = outer[len(outer)-1].call()
		if i := slices.IndexFunc(outer, func(f frame) bool { return f.starts() }); i >= 0 {
			c.Name = outer[i].call()
		}
		return c, slices.ContainsFunc(outer, func(f frame) bool { return f.awaits() })
	}
	c.At = g.frames[inner+own].place()
	for _, f := range g.frames[inner : inner+own] {
		if f.origin == library {
			c.Name = f.call()
		}
	}
	return c, true
}

// awaits reports whether who is in the function waits for messages, or may do so.
func (f *frame) awaits() bool {
	return f.pkg == module+"coll" || f.pkg == module+"progress/internal/wait" && strings.HasPrefix(f.name, "(*Set).Await")
}

// starts reports whether the function is one by which a program starts a collective operation.
func (f *frame) starts() bool { return f.pkg == module+"coll" && strings.HasPrefix(f.name, "Start") }

// systems reports whether a function is of the runtime, or passes signals on.
func (f *frame) systems() bool {
	return f.pkg == "" || f.pkg == "runtime" || strings.HasPrefix(f.pkg, "runtime/") || f.pkg == "os/signal"
}

// outside is where a goroutine is in the program, which may have been called by the library. One
// of which all frames are of the standard library has no place.
func (g *goroutine) outside() (p inspect.Place, ok bool) {
	i := slices.IndexFunc(g.frames, func(f frame) bool { return f.origin != neither })
	if i < 0 {
		p.State = g.state
		return p, !g.ours && slices.ContainsFunc(g.frames, func(f frame) bool { return !f.systems() })
	}
	if g.frames[i].origin != programs {
		return p, false
	}
	return inspect.Place{At: g.frames[i].place(), State: g.state}, true
}
