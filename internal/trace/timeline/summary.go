package timeline

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// count is of messages by what was recorded of them.
type count struct{ both, sent, received int }

func (t *Timeline) count() (c count) {
	for _, m := range t.Messages {
		switch {
		case m.Arrow:
			c.both++
		case m.Out.Known:
			c.sent++
		default:
			c.received++
		}
	}
	return c
}

// About is what the metadata of a file say of the timeline.
func (t *Timeline) About() map[string]any {
	lost := map[string]uint64{}
	for _, r := range t.Ranks {
		if r.Lost != 0 {
			lost[fmt.Sprintf("rank %d", r.Rank)] = r.Lost
		}
	}
	c := t.count()
	about := map[string]any{"job": t.Ranks[0].Job, "ranks": len(t.Ranks), "ranks of the job": t.Ranks[0].Size, "messages": len(t.Messages),
		"arrows": c.both, "messages not seen to be received": c.sent, "messages not seen to be sent": c.received,
		"records lost": lost}
	clocks := map[string]any{}
	for _, c := range t.Clocks {
		clock := map[string]any{"offset ns": c.Offset, "uncertainty ns": c.Within}
		if c.Within == Unknown {
			clock["uncertainty ns"] = "unknown: the host's wall clock as it is"
		}
		clocks[c.Host] = clock
	}
	about["clocks"] = clocks
	return about
}

// Summary says what is in a file.
func (t *Timeline) Summary(w io.Writer, path string) error {
	c := t.count()
	text := fmt.Sprintf("%s: job %s, %d of %d ranks, %d messages\n", path, t.Ranks[0].Job, len(t.Ranks), t.Ranks[0].Size, len(t.Messages))
	if c.sent+c.received > 0 {
		text += fmt.Sprintf("  of %d messages only one end is in it: %d were sent, %d received\n", c.sent+c.received, c.sent, c.received)
	}
	text += t.lost()
	for _, c := range t.Clocks[1:] {
		if c.Within == Unknown {
			text += fmt.Sprintf("  the clock of %s may differ: there are no messages there and back\n", c.Host)
		} else {
			text += fmt.Sprintf("  the clock of %s was moved by %v, which is right within %v\n", c.Host, time.Duration(c.Offset), time.Duration(c.Within))
		}
	}
	_, err := io.WriteString(w, text)
	return err
}

// mostNamed is of how many ranks the summary says each what was lost; the file says it of all.
const mostNamed = 8

// lost says what there was no room for.
func (t *Timeline) lost() (text string) {
	var named []string
	most := &t.Ranks[0]
	for i := range t.Ranks {
		r := &t.Ranks[i]
		if r.Lost > most.Lost {
			most = r
		}
		if r.Lost != 0 {
			named = append(named, fmt.Sprintf("  rank %d had no room for its first %d records\n", r.Rank, r.Lost))
		}
	}
	if len(named) > mostNamed {
		return fmt.Sprintf("  %d ranks had no room for their first records, rank %d for %d, which is most\n", len(named), most.Rank, most.Lost)
	}
	return strings.Join(named, "")
}
