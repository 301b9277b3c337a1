package progress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/transport"
)

// lazy is a manual cluster whose ranks connect by their first messages.
func lazy(t testing.TB, n int, opts fakeOpts) *cluster {
	opts.lazy = true
	return manual(t, n, opts)
}

// madeAt is the ranks that a rank knows something of, in the order in which that began.
func madeAt(e *Engine) (ranks []int) {
	for _, p := range e.made {
		ranks = append(ranks, p.rank)
	}
	return ranks
}

// resting requires that a rank does nothing for those that it is not connected to, however often it
// polls, and sleeps until an event.
func (c *cluster) resting(rank int) {
	c.t.Helper()
	refused := func() (n int) {
		for _, l := range c.net.nodes[rank].links {
			n += l.refused
		}
		return n
	}
	before := refused()
	for range 100 {
		c.e[rank].Poll()
	}
	require.Equal(c.t, before, refused(), "something was posted again")
	require.False(c.t, (*waitEngine)(c.e[rank]).Refused(), "who sleeps would look again and again")
}

// What waits for a connection goes in its order once it is there, whoever begins it, and whatever
// it is. Until then it is posted once.
func TestFirstMessageConnects(t *testing.T) {
	for name, begin := range map[string]func(c *cluster){
		"sender":   func(c *cluster) { c.resting(0) },
		"receiver": func(c *cluster) { c.e[1].Isend(0, 9, nil) },
		"itself":   func(c *cluster) {},
	} {
		for _, room := range []int{0, 1} {
			t.Run(fmt.Sprint(name, room), func(t *testing.T) {
				c := lazy(t, 3, fakeOpts{room: room})
				dst := 1
				if name == "itself" {
					dst = 0
				}
				e := c.e[0]
				var sends, recvs []Request
				bufs := make([][]byte, 6)
				for i, size := range []int{8, 1000, 0, 256, 1000, 8} {
					if i == 2 {
						sends = append(sends, e.Issend(dst, 5, fill(size, byte(i))))
					} else {
						sends = append(sends, e.Isend(dst, 5, fill(size, byte(i))))
					}
					bufs[i] = make([]byte, size)
					recvs = append(recvs, c.e[dst].Irecv(0, 5, exact, bufs[i]))
				}
				require.Empty(t, c.net.nodes[0].regions, "nobody could read them")
				require.Equal(t, 1, c.net.nodes[0].links[dst].refused)
				require.Zero(t, e.Metrics().HeldUp)
				for _, s := range sends {
					require.False(t, s.Over())
				}
				begin(c)
				c.step()
				succeeded(t, append(sends, recvs...)...)
				for i, buf := range bufs {
					require.Equal(t, fill(len(buf), byte(i)), buf)
				}
				require.EqualValues(t, 6, e.Metrics().Queued)
				require.Zero(t, e.Metrics().QueuedBytes)
			})
		}
	}
}

// A Poster's chain waits for a connection as single messages do.
func TestChainConnects(t *testing.T) {
	c := lazy(t, 2, fakeOpts{})
	reqs := c.isendAll(0, 2*transport.MaxEagers, always(1), always(7))
	open(t, reqs...)
	c.resting(0)
	c.step()
	succeeded(t, reqs...)
	require.Equal(t, 2*transport.MaxEagers, c.e[1].Metrics().UnexpectedNow)
}

