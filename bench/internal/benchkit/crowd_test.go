package benchkit

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

func TestAlltoall(t *testing.T) {
	for _, ranks := range []int{2, 5} {
		var out bytes.Buffer
		p2ptest.Run(t, ranks, func(w *p2p.World) {
			s := &Session{Flags: Flags{Check: true}, World: w, First: w.Rank() == 0, report: &reporter{out: &out}}
			for _, size := range []int{0, 1, 9, 100 << 10} {
				r, err := Alltoall(s, size, 5)
				require.NoError(t, err)
				require.Equal(t, [4]any{"alltoall", ranks, size, 5}, [4]any{r.Test, r.Ranks, r.Size, r.Iters})
				if s.First {
					require.NoError(t, s.report.print(&r))
				}
			}
		})
		require.Regexp(t, `us of an exchange.*\n.*exchanges.*\n +0 .*\n +1 .*\n +9 .*\n +100k .* 1.00\n$`, out.String())
	}
}

// TestParked: ranks that wait are connected with those that measure, and stay until they are
// dismissed.
func TestParked(t *testing.T) {
	const measuring, size = 2, 5
	var dismissed atomic.Bool
	p2ptest.Run(t, size, func(w *p2p.World) {
		s := &Session{World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0}
		if w.Rank() >= measuring {
			require.NoError(t, s.park(measuring))
			require.True(t, dismissed.Load())
			require.Equal(t, uint64(measuring), w.Metrics().EagerSent)
			return
		}
		require.NoError(t, s.greet(measuring, size))
		r, err := Latency(s, 8, 5)
		require.NoError(t, err)
		require.Equal(t, size, r.Ranks)
		require.GreaterOrEqual(t, w.Metrics().EagerSent, uint64(size-measuring+5))
		if s.First {
			dismissed.Store(true)
			require.NoError(t, s.dismiss(measuring))
		}
	})
}

func TestCrowdRows(t *testing.T) {
	require.Empty(t, LatencyRows(Flags{Ranks: 2}))
	for _, rows := range [][]Flags{LatencyRows(Flags{Ranks: 64}), AlltoallRows(Flags{Ranks: 64})} {
		require.Len(t, rows, 2)
		require.Equal(t, [2]int{2, 64}, [2]int{rows[0].Ranks, rows[1].Ranks})
	}
}
