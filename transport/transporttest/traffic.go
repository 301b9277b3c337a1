package transporttest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// fill returns bytes that depend on seed and position.
func fill(n int, seed uint64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed + uint64(i)*7 + uint64(i)>>8)
	}
	return b
}

// randomMessage returns a message from src, of any kind.
func randomMessage(rng *rand.Rand, src int, caps transport.Caps) Event {
	e := Event{Src: src, AppCtx: rng.Uint32()}
	switch rng.IntN(8) {
	case 0:
		e.Kind, e.Tag, e.VA, e.RKey, e.Len = "rndv", rng.Uint64(), rng.Uint64(), rng.Uint32(), rng.Uint64()>>rng.IntN(64)
		e.Data = fill(rng.IntN(caps.MaxHdr+1), rng.Uint64())
	case 1:
		e.Kind = "fin"
	case 2:
		e.Kind, e.AppCtx, e.Data = "ctrl", 0, fill(rng.IntN(caps.MaxCtrl+1), rng.Uint64())
	default:
		e.Kind, e.Tag = "eager", rng.Uint64()
		n := rng.IntN(min(caps.MaxEager, 96) + 1)
		if rng.IntN(8) == 0 {
			n = rng.IntN(caps.MaxEager + 1)
		}
		e.Data = fill(n, rng.Uint64())
	}
	return e
}

// send posts a message once.
func send(r transport.Transport, to int, e Event) error {
	switch e.Kind {
	case "rndv":
		return r.SendRndv(to, &transport.RndvHdr{AppCtx: e.AppCtx, Tag: e.Tag, VA: e.VA, RKey: e.RKey, Len: e.Len, Extra: e.Data})
	case "fin":
		return r.SendFin(to, e.AppCtx)
	case "ctrl":
		return r.SendCtrl(to, e.Data)
	}
	return r.SendEager(to, e.AppCtx, e.Tag, e.Data)
}

// sent records what was sent between each pair of ranks.
type sent map[[2]int][]Event

// exchange sends total random messages between random ranks, themselves included, and checks that
// all arrive in order.
func (c *cluster) exchange(total int) {
	c.t.Helper()
	want, n := sent{}, 0
	for _, r := range c.ranks {
		r.forget()
	}
	for range total {
		a, b := c.rng.IntN(len(c.ranks)), c.rng.IntN(len(c.ranks))
		e := randomMessage(c.rng, a, c.ranks[a].Caps())
		scratch := e
		scratch.Data = append([]byte(nil), e.Data...)
		c.post(func() error { return send(c.ranks[a], b, scratch) })
		clear(scratch.Data) // posting has copied it
		want[[2]int{a, b}] = append(want[[2]int{a, b}], e)
		n++
		c.steps(c.rng.IntN(3))
	}
	c.until("all messages", func() bool {
		got := 0
		for _, r := range c.ranks {
			got += len(r.Events)
		}
		return got >= n
	})
	for pair, events := range want {
		c.requireMessages(c.ranks[pair[1]], pair[0], events)
	}
	c.steps(200)
	for _, r := range c.ranks {
		require.Empty(c.t, r.of("lost"))
		n -= len(r.Events)
		r.forget()
	}
	require.Zero(c.t, n, "more events than messages")
}

func testCaps(t *testing.T, h Harness, opts Options) {
	c := h.open(t, 1, opts)
	caps := c.ranks[0].Caps()
	require.NotEmpty(t, caps.Name)
	require.Equal(t, c.job.Devices[0].Name(), caps.Device)
	require.Positive(t, caps.MaxEager)
	require.GreaterOrEqual(t, caps.MaxCtrl, 64)
	require.GreaterOrEqual(t, caps.MaxHdr, 16)
	require.NotZero(t, caps.MaxRead)
}

// testOrder: random messages of every kind arrive in order; also with short queues, with many
// peers, and on devices with a small inline size, as NICs have.
func testOrder(t *testing.T, h Harness, opts Options) {
	for _, c := range []struct{ ranks, send, srq, inline, messages int }{
		{3, 0, 0, 0, 600}, {3, 4, 4, 0, 600}, {2, 8, 0, 4, 400}, {2, 8, 0, 48, 400}, {8, 0, 16, 0, 1500},
	} {
		opts.SendDepth, opts.SRQDepth, opts.MaxInline = c.send, c.srq, c.inline
		h.start(t, c.ranks, opts).exchange(c.messages)
	}
}

