package progress

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// probe posts a probe that waits, a matched one where there is a Message.
func (c *cluster) probe(rank, src int, tag, mask uint64, m *Message) Request {
	e := c.e[rank]
	e.mu.Lock()
	defer e.mu.Unlock()
	if m != nil {
		m.e = e
	}
	op := probe{e, src, tag, mask, m}.post()
	return Request{op.note, op, op.Gen()}
}

// probed is what a probe that does not wait says of a message that must be there.
func probed(t testing.TB, e *Engine, src int, tag, mask uint64) Status {
	t.Helper()
	st, ok, err := e.Iprobe(src, tag, mask)
	require.NoError(t, err)
	require.True(t, ok)
	return st
}

// nothingFor requires that probes that do not wait find nothing.
func nothingFor(t testing.TB, e *Engine, src int, tag, mask uint64) {
	t.Helper()
	_, ok, err := e.Iprobe(src, tag, mask)
	require.NoError(t, err)
	require.False(t, ok)
	m, ok, err := e.Improbe(src, tag, mask)
	require.NoError(t, err)
	require.False(t, ok)
	require.Nil(t, m)
}

// hold takes a message out that is there, or that a poll brings.
func hold(t testing.TB, e *Engine, tag uint64) *Message {
	t.Helper()
	m, ok, err := e.Improbe(AnySource, tag, exact)
	require.NoError(t, err)
	require.True(t, ok)
	return m
}

// A probe says which message a receive would get, and leaves it there. It makes progress by itself.
func TestIprobe(t *testing.T) {
	for _, size := range sizes {
		c := manual(t, 2, fakeOpts{})
		nothingFor(t, c.e[1], 0, 5, exact)
		s := c.e[0].Isend(1, 5, fill(size, 1))
		last := c.e[0].Isend(1, 7, fill(3, 2))
		for range 2 {
			require.Equal(t, Status{0, 5, int64(size)}, probed(t, c.e[1], 0, 5, exact))
			require.Equal(t, Status{0, 5, int64(size)}, probed(t, c.e[1], AnySource, 0, 0))
			require.Equal(t, Status{0, 7, 3}, probed(t, c.e[1], AnySource, 2, 2))
		}
		nothingFor(t, c.e[1], 0, 6, exact)
		st, err := c.e[1].Probe(bg, 0, 5, exact)
		require.NoError(t, err)
		require.Equal(t, Status{0, 5, int64(size)}, st)
		require.Equal(t, fill(size, 1), c.take(0, 1, 5))
		require.Equal(t, fill(3, 2), c.take(0, 1, 7))
		succeeded(t, s, last)
		c.quiet()
	}
}

// A probe sees a message that was requeued at its place: older or younger than the others.
func TestIprobeRequeued(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true})
	c.net.nodes[1].holdRds = true
	c.e[0].Isend(1, 4, fill(8, 0))
	s := c.e[0].Isend(1, 5, fill(1000, 1))
	c.e[0].Isend(1, 6, fill(8, 2))
	c.step()
	recvBriefly(t, c.e[1], 5, make([]byte, 2000))
	c.net.nodes[1].holdRds = false
	require.EqualValues(t, 4, probed(t, c.e[1], 0, 0, 0).Tag)
	require.EqualValues(t, 5, probed(t, c.e[1], 0, 5, 1).Tag)
	c.take(0, 1, 4)
	require.EqualValues(t, 5, probed(t, c.e[1], 0, 0, 0).Tag)
	m := hold(t, c.e[1], 5)
	require.EqualValues(t, 6, probed(t, c.e[1], 0, 0, 0).Tag)
	buf := make([]byte, 1000)
	r := m.Irecv(buf)
	c.step()
	c.got(r, buf, 1000, 1)
	c.take(0, 1, 6)
	succeeded(t, s)
	c.quiet()
}

