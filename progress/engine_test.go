package progress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/progress/internal/hook"
	"github.com/tagmatch/tagmatch/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const exact = ^uint64(0)

var bg = context.Background()

// waitAll waits for requests that are to succeed.
func waitAll(t testing.TB, reqs []Request) {
	t.Helper()
	for i, r := range reqs {
		_, err := r.Wait(bg)
		require.NoError(t, err, "request %d", i)
	}
}

// cluster is some engines on one fakeNet.
type cluster struct {
	t   testing.TB
	net *fakeNet
	e   []*Engine
}

func newCluster(t testing.TB, n int, cfg Config, opts fakeOpts) *cluster {
	c := unstarted(t, n, cfg, opts)
	for _, e := range c.e {
		e.Start()
	}
	return c
}

// unstarted is a cluster without progress goroutines.
func unstarted(t testing.TB, n int, cfg Config, opts fakeOpts) *cluster {
	c := &cluster{t: t, net: newFakeNet(n, opts)}
	for i := range n {
		cfg := cfg
		cfg.Rank, cfg.Size = i, n
		if cfg.seed == 0 {
			cfg.seed = 1
		}
		e, err := New(cfg, func(s transport.Sink) (transport.Transport, error) {
			c.net.nodes[i].sink = s
			return c.net.nodes[i], nil
		})
		require.NoError(t, err)
		c.e = append(c.e, e)
	}
	for i := range n {
		for j := range n {
			require.NoError(t, c.e[i].Connect(j, c.e[j].Address()))
		}
	}
	if !opts.lazy {
		c.connectAll()
	}
	t.Cleanup(func() {
		if t.Failed() {
			return // perhaps inside of Poll, with the lock
		}
		for _, e := range c.e {
			require.NoError(t, e.Close(nil))
		}
	})
	return c
}

// manual is a cluster that moves only by step.
func manual(t testing.TB, n int, opts fakeOpts) *cluster {
	return newCluster(t, n, Config{Manual: true}, opts)
}

// step polls all engines until nothing happens.
func (c *cluster) step() {
	for range 10000 {
		n := 0
		for i, e := range c.e {
			if !c.net.nodes[i].dead {
				n += e.Poll()
			}
		}
		if n == 0 {
			return
		}
	}
	c.t.Fatal("never comes to rest")
}

// callback makes a transport call its sink, for what no peer that is an engine would cause.
func (c *cluster) callback(rank int, f func(s transport.Sink)) {
	n := c.net.nodes[rank]
	c.net.mu.Lock()
	n.calls = append(n.calls, f)
	c.net.mu.Unlock()
	c.e[rank].Poll()
}

// ended is the outcome of a request that must have ended.
func ended(t testing.TB, r Request) (Status, error) {
	t.Helper()
	st, done, err := r.Test()
	require.True(t, done, "request has not ended")
	return st, err
}

// open requires that requests have not ended.
func open(t testing.TB, reqs ...Request) {
	t.Helper()
	for i, r := range reqs {
		_, done, err := r.Test()
		require.False(t, done, "request %d has ended: %v", i, err)
	}
}

// succeeded requires that requests have ended without an error.
func succeeded(t testing.TB, reqs ...Request) {
	t.Helper()
	for i, r := range reqs {
		_, err := ended(t, r)
		require.NoError(t, err, "request %d", i)
	}
}

// canceled requires that requests have ended as cancelled.
func canceled(t testing.TB, reqs ...Request) {
	t.Helper()
	for i, r := range reqs {
		_, err := ended(t, r)
		require.Equal(t, ErrCanceled, err, "request %d", i)
	}
}

// statusOf is the status of a request that has succeeded.
func statusOf(t testing.TB, r Request) Status {
	t.Helper()
	st, err := ended(t, r)
	require.NoError(t, err)
	return st
}

// got requires that a receive has ended with the message of that size and seed.
func (c *cluster) got(r Request, buf []byte, size int, seed byte) {
	c.t.Helper()
	require.Equal(c.t, int64(size), statusOf(c.t, r).Len)
	require.Equal(c.t, fill(size, seed), buf[:size])
}

// take receives a message that is there, or that a step brings.
func (c *cluster) take(src, dst int, tag uint64) []byte {
	c.t.Helper()
	buf := make([]byte, 100001)
	r := c.e[dst].Irecv(src, tag, exact, buf)
	c.step()
	return buf[:statusOf(c.t, r).Len]
}

func fill(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i*7)
	}
	return b
}

var sizes = []int{0, 1, 8, 255, 256, 257, 1000, 100000}

