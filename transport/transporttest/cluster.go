package transporttest

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport"
)

// patience bounds every wait of the suite: far longer than needed, as no test measures time.
var patience = testlevel.Patience(30 * time.Second)

// cluster is the ranks of a test.
type cluster struct {
	t     *testing.T
	h     Harness
	opts  Options
	job   *Job
	ranks []*rank
	rng   *rand.Rand
}

func newRNG(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) }

// rank is a transport and a record of its sink's calls.
type rank struct {
	transport.Transport
	Recorder
	n      int
	closed bool // polled no more
}

// devices opens the devices of n ranks.
func (h Harness) devices(t *testing.T, n int, opts Options) *cluster {
	t.Helper()
	c := &cluster{t: t, h: h, opts: opts, job: h.Devices(t, n, opts), rng: newRNG(opts.Seed)}
	t.Cleanup(c.closeDevices)
	return c
}

// openRank opens the transport of a rank; sink nil: the rank's Recorder.
func (c *cluster) openRank(n int, sink transport.Sink) *rank {
	c.t.Helper()
	r := &rank{n: n}
	if sink == nil {
		sink = &r.Recorder
	}
	tr, err := c.h.New(c.job.Devices[n], n, len(c.job.Devices), c.opts, sink)
	require.NoError(c.t, err)
	r.Transport = tr
	c.ranks = append(c.ranks, r)
	c.t.Cleanup(func() { c.close(r) })
	return r
}

// open creates n ranks that are not connected.
func (h Harness) open(t *testing.T, n int, opts Options) *cluster {
	t.Helper()
	c := h.devices(t, n, opts)
	for i := range n {
		c.openRank(i, nil)
	}
	return c
}

// start creates n ranks, all connected.
func (h Harness) start(t *testing.T, n int, opts Options) *cluster {
	t.Helper()
	c := h.reachable(t, n, opts)
	var all []transport.Transport
	for _, r := range c.ranks {
		all = append(all, r)
	}
	Meet(t, c.step, all...)
	return c
}

// Meet has ranks 0 to n-1 connect to each other and to themselves; step polls one or more of them.
func Meet(tb testing.TB, step func(), ranks ...transport.Transport) {
	tb.Helper()
	for _, r := range ranks {
		for peer := range ranks {
			require.NoError(tb, r.Grant(peer, 0))
		}
	}
	untilWith(tb, "all to be connected", func() bool {
		return !slices.ContainsFunc(ranks, func(r transport.Transport) bool { return !r.Drained() })
	}, step)
}

// reachable creates n ranks that know how to reach each other, and have nothing to do with each
// other yet.
func (h Harness) reachable(t *testing.T, n int, opts Options) *cluster {
	t.Helper()
	c := h.open(t, n, opts)
	c.connect(c.ranks)
	return c
}

func (c *cluster) connect(ranks []*rank) {
	c.t.Helper()
	for _, a := range ranks {
		for _, b := range ranks {
			require.NoError(c.t, a.Connect(b.n, b.Address()))
		}
	}
}

func (c *cluster) close(r *rank) {
	if !r.closed {
		r.closed = true
		require.NoError(c.t, r.Close(), "rank %d", r.n)
	}
}

// leave closes a rank as a process does that ends in order.
func (c *cluster) leave(r *rank) {
	c.close(r)
	c.closeDevice(r.n)
}

// closeDevice fails the test if the transport left objects open in its device (EBUSY).
func (c *cluster) closeDevice(rank int) {
	if d := c.job.Devices[rank]; d != nil {
		c.job.Devices[rank] = nil
		require.NoError(c.t, d.Close(), "device of rank %d", rank)
	}
}

func (c *cluster) closeDevices() {
	for i := range c.job.Devices {
		c.closeDevice(i)
	}
}

// step polls one rank, chosen by the seed.
func (c *cluster) step() {
	if r := c.ranks[c.rng.IntN(len(c.ranks))]; !r.closed {
		r.poll(c.t)
	}
}

// poll must not fail. It is called so often that to ask require each time, which looks at the
// stack, would take as long as the polls.
func (r *rank) poll(t *testing.T) {
	if _, err := r.Poll(); err != nil {
		require.NoError(t, err, "rank %d polls", r.n)
	}
}

// until polls the ranks until cond holds.
func (c *cluster) until(what string, cond func() bool) {
	c.t.Helper()
	untilWith(c.t, what, cond, c.step)
}

func untilWith(t testing.TB, what string, cond func() bool, step func()) {
	t.Helper()
	end := time.Now().Add(patience)
	oneP := runtime.GOMAXPROCS(0) == 1
	for i := 1; !cond(); i++ {
		step()
		if i%64 == 0 {
			if oneP {
				// Devices connect in the background, which on one processor needs this goroutine
				// idle.
				time.Sleep(time.Microsecond)
			} else {
				runtime.Gosched()
			}
			require.True(t, time.Now().Before(end), "waited %v for: %s", patience, what)
		}
	}
}

// steps polls n times.
func (c *cluster) steps(n int) {
	for range n {
		c.step()
	}
}

// post repeats a posting call while it gets ErrAgain.
func (c *cluster) post(f func() error) {
	c.t.Helper()
	var err error
	c.until("a posting call to be accepted", func() bool {
		err = f()
		return err != transport.ErrAgain
	})
	require.NoError(c.t, err)
}

// ping checks that messages pass between two ranks in both directions.
func (c *cluster) ping(a, b *rank) {
	c.t.Helper()
	for _, p := range [][2]*rank{{a, b}, {b, a}} {
		n := len(p[1].messages(p[0].n))
		c.post(func() error { return p[0].SendCtrl(p[1].n, []byte("ping")) })
		c.until("a ping", func() bool { return len(p[1].messages(p[0].n)) == n+1 })
	}
}

// requireMessages compares the messages received from a rank with those sent.
func (c *cluster) requireMessages(at *rank, src int, want []Event) {
	c.t.Helper()
	got := at.messages(src)
	for i := range min(len(got), len(want)) {
		require.True(c.t, want[i].equal(got[i]), "rank %d, message %d from rank %d:\n got %v\nwant %v", at.n, i, src, got[i], want[i])
	}
	require.Len(c.t, got, len(want), "rank %d, from rank %d", at.n, src)
}

// requireLost checks that r saw exactly one loss, of that peer.
func (c *cluster) requireLost(r *rank, peer int) {
	c.t.Helper()
	lost := r.of("lost")
	require.Len(c.t, lost, 1, "rank %d", r.n)
	require.Equal(c.t, peer, lost[0].Src)
	require.Error(c.t, lost[0].Err)
	// The text follows "rank 3 lost: " and is for people: libibverbs' terms are behind it.
	for _, word := range []string{"queue pair", "transport/", "retry counter", "Flushed"} {
		require.NotContains(c.t, lost[0].Err.Error(), word)
	}
}

// requireGone checks that all posting calls for a peer fail, and not with ErrAgain.
func requireGone(t *testing.T, r *rank, peer int) {
	t.Helper()
	for i, err := range []error{
		r.SendEager(peer, 0, 1, nil), r.SendRndv(peer, &transport.RndvHdr{}), r.SendFin(peer, 1), r.SendCtrl(peer, []byte("x")),
		r.Grant(peer, 1), r.Read(peer, make([]byte, 8), 0, 0, 1),
	} {
		require.Error(t, err, "call %d", i)
		require.False(t, errors.Is(err, transport.ErrAgain), "call %d: %v", i, err)
	}
}