// Of a rank that this one has nothing to do with the engine keeps next to nothing, and no call that
// concerns all ranks changes that.
func TestUntouchedRanksCostNothing(t *testing.T) {
	const size, most = 1 << 20, 60
	n := newFakeNet(2, fakeOpts{lazy: true}).nodes[0]
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	e, err := New(Config{Size: size, Manual: true, ContextMask: testContexts, Contexts: new(heard)}, func(s transport.Sink) (transport.Transport, error) {
		n.sink = s
		return n, nil
	})
	require.NoError(t, err)
	address := e.Address()
	for rank := range size {
		require.NoError(t, e.Connect(rank, address))
	}
	e.Start()
	any := e.Irecv(AnySource, 1, exact, nil)
	group := e.Group(inContext(1, 0), ranksOf{1, 2, 3})
	e.Irecv(group, inContext(1, 0), testContexts, nil)
	_, _, err = e.Iprobe(AnySource, 1, exact)
	require.NoError(t, err)
	e.AckFailures(AnySource, 4, 5)
	require.Empty(t, e.Failed())
	require.NoError(t, e.Loss(everybody{}))
	require.NoError(t, e.Flush(bg))
	require.NotEmpty(t, e.Look().Groups)
	require.NoError(t, e.Call(func(c Callback) { require.False(t, c.Reached(6) || c.Lost(6)) }))
	e.Retire(inContext(1, 0), errRetired)
	any.Cancel()
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.LessOrEqual(t, (int64(after.HeapAlloc)-int64(before.HeapAlloc))/size, int64(most), "bytes a rank")
	require.NoError(t, e.Dump(io.Discard))
	e.Abort(nil)
	require.NoError(t, e.Close(nil))
	require.Empty(t, madeAt(e))
	runtime.KeepAlive(n)
}

// Ranks know of those that they have to do with.
func TestPeersAreMade(t *testing.T) {
	c := lazy(t, 9, fakeOpts{})
	c.e[0].Isend(3, 1, nil)
	c.e[0].Irecv(5, 1, exact, nil)
	_, _, err := c.e[0].Iprobe(6, 1, exact)
	require.NoError(t, err)
	c.e[0].PeerLost(7, errors.New("told"))
	c.step()
	require.Equal(t, []int{3, 5, 7}, madeAt(c.e[0]))
	require.Equal(t, []int{0}, madeAt(c.e[3]))
	for rank, e := range c.e {
		if rank != 0 && rank != 3 {
			require.Empty(t, madeAt(e), "rank %d", rank)
		}
	}
}

// The account of a peer begins with the connection, with what the pool can give then: a rank that
// talks to few ranks of many gives them much.
func TestCreditBeginsWithTheConnection(t *testing.T) {
	const size = 100_000
	n := newFakeNet(4, fakeOpts{}).nodes[0]
	e, err := New(Config{Size: size, Manual: true}, func(s transport.Sink) (transport.Transport, error) {
		n.sink = s
		return n, nil
	})
	require.NoError(t, err)
	require.Zero(t, e.memory.Committed())
	n.meet(e, 2)
	_, _, window := e.peers[2].in.Usage()
	require.EqualValues(t, 256<<10, window)
	require.EqualValues(t, window, e.memory.Committed())
	require.EqualValues(t, window, e.peers[2].out.Left())
	require.NoError(t, e.Close(nil))

	// All of them together get no more than there is, and each could send a message.
	for range 5 {
		c := newCluster(t, 5, Config{Manual: true, UnexpectedLimit: 5 * int64(unexpected.EagerCost(8))}, fakeOpts{})
		for _, p := range c.e[0].made {
			_, _, window := p.in.Usage()
			require.GreaterOrEqual(t, window, unexpected.EagerCost(8))
		}
		require.LessOrEqual(t, c.e[0].memory.Committed(), 5*int64(unexpected.EagerCost(8)))
	}
}

// A send that waits for a connection ends at once when it is cancelled or its context ends; those
// behind it stay.
func TestCancelBeforeConnected(t *testing.T) {
	c := lazy(t, 2, fakeOpts{})
	e := c.e[0]
	first, second, large := e.Isend(1, 1, fill(8, 1)), e.Isend(1, 1, fill(8, 2)), e.Isend(1, 1, fill(1000, 3))
	first.Cancel()
	large.Cancel()
	canceled(t, first, large)
	open(t, second)
	c.step()
	succeeded(t, second)
	require.Equal(t, fill(8, 2), c.take(0, 1, 1))
	require.Zero(t, c.e[1].Metrics().UnexpectedNow)
}

