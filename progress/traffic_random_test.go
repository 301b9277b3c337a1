package progress

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTrafficOfBothEnds: both ends of all messages count the same bytes, whatever is cancelled,
// withdrawn and received again meanwhile.
func TestTrafficOfBothEnds(t *testing.T) {
	for name, opts := range map[string]fakeOpts{
		"software": {}, "revoke": {revoke: true}, "device": {tags: 4}, "left": {tags: 4, software: true}, "no room": {tags: 4, room: 2},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				playTraffic(t, newCluster(t, 2, Config{Manual: true, UnexpectedLimit: 64 << 10}, opts), seed)
			}
		})
	}
}

func playTraffic(t *testing.T, c *cluster, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 45))
	a, b := c.e[0], c.e[1]
	var requests []Request
	for range 200 {
		size := rng.IntN(600)
		switch tag := uint64(rng.IntN(4)); rng.IntN(6) {
		case 0:
			requests = append(requests, a.Isend(1, tag, make([]byte, size)))
		case 1:
			requests = append(requests, a.Issend(1, tag, make([]byte, size)))
		case 2:
			requests = append(requests, a.IsendVec(1, tag, [][]byte{make([]byte, size), make([]byte, 3)}))
		case 3:
			requests = append(requests, b.Irecv(0, tag, exact, make([]byte, rng.IntN(600))))
		case 4:
			if m, ok, err := b.Improbe(0, tag, exact); err == nil && ok && size < 300 {
				m.Discard()
			} else if ok {
				requests = append(requests, m.Irecv(make([]byte, 500)))
			}
		default:
			if n := len(requests); n != 0 {
				requests[rng.IntN(n)].Cancel()
			}
		}
		if rng.IntN(2) == 0 {
			c.e[rng.IntN(2)].Poll()
		}
	}
	for _, r := range requests {
		r.Cancel()
	}
	for c.step(); ; c.step() {
		m, ok, err := b.Improbe(0, 0, 0)
		require.NoError(t, err)
		if !ok {
			break
		}
		m.Discard()
	}
	for _, r := range requests {
		require.True(t, r.Over())
		r.Free()
	}
	var sent, came Traffic
	for _, t := range a.Traffic() {
		sent.add(t)
	}
	for _, t := range b.Traffic() {
		came.add(t)
	}
	require.Equal(t, Traffic{EagerSent: came.EagerReceived, RndvSent: came.RndvReceived}, sent, "seed %d", seed)
	require.NotZero(t, sent.EagerSent*sent.RndvSent)
	require.Zero(t, a.Metrics().OperationsNow+b.Metrics().OperationsNow, "seed %d", seed)
}
