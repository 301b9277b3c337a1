package progress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
)

// isendAll posts sends from a rank as one batch. A message's tag is its number; dst and size say
// where it goes, and how long it is.
func (c *cluster) isendAll(src, n int, dst, size func(i int) int) (reqs []Request) {
	reqs = make([]Request, n)
	p := c.e[src].Poster()
	defer p.Done()
	for i := range n {
		p.Isend(dst(i), uint64(i), fill(size(i), byte(i)), 0, &reqs[i])
	}
	return reqs
}

func always(n int) func(int) int { return func(int) int { return n } }

// sent counts the packets of a kind that are on their way.
func (c *cluster) sent(src, dst int, kind packetKind) (n int) {
	for _, p := range c.net.nodes[dst].in[src] {
		if p.kind == kind {
			n++
		}
	}
	return n
}

// requireInOrder receives messages 0 to n-1 by a wildcard, in that order.
func (c *cluster) requireInOrder(dst, n int, size func(i int) int) {
	c.t.Helper()
	for i := range n {
		buf := make([]byte, 1000)
		r := c.e[dst].Irecv(AnySource, 0, 0, buf)
		c.step()
		c.got(r, buf, size(i), byte(i))
	}
}

// TestChain: the transport gets the messages of a batch as few chains, to receives that wait and as
// unexpected ones, and to a device that matches.
func TestChain(t *testing.T) {
	for _, tags := range []int{0, 8} {
		c := manual(t, 2, fakeOpts{tags: tags})
		var recvs []Request
		bufs := make([][]byte, 40)
		for i := range bufs {
			bufs[i] = make([]byte, 8)
			if i%2 == 0 {
				recvs = append(recvs, c.e[1].Irecv(0, uint64(i), exact, bufs[i]))
			}
		}
		succeeded(t, c.isendAll(0, 40, always(1), always(8))...)
		require.Equal(t, []int{16, 16, 8}, c.net.nodes[0].chains)
		require.Equal(t, 40, c.sent(0, 1, pkEager))
		require.EqualValues(t, 40, c.e[0].Metrics().EagerSent)
		require.Equal(t, 40*unexpected.EagerCost(8), c.e[0].peers[1].out.Charged())
		for i, m := range c.e[0].chain.msgs {
			require.Nil(t, m.Payload, "the program's again")
			require.Nil(t, c.e[0].chain.outs[i].out)
		}
		c.step()
		for i, r := range recvs {
			c.got(r, bufs[2*i], 8, byte(2*i))
		}
		for i := 1; i < 40; i += 2 {
			require.Equal(t, fill(8, byte(i)), c.take(0, 1, uint64(i)))
		}
		c.balanced()
	}
}

// TestChainOrder: what is long, or goes elsewhere, does not overtake what was posted before.
func TestChainOrder(t *testing.T) {
	size := func(i int) int { return []int{0, 8, 64, 65, 1, 700, 3, 200}[i%8] }
	for name, dst := range map[string]func(i int) int{
		"one rank":         always(1),
		"another at times": func(i int) int { return 1 + i%10/9 },
	} {
		t.Run(name, func(t *testing.T) {
			c := manual(t, 3, fakeOpts{})
			reqs := c.isendAll(0, 100, dst, size)
			var to [3][]int
			for i := range reqs {
				to[dst(i)] = append(to[dst(i)], i)
			}
			for rank, list := range to {
				for _, i := range list {
					buf := make([]byte, 1000)
					r := c.e[rank].Irecv(0, 0, 0, buf)
					c.step()
					c.got(r, buf, size(i), byte(i))
				}
			}
			succeeded(t, reqs...)
			c.balanced()
		})
	}
}

// TestChainWaits: a batch for which the transport has no room, or the peer no memory, waits as
// single sends do.
func TestChainWaits(t *testing.T) {
	t.Run("no room", func(t *testing.T) {
		c := manual(t, 2, fakeOpts{room: 2})
		reqs := c.isendAll(0, 50, always(1), always(8))
		require.Equal(t, 50-2, c.waiting(0, 1))
		c.requireInOrder(1, 50, always(8))
		succeeded(t, reqs...)
		c.balanced()
	})
	t.Run("no credit", func(t *testing.T) {
		c := tight(t, 2, fakeOpts{})
		reqs := c.isendAll(0, inCredit+7, always(1), always(0))
		require.Equal(t, 7, c.waiting(0, 1))
		c.requireInOrder(1, inCredit+7, always(0))
		succeeded(t, reqs...)
		c.balanced()
	})
}

// TestChainFails: sends to a rank that is gone, or does not exist, fail each; others go.
func TestChainFails(t *testing.T) {
	c := manual(t, 3, fakeOpts{})
	c.net.kill(2)
	reqs := c.isendAll(0, 12, func(i int) int { return []int{1, 1, 2, 2, 3, -1}[i%6] }, always(8))
	c.step()
	for i, r := range reqs {
		_, err := ended(t, r)
		switch i % 6 {
		case 0, 1:
			require.NoError(t, err)
		case 2, 3:
			require.ErrorAs(t, err, new(*PeerError))
		default:
			require.ErrorIs(t, err, ErrInvalid)
		}
	}
	for i := range reqs {
		if i%6 < 2 {
			require.Equal(t, fill(8, byte(i)), c.take(0, 1, uint64(i)))
		}
	}
}