// A blocking call that waits for a rank which does not answer ends with its context.
func TestDeadlineBeforeConnected(t *testing.T) {
	for _, size := range []int{8, 1000} {
		c := lazy(t, 2, fakeOpts{revoke: true})
		ctx, cancel := context.WithCancel(bg)
		go func() { // once the send waits
			for c.e[0].Metrics().QueuedBytes == 0 {
				runtime.Gosched()
			}
			cancel()
		}()
		err := c.e[0].Send(ctx, 1, 1, fill(size, 1))
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrMaybeDelivered)
		c.step()
		require.Zero(t, c.e[1].Metrics().UnexpectedNow)
		require.NoError(t, c.e[0].Flush(bg))
	}
}

// A flush waits for what waits for a connection, and sleeps meanwhile.
func TestFlushBeforeConnected(t *testing.T) {
	for name, post := range map[string]func(e *Engine){
		"message": func(e *Engine) { e.Isend(1, 1, nil) },
		"control": func(e *Engine) { require.NoError(t, e.Call(func(c Callback) { c.Notice(1, []byte("hello")) })) },
	} {
		t.Run(name, func(t *testing.T) {
			c := lazy(t, 2, fakeOpts{})
			h := new(heard)
			c.e[1].contexts.owner = h
			post(c.e[0])
			flushed := make(chan error, 1)
			go func() { flushed <- c.e[0].Flush(bg) }()
			for waits := false; !waits && len(flushed) == 0; runtime.Gosched() {
				c.e[0].mu.Lock()
				waits = len(c.e[0].flushers) != 0
				c.e[0].mu.Unlock()
			}
			require.Empty(t, flushed, "nothing has gone")
			c.e[0].mu.Lock()
			require.False(t, (*waitEngine)(c.e[0]).Refused())
			c.e[0].mu.Unlock()
			for len(flushed) == 0 {
				c.e[1].Poll()
				runtime.Gosched()
			}
			require.NoError(t, <-flushed)
			c.step()
			require.Equal(t, name == "control", len(h.said) == 1)
			require.Equal(t, name == "message", c.e[1].Metrics().UnexpectedNow == 1)
		})
	}
}

// A rank that is lost before it was connected: what waits for it ends, and it cannot connect later,
// which hears why.
func TestLostBeforeConnected(t *testing.T) {
	c := lazy(t, 3, fakeOpts{})
	e := c.e[0]
	waits := []Request{e.Isend(1, 1, fill(8, 1)), e.Isend(1, 1, fill(1000, 1)), e.Irecv(1, 1, exact, nil)}
	other := e.Isend(2, 1, nil)
	e.PeerLost(1, errors.New("the store says so"))
	requireLost(t, 1, waits...)
	require.True(t, c.net.nodes[0].links[1].cut)
	back := c.e[1].Irecv(0, 1, exact, nil)
	c.e[1].Isend(0, 1, nil)
	c.step()
	require.Error(t, e.Send(bg, 1, 1, nil))
	requireLost(t, 0, back)
	_, err := ended(t, c.e[1].Isend(0, 1, nil))
	require.ErrorContains(t, err, "the store says so")
	require.Equal(t, []int{1}, e.Failed())
	succeeded(t, other)

	// Nor does it matter where nobody had to do with it.
	e = c.e[2]
	e.PeerLost(1, errors.New("the store says so"))
	requireLost(t, 1, e.Irecv(AnySource, 2, exact, nil), e.Isend(1, 1, nil))
	c.callback(2, func(s transport.Sink) { s.PeerLost(1, errors.New("again")) })
	require.EqualValues(t, 1, e.Metrics().PeersLost)
}

