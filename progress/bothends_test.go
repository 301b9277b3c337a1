package progress

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/trace/timeline"
)

// TestBothEnds: both ends of all messages count the same bytes, and a trace has an arrow for each,
// whatever is cancelled, withdrawn, dropped and received again meanwhile.
func TestBothEnds(t *testing.T) {
	for name, opts := range map[string]fakeOpts{
		"software": {}, "revoke": {revoke: true}, "device": {tags: 4}, "left": {tags: 4, software: true}, "no room": {tags: 4, room: 2},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				c := newCluster(t, 2, Config{Manual: true, UnexpectedLimit: 64 << 10}, opts)
				c.startTrace(1 << 12)
				playTraffic(t, c, seed)
				checkBothEnds(t, c.e[0], c.e[1], c.stopTrace(), seed)
			}
		})
	}
}

// playTraffic has rank 0 send to rank 1, and ends when nothing is under way.
func playTraffic(t *testing.T, c *cluster, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 45))
	var requests []Request
	for range 200 {
		requests = append(requests, playOne(rng, c.e[0], c.e[1], requests)...)
		if rng.IntN(2) == 0 {
			c.e[rng.IntN(2)].Poll()
		}
	}
	for _, r := range requests {
		r.Cancel()
	}
	for c.step(); ; c.step() {
		m, ok, err := c.e[1].Improbe(0, 0, 0)
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
}

// playOne begins something, or cancels one of the requests.
func playOne(rng *rand.Rand, a, b *Engine, requests []Request) []Request {
	buf := make([]byte, rng.IntN(600))
	switch tag := uint64(rng.IntN(4)); rng.IntN(6) {
	case 0:
		return []Request{a.Isend(1, tag, buf)}
	case 1:
		return []Request{a.Issend(1, tag, buf)}
	case 2:
		return []Request{a.IsendVec(1, tag, [][]byte{buf, make([]byte, 3)})}
	case 3:
		return []Request{b.Irecv(0, tag, exact, buf)}
	case 4:
		if m, ok, _ := b.Improbe(0, tag, exact); ok && len(buf) < 300 {
			m.Discard()
		} else if ok {
			return []Request{m.Irecv(buf)}
		}
	default:
		if n := len(requests); n != 0 {
			requests[rng.IntN(n)].Cancel()
		}
	}
	return nil
}

func checkBothEnds(t *testing.T, a, b *Engine, line *timeline.Timeline, seed uint64) {
	var sent, came Traffic
	for _, t := range a.Traffic() {
		sent.add(t)
	}
	for _, t := range b.Traffic() {
		came.add(t)
	}
	require.Equal(t, Traffic{EagerSent: came.EagerReceived, RndvSent: came.RndvReceived}, sent, "seed %d", seed)
	require.NotZero(t, sent.EagerSent*sent.RndvSent)
	m, arrows := b.Metrics(), uint64(0)
	require.Zero(t, a.Metrics().OperationsNow+m.OperationsNow, "seed %d", seed)
	for _, m := range line.Messages {
		if m.Arrow {
			arrows++
			require.Equal(t, m.Out, m.In, "seed %d: %+v", seed, m)
		}
	}
	require.Equal(t, m.EagerReceived+m.RndvReceived, arrows, "seed %d", seed)
}
