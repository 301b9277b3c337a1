package p2p_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// drain gets n completions of a queue, by their data.
func drain(t *testing.T, q *p2p.Queue, n int) map[uint64]p2p.Completion {
	got, out := map[uint64]p2p.Completion{}, make([]p2p.Completion, 20)
	for len(got) < n {
		m, err := q.Wait(background, out)
		require.NoError(t, err)
		for _, c := range out[:m] {
			require.NotContains(t, got, c.Data)
			got[c.Data] = c
		}
	}
	require.Zero(t, q.Poll(out))
	return got
}

// TestQueueReports has a queue report each kind of outcome, with the facts that Wait would give.
func TestQueueReports(t *testing.T) {
	other := single(t)
	p2ptest.Run(t, 1, func(w *p2p.World) {
		c, q := w.Comm(), w.NewQueue(4)
		consumed := w.Isend(0, 1, nil)
		_, err := consumed.Wait(background)
		require.NoError(t, err)
		canceled := w.Irecv(99, p2p.MaskExact, make([]byte, 1))
		canceled.Cancel()
		foreign := other.Isend(0, 5, nil)
		for data, r := range []p2p.Request{
			{},
			consumed,
			w.Irecv(1, p2p.MaskExact, nil),
			c.Irecv(0, 7, make([]byte, 5)),
			c.Irecv(p2p.AnySource, p2p.AnyTag, make([]byte, 8)),
			c.Isend(0, 7, []byte("too long")),
			w.Isend(3, 4, nil),
			canceled,
			c.Isend(p2p.ProcNull, 4, nil),
			foreign,
		} {
			r.Notify(q, uint64(data)<<60)
			_, err := r.Wait(background)
			if r != (p2p.Request{}) {
				require.ErrorIs(t, err, p2p.ErrInactive)
			}
		}
		require.NoError(t, c.Send(background, 0, 8, []byte("any")))
		got := drain(t, q, 10)
		for data, want := range []struct {
			st   p2p.Status
			text string
		}{
			{text: ""},
			{text: "p2p: send to 0, tag 0x1: request already completed"},
			{st: p2p.Status{Source: 0, Tag: 1}},
			{st: p2p.Status{Source: 0, Tag: 7, Len: 8}, text: "p2p: recv from 0, tag 0x7: message longer than the buffer: 8 bytes into 5"},
			{st: p2p.Status{Source: 0, Tag: 8, Len: 3}},
			{st: p2p.Status{Source: 0, Tag: 7, Len: 8}},
			{text: "p2p: send to 3, tag 0x4: invalid argument: rank 3 is out of range: destinations go from 0 to 0"},
			{text: "p2p: recv from any, tag 0x63: operation canceled by Cancel"},
			{text: ""},
			{text: "p2p: send to 0, tag 0x5: invalid argument: the request is of another World than the queue"},
		} {
			c := got[uint64(data)<<60]
			if want.text == "" {
				require.NoError(t, c.Err)
			} else {
				require.ErrorContains(t, c.Err, want.text, "%d", data)
			}
			if want.st == (p2p.Status{}) {
				want.st = p2p.Status{Source: p2p.ProcNull, Tag: p2p.AnyTag}
			}
			require.Equal(t, want.st, c.Status, "%d", data)
		}
		_, err = other.Recv(background, 5, p2p.MaskExact, nil)
		require.NoError(t, err)
		require.NoError(t, q.Close())
		_, err = q.Wait(background, make([]p2p.Completion, 1))
		require.ErrorIs(t, err, p2p.ErrClosed)
	})
}

func TestQueueArguments(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		q, out := w.NewQueue(-1), make([]p2p.Completion, 1)
		var none context.Context
		_, err := q.Wait(none, out)
		require.ErrorIs(t, err, p2p.ErrInvalid)
		_, err = q.Wait(background, nil)
		require.ErrorIs(t, err, p2p.ErrInvalid)
		ctx, cancel := context.WithTimeout(background, time.Millisecond)
		defer cancel()
		_, err = q.Wait(ctx, out)
		require.Equal(t, context.DeadlineExceeded, err)
		require.Zero(t, q.Poll(nil))
		var noQueue *p2p.Queue
		w.Isend(0, 1, nil).Notify(noQueue, 1)
		_, err = w.Recv(background, 1, p2p.MaskExact, nil)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		_, err = q.Wait(background, out)
		require.ErrorIs(t, err, p2p.ErrClosed)
	})
}

// TestQueueOfManyRequests drives 100,000 receives at a time, which several goroutines collect.
func TestQueueOfManyRequests(t *testing.T) {
	n := 100_000
	if !testlevel.CI() || invariant.Enabled {
		n = 10_000
	}
	for _, cfg := range []p2p.Config{{}, {Transport: "tmsrq", OffloadMin: -1}, {Device: "shm"}} {
		t.Run(cmp.Or(cfg.Device, "loop")+cfg.Transport, func(t *testing.T) {
			skipUnlessLinux(t, cfg.Device)
			p2ptest.RunConfig(t, 2, cfg, func(w *p2p.World) {
				if w.Rank() == 1 {
					_, err := w.Recv(background, 1, p2p.MaskExact, nil)
					require.NoError(t, err)
					for i := range n {
						require.NoError(t, w.Comm().Send(background, 0, p2p.Tag(n-i), []byte{byte(n - i)}))
					}
					return
				}
				receiveMany(t, w, n)
			})
		})
	}
}

