package progress

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress/internal/flow"
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
)

// blocked does something while no transport has room for anything, and lets everything move
// afterwards. What was not posted then waits to be.
func (c *cluster) blocked(rank int, do func()) {
	c.t.Helper()
	c.net.opts.room = -1
	do()
	c.step()
	require.NotEmpty(c.t, c.e[rank].dirty, "nothing waits for room")
	c.net.opts.room = 1
	for range 2 * flow.Slots { // what a poll posts again is no event
		c.step()
	}
	require.Empty(c.t, c.e[rank].dirty)
	c.balanced()
	c.net.opts.room = 0
}

// Each message of flow control finds no room at first, and is told later, as things are by then.
// Credit that is stored at a peer is the transport's to keep meanwhile: transport/transporttest's
// GrantsUnderPressure.
func TestFlowControlWithoutRoom(t *testing.T) {
	t.Run("HELD", func(t *testing.T) {
		c := tight(t, 2, fakeOpts{})
		c.flood(0, 1, 1, inCredit)
		var last Request
		c.blocked(0, func() { last = c.e[0].Isend(1, 2, nil) })
		require.Equal(t, []int{0}, heldUpAt(c.e[1]))
		c.e[1].Irecv(0, 2, exact, nil)
		c.step()
		succeeded(t, last)
		c.free()
	})
	t.Run("end of HELD", func(t *testing.T) {
		c := tight(t, 2, fakeOpts{})
		last := c.holdUp(0, 1)
		c.step()
		c.blocked(0, last.Cancel)
		c.free()
	})
	t.Run("end of HELD and the next", func(t *testing.T) {
		c := tight(t, 2, fakeOpts{})
		last := c.holdUp(0, 1)
		c.step()
		log := c.watch(1)
		c.blocked(0, func() {
			last.Cancel()
			c.flood(0, 1, 2, 1)
		})
		require.Equal(t, []flowMsg{{kind: ctrlHeld, id: 3}}, *log)
		c.e[1].Irecv(0, 2, exact, nil)
		c.step()
		c.free()
	})
	t.Run("HELD that is over before it was told", func(t *testing.T) {
		c := tight(t, 2, fakeOpts{})
		c.flood(0, 1, 1, inCredit)
		c.step()
		log := c.watch(1)
		c.net.opts.room = -1
		r := c.e[0].Isend(1, 2, nil)
		require.True(t, c.e[0].peers[1].out.HeldUp())
		r.Cancel()
		c.net.opts.room = 0
		c.step()
		require.Empty(t, *log)
		c.free()
	})
	t.Run("WANT", func(t *testing.T) {
		c := tight(t, 2, fakeOpts{})
		c.holdUp(0, 1)
		c.flood(0, 1, 0x22, 1)
		c.flood(0, 1, 0x21, 1)
		c.step()
		var either, exactly Request
		c.blocked(1, func() {
			c.e[1].Irecv(0, 0x21, exact, nil).Cancel() // is not named
			either, exactly = c.e[1].Irecv(0, 0x20, 0xF0, nil), c.e[1].Irecv(0, 0x22, exact, nil)
		})
		require.EqualValues(t, 2, c.e[1].Metrics().WantsSent)
		st := statusOf(t, either)
		require.EqualValues(t, 0x22, st.Tag, "in their order")
		open(t, exactly)
		require.Equal(t, 1, c.waiting(0, 1))
	})
	t.Run("WANT of everything", func(t *testing.T) {
		c := tight(t, 2, fakeOpts{})
		c.holdUp(0, 1)
		c.flood(0, 1, 1, 9)
		c.step()
		c.blocked(1, func() {
			for i := range uint64(flow.Slots + 1) {
				c.e[1].Irecv(0, 100+i, exact, nil)
			}
		})
		require.EqualValues(t, 1, c.e[1].Metrics().WantsSent, "the receives need not be named any more")
		require.Zero(t, c.waiting(0, 1))
		c.free()
	})
	t.Run("credit by message", func(t *testing.T) {
		c := tight(t, 2, fakeOpts{})
		last := c.holdUp(0, 1)
		c.step()
		c.blocked(1, func() {
			for range 2 {
				c.e[1].Irecv(0, 1, exact, nil)
			}
		})
		succeeded(t, last)
		c.free()
	})
}

// breaks are the ways in which a rank can end while it is held up, and another by it.
var breaks = map[string]func(c *cluster){
	"loss":     func(c *cluster) { c.net.kill(1) },
	"protocol": func(c *cluster) { c.e[0].PeerLost(1, errors.New("boom")) },
	"abort":    func(c *cluster) { c.e[0].Abort(nil) },
	"close":    func(c *cluster) { require.NoError(c.t, c.e[0].Close(nil)) },
}

// Whatever ends a rank or its peer ends everything that is held up between them, once, and nothing
// else.
func TestHeldUpEnds(t *testing.T) {
	for name, end := range breaks {
		for _, room := range []int{0, -1} {
			t.Run(name, func(t *testing.T) {
				c := tight(t, 3, fakeOpts{})
				e := c.e[0]
				reqs := []Request{c.holdUp(0, 1), e.Isend(1, 1, fill(8, 1)), e.Issend(1, 1, fill(1000, 1))}
				c.flood(1, 0, 1, 2)
				c.e[1].Isend(0, 1, fill(1000, 1))
				c.e[1].Isend(0, 1, fill(256, 1)) // more than is left of its credit
				c.flood(1, 0, 1, inCredit)
				c.step()
				require.Equal(t, []int{1}, heldUpAt(e))
				require.NotEmpty(t, c.net.nodes[1].regions)
				c.net.opts.room = room
				reqs = append(reqs, e.Irecv(1, 2, exact, nil), e.Irecv(AnySource, 3, exact, nil))
				other := e.Irecv(2, 4, exact, nil)
				end(c)
				c.net.opts.room = 0
				c.step()
				for i, r := range reqs {
					_, err := ended(t, r)
					require.Error(t, err, "request %d", i)
				}
				m := e.Metrics()
				require.Equal(t, []int{0, 0, 0}, []int{m.HeldNow, m.RequestsNow, int(m.QueuedBytes)})
				require.Empty(t, c.net.nodes[0].regions)
				if e.closed {
					return
				}
				c.balancedAt(0)
				require.Equal(t, e.broken != nil, len(e.Failed()) == 0)
				if e.broken != nil {
					return
				}
				require.Empty(t, e.memory.HeldUp())
				_, _, window := e.peers[1].in.Usage()
				require.Zero(t, window)

				// What had come stays, and the memory is for others when it has gone.
				require.EqualValues(t, 2*unexpected.RecordCost, m.UnexpectedBytes)
				for range 2 {
					succeeded(t, e.Irecv(2, 1, exact, nil))
				}
				require.EqualValues(t, 2*inCredit*unexpected.RecordCost, e.memory.Committed())
				c.flood(2, 0, 4, 1)
				c.step()
				succeeded(t, other)
				c.balancedAt(0)
			})
		}
	}
}
