package transporttest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// testBackPressure stalls a receiver: the sender must get ErrAgain, and no message is lost or
// duplicated.
func testBackPressure(t *testing.T, h Harness, opts Options) {
	opts.SRQDepth, opts.SendDepth = 8, 16
	for _, size := range []int{8, 2000} {
		c := h.start(t, 3, opts)
		a, b := c.ranks[0], c.ranks[1]
		var want []Event
		next := func() Event {
			return Event{Kind: "eager", AppCtx: uint32(len(want)), Tag: 5, Data: fill(size, uint64(len(want)))}
		}
		refused := 0
		for i := 0; refused < 100; i++ {
			require.Less(t, i, 1<<20, "no back-pressure")
			switch e := next(); send(a, 1, e) {
			case nil:
				want = append(want, e)
				refused = 0
			case transport.ErrAgain:
				refused++
			default:
				t.Fatal("neither taken nor back-pressure")
			}
			_, err := a.Poll()
			require.NoError(t, err)
		}
		stalled := c.ranks[1]
		c.ranks[1] = &rank{n: 1, closed: true} // not polled: others must get through meanwhile
		c.ping(a, c.ranks[2])
		c.ranks[1] = stalled
		for range 100 {
			e := next()
			c.post(func() error { return send(a, 1, e) })
			want = append(want, e)
		}
		c.until("the stalled messages", func() bool { return len(b.messages(0)) >= len(want) })
		c.steps(100)
		c.requireMessages(b, 0, want)
	}
}

func testGrants(t *testing.T, h Harness, opts Options) {
	c := h.start(t, 3, opts)
	for _, r := range c.ranks {
		for peer := range c.ranks {
			require.Zero(t, r.Granted(peer))
		}
	}
	seen := uint64(0)
	for i := uint64(1); i <= 500; i++ {
		total := i*i<<20 + i
		require.NoError(t, c.ranks[0].Grant(1, total))
		c.steps(c.rng.IntN(4))
		now := c.ranks[1].Granted(0)
		require.GreaterOrEqual(t, now, seen)
		require.LessOrEqual(t, now, total)
		seen = now
		if i == 500 {
			c.until("the newest grant", func() bool { return c.ranks[1].Granted(0) == total })
		}
	}
	require.NoError(t, c.ranks[2].Grant(2, 77))
	c.until("a grant to itself", func() bool { return c.ranks[2].Granted(2) == 77 })
	for _, p := range [][2]int{{0, 1}, {0, 2}, {1, 2}, {2, 0}, {2, 1}} {
		require.Zero(t, c.ranks[p[0]].Granted(p[1]), "rank %d sees the credit of rank %d", p[0], p[1])
	}
}

// testGrantsUnderPressure grants while the send queue is full: no Grant is refused, and the newest
// total arrives, even while its rank sleeps.
func testGrantsUnderPressure(t *testing.T, h Harness, opts Options) {
	for _, inline := range []int{0, 4} {
		opts.SendDepth, opts.SRQDepth, opts.MaxInline = 4, 4, inline
		c := h.start(t, 2, opts)
		a := c.ranks[0]
		n := 0
		for send(a, 1, Event{Kind: "eager"}) == nil {
			n++
		}
		require.Positive(t, n)
		for i := uint64(1); i < 100; i++ {
			require.NoError(t, a.Grant(1, i))
		}
		require.False(t, a.Drained())
		b := c.ranks[1]
		var err error
		done := inBackground(func() { err = park(a, a.Drained) })
		untilWith(t, "a drained sender, which sleeps", ended(done), func() {
			_, err := b.Poll()
			require.NoError(t, err)
		})
		require.NoError(t, err)
		c.until("the last grant", func() bool { return b.Granted(0) == 99 })
		c.until("the messages", func() bool { return len(b.Events) == n })
	}
}

// testDrained closes a sender as soon as it is drained: all messages must arrive.
func testDrained(t *testing.T, h Harness, opts Options) {
	for _, kind := range []string{"eager", "fin", "ctrl"} {
		c := h.start(t, 2, opts)
		a, b := c.ranks[0], c.ranks[1]
		require.True(t, a.Drained(), "nothing was posted")
		const n = 37
		for i := range n {
			c.post(func() error { return send(a, 1, Event{Kind: kind, AppCtx: uint32(i), Data: fill(i, 1)}) })
		}
		c.until("a drained sender", a.Drained)
		c.leave(a)
		c.until("everything", func() bool { return len(b.messages(0)) >= n })
		c.until("the loss", func() bool { return len(b.of("lost")) > 0 })
		require.Equal(t, "lost", b.Events[len(b.Events)-1].Kind, "messages come before the loss")
		require.Len(t, b.Events, n+1)
	}
}
