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
		sent []string // contents of a byte
		got  []string // by receive: content; "?": no room
		want []int    // by receive: the message
	}{
		"the first":               {[]string{"a", "a", "b"}, []string{"?", "a", "b"}, []int{0, 1, 2}},
		"what another can spare":  {[]string{"a", "b", "c"}, []string{"?", "?", "a"}, []int{1, 2, 0}},
		"in the order of sending": {[]string{"a", "a", "b"}, []string{"a", "?", "a"}, []int{0, 2, 1}},
		"one too many":            {[]string{"a", "b"}, []string{"?", "b", "b"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(NewPlan(1))
			from, to := &rank{id: 0}, &rank{id: 1}
			w.ranks = []*rank{from, to}
			for _, content := range c.sent {
				from.ops = append(from.ops, &op{pattern: pattern{peer: 1, tag: 5}, send: true, done: true, content: []byte(content)})
			}
			for i, known := range c.got {
				o := &op{pattern: pattern{tag: 5, mask: ^uint64(0)}, order: i, done: true, st: progress.Status{Source: 0, Tag: 5, Len: 1}}
				if known == "?" {
					o.err = progress.ErrTruncated
				} else {
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
				require.Same(t, o, mail[0][c.want[i]].recv, "receive %d", i)
			}
		})
	}
}
