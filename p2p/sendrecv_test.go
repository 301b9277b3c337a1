package p2p_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestSendrecvRing passes messages on around a ring, in place, overlapping and apart, from empty to
// several chunks of a rendezvous, and to this rank itself where it is alone.
func TestSendrecvRing(t *testing.T) {
	for _, n := range []int{1, 3} {
		onWirings(t, n, p2p.Config{}, func(t *testing.T, w *p2p.World) {
			c := w.Comm()
			next, prev := (w.Rank()+1)%n, (w.Rank()+n-1)%n
			for _, size := range []int{0, 1, 1000, 600_000} {
				for _, shift := range []int{0, 3, size} { // in place, overlapping, apart
					buf := bytes.Repeat([]byte{byte(w.Rank())}, size+shift)
					for step := 1; step <= n; step++ {
						st, err := c.Sendrecv(background, next, p2p.Tag(step), buf[:size], prev, p2p.Tag(step), buf[shift:])
						require.NoError(t, err)
						require.Equal(t, p2p.Status{Source: prev, Tag: p2p.Tag(step), Len: int64(size)}, st)
						from := byte((w.Rank() + n*n - step) % n)
						require.True(t, bytes.Equal(bytes.Repeat([]byte{from}, size), buf[shift:]))
						copy(buf, buf[shift:])
					}
				}
			}
		})
	}
}

// TestSendrecvArguments gives Sendrecv peers that are not there, and what it refuses; then it has
// neither sent nor received.
func TestSendrecvArguments(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		c, in := w.Comm(), make([]byte, 4)
		st, err := c.Sendrecv(background, p2p.ProcNull, 1, nil, p2p.ProcNull, 1, in)
		require.NoError(t, err)
		require.Equal(t, p2p.ProcNull, st.Source)
		st, err = c.Sendrecv(background, 0, 1, []byte("data"), p2p.ProcNull, 1, in)
		require.NoError(t, err)
		require.Equal(t, p2p.ProcNull, st.Source)
		ended, cancel := context.WithCancel(background)
		cancel()
		var none context.Context
		for _, call := range []struct {
			ctx      context.Context
			dst, src int
			stag     p2p.Tag
			rtag     p2p.Tag
			want     error
			op       string
		}{
			{none, 0, 0, 1, 1, p2p.ErrInvalid, "send"},
			{none, p2p.ProcNull, 0, 1, 1, p2p.ErrInvalid, "send"},
			{background, 1, 0, 1, 1, p2p.ErrInvalid, "send"},
			{background, 0, 1, 1, 1, p2p.ErrInvalid, "recv"},
			{background, 0, 0, p2p.MaxCommTag + 1, 1, p2p.ErrInvalid, "send"},
			{background, 0, 0, 1, p2p.MaxCommTag + 1, p2p.ErrInvalid, "recv"},
			{ended, 0, 0, 1, 1, context.Canceled, "send"},
			{ended, p2p.ProcNull, p2p.ProcNull, 1, 1, context.Canceled, "send"},
		} {
			_, err := c.Sendrecv(call.ctx, call.dst, call.stag, []byte("lost"), call.src, call.rtag, in)
			require.ErrorIs(t, err, call.want)
			var op *p2p.OpError
			require.ErrorAs(t, err, &op)
			require.Equal(t, call.op, op.Op)
		}
		st, err = c.Sendrecv(background, p2p.ProcNull, 1, nil, p2p.AnySource, p2p.AnyTag, in)
		require.NoError(t, err)
		require.EqualValues(t, 4, st.Len)
		require.Equal(t, "data", string(in), "the others have neither sent nor received")
		st, err = c.Sendrecv(background, 0, 1, []byte("long"), 0, 1, in[:2])
		require.ErrorIs(t, err, p2p.ErrTruncated)
		require.EqualValues(t, 4, st.Len)
		require.Equal(t, "lo", string(in[:2]))
	})
}

