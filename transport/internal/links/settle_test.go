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
}

func (s *lostSink) PeerLost(peer int, _ error) { s.lost = append(s.lost, peer) }

// TestSettle: a loss is reported once, after all earlier messages were delivered and all reads have
// ended.
func TestSettle(t *testing.T) {
	sink := &lostSink{}
	l := &Links{sink: sink, peers: make([]peer, 3), todo: true}
	p := &l.peers[1]
	p.state, p.err, p.reads = linkDying, errors.New("gone"), 1

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
