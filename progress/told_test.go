package progress

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// lossLog makes the engines note whom they give up by themselves.
func lossLog(t *testing.T, n int, opts fakeOpts) (*cluster, *[][2]int) {
	var log [][2]int
	c := manual(t, n, opts)
	for r, e := range c.e {
		e.cfg.Lost = func(rank int, cause error) {
			require.Error(t, cause)
			e.mu.AssertHeld("the callback")
			log = append(log, [2]int{r, rank})
		}
	}
	return c, &log
}

// A rank reports whom it gives up by itself, once, and never whom it was told of.
func TestLossReported(t *testing.T) {
	c, log := lossLog(t, 4, fakeOpts{})
	c.net.kill(3)
	c.step()
	require.Equal(t, [][2]int{{0, 3}, {1, 3}, {2, 3}}, *log)
	c.callback(0, func(s transport.Sink) { s.Ctrl(1, []byte{1}) }) // a message that breaks the protocol
	require.Equal(t, [2]int{0, 1}, (*log)[3])
	c.step()
	require.Equal(t, [2]int{1, 0}, (*log)[4], "rank 0 has told it without the launcher")
	c.e[1].PeerLost(0, errors.New("rank 0 has given this rank up"))
	c.e[1].PeerLost(2, errors.New("told"))
	c.callback(1, func(s transport.Sink) { s.PeerLost(2, errors.New("seen after it was told")) })
	c.e[0].PeerLost(1, errors.New("echo"))
	require.Equal(t, []int{0, 2, 3}, c.e[1].Failed())
	require.Len(t, *log, 5)
}

// A loss is reported before any operation ends for it: who learns of it may exit at once.
func TestLossReportedFirst(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	e := c.e[0]
	r := e.Irecv(1, 1, exact, nil)
	ended, told := r.Done(), false
	e.cfg.Lost = func(int, error) {
		told = true
		select {
		case <-ended:
			t.Error("the program may know already")
		default:
		}
	}
	c.net.kill(1)
	c.step()
	require.True(t, told)
	requireLost(t, 1, r)
}

// What has arrived of a rank when its loss is told can be received, although nobody has polled
// since; what it still reads ends.
func TestToldOfLoss(t *testing.T) {
	c, _ := lossLog(t, 3, fakeOpts{maxRead: 100, room: 3})
	e := c.e[0]
	c.net.nodes[0].holdRds = true
	reading := e.Irecv(1, 1, exact, make([]byte, 1000))
	c.e[1].Isend(0, 1, fill(1000, 0))
	e.Poll()
	open(t, reading)
	waiting := e.Irecv(1, 2, exact, nil)
	for i := range 3 {
		require.NoError(t, c.e[1].Send(bg, 0, 3, fill(8, byte(i))))
	}
	e.PeerLost(1, errors.New("told"))
	requireLost(t, 1, waiting)
	require.True(t, c.net.nodes[0].reads[0].dropped, "the transport must let go of the buffer")
	c.net.nodes[0].holdRds = false
	e.Poll()
	requireLost(t, 1, reading)
	c.takeAll(AnySource, 0, 3, 3, 8)
	requireLost(t, 1, e.Irecv(1, 3, exact, nil))
}