// A message reaches its receive, whichever was first; of one that is too long, what fits.
func TestSendRecv(t *testing.T) {
	for _, room := range []int{0, 1} {
		for _, size := range sizes {
			for _, most := range []int{size, 10, 0} {
				for _, early := range []bool{false, true} {
					t.Run(fmt.Sprintf("room=%d size=%d most=%d early=%v", room, size, most, early), func(t *testing.T) {
						c := manual(t, 2, fakeOpts{room: room, maxRead: 4096})
						msg, buf := fill(size, 3), make([]byte, most)
						var s, r Request
						if !early {
							s = c.e[0].Isend(1, 5, msg)
							c.step()
						}
						r = c.e[1].Irecv(AnySource, 5, exact, buf)
						if early {
							s = c.e[0].Isend(1, 5, msg)
						}
						c.step()
						st, err := ended(t, r)
						require.Equal(t, most < size, errors.Is(err, ErrTruncated), "%v", err)
						require.Equal(t, Status{0, 5, int64(size)}, st)
						require.Equal(t, msg[:min(most, size)], buf[:min(most, size)])
						require.Equal(t, int64(size), statusOf(t, s).Len)
						c.quiet()
					})
				}
			}
		}
	}
}

// quiet checks that nothing is left anywhere.
func (c *cluster) quiet() {
	c.t.Helper()
	for i, e := range c.e {
		m := e.Metrics()
		require.Zero(c.t, m.PostedNow+m.UnexpectedNow+m.RequestsNow+m.ReadsNow, "rank %d: %+v", i, m)
		require.Zero(c.t, m.QueuedBytes+m.UnexpectedBytes, "rank %d: %+v", i, m)
		require.Empty(c.t, c.net.nodes[i].regions, "rank %d leaves buffers registered", i)
		e.mu.Lock()
		dirty := len(e.dirty)
		e.mu.Unlock()
		require.Zero(c.t, dirty)
		for k, sender := range c.e {
			if slices.Contains(e.Failed(), k) || slices.Contains(sender.Failed(), i) {
				continue
			}
			used, charged, consumed := hook.Credit(e, sender, i, k)
			require.Equal(c.t, used, charged, "credit of rank %d at %d", k, i)
			require.Equal(c.t, charged, consumed, "credit of rank %d at %d", k, i)
		}
	}
}

// Messages of all sizes from one sender are matched in the order of sending, also where the queue
// and missing credit change their protocol on the way.
func TestNoOvertaking(t *testing.T) {
	for _, room := range []int{0, 1, 3} {
		for _, limit := range []int64{1, 1 << 20} {
			c := newCluster(t, 2, Config{Manual: true, UnexpectedLimit: limit}, fakeOpts{room: room})
			var sends []Request
			for i := range 200 {
				sends = append(sends, c.e[0].Isend(1, 9, fill(sizes[i%len(sizes)]+1, byte(i))))
				switch {
				case i%50 == 0:
					c.step()
				case i%7 == 0:
					c.e[1].Poll() // there is room, while earlier ones are queued
				}
			}
			for i := range 200 {
				buf := make([]byte, 100001)
				r := c.e[1].Irecv(AnySource, 8, ^uint64(1), buf)
				c.step()
				st := statusOf(t, r)
				require.Equal(t, fill(sizes[i%len(sizes)]+1, byte(i)), buf[:st.Len], "message %d", i)
			}
			waitAll(t, sends)
			c.quiet()
		}
	}
}

func TestSelf(t *testing.T) {
	c := manual(t, 1, fakeOpts{})
	for _, size := range sizes {
		buf := make([]byte, size)
		r := c.e[0].Irecv(0, 1, exact, buf)
		s := c.e[0].Isend(0, 1, fill(size, 2))
		waitAll(t, []Request{r, s})
		require.Equal(t, fill(size, 2), buf)
	}
	c.quiet()
}

func TestSsendWaitsForMatch(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	s := c.e[0].Issend(1, 5, fill(8, 1))
	z := c.e[0].Issend(1, 6, nil)
	c.step()
	open(t, s, z)
	r := c.e[1].Irecv(0, 5, exact, make([]byte, 8))
	q := c.e[1].Irecv(0, 6, exact, nil)
	c.step()
	succeeded(t, s, z, r, q)
	c.quiet()
}

func TestRequestMisuse(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	var zero Request
	require.False(t, zero.Active())
	_, err := zero.Wait(bg)
	require.NoError(t, err)
	_, done, err := zero.Test()
	require.True(t, done)
	require.NoError(t, err)
	zero.Cancel()
	<-zero.Done()

	r := c.e[0].Isend(1, 1, nil)
	require.True(t, r.Active())
	_, err = r.Wait(bg)
	require.NoError(t, err)
	require.False(t, r.Active())
	other := c.e[0].Irecv(1, 1, exact, nil) // takes the same Op
	r.Cancel()
	<-r.Done()
	_, err = r.Wait(bg)
	require.ErrorIs(t, err, ErrInactive)
	_, done, err = r.Test()
	require.True(t, done)
	require.ErrorIs(t, err, ErrInactive)
	open(t, other)
	other.Cancel()
	_, err = other.Wait(bg)
	require.Equal(t, ErrCanceled, err)

	boom := errors.New("boom")
	f := Failed(boom)
	require.True(t, f.Active())
	_, err = f.Wait(bg)
	require.Equal(t, boom, err)
	_, err = f.Wait(bg)
	require.ErrorIs(t, err, ErrInactive)
}

