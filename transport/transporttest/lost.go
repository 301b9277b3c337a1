package transporttest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

func testPeerCloses(t *testing.T, h Harness, opts Options) {
	testLoss(t, h, opts, "", func(c *cluster) { c.leave(c.ranks[1]) })
}

func testPeerDies(t *testing.T, h Harness, opts Options) {
	testLoss(t, h, opts, "its process has ended or was killed", func(c *cluster) {
		if c.job.Kill == nil {
			t.Skip("this wire's devices cannot die inside one process")
		}
		c.job.Kill(1)
		c.leave(c.ranks[1])
	})
}

// testLoss ends rank 1, idle and with reads and sends outstanding. The others are told the cause,
// and not the first symptom.
func testLoss(t *testing.T, h Harness, opts Options, cause string, end func(c *cluster)) {
	opts.SRQDepth, opts.SendDepth = 8, 32
	size := 64 << 10
	if h.Long {
		size = 4 << 20
	}
	for _, reads := range []int{0, 1, 5} {
		c := h.start(t, 3, opts)
		a := c.ranks[0]
		c.ping(a, c.ranks[1])
		c.ping(c.ranks[2], c.ranks[1])
		for _, r := range c.ranks {
			r.forget()
		}
		buf := fill(size, 1)
		region, err := c.ranks[1].Register(0, buf)
		require.NoError(t, err)
		for i := range reads {
			c.post(func() error { return a.Read(1, make([]byte, len(buf)), region.Addr(), region.RKey(), uint64(i)) })
			for range 20 {
				if err := a.SendEager(1, 0, 0, buf[:1000]); err != transport.ErrAgain {
					require.NoError(t, err)
				}
			}
		}
		c.steps(c.rng.IntN(50))
		require.NoError(t, region.Dereg())
		end(c)
		for _, r := range []*rank{a, c.ranks[2]} {
			c.until("the loss", func() bool { return lostOrNoRoom(t, r, 1) })
			c.steps(600)
			c.requireLost(r, 1)
			require.ErrorContains(t, r.of("lost")[0].Err, cause)
			requireGone(t, r, 1)
			require.True(t, r.Drained(), "what went to a lost peer is no longer under way")
		}
		require.Len(t, a.of("read"), reads, "each read ends once")
		require.Equal(t, "lost", a.Events[len(a.Events)-1].Kind, "reads end before the peer is lost")
		c.ping(a, c.ranks[2])
		c.ping(a, a)
	}
}

// testDisconnect gives up rank 1 while reads from it are under way. They end, each once, before the
// loss is reported, however long the device takes to flush them.
func testDisconnect(t *testing.T, h Harness, opts Options) {
	for _, reads := range []int{1, 5} {
		c := h.start(t, 3, opts)
		a, b := c.ranks[0], c.ranks[1]
		c.ping(a, b)
		a.forget()
		buf := fill(64<<10, 1)
		region, err := b.Register(0, buf)
		require.NoError(t, err)
		for i := range reads {
			c.post(func() error { return a.Read(1, make([]byte, len(buf)), region.Addr(), region.RKey(), uint64(i)) })
		}
		a.Disconnect(1, errors.New("so it pleases"))
		for _, r := range []*rank{a, b} {
			c.until("the loss", func() bool { return len(r.of("lost")) > 0 })
			c.requireLost(r, 1-r.n)
		}
		require.Len(t, a.of("read"), reads, "each read ends once")
		require.Equal(t, "lost", a.Events[len(a.Events)-1].Kind, "reads end before the peer is lost")
		require.NoError(t, region.Dereg())
		c.ping(a, c.ranks[2])
	}
}

// lostOrNoRoom reports whether the loss of a rank was reported. Before that no call fails because
// of it: its error would name a loss that nobody knows of.
func lostOrNoRoom(t *testing.T, r *rank, peer int) bool {
	if len(r.of("lost")) > 0 {
		return true
	}
	for _, err := range []error{r.SendEager(peer, 0, 1, make([]byte, 8)), r.SendCtrl(peer, []byte("x"))} {
		if err != transport.ErrAgain {
			require.NoError(t, err)
		}
	}
	return false
}

// testGrantConnects: a rank that has ended, and that this one never talked to, is lost once it is
// granted something.
func testGrantConnects(t *testing.T, h Harness, opts Options) {
	c := h.reachable(t, 3, opts)
	a := c.ranks[0]
	c.ping(a, c.ranks[2])
	c.leave(c.ranks[1])
	for range 2 {
		if err := a.Grant(1, 0); err != nil {
			require.NotEqual(t, transport.ErrAgain, err) // some devices tell of the loss by themselves
		}
	}
	c.until("the loss", func() bool { return len(a.of("lost")) > 0 })
	c.requireLost(a, 1)
	c.ping(a, c.ranks[2])
}

// testEnough: of what has arrived a Poll leaves to the next ones what comes after Enough, and the
// end of the peer comes behind it.
func testEnough(t *testing.T, h Harness, opts Options) {
	const messages = 100
	opts.SRQDepth = 128
	c := h.start(t, 2, opts)
	a, b := c.ranks[0], c.ranks[1]
	c.ping(a, b)
	b.forget()
	b.after = b.Enough
	sent := 0
	c.until("all messages to be under way", func() bool {
		for sent < messages && a.SendEager(1, 0, uint64(sent), nil) == nil {
			sent++
		}
		return sent == messages && a.Drained()
	})
	c.leave(a)
	most := 0
	untilWith(t, "the loss", func() bool { return len(b.of("lost")) > 0 }, func() {
		before := len(b.of("eager"))
		_, err := b.Poll()
		require.NoError(t, err)
		most = max(most, len(b.of("eager"))-before)
	})
	require.LessOrEqual(t, most, 1)
	require.Equal(t, "lost", b.Events[len(b.Events)-1].Kind)
	for i, e := range b.of("eager") {
		require.EqualValues(t, i, e.Tag)
	}
	require.Len(t, b.of("eager"), messages)
}

// testClosed calls a transport after Close.
func testClosed(t *testing.T, h Harness, opts Options) {
	c := h.start(t, 2, opts)
	r := c.ranks[0]
	region, err := r.Register(r.n, make([]byte, 100))
	require.NoError(t, err)
	require.NoError(t, region.Dereg())
	c.close(r)
	require.NoError(t, r.Close(), "a second time")
	requireGone(t, r, 0)
	requireGone(t, r, 1)
	_, err = r.Poll()
	require.Error(t, err)
	require.Empty(t, r.Events)
}