// A message that a matched probe has taken is nobody else's, and is used once. Its memory is its
// sender's credit until then, where it has come.
func TestMessage(t *testing.T) {
	for _, size := range sizes {
		for name, use := range map[string]func(c *cluster, m *Message){
			"recv": func(c *cluster, m *Message) {
				buf := make([]byte, size+1)
				st, err := m.Recv(bg, buf)
				require.NoError(c.t, err)
				require.Equal(c.t, m.Status(), st)
				require.Equal(c.t, append(fill(size, 1), 0), buf)
			},
			"irecv": func(c *cluster, m *Message) {
				buf := make([]byte, size+1)
				r := m.Irecv(buf)
				c.step()
				c.got(r, buf, size, 1)
			},
			"too short": func(c *cluster, m *Message) {
				buf := make([]byte, size/2)
				r := m.Irecv(buf)
				c.step()
				st, err := ended(c.t, r)
				if size > 0 {
					require.ErrorIs(c.t, err, ErrTruncated)
				}
				require.Equal(c.t, m.Status(), st)
				require.Equal(c.t, fill(size, 1)[:size/2], buf)
			},
			"discard": func(_ *cluster, m *Message) { m.Discard() },
		} {
			t.Run(name, func(t *testing.T) {
				c := manual(t, 2, fakeOpts{maxRead: 4096})
				s := c.e[0].Issend(1, 4, nil)
				sends := []Request{s, c.e[0].Isend(1, 5, fill(size, 1)), c.e[0].Isend(1, 5, fill(8, 2))}
				m := hold(t, c.e[1], 5)
				require.Equal(t, Status{0, 5, int64(size)}, m.Status())
				eager := size <= 256
				require.Equal(t, eager, m.Bytes() != nil)
				if eager {
					require.Equal(t, fill(size, 1), m.Bytes())
				} else {
					open(t, sends[1])
				}
				before := c.e[1].Metrics().UnexpectedBytes
				require.Equal(t, int64(8), probed(t, c.e[1], 0, 5, exact).Len)
				use(c, m)
				require.Equal(t, eager, c.e[1].Metrics().UnexpectedBytes < before)
				require.Nil(t, m.Bytes())
				_, err := m.Recv(bg, nil)
				require.Equal(t, ErrInactive, err)
				_, err = ended(t, m.Irecv(nil))
				require.Equal(t, ErrInactive, err)
				m.Discard()
				require.Equal(t, fill(8, 2), c.take(0, 1, 5))
				none := hold(t, c.e[1], 4)
				require.Nil(t, none.Bytes(), "of a synchronous send nothing has come")
				none.Discard()
				c.step()
				succeeded(t, sends...)
				c.quiet()
				c.balanced()
			})
		}
	}
}

// Probes that wait have their place among the receives: a message ends those before its receive, or
// before the matched probe that takes it.
func TestProbesInOrder(t *testing.T) {
	for _, size := range sizes {
		for _, opts := range []fakeOpts{{}, {tags: 4}, {tags: 4, software: true}} {
			c := newCluster(t, 2, Config{Manual: true}, opts)
			var ms [2]Message
			bufs := [2][]byte{make([]byte, size), make([]byte, size)}
			first := c.e[1].Irecv(0, 5, exact, bufs[0])
			look, any := c.probe(1, 0, 5, exact, nil), c.probe(1, AnySource, 0, 0, nil)
			other := c.probe(1, 0, 6, exact, nil)
			take := c.probe(1, AnySource, 4, ^uint64(1), &ms[0])
			behind := c.probe(1, 0, 5, exact, nil)
			second := c.e[1].Irecv(0, 5, exact, bufs[1])
			last := c.probe(1, 0, 5, exact, &ms[1])

			send := func(seed byte) Request { return c.e[0].Isend(1, 5, fill(size, seed)) }
			sends := []Request{send(1)}
			c.step()
			c.got(first, bufs[0], size, 1)
			open(t, look, any, other, take, behind, second, last)
			sends = append(sends, send(2))
			c.step()
			for _, r := range []Request{look, any, take} {
				require.Equal(t, Status{0, 5, int64(size)}, statusOf(t, r))
			}
			open(t, other, behind, second, last)
			require.Zero(t, c.e[1].Metrics().UnexpectedNow)
			sends = append(sends, send(3))
			c.step()
			require.Equal(t, Status{0, 5, int64(size)}, statusOf(t, behind))
			c.got(second, bufs[1], size, 3)
			open(t, other, last)
			sends = append(sends, send(4), c.e[0].Isend(1, 6, nil))
			c.step()
			require.Equal(t, Status{0, 6, 0}, statusOf(t, other))
			require.Equal(t, Status{0, 5, int64(size)}, statusOf(t, last))
			for i, seed := range []byte{2, 4} {
				buf := make([]byte, size)
				r := ms[i].Irecv(buf)
				c.step()
				c.got(r, buf, size, seed)
			}
			require.Empty(t, c.take(0, 1, 6))
			succeeded(t, sends...)
			c.quiet()
			c.balanced()
		}
	}
}

