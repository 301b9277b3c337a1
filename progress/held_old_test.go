package progress

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress/internal/flow"
	"github.com/tagmatch/tagmatch/transport"
)

// takeCtrl takes the newest packet on the way from src to dst, a control message, off it.
func (c *cluster) takeCtrl(src, dst int, kind ctrlKind) packet {
	c.t.Helper()
	in := &c.net.nodes[dst].in[src]
	require.NotEmpty(c.t, *in)
	p := (*in)[len(*in)-1]
	require.Equal(c.t, pkCtrl, p.kind)
	require.EqualValues(c.t, kind, p.payload[1])
	*in = (*in)[:len(*in)-1]
	return p
}

func (c *cluster) putCtrl(src, dst int, p packet) {
	c.net.nodes[dst].in[src] = append(c.net.nodes[dst].in[src], p)
}

// A rank that waits for one message of anybody stays within its bound, whatever the others send
// meanwhile.
func TestWaitsForStop(t *testing.T) {
	const limit = 64 << 10
	c := newCluster(t, 3, Config{Manual: true, UnexpectedLimit: limit}, fakeOpts{})
	rng := rand.New(rand.NewPCG(1, 3))
	stop := c.e[0].Irecv(AnySource, 2, exact, nil)
	for range 50 {
		for range 40 {
			c.e[1].Isend(0, 1, fill(rng.IntN(300), 1))
		}
		c.step()
		require.LessOrEqual(t, c.e[0].Metrics().UnexpectedBytes, int64(limit))
	}
	require.Equal(t, 1, c.e[1].Metrics().HeldNow)
	require.Equal(t, c.e[1].Metrics().HeldUp, c.e[0].Metrics().WantsSent, "once each time")
	c.flood(2, 0, 2, 1)
	c.step()
	st := statusOf(t, stop)
	require.Equal(t, 2, st.Source)
	require.LessOrEqual(t, c.e[0].Metrics().UnexpectedPeak, int64(limit))
	c.balanced()
}

// A WANT for what was held up before permits nothing now; the credit that it carries counts.
func TestWantOfAnotherEpisode(t *testing.T) {
	c := tight(t, 2, fakeOpts{})
	first := c.holdUp(0, 1)
	c.step()
	r := c.e[1].Irecv(0, 2, exact, nil)
	late := c.takeCtrl(1, 0, ctrlWant)
	first.Cancel()
	r.Cancel()
	c.flood(0, 1, 2, 3)
	c.step()
	c.putCtrl(1, 0, late)
	c.step()
	o := &c.e[0].peers[1].out
	here, _ := o.Due()
	there, _ := c.e[1].peers[0].in.Due(true)
	require.Equal(t, [2]uint32{3, 3}, [2]uint32{here.Episode, there.Episode})
	require.Equal(t, 3, c.waiting(0, 1))

	for _, slot := range []uint8{0, flow.All} {
		here, _ = o.Due()
		w := encodeWant(flow.Want{Allowed: here.Allowed + 10, Slot: slot})
		c.callback(0, func(s transport.Sink) { s.Ctrl(1, ctrl{kind: ctrlWant, id: 1, body: w}.encode()) })
		now, _ := o.Due()
		require.Equal(t, here.Allowed+10, now.Allowed)
		require.Equal(t, 3, c.waiting(0, 1))
	}
	require.Zero(t, o.Wants())
	require.EqualValues(t, 3, c.e[0].Metrics().WantsReceived)
	c.balanced()
}

// Credit that is stored at a sender while its HELD is under way is not seen there: the answer to
// HELD carries it.
func TestCreditCrossesHeld(t *testing.T) {
	c := tight(t, 2, fakeOpts{})
	for range inCredit {
		c.e[1].Irecv(0, 1, exact, nil)
	}
	last := c.holdUp(0, 1)
	held := c.takeCtrl(0, 1, ctrlHeld)
	c.e[1].Poll()
	require.NotZero(t, c.e[1].Metrics().Grants)
	c.step()
	open(t, last)
	c.putCtrl(0, 1, held)
	c.step()
	succeeded(t, last)
	require.Zero(t, c.e[1].Metrics().WantsSent, "there is no receive to name")
	c.free()
}

// Credit that comes back while the peer is held up is told by a message: a store wakes nobody. It
// permits no more than it says.
func TestCreditForHeldUp(t *testing.T) {
	c := tight(t, 2, fakeOpts{})
	c.holdUp(0, 1)
	c.flood(0, 1, 1, 5)
	c.step()
	log := c.watch(0)
	for range 2 { // half of a window is more than a quarter
		succeeded(t, c.e[1].Irecv(0, 1, exact, nil))
	}
	require.Zero(t, c.e[0].tr.Granted(1))
	c.step()
	require.Equal(t, 4, c.waiting(0, 1))
	require.Len(t, *log, 1)
	require.EqualValues(t, flow.None, (*log)[0].want.Slot)
	require.Zero(t, c.e[0].Metrics().Released)
	c.balanced()
}

