package transporttest

import (
	"bytes"
	"cmp"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport"
)

// testAllAtOnce: ranks that have nothing to do with each other yet all send to all at once. All
// messages arrive in order.
func testAllAtOnce(t *testing.T, h Harness, opts Options) {
	many := cmp.Or(h.Ranks, 40)
	if testlevel.Race {
		many = min(many, 6)
	}
	for _, n := range []int{2, many} {
		if n > 2 {
			opts.SRQDepth = 16
		}
		c := h.reachable(t, n, opts)
		const count = 3
		want, left := sent{}, n*n*count
		sendAll := func(a int) {
			for b := range c.ranks {
				pair := [2]int{a, b}
				for k := len(want[pair]); k < count; k++ {
					e := Event{Kind: "eager", Src: a, AppCtx: uint32(a), Tag: uint64(k), Data: fill(8, uint64(b))}
					err := send(c.ranks[a], b, e)
					if err == transport.ErrAgain {
						break
					}
					require.NoError(t, err)
					want[pair] = append(want[pair], e)
					left--
				}
			}
		}
		for a := range c.ranks {
			sendAll(a)
		}
		next := 0 // the others' turn comes after other polls
		c.until("all to be sent", func() bool {
			sendAll(next)
			next = (next + 1) % n
			return left == 0
		})
		c.until("all to arrive", func() bool {
			got := 0
			for _, r := range c.ranks {
				got += len(r.Events)
			}
			return got >= n*n*count
		})
		for pair, events := range want {
			c.requireMessages(c.ranks[pair[1]], pair[0], events)
		}
		for i, r := range c.ranks {
			require.Len(t, r.met, n)
			for _, greeting := range r.met {
				require.Equal(t, bytes.Repeat([]byte{byte(i)}, transport.MaxGreeting), greeting)
			}
		}
	}
}

// testFirstUse: a connection is made when a rank first talks to another, or to itself, and only
// then; either end may begin. What carries the messages is known before.
func testFirstUse(t *testing.T, h Harness, opts Options) {
	c := h.reachable(t, 4, opts)
	a, b := c.ranks[0], c.ranks[1]
	wires := map[[2]int]string{}
	for _, r := range c.ranks {
		for _, to := range c.ranks {
			wires[[2]int{r.n, to.n}] = r.Wire(to.n)
		}
	}
	c.steps(600)
	for _, to := range []int{1, 0, 3} {
		e := Event{Kind: "eager", Tag: 5, Data: []byte("first")}
		require.Equal(t, transport.ErrAgain, send(a, to, e))
		c.post(func() error {
			met := a.met[to] != nil
			err := send(a, to, e)
			require.Equal(t, met, err == nil, "%v", err)
			return err
		})
		r := c.ranks[to]
		c.until("the message", func() bool { return len(r.messages(0)) == 1 })
		c.requireMessages(r, 0, []Event{e})
	}
	c.ping(b, a)
	// A message may be there before the last word of its connection.
	c.until("the connections", func() bool { return len(b.met) == 1 && len(c.ranks[3].met) == 1 && len(a.met) == 3 })
	c.steps(600)
	require.Empty(t, c.ranks[2].met)
	require.Len(t, b.met, 1)
	require.Len(t, c.ranks[3].met, 1)
	require.Len(t, a.met, 3)
	for pair, wire := range wires {
		require.Equal(t, wire, c.ranks[pair[0]].Wire(pair[1]), pair)
	}
}

// testGivenUp: a rank is given up before or after there is a connection to it: nothing is sent to
// it any more, it is told why, and so it is when it asks.
func testGivenUp(t *testing.T, h Harness, opts Options) {
	for name, met := range map[string]bool{"before": false, "after": true} {
		for _, cause := range []error{errors.New("so it pleases"), transport.ErrProtocol} {
			c := h.reachable(t, 3, opts)
			a, b := c.ranks[0], c.ranks[1]
			if met {
				c.ping(a, b)
			} else {
				require.Equal(t, transport.ErrAgain, a.SendCtrl(1, nil))
			}
			a.Disconnect(1, cause)
			c.until("the loss", func() bool { return lostOrNoRoom(t, a, 1) })
			c.requireLost(a, 1)
			require.ErrorIs(t, a.of("lost")[0].Err, cause)
			requireGone(t, a, 1)
			c.until("the loss at the other end", func() bool { return lostOrNoRoom(t, b, 0) })
			c.requireLost(b, 0)
			err := b.of("lost")[0].Err
			require.Contains(t, err.Error(), cause.Error(), name)
			require.Equal(t, cause == transport.ErrProtocol, errors.Is(err, transport.ErrAccused), "%s: %v", name, err)
			requireGone(t, b, 0)
			c.ping(a, c.ranks[2])
			c.ping(b, c.ranks[2])
		}
	}
}

// testUnwelcome: an engine refuses a rank by its greeting.
func testUnwelcome(t *testing.T, h Harness, opts Options) {
	c := h.reachable(t, 3, opts)
	a, b := c.ranks[0], c.ranks[1]
	b.refuse = errors.New("a strange greeting")
	require.Equal(t, transport.ErrAgain, a.SendCtrl(1, nil))
	for _, r := range []*rank{b, a} {
		c.until("the loss", func() bool { return len(r.of("lost")) > 0 })
		c.requireLost(r, 1-r.n)
		require.ErrorContains(t, r.of("lost")[0].Err, "a strange greeting")
		requireGone(t, r, 1-r.n)
	}
	b.refuse = nil
	c.ping(a, c.ranks[2])
	c.ping(b, c.ranks[2])
}
