package p2p_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestNothingIsMadeTooSoon: of 64 ranks two talk. They have a line and queue pairs for each other,
// and the others have none to anybody.
func TestNothingIsMadeTooSoon(t *testing.T) {
	worldsOnWirings(t, 64, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		var talk sync.WaitGroup
		for _, w := range ws[:2] {
			talk.Go(func() { exchange(t, w, make([]byte, 300_000), 10, 100_000) })
		}
		talk.Wait()
		for r, w := range ws {
			qps, lines := p2p.Made(w)
			switch r {
			case 0, 1:
				require.Equal(t, 1, lines, "rank %d", r)
				require.Contains(t, []int{1, 2}, qps, "rank %d", r)
			default:
				require.Zero(t, qps, "rank %d", r)
				require.Zero(t, lines, "rank %d", r)
			}
		}
	})
}
