package diagnose

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/ranks"
)

// tagText names a tag, and a Comm other than that of the World.
func tagText(k inspect.Key) string {
	s := fmt.Sprintf("tag %#x", k.Tag)
	switch {
	case k.Any:
		s = "any tag"
	case k.Mask != 0:
		s += fmt.Sprintf(" mask %#x", k.Mask)
	}
	return s + commText(k.Comm)
}

func commText(comm string) string {
	switch comm {
	case inspect.CommWorld, "":
		return ""
	case inspect.CommRaw:
		return ", raw"
	case inspect.CommLibrary:
		return ", of the library"
	}
	return " of " + comm
}

func sourceText(peer int) string {
	if peer == inspect.Any {
		return "any rank"
	}
	return fmt.Sprintf("rank %d", peer)
}

func bytesText(n uint64) string {
	switch {
	case n == 1:
		return "1 byte"
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// aboutText is a number of bytes of which only the size counts.
func aboutText(n uint64) string {
	switch {
	case n >= 1<<20:
		n = n >> 20 << 20
	case n >= 1<<10:
		n = n >> 10 << 10
	}
	return bytesText(n)
}

// ageText is an age in one unit or two.
func ageText(a inspect.Age) string {
	d := time.Duration(a) * time.Millisecond
	switch {
	case a < 10_000:
		return fmt.Sprintf("%d.%d s", a/1000, a%1000/100)
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", a/1000)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d m %d s", a/60_000, a/1000%60)
	}
	return fmt.Sprintf("%d h %d m", a/3_600_000, a/60_000%60)
}

// differText says how two tags differ.
func differText(a, b uint64) string {
	switch n := bits.OnesCount64(a ^ b); {
	case a-b == 1 || b-a == 1:
		return "off by one"
	case n == 1:
		return fmt.Sprintf("which differs in bit %d", bits.TrailingZeros64(a^b))
	default:
		return fmt.Sprintf("which differs in %d bits", n)
	}
}

// waitText is what a member waits for, as "receives from rank 0 (tag 0x7)".
func (d *diagnosis) waitText(w *wait) string {
	switch {
	case w.recv != nil:
		return fmt.Sprintf("waits for a message of %s (%s)", sourceText(w.recv.Peer), tagText(w.recv.Key))
	case w.send != nil && w.send.Stage == inspect.StageHeld:
		return fmt.Sprintf("waits for memory of rank %d for a message (%s)", w.send.Peer, tagText(w.send.Key))
	case w.send != nil:
		return fmt.Sprintf("waits for rank %d to receive %s (%s)", w.send.Peer, bytesText(w.send.Bytes), tagText(w.send.Key))
	case w.meet != nil:
		return "waits in " + meetingText(w.meet)
	}
	return "waits in Shutdown"
}

// meetingText names a collective call: "Dup (collective call 3 of Comm 5)".
func meetingText(e *inspect.Meeting) string {
	comm := e.Comm
	if comm == "" {
		comm = inspect.CommWorld
	}
	return fmt.Sprintf("%s (collective call %d of %s)", e.Name, e.Number, comm)
}

// doing is what a member does, with its place.
func (d *diagnosis) doing(i int) string {
	m := &d.members[i]
	if e := waitingIn(m); e != nil {
		return "waits in " + meetingText(e) + suffix(d.place(i, e.Name))
	}
	if len(d.waits[i]) != 0 {
		w := &d.waits[i][0]
		return d.waitText(w) + suffix(d.place(i, callOf(w)))
	}
	if m.late {
		does, where := latePlace(m)
		return does + "s" + where
	}
	return "has closed its World"
}

// waitingIn is a collective call that a member waits in, other than Shutdown.
func waitingIn(m *member) *inspect.Meeting {
	for k := range m.Meetings {
		if e := &m.Meetings[k]; e.Waiting && e.Name != inspect.MeetingShutdown {
			return e
		}
	}
	return nil
}

// callOf is a part of the names of calls that wait for such a thing.
func callOf(w *wait) string {
	switch {
	case w.recv != nil && w.recv.Kind == "probe":
		return "robe"
	case w.recv != nil:
		return "Recv"
	case w.send != nil:
		return "end"
	case w.meet != nil:
		return w.meet.Name
	}
	return inspect.MeetingShutdown
}

// place is where in the program a member waits in a call of that name. Where it has none it is in
// Wait, or the like.
func (d *diagnosis) place(i int, name string) string {
	calls := d.members[i].Calls
	for _, part := range []string{name, "endrecv", "Wait", ""} {
		for _, c := range calls {
			if c.At != "" && strings.Contains(c.Name, part) {
				return c.At
			}
		}
	}
	return ""
}

// rankList names ranks with a verb that fits: "rank 1 waits", "ranks 1, 2 wait".
func rankList(rs []int, one, many string) string {
	if len(rs) == 1 {
		return ranks.List(rs) + " " + one
	}
	return ranks.List(rs) + " " + many
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
