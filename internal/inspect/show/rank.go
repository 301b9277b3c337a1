package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/ranks"
)

// mostLines is how many lines of a kind are shown of a rank where not all are; the rest is counted.
const mostLines = 8

// body is the lines about a rank, without its heading.
type body struct {
	full  bool // all of them, in their whole length
	lines []string
}

func (b *body) add(kind, format string, args ...any) {
	line := oneLine(fmt.Sprintf("  %-8s ", kind) + fmt.Sprintf(format, args...))
	if !b.full {
		line = cut(line)
	}
	b.lines = append(b.lines, line)
}

// list adds lines of a kind, of which there are n; more counts what is not known singly.
func (b *body) list(kind string, n, more int, line func(i int) (text string, count int)) {
	for i := range n {
		text, count := line(i)
		if i >= mostLines && !b.full {
			more += count
			continue
		}
		b.add(kind, "%s", text)
	}
	if more != 0 {
		b.add("", "and %d more", more)
	}
}

// of describes a rank.
func of(s *inspect.State, full bool) []string {
	b := body{full: full}
	if s.Joins != "" {
		b.add("waits", "%s", s.Joins)
	}
	for _, r := range slices.Sorted(maps.Keys(s.Failed)) {
		b.add("lost", "rank %d: %s", r, s.Failed[r])
	}
	if more := s.Losses - len(s.Failed); more > 0 {
		b.add("", "and %d more", more)
	}
	b.list("in", len(s.Calls), 0, func(i int) (string, int) {
		c := &s.Calls[i]
		return fmt.Sprintf("%s%s%s%s%s", c.Name, at(c.At), times(c.N), because(c.State), aged(c.Age)), c.N
	})
	b.list("outside", len(s.Outside), 0, func(i int) (string, int) {
		p := &s.Outside[i]
		return fmt.Sprintf("%s%s%s", cmp.Or(p.At, "the program's lines"), times(p.N), because(p.State)), p.N
	})
	b.meetings(s)
	b.queues(s)
	b.peers(s)
	if s.Leaked > 0 {
		b.add("open", "%d requests have ended, and nobody has completed them", s.Leaked)
	}
	return b.lines
}

func (b *body) queues(s *inspect.State) {
	b.list("receive", len(s.Receives), s.MoreReceives, func(i int) (string, int) {
		r := &s.Receives[i]
		text := fmt.Sprintf("from %s, %s, %s", rank(r.Peer), key(&r.Key), size(r.Bytes))
		if r.Kind != "receive" {
			text = fmt.Sprintf("%s from %s, %s", r.Kind, rank(r.Peer), key(&r.Key))
		}
		if r.Where != "software" {
			text += ", " + r.Where
		}
		return text + times(r.N) + awaited(r.Awaited, r.N) + aged(r.Age), r.N
	})
	b.list("message", len(s.Messages), s.MoreMessages, func(i int) (string, int) {
		m := &s.Messages[i]
		where := "here"
		if !m.Eager {
			where = "with its sender"
		}
		return fmt.Sprintf("from %d, %s, %s, %s%s%s", m.Peer, key(&m.Key), size(m.Bytes), where, times(m.N), aged(m.Age)), m.N
	})
	b.list("send", len(s.Sends), s.MoreSends, func(i int) (string, int) {
		o := &s.Sends[i]
		return fmt.Sprintf("to %d, %s, %s, %s%s%s", o.Peer, key(&o.Key), size(o.Bytes), o.Stage, times(o.N), awaited(o.Awaited, o.N)+aged(o.Age)), o.N
	})
}

// meetings shows the collective calls that were begun on Comms. What a rank waits in is in the
// stack too, where it is no started one.
func (b *body) meetings(s *inspect.State) {
	b.list("call", len(s.Meetings), 0, func(i int) (string, int) {
		m := &s.Meetings[i]
		on, state := "", "over"
		if m.Comm != "" {
			on = " on " + m.Comm
		}
		if m.Waiting {
			state = "under way"
		}
		return fmt.Sprintf("%s%s, number %d, %s", m.Name, on, m.Number, state), 1
	})
}

func (b *body) peers(s *inspect.State) {
	for i := range s.Peers {
		switch p := &s.Peers[i]; {
		case p.HeldUp != 0:
			b.add("peer", "%d has no memory for %s%s", p.Rank, count(p.HeldUp, "send"), wants(p.Wants))
		case !p.Connected && p.Queued != 0:
			b.add("peer", "%d is not connected yet: %s wait", p.Rank, count(p.Queued, "send"))
		}
		if p := &s.Peers[i]; p.HoldsUp {
			b.add("peer", "%d is held up here: its messages take %s of %s", p.Rank, about(p.Charged), about(p.Window))
		}
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func wants(n int) string {
	if n == 0 {
		return ""
	}
	return ", and " + count(n, "receive") + " there that wait for others"
}

// times says how many there are, where there are several.
func times(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(", %d times", n)
}

// awaited says for how many of n a call waits.
func awaited(some, n int) string {
	switch {
	case some == 0:
		return ""
	case some == n:
		return ", awaited"
	}
	return fmt.Sprintf(", %d awaited", some)
}

// at is a place, where it is known: what was started in the background has none.
func at(place string) string {
	if place == "" {
		return ""
	}
	return " at " + place
}

func because(state string) string {
	if state == "" {
		return ""
	}
	return " (" + state + ")"
}

// heading is the line above what is said of ranks that are alike.
func heading(list []int, s *inspect.State, stuck bool, on []string) string {
	line := ranks.List(list)
	if len(list) == 1 && s.PID != 0 {
		line += fmt.Sprintf(", pid %d", s.PID)
	}
	if len(on) != 0 {
		line += " on " + strings.Join(on, ", ")
	}
	line += ": " + Summary(s, stuck)
	if s.Phase == inspect.PhaseShutdown || s.Phase == inspect.PhaseClosed {
		line += ", " + s.Phase
	}
	return cut(line)
}