func receiveMany(t *testing.T, w *p2p.World, n int) {
	q, buf := w.NewQueue(n), make([]byte, n+1)
	for i := 1; i <= n; i++ {
		w.Comm().Irecv(1, p2p.Tag(i), buf[i:i+1]).Notify(q, uint64(i))
	}
	require.NoError(t, w.Send(background, 1, 1, nil))
	ctx, stop := context.WithCancel(background)
	defer stop()
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			out := make([]p2p.Completion, 64)
			for {
				got, err := q.Wait(ctx, out)
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				for _, c := range out[:got] {
					if c.Err != nil || buf[c.Data] != byte(c.Data) || c.Status.Tag != p2p.Tag(c.Data) {
						t.Error(c, buf[c.Data])
					}
				}
				if left.Add(int64(-got)) == 0 {
					stop()
				}
			}
		})
	}
	wg.Wait()
}

// TestCompletionsDoNotAllocate goes through all the ways of being told, in the steady state.
func TestCompletionsDoNotAllocate(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		c, q, buf := w.Comm(), w.NewQueue(0), make([]byte, 8)
		out, reqs := make([]p2p.Completion, 4), make([]p2p.Request, 3)
		send, recv := c.SendInit(0, 9, buf[:1]), c.RecvInit(0, 9, buf[1:2])
		run := func() {
			var errs [8]error
			c.Irecv(0, 1, buf).Notify(q, 1)
			c.Isend(0, 1, buf).Notify(q, 2)
			for left := 2; left > 0; {
				n, err := q.Wait(background, out)
				errs[0] = err
				left -= n
			}
			for i := range reqs {
				reqs[i] = c.Irecv(0, p2p.Tag(i), buf)
			}
			for i := range reqs {
				errs[i] = c.Send(background, 0, p2p.Tag(i), nil)
			}
			_, _, errs[3] = p2p.WaitAny(background, reqs)
			_, errs[4] = p2p.WaitSome(background, reqs, out)
			errs[5] = p2p.WaitAll(background, reqs, nil)
			reqs[0], reqs[1] = recv.Start(), send.Start()
			for done := false; !done; {
				done, errs[6] = p2p.TestAll(reqs, nil)
			}
			_, errs[7] = c.Sendrecv(background, 0, 3, buf[:4], 0, 3, buf[4:])
			for _, err := range errs {
				if err != nil {
					t.Error(err)
				}
			}
		}
		for range 1000 {
			run()
		}
		if !invariant.Enabled { // what is known of each operation is allocated
			require.Zero(t, testing.AllocsPerRun(5000, run))
		}
	})
}

// TestFreed has operations finish that nobody asks for any more.
func TestFreed(t *testing.T) {
	eachWiring(t, p2p.Config{}, func(t *testing.T, cfg p2p.Config) { // who waits for Done moves nothing
		p2ptest.RunConfig(t, 2, cfg, func(w *p2p.World) { freed(t, w) })
	})
}

func freed(t *testing.T, w *p2p.World) {
	c, other := w.Comm(), 1-w.Rank()
	for _, size := range []int{8, 300_000} {
		in, out := make([]byte, size), make([]byte, size)
		out[size-1] = byte(size)
		recv, send := c.Irecv(other, 1, in), c.Isend(other, 1, out)
		arrived, left := recv.Done(), send.Done()
		for _, r := range []p2p.Request{recv, send, recv, {}} {
			r.Free()
			_, _, err := r.Peek()
			if r != (p2p.Request{}) {
				require.ErrorIs(t, err, p2p.ErrInactive)
			}
			<-r.Done()
		}
		<-arrived // asked for before
		<-left
		require.Equal(t, byte(size), in[size-1])
	}
}

// What was given to a Queue can be cancelled, each by its handle or all at once, and is reported.
func TestQueueCancel(t *testing.T) {
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		c, other := w.Comm(), 1-w.Rank()
		q := w.NewQueue(0)
		const n = 40
		var first p2p.Request
		for i := range n {
			r := c.Irecv(other, p2p.Tag(i), make([]byte, 100<<(i%12)))
			if i == 0 {
				first = r
			}
			r.Notify(q, uint64(i))
		}
		out := make([]p2p.Completion, n)
		first.Cancel()
		got, err := q.Wait(background, out)
		require.NoError(t, err)
		require.Equal(t, 1, got)
		require.Zero(t, out[0].Data)
		require.ErrorIs(t, out[0].Err, p2p.ErrCanceled)
		first.Cancel() // which is over
		meetUp(t, c, 1000)

		c.Isend(other, 7, []byte("message")).Notify(q, n) // for one of them, before or after the Cancel
		q.Cancel()
		canceled, sent := 0, false
		for left := n; left > 0; left -= got {
			got, err = q.Wait(background, out)
			require.NoError(t, err)
			for _, d := range out[:got] {
				switch {
				case d.Data == n:
					sent = true
				case d.Err != nil:
					require.ErrorIs(t, d.Err, p2p.ErrCanceled)
					canceled++
				default:
					require.EqualValues(t, 7, d.Data)
				}
			}
		}
		require.True(t, sent)
		require.GreaterOrEqual(t, canceled, n-2)
		if canceled == n-1 { // the message of the other rank is for a receive
			_, err := c.Recv(background, other, 7, make([]byte, 7))
			require.NoError(t, err)
		}
		q.Cancel()
		require.Zero(t, q.Poll(out))
		require.NoError(t, q.Close())
		_, err = q.Wait(background, out)
		require.EqualError(t, err, "p2p: queue closed")
		require.ErrorIs(t, err, p2p.ErrClosed)
	})
}