func TestArguments(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	e := c.e[0]
	for _, rank := range []int{-3, -1, 2, 1 << 40} {
		require.ErrorIs(t, e.Send(bg, rank, 1, nil), ErrInvalid)
		_, err := e.Isend(rank, 1, nil).Wait(bg)
		require.ErrorIs(t, err, ErrInvalid)
		if rank != AnySource {
			_, err = e.Recv(bg, rank, 1, exact, nil)
			require.ErrorIs(t, err, ErrInvalid)
			_, err = e.Irecv(rank, 1, exact, nil).Wait(bg)
			require.ErrorIs(t, err, ErrInvalid)
		}
		require.Error(t, e.Connect(rank, e.Address()))
	}
	require.Error(t, e.Connect(1, nil))
	bad := e.Address()
	bad[0] = 77
	require.ErrorContains(t, e.Connect(1, bad), "version 77")
	_, err := New(Config{Rank: 3, Size: 2}, nil)
	require.ErrorIs(t, err, ErrInvalid)
}

func TestSendLimit(t *testing.T) {
	c := newCluster(t, 2, Config{Manual: true, SendLimit: 6 * sendCost}, fakeOpts{room: 1})
	for i := range 40 { // one is under way, six are queued
		_, _, err := c.e[0].Isend(1, 1, fill(100, 1)).Test()
		require.Equal(t, i >= 7, errors.Is(err, ErrFull), "send %d", i)
	}
}

func TestClose(t *testing.T) {
	c := manual(t, 2, fakeOpts{room: 1})
	e := c.e[0]
	reqs := []Request{e.Irecv(1, 1, exact, nil), e.Irecv(-1, 1, 0, nil), e.Isend(1, 1, fill(1000, 0)), e.Isend(1, 1, fill(1000, 0))}
	boom := errors.New("boom")
	require.NoError(t, e.Close(boom))
	require.NoError(t, e.Close(nil))
	for _, r := range reqs {
		_, err := r.Wait(bg)
		require.Equal(t, boom, err)
	}
	require.Equal(t, boom, e.Send(bg, 1, 1, nil))
	_, err := e.Recv(bg, 1, 1, exact, nil)
	require.Equal(t, boom, err)
	require.Equal(t, boom, e.Flush(bg))
	require.Empty(t, c.net.nodes[0].regions)
}

func TestAbort(t *testing.T) {
	c := manual(t, 3, fakeOpts{})
	r := c.e[1].Irecv(-1, 1, exact, nil)
	s := c.e[0].Isend(1, 2, fill(1000, 0))
	why := fmt.Errorf("%w: code 3", ErrAborted)
	c.e[0].Abort(why)
	c.step()
	_, err := ended(t, s)
	require.Equal(t, why, err)
	_, err = ended(t, r)
	require.ErrorIs(t, err, ErrAborted)
	require.ErrorContains(t, err, "code 3")
	require.ErrorIs(t, c.e[2].Send(bg, 0, 1, nil), ErrAborted)
}

// TestAbortHostile: what only resembles an ABORT loses the peer, and does not end the job.
func TestAbortHostile(t *testing.T) {
	for _, body := range []string{"", "job", "jobs", "\x00job aborted: by rank 1"} {
		c := manual(t, 3, fakeOpts{})
		c.callback(0, func(s transport.Sink) { s.Ctrl(1, ctrl{kind: ctrlAbort, body: []byte(body)}.encode()) })
		require.ErrorIs(t, c.e[0].Send(bg, 1, 1, nil), ErrProtocol)
		require.NoError(t, c.e[0].Send(bg, 2, 1, nil), "%q", body)
	}
}

func TestDump(t *testing.T) {
	c := manual(t, 2, fakeOpts{room: 1})
	c.e[0].Irecv(-1, 0x11, exact, make([]byte, 5))
	c.e[0].Isend(1, 0x22, fill(1000, 1))
	c.e[0].Isend(1, 0x33, fill(1000, 1))
	c.e[1].Isend(0, 0x44, fill(10, 1))
	c.e[0].Poll()
	var b bytes.Buffer
	require.NoError(t, c.e[0].Dump(&b))
	for _, want := range []string{"rank 0 of 2", "from any, tag 0x11, 5 bytes\n", "requested: to 1, tag 0x22, 1000 bytes", "from 1, tag 0x44, 10 bytes, eager", "rank 1: 1 sends"} {
		require.True(t, strings.Contains(b.String(), want), "%q not in\n%s", want, b.String())
	}
}

// TestSendrecv: where the send ends at once both are done, whatever waits already for the receive;
// else neither is begun.
func TestSendrecv(t *testing.T) {
	for _, size := range []int{0, 8, 300} { // the last one is a rendezvous
		c := manual(t, 1, fakeOpts{})
		e, in := c.e[0], make([]byte, 300)
		first := e.Isend(0, 1, fill(size, 7))
		c.step()
		st, ok, err := e.Sendrecv(bg, 0, 1, fill(8, 9), 0, 1, exact, in)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, Status{0, 1, int64(size)}, st)
		require.Equal(t, fill(size, 7), in[:size])
		c.step()
		succeeded(t, first)

		_, ok, err = e.Sendrecv(bg, 0, 1, fill(300, 1), 0, 1, exact, in)
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, fill(8, 9), c.take(0, 0, 1), "what was sent before waits still")
		c.quiet()
	}
}
