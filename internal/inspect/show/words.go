package show

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// span is a duration in one unit: that is as exact as ages are.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return "less than 1 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// aged is an age behind a comma, where it is known.
func aged(a inspect.Age) string {
	if a == 0 {
		return ""
	}
	return ", " + span(duration(a))
}

func duration(a inspect.Age) time.Duration { return time.Duration(a) * time.Millisecond }

// size is a number of bytes: what is a whole number of larger units is told in these.
func size(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	u := 0
	for ; u < len(units)-1 && n != 0 && n%1024 == 0; u++ {
		n /= 1024
	}
	if u == 0 && n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d %s", n, units[u])
}

// about is a number of bytes that need not be exact.
func about(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/1024)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// rank is a peer.
func rank(n int) string {
	if n == inspect.Any {
		return "any"
	}
	return fmt.Sprint(n)
}

// key is what a message bears, or what a receive asks for.
func key(k *inspect.Key) string {
	tag := fmt.Sprintf("tag %#x", k.Tag)
	switch {
	case k.Comm == inspect.CommLibrary:
		return "Barrier, Dup, Split or the like"
	case k.Any:
		tag = "any tag"
	case k.Mask != 0:
		tag += fmt.Sprintf(" mask %#x", k.Mask)
	}
	switch k.Comm {
	case inspect.CommWorld:
		return tag
	case inspect.CommRaw:
		return "raw " + tag
	}
	return tag + " of " + k.Comm
}

// blocked is how many calls of a rank wait.
func blocked(s *inspect.State) (calls []inspect.Call) {
	for _, c := range s.Calls {
		if c.State != "running" && c.State != "runnable" {
			calls = append(calls, c)
		}
	}
	return calls
}

// Summary says in a word or two what a rank does; stuck says that it is known to wait for good.
func Summary(s *inspect.State, stuck bool) string {
	still, waits := duration(s.Still), len(blocked(s)) != 0
	switch {
	case s.Silent != "":
		return "silent: " + s.Silent
	case s.Broken != "":
		return "ended: " + s.Broken
	case s.Phase == inspect.PhaseJoining:
		return "joining for " + span(still)
	case stuck:
		return "stuck for " + span(still)
	case still < time.Second:
		return "moving"
	case waits:
		return "waiting for " + span(still)
	case runs(s):
		return "computing for " + span(still)
	}
	return "idle for " + span(still)
}

// runs reports whether a goroutine of the program runs.
func runs(s *inspect.State) bool {
	for _, p := range s.Outside {
		if p.State == "running" || p.State == "runnable" {
			return true
		}
	}
	return false
}

// oneLine makes one line of a text.
func oneLine(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
}

// cut makes one line of a text, which is cut off where it is too long for a terminal.
func cut(text string) string {
	const most = 80
	r := []rune(oneLine(text))
	if len(r) > most {
		r = append(r[:most-3], []rune("...")...)
	}
	return string(r)
}