// Receives that come and go while a peer is held up leave it with as many permissions as can be
// named, and no more.
func TestReceivesThatComeAndGo(t *testing.T) {
	c := tight(t, 2, fakeOpts{})
	c.holdUp(0, 1)
	c.step()
	for range 1000 {
		c.e[1].Irecv(0, 2, exact, nil).Cancel()
		c.step()
		require.LessOrEqual(t, c.e[0].peers[1].out.Wants(), flow.Slots)
	}
	require.Equal(t, flow.Slots, c.e[0].peers[1].out.Wants())
	const named = 50
	for range named {
		c.e[1].Irecv(0, 3, exact, nil).Cancel()
	}
	c.flood(0, 1, 3, 100) // before the WANTs are seen
	c.step()
	require.EqualValues(t, 1+named, c.e[0].Metrics().Released, "the one before them, and one for each receive")
	require.Equal(t, 100-named, c.waiting(0, 1))
	require.Equal(t, inCredit+1+named, c.e[1].Metrics().UnexpectedNow)
	c.balanced()
	c.takeAll(0, 1, 1, inCredit+1, 0)
	c.takeAll(0, 1, 3, 100, 0)
	c.free()
	c.quiet()
}

// What a peer makes up ends it, or does nothing.
func TestForgedFlowControl(t *testing.T) {
	hold := func(allowed, charged uint64) []byte { return encodeHeld(flow.Held{Allowed: allowed, Charged: charged}) }
	want := func(allowed uint64, slot uint8) []byte { return encodeWant(flow.Want{Allowed: allowed, Slot: slot}) }
	for name, f := range map[string]struct {
		kind ctrlKind
		id   uint32
		body []byte
		lost bool
	}{
		"short HELD":                     {ctrlHeld, 1, hold(0, 0)[:heldLen-1], true},
		"short WANT":                     {ctrlWant, 1, want(0, 0)[:wantLen-1], true},
		"slot 16":                        {ctrlWant, 1, want(0, flow.Slots), true},
		"slot 200":                       {ctrlWant, 1, want(0, 200), true},
		"reserved kind":                  {6, 1, nil, true},
		"WANT of another episode":        {ctrlWant, 3, want(0, 0), false},
		"WANT of everything, of another": {ctrlWant, 2, want(0, flow.All), false},
		"WANT without credit":            {ctrlWant, 1, want(0, flow.None), false},
		"HELD of nothing":                {ctrlHeld, 1, hold(0, 0), false},
		"HELD with all credit":           {ctrlHeld, 1, hold(math.MaxUint64, math.MaxUint64), false},
		"HELD without all credit":        {ctrlHeld, math.MaxUint32, hold(0, math.MaxUint64), false},
		"end of HELD":                    {ctrlHeld, 2, hold(0, 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := tight(t, 3, fakeOpts{})
			c.holdUp(0, 1) // rank 1 is the liar
			c.flood(1, 0, 1, 3)
			c.step()
			recv := c.e[0].Irecv(1, 2, exact, nil)
			for range 3 {
				c.callback(0, func(s transport.Sink) { s.Ctrl(1, ctrl{kind: f.kind, id: f.id, body: f.body}.encode()) })
			}
			e := c.e[0]
			require.Equal(t, f.lost, len(e.Failed()) != 0)
			require.NoError(t, e.broken)
			require.LessOrEqual(t, e.memory.Committed(), e.cfg.UnexpectedLimit)
			if f.lost {
				_, err := ended(t, recv)
				require.ErrorIs(t, err, ErrProtocol)
				require.Zero(t, e.Metrics().HeldNow)
				require.Empty(t, e.memory.HeldUp())
			} else {
				require.Equal(t, 1, c.waiting(0, 1))
				recv.Cancel()
			}
			c.step()
			c.balancedAt(0)
			// Others are not touched.
			recv = e.Irecv(2, 2, exact, nil)
			c.flood(2, 0, 2, 1)
			c.step()
			succeeded(t, recv)
		})
	}
}

// All credit that can be named lets everything go, and does not wrap.
func TestCreditWithoutBound(t *testing.T) {
	c := tight(t, 2, fakeOpts{})
	last := c.holdUp(0, 1)
	w := encodeWant(flow.Want{Allowed: math.MaxUint64, Slot: flow.None})
	c.callback(0, func(s transport.Sink) { s.Ctrl(1, ctrl{kind: ctrlWant, id: 1, body: w}.encode()) })
	succeeded(t, last)
	for _, r := range c.flood(0, 1, 1, 1000) {
		succeeded(t, r)
	}
	require.Zero(t, c.e[0].Metrics().HeldNow)
	c.step() // rank 1 has allowed nothing of the kind
	require.Equal(t, []int{0}, c.e[1].Failed())
	c.balanced()
}
