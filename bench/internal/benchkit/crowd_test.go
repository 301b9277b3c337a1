package benchkit

import (
	"bytes"
	"fmt"
	"io"
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
			s := &Session{World: w, First: w.Rank() == 0, report: &reporter{Table: Table{Out: &out}}}
			for _, size := range []int{0, 1, 9, 100 << 10} {
				require.NoError(t, (&Alltoall{Verified: Verified{Check: true}}).Run(s, size, 5))
			}
		})
		row := fmt.Sprintf(`.* %d +%%s +5 .* 1.000\n`, ranks)
		require.Regexp(t, `#.*\n.* ranks .*\n`+fmt.Sprintf(row+row+row+row+"$", "0", "1", "9", "100k"), out.String())
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
		s.report = &reporter{Table: Table{Out: io.Discard}}
		require.NoError(t, (&Latency{}).Run(s, 8, 5))
		require.GreaterOrEqual(t, w.Metrics().EagerSent, uint64(size-measuring+5))
		if s.First {
			dismissed.Store(true)
			require.NoError(t, s.dismiss(measuring))
		}
	})
}
