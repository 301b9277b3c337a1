package links

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/check"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// TestFillBudget: neither the completion queue nor what a peer may have of it follows the size of
// the job.
func TestFillBudget(t *testing.T) {
	dev := openDevice(t)
	for _, list := range []bool{false, true} {
		two, many := Config{Device: dev, Size: 2, RecvQP: list}, Config{Device: dev, Size: 8000, RecvQP: list}
		require.NoError(t, two.Fill())
		require.NoError(t, many.Fill())
		require.Equal(t, 256, many.SendDepth)
		require.Equal(t, two.SendDepth, many.SendDepth)
		require.Equal(t, maxBudget, many.budget)
		require.LessOrEqual(t, many.CQE()-two.CQE(), 2*maxFailing)
	}
}

// trio is a rank that sends to two others, with a small budget.
type trio struct {
	t       *testing.T
	a, b, c *endpoint
	sink    endSink // of a
}

func newTrio(t *testing.T, total int) *trio {
	return newTrioOn(t, total, func(dev verbs.Device) verbs.Device { return dev })
}

// newTrioOn has the sender see its device as wrap makes it.
func newTrioOn(t *testing.T, total int, wrap func(verbs.Device) verbs.Device) *trio {
	r := &trio{t: t}
	f := soft.NewFabric()
	var all [3]*endpoint
	for rank := range all {
		dev, err := soft.Open(soft.Config{Fabric: f, Rank: rank, MaxInline: 64})
		require.NoError(t, err)
		c := Config{Mode: "test", Device: dev, Rank: rank, Size: len(all), MaxEager: 256}
		require.NoError(t, c.Fill())
		e := &endpoint{}
		own := transport.Sink(&endSink{})
		if rank == 0 {
			own, c.Device = &r.sink, wrap(dev)
		}
		sink, inv := check.New(own, dev, c.Size)
		require.NoError(t, Open(&e.Links, c, sink, inv))
		t.Cleanup(func() {
			require.NoError(t, e.Close())
			require.NoError(t, dev.Close())
		})
		all[rank] = e
	}
	for _, e := range all {
		for rank, peer := range all {
			require.NoError(t, e.Connect(rank, peer.Address()))
		}
	}
	r.a, r.b, r.c = all[0], all[1], all[2]
	for rank := 1; rank < len(all); rank++ {
		require.Equal(t, transport.ErrAgain, r.a.SendFin(rank, 1), "the first message begins a connection")
	}
	r.poll(all[:]...)
	r.a.budget.open(total, int(r.a.budget.usual))
	return r
}

// poll polls some ranks, often enough for whatever is under way among them.
func (r *trio) poll(ranks ...*endpoint) {
	r.t.Helper()
	for range 2 * rareEvery {
		for _, e := range ranks {
			e.poll(r.t)
		}
	}
}

// send sends n messages to a rank.
func (r *trio) send(to, n int) {
	r.t.Helper()
	for range n {
		require.NoError(r.t, r.a.SendEager(to, 0, 1, nil))
	}
}

// used checks how many requests count.
func (r *trio) used(want int) {
	r.t.Helper()
	require.EqualValues(r.t, want, r.a.budget.used)
}

// TestBudgetConfirms: what idle peers hold comes back where it runs short, and not before.
func TestBudgetConfirms(t *testing.T) {
	r := newTrio(t, 16)
	r.send(1, 5)
	r.send(2, 2)
	r.poll(r.a, r.b, r.c)
	r.used(7) // none is signalled
	r.send(2, 2)
	r.poll(r.a, r.b, r.c)
	r.used(0)
	require.EqualValues(t, 8, r.a.budget.mark)
	require.Equal(t, r.a.budget.usual, r.a.budget.every)
}

// TestBudgetStalled: a peer that does not take the messages that it was sent, nor confirms them,
// leaves others their part.
func TestBudgetStalled(t *testing.T) {
	r := newTrio(t, 16)
	r.send(1, 7)
	sent := 0
	for range 50 {
		for r.a.SendEager(2, 0, 1, nil) == nil {
			sent++
		}
		r.poll(r.a, r.c)
	}
	require.Greater(t, sent, 150)
	require.Equal(t, sent, r.c.received)
	r.poll(r.b)
	require.Equal(t, 7, r.b.received)
}