// A device never gets a probe, nor a later receive that overlaps it, before the probe has ended.
func TestProbeStaysInSoftware(t *testing.T) {
	c := newCluster(t, 2, Config{Manual: true}, fakeOpts{tags: 4})
	e := c.e[1]
	buf := make([]byte, 8)
	look := c.probe(1, 0, 5, exact, nil)
	var m Message
	take := c.probe(1, 0, 4, ^uint64(1), &m)
	r := e.Irecv(0, 5, exact, buf)
	apart := e.Irecv(0, 9, exact, nil)
	c.step()
	require.Equal(t, opPosted, look.op.state)
	require.Equal(t, opPosted, take.op.state)
	require.Equal(t, opPosted, r.op.state, "V6")
	require.Equal(t, opOffloaded, apart.op.state)
	require.EqualValues(t, 1, e.Metrics().Offload.KeptOverlap)
	require.NoError(t, c.e[0].Send(bg, 1, 5, fill(8, 1)))
	c.step()
	require.EqualValues(t, 8, statusOf(t, look).Len)
	require.EqualValues(t, 8, statusOf(t, take).Len)
	require.Equal(t, opOffloaded, r.op.state)
	require.NoError(t, c.e[0].Send(bg, 1, 5, fill(8, 2)))
	c.step()
	c.got(r, buf, 8, 2)
	require.Equal(t, fill(8, 1), m.Bytes())
	m.Discard()
	apart.Cancel()
	c.step()
	canceled(t, apart)
	c.quiet()
}

// The end of a probe's context, the loss of its source, an abort and a close end it.
func TestProbesEnd(t *testing.T) {
	c := manual(t, 3, fakeOpts{})
	e := c.e[0]
	ctx := func() context.Context { return &patience{Context: bg} }
	_, err := e.Probe(ctx(), 1, 5, exact)
	require.Equal(t, context.DeadlineExceeded, err)
	_, err = e.Mprobe(ctx(), 1, 5, exact)
	require.Equal(t, context.DeadlineExceeded, err)
	over, cancel := context.WithCancel(bg)
	cancel()
	c.e[1].Isend(0, 5, nil)
	_, err = e.Probe(over, 1, 5, exact)
	require.Equal(t, context.Canceled, err)
	_, err = e.Mprobe(over, 1, 5, exact)
	require.Equal(t, context.Canceled, err)
	require.Empty(t, c.take(1, 0, 5))

	var ms [4]Message
	from1, from2, any := c.probe(0, 1, 6, exact, &ms[0]), c.probe(0, 2, 7, exact, nil), c.probe(0, AnySource, 8, exact, &ms[1])
	c.net.kill(2)
	c.step()
	open(t, from1)
	requireLost(t, 2, from2, any)
	for _, src := range []int{2, AnySource} {
		_, _, err = e.Iprobe(src, 5, exact)
		require.ErrorIs(t, err, ErrPeerLost)
		_, _, err = e.Improbe(src, 5, exact)
		require.ErrorIs(t, err, ErrPeerLost)
		_, err = e.Probe(bg, src, 5, exact)
		require.ErrorIs(t, err, ErrPeerLost)
		_, err = e.Mprobe(bg, src, 5, exact)
		require.ErrorIs(t, err, ErrPeerLost)
	}
	e.AckFailures(AnySource, 2)
	nothingFor(t, e, AnySource, 5, exact)
	_, _, err = e.Iprobe(7, 5, exact)
	require.ErrorIs(t, err, ErrInvalid)

	c.e[1].Isend(0, 5, fill(8, 1))
	c.e[1].Isend(0, 6, fill(1000, 1))
	m := hold(t, e, 5)
	require.EqualValues(t, 1000, statusOf(t, from1).Len)
	posted := c.probe(0, 1, 9, exact, &ms[2])
	require.NoError(t, e.Close(nil))
	for _, m := range []*Message{m, &ms[0]} {
		_, err = m.Recv(bg, nil)
		require.Equal(t, ErrClosed, err)
		m.Discard()
		require.Nil(t, m.Bytes())
	}
	_, err = ended(t, posted)
	require.Equal(t, ErrClosed, err)
	_, _, err = e.Improbe(1, 5, exact)
	require.Equal(t, ErrClosed, err)
}