// An abort is told to the ranks that are connected. Others hear of it when they connect.
func TestAbortBeforeConnected(t *testing.T) {
	c := lazy(t, 4, fakeOpts{})
	e := c.e[0]
	s := c.e[1].Isend(0, 1, nil)
	c.step()
	succeeded(t, s)
	waits := []Request{e.Isend(2, 1, nil), e.Irecv(3, 2, exact, nil)}
	require.NoError(t, e.Call(func(c Callback) { c.Notice(2, nil) }))
	boom := errors.New("boom")
	e.Abort(boom)
	for _, r := range waits {
		_, err := ended(t, r)
		require.Equal(t, boom, err)
	}
	require.Equal(t, []int{2}, c.reachedBy(0), "by what was posted before")
	c.step()
	require.Equal(t, 0, c.e[3].Poll(), "it knows nothing")
	c.e[3].Isend(0, 1, nil)
	c.step()
	for _, peer := range c.e[1:] {
		err := peer.Send(bg, peer.cfg.Rank, 1, nil)
		require.ErrorIs(t, err, ErrAborted)
		require.ErrorContains(t, err, "boom")
		require.Empty(t, peer.Failed())
	}
}

// What the other end says when it connects is checked.
func TestGreetingIsChecked(t *testing.T) {
	other := encodeGreeting(1)
	other[0]++
	for name, greeting := range map[string][]byte{"nothing": nil, "short": encodeGreeting(1)[:greetingLen-1], "version": other} {
		t.Run(name, func(t *testing.T) {
			c := lazy(t, 2, fakeOpts{})
			s := c.e[0].Isend(1, 1, nil)
			c.callback(0, func(s transport.Sink) {
				s.Greeting(1)
				err := s.Connected(1, greeting)
				require.ErrorIs(t, err, ErrProtocol)
				s.PeerLost(1, err)
			})
			requireLost(t, 1, s)
		})
	}
	window, err := decodeGreeting(append(encodeGreeting(7), 1, 2, 3))
	require.NoError(t, err, "it may grow at its end")
	require.EqualValues(t, 7, window)
}

// Messages may come of a peer before this end may post: what they ask for waits until it may.
func TestMessagesBeforeConnected(t *testing.T) {
	c := lazy(t, 2, fakeOpts{maxRead: 300})
	e, n, s := c.e[0], c.net.nodes[0], c.e[1]
	buf := make([]byte, 1000)
	r, eager := e.Irecv(1, 5, exact, buf), e.Irecv(1, 6, exact, nil)
	n.links[1].begun = true
	c.net.nodes[1].meet(s, 0) // so far only that end knows
	s.peers[0].out.Allow(1 << 20)
	sent := []Request{s.Isend(0, 5, fill(1000, 1)), s.Isend(0, 6, nil), s.Isend(0, 7, fill(1000, 2))}
	c.callback(0, func(sink transport.Sink) { sink.Greeting(1) })
	c.step()
	succeeded(t, eager, sent[1])
	open(t, r, sent[0], sent[2])
	require.False(t, e.peers[1].readq.empty())
	c.resting(0)
	_, found, err := e.Improbe(1, 7, exact)
	require.True(t, found)
	require.NoError(t, err)
	c.callback(0, func(sink transport.Sink) {
		n.links[1].up = true
		require.NoError(t, sink.Connected(1, encodeGreeting(1<<20)))
	})
	c.step()
	succeeded(t, r, sent[0])
	require.Equal(t, fill(1000, 1), buf)
}

// Who looks at what a rank waits for sees that it waits for connections.
func TestDumpBeforeConnected(t *testing.T) {
	c := lazy(t, 3, fakeOpts{})
	c.e[0].Isend(2, 1, nil)
	c.e[0].Isend(2, 1, nil)
	var b bytes.Buffer
	require.NoError(t, c.e[0].Dump(&b))
	require.Contains(t, b.String(), "rank 2 is not connected yet: 2 sends wait for it\n")
	require.NotContains(t, b.String(), "rank 1 ")
}