// TestBudgetConfirmsLate: what idle peers hold comes back also while one that takes nothing holds
// so much that little is left.
func TestBudgetConfirmsLate(t *testing.T) {
	r := newTrio(t, 16)
	r.send(2, 5)
	r.poll(r.a, r.c)
	r.used(5)
	r.send(1, 8)
	r.poll(r.a, r.c)
	r.used(8)
	r.send(1, 8)
	r.poll(r.a, r.c)
	r.used(16)
}

// one is a rank that handles one completion a poll.
type one struct{ *endpoint }

func (o one) Complete(wc *verbs.WC) bool {
	o.Enough()
	return o.endpoint.Complete(wc)
}

// TestBudgetBehindRead: messages that a read has overtaken count until no completions are left, as
// theirs may still be among these.
func TestBudgetBehindRead(t *testing.T) {
	r := newTrio(t, 16)
	r.send(1, 3)
	require.NoError(t, r.a.Read(1, nil, 0, 0, 1))
	for i := 0; len(r.sink.reads) == 0; i++ {
		require.Less(t, i, 1000)
		r.used(4)
		r.b.poll(t)
		polled := r.a.inv.Polls()
		r.a.Drain(one{r.a})
		polled()
	}
	require.NoError(t, r.sink.reads[0])
	r.used(3)
	r.poll(r.a)
	r.used(0)
}

// TestBudgetFull: a peer that takes nothing can hold all of the budget. No call fails then, what it
// holds comes back as it takes messages, and nothing was lost.
func TestBudgetFull(t *testing.T) {
	r := newTrio(t, 16)
	r.send(1, 10)
	require.Equal(t, 6, r.a.SendEagers(1, 0, make([]transport.Eager, 7)), "as many as there is room for")
	for name, err := range map[string]error{
		"eager": r.a.SendEager(2, 0, 1, nil), "bounce": r.a.SendEager(2, 0, 1, make([]byte, 200)), "ctrl": r.a.SendCtrl(2, nil),
		"fin": r.a.SendFin(2, 1), "rndv": r.a.SendRndv(2, &transport.RndvHdr{}), "marked": r.a.SendMarked(2, make([]byte, 16)),
		"read": r.a.Read(2, nil, 0, 0, 1),
	} {
		require.Equal(t, transport.ErrAgain, err, name)
	}
	require.Zero(t, r.a.SendEagers(2, 0, make([]transport.Eager, 7)))
	require.NoError(t, r.a.Grant(2, 5))
	require.False(t, r.a.Drained())
	r.poll(r.a, r.c)
	r.used(16)
	require.Zero(t, r.c.Granted(0))
	for range 100 { // also what goes through others' completion queues while little is left
		r.poll(r.a, r.b, r.c)
		r.send(1, 3)
		r.send(2, 3)
	}
	require.EqualValues(t, 5, r.c.Granted(0))
	for !r.a.Drained() {
		r.poll(r.a, r.b, r.c)
	}
	r.used(0)
	require.Equal(t, 16+300, r.b.received)
	require.Equal(t, 300, r.c.received)
}

// TestBudgetOfTheDead: of requests to a peer that is lost each gives back what it counts once, when
// it is flushed; and what had reached the peer, where the budget runs short.
func TestBudgetOfTheDead(t *testing.T) {
	r := newTrio(t, 16)
	r.send(1, 7)
	r.a.ProtocolError(1, errNotConnected)
	r.poll(r.a)
	require.Equal(t, []int{1}, r.sink.lost)
	r.used(0)

	r = newTrio(t, 16)
	r.send(1, 7)
	r.a.unsaid = 7
	r.a.ProtocolError(1, errNotConnected)
	r.poll(r.a, r.b, r.c)
	require.Equal(t, []int{1}, r.sink.lost)
	r.used(7)
	r.send(2, 2)
	r.poll(r.a, r.c)
	r.used(0)
}