// Of a lost rank what had come can be received, and what was still there cannot.
func TestMessageOfLostRank(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	e := c.e[1]
	c.e[0].Isend(1, 5, fill(8, 1))
	for range 3 {
		c.e[0].Isend(1, 6, fill(1000, 1))
	}
	here := hold(t, e, 5)
	ms := []*Message{hold(t, e, 6), hold(t, e, 6), hold(t, e, 6)}
	c.net.kill(0)
	e.Poll()
	require.Equal(t, []int{0}, e.Failed())
	require.Equal(t, fill(8, 1), here.Bytes())
	buf := make([]byte, 8)
	_, err := here.Recv(bg, buf)
	require.NoError(t, err)
	require.Equal(t, fill(8, 1), buf)
	_, err = ms[0].Recv(bg, nil)
	require.ErrorIs(t, err, ErrPeerLost)
	_, err = ms[0].Recv(bg, nil)
	require.Equal(t, ErrInactive, err)
	requireLost(t, 0, ms[1].Irecv(nil))
	ms[2].Discard()
	require.Zero(t, e.Metrics().UnexpectedBytes)
	require.Empty(t, e.held)
}

// A sender may take back what a matched probe has taken, until it is received.
func TestMessageWithdrawn(t *testing.T) {
	for _, when := range []string{"before", "meanwhile", "after"} {
		c := manual(t, 2, fakeOpts{revoke: true})
		c.net.nodes[1].holdRds = true
		s, other := c.e[0].Isend(1, 5, fill(1000, 1)), c.e[0].Isend(1, 5, fill(1000, 2))
		m, next := hold(t, c.e[1], 5), hold(t, c.e[1], 5)
		buf, rest := make([]byte, 1000), make([]byte, 1000)
		var r Request
		if when == "before" {
			s.Cancel()
			c.step()
			canceled(t, s)
			r = m.Irecv(buf)
			_, err := ended(t, r)
			require.Equal(t, errWithdrawn, err)
			require.ErrorIs(t, err, ErrInactive)
		} else if r = m.Irecv(buf); when == "meanwhile" {
			s.Cancel()
			c.step()
			canceled(t, s)
			_, err := ended(t, r)
			require.Equal(t, errWithdrawn, err)
		} else {
			c.net.nodes[1].holdRds = false
			c.step()
			s.Cancel()
			c.got(r, buf, 1000, 1)
			succeeded(t, s)
		}
		c.net.nodes[1].holdRds = false
		r = next.Irecv(rest)
		c.step()
		c.got(r, rest, 1000, 2)
		succeeded(t, other)
		require.Empty(t, c.e[1].held)
		c.quiet()
	}
}

