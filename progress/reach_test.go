package progress

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// reachedBy is the ranks that a rank has asked its transport to connect to, in order.
func (c *cluster) reachedBy(rank int) []int {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	return c.net.nodes[rank].asked
}

// When nobody tells of losses any more receives and probes connect to the ranks that they wait for:
// those that were posted before and later ones, once to each rank, and to no other.
func TestReachAwaited(t *testing.T) {
	c := manual(t, 9, fakeOpts{lazy: true})
	e := c.e[0]
	group := e.Group(0, ranksOf{0, 3, 4})
	e.Irecv(1, 1, exact, nil)
	e.Irecv(group, 2, exact, nil)
	e.PeerLost(4, errors.New("told"))
	e.AckFailures(group, 4)
	e.AckFailures(AnySource, 4)
	e.Irecv(group, 2, exact, nil)
	require.Empty(t, c.reachedBy(0))
	e.ReachAwaited()
	require.Equal(t, []int{1, 3}, c.reachedBy(0))

	sent := c.e[2].Isend(0, 9, nil)
	c.step()
	succeeded(t, sent, e.Irecv(2, 9, exact, nil)) // did not wait
	require.Equal(t, []int{1, 3}, c.reachedBy(0))
	e.Irecv(1, 1, exact, nil)
	e.Irecv(0, 1, exact, nil)
	e.Irecv(2, 1, exact, nil) // it is connected already
	_, _, err := e.Iprobe(5, 1, exact)
	require.NoError(t, err)
	_, _, err = e.Improbe(6, 1, exact)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(bg, testlevel.Patience(10*time.Second))
	go func() { // once the probe waits
		for len(c.reachedBy(0)) < 5 && ctx.Err() == nil {
			runtime.Gosched()
		}
		cancel()
	}()
	_, err = e.Probe(ctx, 7, 1, exact)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []int{1, 3, 5, 6, 7}, c.reachedBy(0))
	requireLost(t, 4, e.Irecv(4, 1, exact, nil))
	for range 2 {
		e.Irecv(AnySource, 0, 0, nil)
	}
	require.Equal(t, []int{1, 3, 5, 6, 7, 8}, c.reachedBy(0))

	other := c.e[1]
	other.Irecv(AnySource, 1, exact, nil)
	other.ReachAwaited()
	require.Equal(t, []int{2, 3, 4, 5, 6, 7, 8}, c.reachedBy(1))
	closed := c.e[2]
	closed.Irecv(1, 1, exact, nil)
	require.NoError(t, closed.Close(nil))
	closed.ReachAwaited()
	require.Equal(t, []int{0}, c.reachedBy(2), "by what it has sent")
}
