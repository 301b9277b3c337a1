package progress

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A receive that is asked back from the device for a message that was given back comes before those that are posted meanwhile: the
// message is not theirs.
func TestAbandonedRecallKeepsPlace(t *testing.T) {
	r := askedBack(t, func(*Engine) {})
	third := r.e[1].Irecv(AnySource, 4, ^uint64(1), make([]byte, 2000))
	var dump strings.Builder
	require.NoError(t, r.e[1].Dump(&dump))
	require.Contains(t, dump.String(), "unexpected messages: 1, 0 bytes with their records\n"+
		"  from 0 tag 0x5, 1000 bytes, given back, for a receive that the device is asked for\n")
	r.goOn()
	st, err := ended(t, r.second)
	require.NoError(t, err)
	require.EqualValues(t, 1000, st.Len)
	_, err = ended(t, r.s)
	require.NoError(t, err)
	r.end(third)
}

// Its sender cannot take such a message back: the receive that was asked back for it would have lost its place for nothing. When that
// gets another message the sender has it.
func TestAbandonedRecallWithdrawn(t *testing.T) {
	for _, faster := range []bool{false, true} {
		r := askedBack(t, func(*Engine) {})
		third := r.e[1].Irecv(AnySource, 4, ^uint64(1), make([]byte, 2000))
		r.s.Cancel()
		r.step()
		open(t, r.s)
		if faster {
			require.NoError(t, r.e[0].Send(bg, 1, 4, fill(8, 2))) // the device matches it before it hears of the recall
			r.step()
		}
		r.goOn()
		st, err := ended(t, r.second)
		require.NoError(t, err)
		_, withdrawn := ended(t, r.s)
		if faster {
			require.EqualValues(t, 8, st.Len)
			require.Equal(t, ErrCanceled, withdrawn)
		} else {
			require.EqualValues(t, 1000, st.Len)
			require.NoError(t, withdrawn)
		}
		r.end(third)
	}
}

// A receive that is asked back from the device only to end keeps nothing from those that are posted after it: of two messages that
// wait, the next receive gets the older one, which was given back.
func TestAbandonedBesideCancel(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true, tags: 4, rts: 2})
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
	require.Equal(t, opRecalled, second.op.state)
	dev.holdCQ = false
	c.step()
	abandon(first)
	third := e.Irecv(AnySource, 5, exact, make([]byte, 2000))
	dev.holdOps, c.net.nodes[1].holdRds = false, false
	c.step()
	fourth := e.Irecv(AnySource, 5, exact, make([]byte, 2000))
	last := e.Irecv(AnySource, 99, exact, make([]byte, 8))
	c.step()
	_, err := ended(t, second)
	require.Equal(t, ErrCanceled, err)
	for _, want := range []struct {
		r   Request
		len int64
	}{{third, 1000}, {fourth, 8}, {last, 8}} {
		st, err := ended(t, want.r)
		require.NoError(t, err)
		require.Equal(t, want.len, st.Len)
	}
	for _, r := range []Request{first, older, unrelated, younger} {
		_, _ = ended(t, r)
	}
	c.quiet()
}

// A receive that is asked back from the device for a message whose sender is lost ends with that loss, as those do that wait where
// they were posted: also if the loss is acknowledged before the device answers, and whatever else has arrived meanwhile.
func TestAbandonedRecallLost(t *testing.T) {
	for _, acked := range []bool{false, true} {
		c := manual(t, 3, fakeOpts{revoke: true, tags: 4, rts: 2})
		e, dev := c.e[1], c.net.nodes[1].dev
		c.net.nodes[1].holdRds = true
		c.e[0].Isend(1, 5, fill(1000, 1))
		c.step()
		first := e.Irecv(AnySource, 5, exact, make([]byte, 10))
		second := e.Irecv(AnySource, 4, ^uint64(1), make([]byte, 2000))
		c.step()
		dev.holdOps = true
		abandon(first)
		require.Equal(t, opRecalled, second.op.state)
		c.net.kill(0)
		c.step()
		require.Equal(t, []int{0}, e.Failed())
		if acked {
			e.AckFailures(0)
		}
		dev.holdOps = false
		c.step()
		requireLost(t, second, 0)
		_, err := ended(t, first)
		require.Equal(t, ErrCanceled, err)
		m := e.Metrics()
		require.Zero(t, m.PostedNow+m.UnexpectedNow+m.ReadsNow)
	}
}