// TestSendrecvCanceled has two ranks call Sendrecv with each other under contexts that end at any
// time. Whatever comes of it, the buffers are the program's when it returns.
func TestSendrecvCanceled(t *testing.T) {
	rounds := 300
	if !testlevel.CI() {
		rounds = 60
	}
	var all, failed atomic.Int64 // calls that succeeded, and that did not
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		c, other := w.Comm(), 1-w.Rank()
		rng := rand.New(rand.NewPCG(uint64(w.Rank()), 0))
		var last []byte
		succeeded := 0
		for round := range rounds {
			size := []int{8, 3000, 400_000}[round%3]
			out := bytes.Repeat([]byte{byte(round), byte(other)}, size/2)
			in := make([]byte, size)
			ctx, cancel := soon(rng)
			st, err := c.Sendrecv(ctx, other, p2p.Tag(round), out, other, p2p.Tag(round), in)
			cancel()
			clear(out) // what is sent was sent before
			switch {
			case err == nil:
				succeeded++
				require.EqualValues(t, size, st.Len)
				require.True(t, bytes.Equal(bytes.Repeat([]byte{byte(round), byte(w.Rank())}, size/2), in))
			default:
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			require.True(t, bytes.Equal(make([]byte, len(last)), last), "a buffer was written to after its call")
			clear(in)
			last = in
			if round%16 == 0 { // or one of them is ahead for good
				meetUp(t, c, p2p.Tag(rounds+round))
			}
		}
		t.Logf("%d of %d have succeeded", succeeded, rounds)
		all.Add(int64(succeeded))
		failed.Add(int64(rounds - succeeded))
	})
	require.NotZero(t, all.Load())
	require.NotZero(t, failed.Load(), "no context has ended before its call")
}

// meetUp waits for the other of two ranks.
func meetUp(t *testing.T, c *p2p.Comm, tag p2p.Tag) {
	_, err := c.Sendrecv(background, 1-c.Rank(), tag, nil, 1-c.Rank(), tag, nil)
	require.NoError(t, err)
}

// TestPersistent starts the same operations again and again.
func TestPersistent(t *testing.T) {
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		c, other := w.Comm(), 1-w.Rank()
		for _, size := range []int{0, 8, 300_000} {
			in, out := make([]byte, size), make([]byte, size)
			recv := c.RecvInit(other, 1, in)
			for round, send := range []*p2p.Persistent{c.SendInit(other, 1, out), c.SsendInit(other, 1, out)} {
				for step := range 20 {
					clear(in)
					for i := range out {
						out[i] = byte(round + step + w.Rank())
					}
					reqs := []p2p.Request{recv.Start(), send.Start()}
					require.NoError(t, p2p.WaitAll(background, reqs, nil))
					require.True(t, bytes.Equal(bytes.Repeat([]byte{byte(round + step + other)}, size), in))
				}
			}
		}
	})
}

// TestPersistentStarts starts an operation before its last request was reported: by Wait, by a
// Queue, or, after Free, by nobody.
func TestPersistentStarts(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		c, q := w.Comm(), w.NewQueue(1)
		recv, send := c.RecvInit(0, 1, make([]byte, 1)), c.SendInit(0, 1, make([]byte, 1))
		refused := func(p *p2p.Persistent, name string) {
			r := p.Start()
			_, err := r.Wait(background)
			require.ErrorIs(t, err, p2p.ErrInvalid)
			require.ErrorContains(t, err, name)
		}
		done := func(r p2p.Request) {
			_, err := r.Wait(background)
			require.NoError(t, err)
		}
		r := recv.Start()
		refused(recv, "p2p: recv from 0, tag 0x1: invalid argument: the request of the last Start")
		s := send.Start()
		<-s.Done()
		refused(send, "p2p: send to 0, tag 0x1: invalid argument: the request of the last Start")
		done(s)
		<-r.Done()
		refused(recv, "last Start")
		done(r)

		r = recv.Start()
		r.Notify(q, 1)
		refused(recv, "last Start")
		done(send.Start())
		out := make([]p2p.Completion, 1)
		refused(recv, "last Start") // it may have ended, and was not reported
		_, err := q.Wait(background, out)
		require.NoError(t, err)
		r = recv.Start()
		r.Free()
		refused(recv, "last Start")
		done(send.Start())
		for {
			r := recv.Start()
			if _, done, err := r.Peek(); done && errors.Is(err, p2p.ErrInvalid) {
				_, _, _ = r.Test()
				continue
			}
			done(send.Start())
			done(r)
			break
		}
		for _, p := range []*p2p.Persistent{c.SendInit(p2p.ProcNull, 1, nil), c.RecvInit(p2p.ProcNull, 1, nil)} {
			done(p.Start())
			r := p.Start()
			refused(p, "last Start")
			done(r)
			done(p.Start())
		}
		for _, p := range []*p2p.Persistent{c.SendInit(5, 1, nil), c.SsendInit(5, 1, nil), c.RecvInit(5, 1, nil)} {
			for range 2 {
				_, err := p.Start().Wait(background)
				require.ErrorContains(t, err, "rank 5 is out of range")
			}
		}
	})
}
