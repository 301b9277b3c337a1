package links

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

type lostSink struct {
	transport.Sink
	lost []int
	why  []error // of lost
	met  []int
}

func (s *lostSink) Greeting(int) []byte { return []byte("greeting") }

func (s *lostSink) Connected(peer int, _ []byte) error {
	s.met = append(s.met, peer)
	return nil
}

func (s *lostSink) PeerLost(peer int, err error) {
	s.lost, s.why = append(s.lost, peer), append(s.why, err)
}

// TestSettle: a loss is reported once, in a poll that has begun since, after all earlier messages
// were delivered and all reads have ended.
func TestSettle(t *testing.T) {
	sink := &lostSink{}
	p := &peer{rank: 1, state: linkDying, err: errors.New("gone"), reads: 1}
	l := &Links{sink: sink, todo: true}
	l.losses = losses{l: l, dying: []*peer{p}}

	require.Equal(t, 1, l.settle(true), "there is to be another poll")
	require.True(t, l.todo)
	require.Zero(t, l.settle(true))
	require.True(t, l.todo, "a read is under way")
	p.reads = 0
	require.Zero(t, l.settle(false))
	require.True(t, l.todo, "there may be messages left")
	require.Equal(t, 1, l.settle(true))
	require.False(t, l.todo)
	require.Zero(t, l.settle(true))
	require.Equal(t, []int{1}, sink.lost)
}
