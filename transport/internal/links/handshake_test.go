package links

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// pairState is two ends and what is under way between them, by the receiver.
type pairState struct {
	ends  [2]handshake
	wants [2]bool // the end has begun: it wants to post, or was told HELLO
	lines [2]string
}

// steps are the states that may follow, by what happens. Doing what is due may be put off: Tell has
// no room, or the end does not poll.
func (s pairState) steps(t *testing.T) (next []pairState) {
	for i := range s.ends {
		if !s.wants[i] {
			n := s
			n.wants[i] = true
			next = append(next, n)
		}
		if a := s.ends[i].due(); s.wants[i] && a != nothing {
			n := s
			n.ends[i].next()
			switch a {
			case tellHello:
				n.lines[1-i] += "H"
			case tellReady:
				require.Greater(t, n.ends[i].stage, connectPairs, "READY says that messages are taken")
				n.lines[1-i] += "R"
			}
			next = append(next, n)
		}
		if s.lines[i] != "" {
			n := s
			n.lines[i] = s.lines[i][1:]
			n.wants[i] = true
			if s.lines[i][0] == 'H' {
				require.True(t, n.ends[i].toldHello(), "%+v", s)
			} else {
				require.True(t, n.ends[i].toldReady(), "%+v", s)
			}
			next = append(next, n)
		}
	}
	return next
}

// over reports whether an end has its connection.
func (s *pairState) over(i int) bool { return s.ends[i].stage == nothing }

// TestHandshake searches all states of two ends, of which one or both begin. Nobody may post before
// the other end takes messages, nothing is out of turn, and where nothing more happens both ends
// are connected.
func TestHandshake(t *testing.T) {
	seen, todo := map[pairState]bool{}, []pairState{{wants: [2]bool{true, false}}}
	for len(todo) > 0 {
		s := todo[0]
		todo = todo[1:]
		if seen[s] {
			continue
		}
		seen[s] = true
		for i := range s.ends {
			require.True(t, !s.over(i) || s.ends[1-i].stage > connectPairs, "%+v", s)
		}
		next := s.steps(t)
		if len(next) == 0 {
			require.True(t, s.over(0) && s.over(1), "%+v", s)
		}
		todo = append(todo, next...)
	}
	require.Greater(t, len(seen), 40)
}

// TestHandshakeTurns: HELLO or READY twice, and READY before either HELLO, are out of turn.
func TestHandshakeTurns(t *testing.T) {
	var h handshake
	require.False(t, h.toldReady(), "before its HELLO")
	require.True(t, h.toldHello())
	require.False(t, h.toldHello(), "twice")
	require.False(t, h.toldReady(), "this end has told no HELLO that it could answer")
	h.next()
	require.False(t, h.toldReady())
	h.next()
	require.True(t, h.toldReady())
	require.False(t, h.toldReady(), "twice")
	require.Equal(t, connectPairs, h.due(), "whatever the peer can do")
}
