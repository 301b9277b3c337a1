package progress

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// However much the peers send, and of whatever size, what waits at a receiver takes no more than
// its limit, and every message arrives.
func TestUnexpectedBound(t *testing.T) {
	const n, limit, count = 4, 64 << 10, 2000
	c := newCluster(t, n, Config{Manual: true, UnexpectedLimit: limit}, fakeOpts{})
	rng := rand.New(rand.NewPCG(1, 2))
	sent := make([][]int, n)
	var reqs []Request
	for range count {
		for s := 1; s < n; s++ {
			size := rng.IntN(300) * rng.IntN(2) // some are rendezvous
			sent[s] = append(sent[s], size)
			reqs = append(reqs, c.e[s].Isend(0, uint64(s), fill(size, byte(size))))
		}
		c.step()
		e := c.e[0]
		require.LessOrEqual(t, e.Metrics().UnexpectedBytes, int64(limit))
		require.LessOrEqual(t, e.memory.Committed(), int64(limit))
	}
	for s := 1; s < n; s++ {
		m := c.e[s].Metrics()
		require.EqualValues(t, [2]int{1, 1}, [2]int{int(m.HeldUp), m.HeldNow})
		_, _, window := c.e[0].peers[s].in.Usage()
		require.Greater(t, window, uint64(limit/2/n), "the windows have not followed use")
	}
	for i := range count {
		for s := 1; s < n; s++ {
			require.Equal(t, fill(sent[s][i], byte(sent[s][i])), c.take(s, 0, uint64(s)))
		}
	}
	waitAll(t, reqs)
	c.quiet()

	// The credit is back: nothing is held up.
	before := c.e[1].Metrics().HeldUp
	for range 10000 {
		r := c.e[0].Irecv(1, 1, exact, nil)
		require.NoError(t, c.e[1].Send(bg, 0, 1, nil))
		c.step()
		succeeded(t, r)
	}
	require.Equal(t, before, c.e[1].Metrics().HeldUp)
}

// A peer that ignores its credit is not heard any more, and what it sent in excess is not kept.
func TestCreditIsEnforced(t *testing.T) {
	c := newCluster(t, 2, Config{Manual: true, UnexpectedLimit: 8 << 10}, fakeOpts{})
	r := c.e[0].Irecv(1, 2, exact, nil)
	for range 1000 {
		c.callback(0, func(s transport.Sink) { s.Eager(1, 1, 1, make([]byte, 100)) })
	}
	_, err := ended(t, r)
	require.ErrorIs(t, err, ErrProtocol)
	require.LessOrEqual(t, c.e[0].Metrics().UnexpectedBytes, int64(8<<10))
	require.Equal(t, c.e[0].Metrics().UnexpectedBytes, c.e[0].peers[1].in.Committed())
}

func TestSlots(t *testing.T) {
	var s slots
	s.init(100, new(int))
	seen := map[uint32]bool{}
	for range 64 << slotGenBits {
		op := &Op{}
		x, ok := s.take(op)
		require.True(t, ok && !seen[x.wire()], "%+v", x)
		seen[x.wire()] = true
		require.True(t, s.byWire(x.wire()) == op && s.byID(x.id()) == op, "%+v", x)
		s.release(x)
		require.True(t, s.byWire(x.wire()) == nil && s.byID(x.id()) == nil, "%+v", x)
	}
	var held []slot
	for {
		x, ok := s.take(&Op{})
		if !ok {
			break
		}
		held = append(held, x)
	}
	require.Len(t, held, 100)
	for _, x := range held {
		s.release(x)
	}
	require.Zero(t, s.used)
}
