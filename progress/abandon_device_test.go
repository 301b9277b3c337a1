package progress

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// matchedInDevice is two receives that the device has matched with messages of 2000 and 2001 bytes.
// They are too short, so that it leaves them to software when it is let, with what software sent of
// them if software: their reads do not end.
func matchedInDevice(t *testing.T, software bool) (c *cluster, sends, recvs []Request) {
	c = manual(t, 2, fakeOpts{revoke: true, tags: 4, software: software})
	n := c.net.nodes[1]
	n.holdRds, n.dev.holdData = true, true
	for range 2 {
		recvs = append(recvs, c.e[1].Irecv(0, 5, exact, make([]byte, 1500)))
	}
	c.step()
	for i := range 2 {
		sends = append(sends, c.e[0].Isend(1, 5, fill(2000+i, byte(i))))
	}
	c.step()
	for _, r := range recvs {
		require.Equal(t, opMatched, r.op.state)
	}
	return c, sends, recvs
}

// What the device has matched has its place from then on, whenever it is left to software and
// requeued.
func TestAbandonedAfterMatch(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		c, sends, recvs := matchedInDevice(t, false)
		n := c.net.nodes[1]
		slices.Reverse(n.dev.data)
		n.dev.holdData = false
		c.step()
		for _, i := range order {
			requireAbandoned(t, recvs[i])
		}
		n.holdRds = false
		for i, s := range sends {
			require.Len(t, c.take(0, 1, 5), 2000+i)
			succeeded(t, s)
		}
		c.quiet()
	}
}

// What a device reads goes on when its sender withdraws it. Left to software, it is there again for
// its sender once its receive gives it up: also where WITHDRAW came before the name of the request
// was known.
func TestAbandonedAfterMatchWithdrawn(t *testing.T) {
	for _, software := range []bool{false, true} {
		c, sends, recvs := matchedInDevice(t, software)
		for _, s := range sends {
			s.Cancel()
		}
		c.step()
		open(t, sends...)
		c.net.nodes[1].dev.holdData = false
		c.step()
		require.Empty(t, c.e[1].peers[0].withdraws)
		requireAbandoned(t, recvs[0])
		c.net.nodes[1].holdRds = false
		c.step()
		canceled(t, sends[0])
		_, err := ended(t, recvs[1])
		require.ErrorIs(t, err, ErrTruncated)
		succeeded(t, sends[1])
		c.quiet()
	}
}

// A receive whose message was withdrawn, and deregistered, before the device has left it to
// software goes back when its read fails, and answers.
func TestDeregisteredAfterMatch(t *testing.T) {
	for _, software := range []bool{false, true} {
		c, sends, recvs := matchedInDevice(t, software)
		sends[0].Cancel()
		c.step()
		c.e[0].mu.Lock()
		sends[0].op.deregister()
		c.e[0].mu.Unlock()
		c.net.nodes[1].hold(false)
		c.step()
		canceled(t, sends[0])
		open(t, recvs[0])
		succeeded(t, sends[1])
		_, err := ended(t, recvs[1])
		require.ErrorIs(t, err, ErrTruncated)
		require.NoError(t, c.e[0].Send(bg, 1, 5, fill(8, 2)))
		c.step()
		require.EqualValues(t, 8, statusOf(t, recvs[0]).Len)
		c.quiet()
	}
}

// What a rank withdraws while the device has matched an eager message of it, which may be a request
// of software, is remembered until that is here, and not more of it than is good.
func TestWithdrawForgotten(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true, tags: 4})
	c.net.nodes[1].dev.holdData = true
	buf := make([]byte, 100)
	r := c.e[1].Irecv(0, 5, exact, buf)
	c.step()
	require.NoError(t, c.e[0].Send(bg, 1, 5, fill(8, 1)))
	c.step()
	require.Equal(t, opMatched, r.op.state)
	for i := range uint32(maxWithdraws + 5) {
		c.callback(1, func(s transport.Sink) { s.Ctrl(0, ctrl{kind: ctrlWithdraw, id: rndvName | i}.encode()) })
	}
	require.Len(t, c.e[1].peers[0].withdraws, maxWithdraws)
	c.net.nodes[1].dev.holdData = false
	c.step()
	c.got(r, buf, 8, 1)
	require.Empty(t, c.e[1].peers[0].withdraws)
	c.quiet()
}

// A receive that is cancelling only to end keeps nothing from those that are posted after it: of
// two messages that wait, the next receive gets the older one, which was requeued.
func TestAbandonedBesideCancel(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true, tags: 4, software: true})
	e, dev := c.e[1], c.net.nodes[1].dev
	c.net.nodes[1].holdRds = true
	older := c.e[0].Isend(1, 5, fill(1000, 1))
	c.step()
	first := e.Irecv(AnySource, 5, exact, make([]byte, 10))
	c.step()
	dev.holdCQ = true
	unrelated := c.e[0].Isend(1, 99, fill(8, 9)) // what is posted now is dormant
	e.Poll()
	second := e.Irecv(AnySource, 4, ^uint64(1), make([]byte, 2000))
	e.Poll()
	younger := c.e[0].Isend(1, 5, fill(8, 2))
	e.Poll()
	dev.holdOps = true
	second.Cancel()
	require.Equal(t, opCancelling, second.op.state)
	dev.holdCQ = false
	c.step()
	requireAbandoned(t, first)
	third := e.Irecv(AnySource, 5, exact, make([]byte, 2000))
	dev.holdOps, c.net.nodes[1].holdRds = false, false
	c.step()
	fourth := e.Irecv(AnySource, 5, exact, make([]byte, 2000))
	last := e.Irecv(AnySource, 99, exact, make([]byte, 8))
	c.step()
	canceled(t, second)
	require.EqualValues(t, 1000, statusOf(t, third).Len)
	succeeded(t, fourth, last, older, unrelated, younger)
	c.quiet()
}