// testChains: messages that are posted together arrive as others do, between messages that are
// posted alone; a chain ends at one that there is no room for, or that is too long.
func testChains(t *testing.T, h Harness, opts Options) {
	for _, o := range []struct{ depth, inline int }{{0, 0}, {4, 0}, {8, 48}} {
		opts.SendDepth, opts.MaxInline = o.depth, o.inline
		c := h.start(t, 2, opts)
		a, maxEager := c.ranks[0], c.ranks[0].Caps().MaxEager
		require.Zero(t, a.SendEagers(1, 0, nil))
		require.Zero(t, a.SendEagers(2, 0, make([]transport.Eager, 1)))
		require.Zero(t, a.SendEagers(-1, 0, make([]transport.Eager, 1)))
		require.Zero(t, a.SendEagers(1, 0, []transport.Eager{{Payload: make([]byte, maxEager+1)}}))
		for to := range c.ranks {
			var want []Event
			more := func(size int) transport.Eager {
				e := Event{Kind: "eager", AppCtx: 7, Tag: uint64(len(want)), Data: fill(size, uint64(len(want)))}
				want = append(want, e)
				return transport.Eager{Tag: e.Tag, Payload: append([]byte(nil), e.Data...)}
			}
			for range 40 {
				msgs := make([]transport.Eager, 1+c.rng.IntN(transport.MaxEagers))
				for i := range msgs {
					msgs[i] = more(c.rng.IntN(min(maxEager, []int{9, 40, 200}[c.rng.IntN(3)]) + 1))
				}
				for left := msgs; len(left) > 0; {
					if sent := a.SendEagers(to, 7, left); sent > 0 {
						left = left[sent:]
						continue
					}
					c.post(func() error { return a.SendEager(to, 7, left[0].Tag, left[0].Payload) })
					left = left[1:]
				}
				for i := range msgs {
					clear(msgs[i].Payload) // posting has copied it
				}
			}
			r := c.ranks[to]
			c.until("all messages", func() bool { return len(r.messages(0)) >= len(want) })
			c.requireMessages(r, 0, want)
		}
	}
}

var sizes = []int{0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 4095, 4096, 4097}

func testSizes(t *testing.T, h Harness, opts Options) {
	for _, limit := range limits {
		opts.MaxEager = limit
		c := h.start(t, 2, opts)
		a, maxEager := c.ranks[0], max(limit, 0)
		require.Equal(t, maxEager, a.Caps().MaxEager)
		want := map[int][]Event{}
		for i, n := range append(sizes, maxEager-1, maxEager) {
			if n < 0 || n > maxEager {
				continue
			}
			for to := range c.ranks {
				e := Event{Kind: "eager", AppCtx: uint32(i), Tag: uint64(n), Data: fill(n, uint64(i))}
				c.post(func() error { return send(a, to, e) })
				want[to] = append(want[to], e)
			}
		}
		for to, r := range c.ranks {
			c.until("all sizes", func() bool { return len(r.messages(0)) >= len(want[to]) })
			c.requireMessages(r, 0, want[to])
		}
		c.exchange(50)
	}
}

func testTooLarge(t *testing.T, h Harness, opts Options) {
	for _, limit := range limits {
		opts.MaxEager = limit
		c := h.start(t, 2, opts)
		r, caps := c.ranks[0], c.ranks[0].Caps()
		for _, err := range []error{
			r.SendEager(1, 0, 0, make([]byte, caps.MaxEager+1)),
			r.SendEager(1, 0, 0, make([]byte, caps.MaxEager+100000)),
			r.SendCtrl(1, make([]byte, caps.MaxCtrl+1)),
			r.SendRndv(1, &transport.RndvHdr{Extra: make([]byte, caps.MaxHdr+1)}),
			r.SendEager(2, 0, 0, nil), r.SendFin(-1, 0), r.SendCtrl(7, nil), r.SendRndv(2, &transport.RndvHdr{}),
			r.Grant(2, 1), r.Read(2, nil, 0, 0, 1),
		} {
			require.Error(t, err)
			require.NotErrorIs(t, err, transport.ErrAgain)
		}
		c.ping(r, c.ranks[1])
	}
}
