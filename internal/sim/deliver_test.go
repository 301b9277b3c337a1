package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress"
)

// TestDeliver checks which messages are assigned to receives that show little of theirs: all other
// receives find their message, and equal messages are assigned in the order of sending.
func TestDeliver(t *testing.T) {
	for name, c := range map[string]struct {
		sent []string // contents of a byte; "taken": one whose sender has ended otherwise
		got  []string // by receive: content; "?": no room; "taken": its message was withdrawn
		want []int    // by receive: the message
	}{
		"the first":               {[]string{"a", "a", "b"}, []string{"?", "a", "b"}, []int{0, 1, 2}},
		"what another can spare":  {[]string{"a", "b", "c"}, []string{"?", "?", "a"}, []int{1, 2, 0}},
		"in the order of sending": {[]string{"a", "a", "b"}, []string{"a", "?", "a"}, []int{0, 2, 1}},
		"taken back":              {[]string{"taken", "b"}, []string{"?", "taken"}, []int{1, 0}},
		"one too many":            {[]string{"a", "b"}, []string{"?", "b", "b"}, nil},
		"none taken back":         {[]string{"a", "b"}, []string{"?", "taken"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(NewPlan(1))
			from, to := &rank{id: 0}, &rank{id: 1}
			w.ranks = []*rank{from, to}
			for _, content := range c.sent {
				s := &op{pattern: pattern{peer: 1, tag: 5}, send: true, done: true, content: []byte(content[:1])}
				if content == "taken" {
					s.err = progress.ErrPeerLost
				}
				from.ops = append(from.ops, s)
			}
			for i, known := range c.got {
				o := &op{pattern: pattern{tag: 5, mask: ^uint64(0)}, order: i, done: true, st: progress.Status{Source: 0, Tag: 5, Len: 1}}
				switch known {
				case "?":
					o.err = progress.ErrTruncated
				case "taken":
					o.err = progress.ErrWithdrawn
					to.took = append(to.took, o)
				default:
					o.buf = []byte(known)
				}
				to.ops = append(to.ops, o)
			}
			mail := w.mail(to)
			err := w.deliver(to, mail)
			if c.want == nil {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			for i, o := range to.ops {
				d := &mail[0][c.want[i]]
				require.True(t, d.recv == o || d.taken == o, "receive %d", i)
			}
		})
	}
}