// A deadline gives a message back that is being read, at its place: to a probe too. A context that
// has ended before leaves it with its holder.
func TestMessageGivenBack(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true})
	e := c.e[1]
	c.net.nodes[1].holdRds = true
	s := c.e[0].Isend(1, 5, fill(1000, 1))
	c.e[0].Isend(1, 5, fill(8, 2))
	m := hold(t, e, 5)
	over, cancel := context.WithCancel(bg)
	cancel()
	_, err := m.Recv(over, nil)
	require.Equal(t, context.Canceled, err)
	_, err = m.Recv(&patience{Context: bg}, make([]byte, 1000))
	require.Equal(t, context.DeadlineExceeded, err)
	_, err = m.Recv(bg, nil)
	require.Equal(t, ErrInactive, err)
	require.EqualValues(t, 1000, probed(t, e, 0, 5, exact).Len)
	c.net.nodes[1].holdRds = false
	require.Equal(t, fill(1000, 1), c.take(0, 1, 5))
	require.Equal(t, fill(8, 2), c.take(0, 1, 5))
	succeeded(t, s)
	c.quiet()
}

// RecvAlloc gives a slice as long as the message, up to the limit.
func TestRecvAlloc(t *testing.T) {
	for _, size := range sizes {
		for _, limit := range []int64{0, 1, int64(size), int64(size) + 1} {
			c := newCluster(t, 2, Config{}, fakeOpts{maxRead: 4096})
			s := c.e[0].Isend(1, 5, fill(size, 1))
			got, st, err := c.e[1].RecvAlloc(bg, 0, 5, exact, limit)
			want := fill(size, 1)
			if limit != 0 && limit < int64(size) {
				require.ErrorIs(t, err, ErrTruncated)
				want = want[:limit]
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, want, got)
			require.Equal(t, Status{0, 5, int64(size)}, st)
			_, err = s.Wait(bg)
			require.NoError(t, err)
		}
	}
	c := manual(t, 2, fakeOpts{revoke: true})
	got, _, err := c.e[1].RecvAlloc(&patience{Context: bg}, 0, 5, exact, 0)
	require.Equal(t, context.DeadlineExceeded, err)
	require.Nil(t, got)
	c.net.nodes[1].holdRds = true
	s := c.e[0].Isend(1, 5, fill(1000, 1))
	c.step()
	got, _, err = c.e[1].RecvAlloc(&patience{Context: bg}, 0, 5, exact, 0)
	require.Equal(t, context.DeadlineExceeded, err)
	require.Nil(t, got)
	c.net.nodes[1].holdRds = false
	require.Equal(t, fill(1000, 1), c.take(0, 1, 5))
	succeeded(t, s)
	require.Empty(t, alloc(1<<62, 0))
	require.Len(t, alloc(1<<62, 5), 5)
	c.quiet()
}

// What many goroutines take by matched probes they never take from each other.
func TestMatchedProbesDoNotSteal(t *testing.T) {
	const goroutines, each = 64, 20
	c := newCluster(t, 2, Config{}, fakeOpts{})
	size := func(i int) int { return []int{3, 1000, 300}[i%3] + i }
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[int64]int{}
	errs := make(chan error, goroutines)
	for g := range goroutines {
		wg.Go(func() {
			for range each {
				m, err := c.e[1].Mprobe(bg, AnySource, 5, exact)
				if err != nil {
					errs <- err
					return
				}
				buf := make([]byte, m.Status().Len)
				if lent := m.Bytes(); g%2 == 0 && lent != nil {
					copy(buf, lent)
					m.Discard()
				} else if _, err = m.Recv(bg, buf); err != nil {
					errs <- err
				}
				if string(buf) != string(fill(len(buf), byte(len(buf)))) {
					errs <- errors.New("bytes of another message")
				}
				mu.Lock()
				seen[m.Status().Len]++
				mu.Unlock()
			}
		})
	}
	for i := range goroutines * each {
		n := size(i)
		require.NoError(t, c.e[0].Send(bg, 1, 5, fill(n, byte(n))))
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(testlevel.Patience(time.Minute)):
		t.Fatal("not all messages have come")
	}
	require.Empty(t, errs)
	want := map[int64]int{}
	for i := range goroutines * each {
		want[int64(size(i))]++
	}
	require.Equal(t, want, seen)
}
