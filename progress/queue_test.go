package progress

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

func data(n int) Label {
	return Label{[3]uint64{uint64(n), uint64(n) * 3, ^uint64(n)}, bg}
}

// report requires that a queue reports these numbers next, and no more, and returns the
// completions.
func report(t testing.TB, q *Queue, numbers ...int) []Completion {
	t.Helper()
	out := make([]Completion, len(numbers)+1)
	n := q.Poll(out)
	require.Equal(t, len(numbers), n)
	for i, number := range numbers {
		require.Equal(t, data(number), out[i].Label)
	}
	return out[:n]
}

// Outcomes come in the order in which operations ended, each once, with what was given to Notify;
// the handle is inactive from Notify on, and what had ended before is there at once.
func TestQueue(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	q := c.e[0].NewQueue(1)
	var reqs []Request
	for i := range 4 {
		reqs = append(reqs, c.e[0].Irecv(1, uint64(i), exact, make([]byte, 8)))
		reqs[i].Notify(q, data(i))
		_, done, err := reqs[i].Test()
		require.True(t, done)
		require.ErrorIs(t, err, ErrInactive)
		_, err = reqs[i].Wait(bg)
		require.ErrorIs(t, err, ErrInactive)
		require.False(t, reqs[i].Active() || reqs[i].Reported())
		<-reqs[i].Done()
	}
	report(t, q)
	for _, i := range []int{2, 0, 3} {
		succeeded(t, c.e[1].Isend(0, uint64(i), fill(i, 1)))
		c.step()
	}
	for i, done := range report(t, q, 2, 0, 3) {
		require.NoError(t, done.Err)
		require.Equal(t, Status{1, uint64([]int{2, 0, 3}[i]), int64([]int{2, 0, 3}[i])}, done.Status)
	}
	require.True(t, reqs[2].Reported())
	require.False(t, reqs[1].Reported())

	sent := c.e[0].Isend(1, 9, nil)
	sent.Notify(q, data(10)) // ended before
	sent.Notify(q, data(11)) // inactive
	Request{}.Notify(q, data(12))
	c.e[0].Isend(7, 9, nil).Notify(q, data(13))
	failed := Failed(ErrFull)
	failed.Notify(q, data(14))
	_, _, err := failed.Test()
	require.ErrorIs(t, err, ErrInactive)
	foreign := c.e[1].Irecv(0, 77, exact, nil)
	foreign.Notify(q, data(15))
	out := report(t, q, 10, 11, 12, 13, 14, 15)
	for i, want := range []error{nil, ErrInactive, nil, ErrInvalid, ErrFull, ErrInvalid} {
		require.ErrorIs(t, out[i].Err, want, "%d", i)
	}
	require.Equal(t, nullSource, out[2].Status.Source)
	succeeded(t, c.e[0].Isend(1, 77, nil)) // which the operation takes that nobody waits for
	require.Empty(t, c.take(0, 1, 9))
	c.step()
	require.True(t, foreign.Reported())

	require.NoError(t, c.e[0].Close(nil))
	require.ErrorIs(t, report(t, q, 1)[0].Err, ErrClosed)
	_, err = q.Wait(bg, make([]Completion, 1))
	require.ErrorIs(t, err, ErrClosed)
	c.e[0].Irecv(1, 1, exact, nil).Notify(q, data(16))
	n, err := q.Wait(bg, make([]Completion, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// What a queue has when it is closed goes on without it.
func TestQueueClose(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	q := c.e[0].NewQueue(-1)
	recv := func(tag uint64) Request {
		r := c.e[0].Irecv(1, tag, exact, make([]byte, 8))
		r.Notify(q, data(0))
		return r
	}
	done, under := recv(1), recv(2)
	succeeded(t, c.e[1].Isend(0, 1, fill(8, 1)))
	c.step()
	require.NoError(t, q.Close())
	require.NoError(t, q.Close())
	require.True(t, done.Reported())
	require.False(t, under.Reported())
	late := recv(3)
	_, err := late.Wait(bg)
	require.ErrorIs(t, err, ErrInactive)
	for _, tag := range []uint64{2, 3} {
		succeeded(t, c.e[1].Isend(0, tag, fill(8, 1)))
	}
	c.step()
	require.True(t, under.Reported() && late.Reported())
	require.Zero(t, q.Poll(make([]Completion, 1)))
	_, err = q.Wait(bg, make([]Completion, 1))
	require.ErrorIs(t, err, ErrClosed)
	_, err = q.Wait(bg, nil)
	require.ErrorIs(t, err, ErrInvalid)
	c.quiet()
}

func TestFree(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	buf := make([]byte, 1000)
	under, ended, taken := c.e[0].Irecv(1, 1, exact, buf), c.e[0].Isend(1, 2, nil), c.e[0].Isend(1, 2, nil)
	succeeded(t, taken)
	for _, r := range []Request{{}, Failed(ErrFull), under, ended, taken, under} {
		r.Free()
		require.False(t, r.Active())
	}
	require.True(t, ended.Reported())
	var inert *Queue
	under.Notify(inert, data(1))
	s := c.e[1].Isend(0, 1, fill(1000, 3))
	c.step()
	succeeded(t, s)
	require.True(t, under.Reported())
	require.Equal(t, fill(1000, 3), buf)
	c.e[0].mu.Lock()
	require.Equal(t, under.op, c.e[0].pools.ops.free, "the operation is in the pool")
	c.e[0].mu.Unlock()
	require.Empty(t, c.take(0, 1, 2))
	require.Empty(t, c.take(0, 1, 2))
	c.quiet()
}

// A queue and those who poll it allocate nothing once they have what they need.
func TestQueueNoAllocation(t *testing.T) {
	e := newLoop(t)
	q, out, buf := e.NewQueue(0), make([]Completion, 4), make([]byte, 8)
	requireNoAllocation(t, 10000, "queue", func() error {
		e.Irecv(0, 1, exact, buf).Notify(q, data(1))
		e.Isend(0, 1, buf).Notify(q, data(2))
		for left := 2; left > 0; {
			n, err := q.Wait(bg, out)
			if err != nil {
				return err
			}
			left -= n
		}
		e.Irecv(0, 2, exact, buf).Free()
		if err := e.Send(bg, 0, 2, buf); err != nil {
			return err
		}
		e.Poll()
		return nil
	})
	var reqs [4]Request
	at := func(i int) Request { return reqs[i] }
	requireNoAllocation(t, 10000, "any of four", func() error {
		for i := range reqs {
			reqs[i] = e.Irecv(0, uint64(i), exact, buf)
		}
		for i := range reqs {
			if err := e.Send(bg, 0, uint64(i), buf); err != nil {
				return err
			}
			if err := e.AwaitAny(bg, len(reqs), at); err != nil {
				return err
			}
			if _, done, _, err := reqs[i].Take(); err != nil || !done {
				return errors.Join(err, errors.New("not the one that has ended"))
			}
			reqs[i] = Request{}
		}
		return nil
	})
}

// Many requests at a time.
func TestQueueOfManyRequests(t *testing.T) {
	n := rounds(100_000)
	c := newCluster(t, 2, Config{}, fakeOpts{})
	q := c.e[0].NewQueue(16)
	for i := range n {
		c.e[0].Irecv(1, uint64(i), exact, nil).Notify(q, data(i))
	}
	var sender sync.WaitGroup
	sender.Go(func() {
		for i := range n {
			if err := c.e[1].Send(bg, 0, uint64(n-1-i), nil); err != nil {
				t.Error(err)
			}
		}
	})
	out := make([]Completion, 64)
	for next := n - 1; next >= 0; {
		got, err := q.Wait(bg, out)
		require.NoError(t, err)
		for _, done := range out[:got] {
			require.NoError(t, done.Err)
			require.Equal(t, data(next), done.Label)
			next--
		}
	}
	sender.Wait() // the last Send may not have returned, though its message is here
	c.quiet()
}

// Many goroutines wait on a queue, with contexts that end and with room for few outcomes, while
// others poll it and give it requests. Each outcome goes to exactly one of them.
func TestManyWaitOnQueue(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		c := newCluster(t, 2, cfg, fakeOpts{})
		q := c.e[0].NewQueue(0)
		n := rounds(4000)
		var left atomic.Int64
		left.Store(int64(n))
		seen := make([]atomic.Int32, n)
		all, stop := context.WithCancel(bg)
		defer stop()
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(w), 0))
				out := make([]Completion, 3)
				for all.Err() == nil {
					for _, done := range out[:collect(t, all, rng, q, out)] {
						seen[done.Label.Words[0]].Add(1)
						if done.Err != nil {
							t.Error(done.Err)
						}
						if left.Add(-1) == 0 {
							stop()
						}
					}
				}
			})
		}
		for w := range 2 {
			wg.Go(func() {
				for i := w; i < n; i += 2 {
					c.e[0].Irecv(1, uint64(i), exact, nil).Notify(q, data(i))
				}
			})
			wg.Go(func() {
				for i := w; i < n; i += 2 {
					if err := c.e[1].Send(bg, 0, uint64(i), nil); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for i := range seen {
			require.EqualValues(t, 1, seen[i].Load(), "request %d", i)
		}
		c.quiet()
	})
}

// collect gets outcomes in one of the ways there are, perhaps none.
func collect(t *testing.T, all context.Context, rng *rand.Rand, q *Queue, out []Completion) int {
	out = out[:1+rng.IntN(len(out))]
	ctx, cancel := all, context.CancelFunc(func() {})
	switch rng.IntN(8) {
	case 0:
		return q.Poll(out)
	case 1:
		ctx, cancel = context.WithTimeout(all, time.Duration(rng.IntN(100))*time.Microsecond)
	}
	defer cancel()
	n, err := q.Wait(ctx, out)
	if err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	return n
}

// The end of an engine, or of a queue, ends those who wait there, whatever operations are under
// way.
func TestEndsWakeQueue(t *testing.T) {
	ends := map[string]func(c *cluster, q *Queue) error{
		"close the engine": func(c *cluster, _ *Queue) error { return c.e[0].Close(nil) },
		"close the queue":  func(_ *cluster, q *Queue) error { return q.Close() },
		"abort":            func(c *cluster, _ *Queue) error { c.e[0].Abort(ErrClosed); return nil },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T, cfg Config) {
				for i := range rounds(50) {
					c := newCluster(t, 2, cfg, fakeOpts{})
					q := c.e[0].NewQueue(0)
					if i%2 == 0 {
						c.e[0].Irecv(1, 1, exact, nil).Notify(q, data(1))
					}
					errs := make(chan error, 3)
					for range 3 {
						go func() {
							_, err := q.Wait(bg, make([]Completion, 2))
							for err == nil {
								_, err = q.Wait(bg, make([]Completion, 2))
							}
							errs <- err
						}()
					}
					if i%4 < 2 {
						time.Sleep(time.Duration(i) * 10 * time.Microsecond)
					}
					require.NoError(t, end(c, q))
					for range 3 {
						require.ErrorIs(t, <-errs, ErrClosed)
					}
				}
			})
		})
	}
}

// A request is given away, freed, cancelled, waited for and consumed by several goroutines at once,
// while its operation ends. Its outcome goes to one of them.
func TestGivingRaces(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		c := newCluster(t, 2, cfg, fakeOpts{})
		q := c.e[0].NewQueue(0)
		for i := range rounds(1000) {
			r := c.e[0].Irecv(1, uint64(i), exact, nil)
			var got, freed atomic.Int32
			took := func(err error) {
				if err == nil || errors.Is(err, ErrCanceled) {
					got.Add(1)
				}
			}
			var wg sync.WaitGroup
			wg.Go(func() { r.Notify(q, data(i)) })
			wg.Go(func() { _, err := r.Wait(bg); took(err) })
			wg.Go(func() {
				if _, done, err := r.Test(); done {
					took(err)
				}
			})
			wg.Go(func() { _, _, _ = r.Peek() })
			wg.Go(func() { _ = c.e[0].AwaitAny(bg, 1, func(int) Request { return r }) })
			if i%3 == 0 {
				wg.Go(func() { r.Free(); freed.Store(1) })
			}
			sent := c.e[1].Isend(0, uint64(i), nil)
			if i%2 == 0 {
				r.Cancel()
			}
			wg.Wait()
			var out [1]Completion
			n, err := q.Wait(bg, out[:])
			require.NoError(t, err)
			require.Equal(t, 1, n)
			took(out[0].Err)
			require.LessOrEqual(t, got.Load(), int32(1))
			require.GreaterOrEqual(t, got.Load()+freed.Load(), int32(1))
			_, err = sent.Wait(bg)
			require.NoError(t, err)
		}
	})
}

// As many goroutines get outcomes as there are outcomes, also where these come at once.
func TestQueueWakesAll(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		e := newCluster(t, 1, cfg, fakeOpts{}).e[0]
		q := e.NewQueue(0)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if n, err := q.Wait(bg, make([]Completion, 1)); n != 1 || err != nil {
					t.Error(n, err)
				}
			})
		}
		waiting := func() (n int) {
			e.mu.Lock()
			defer e.mu.Unlock()
			for c := q.calls.head; c != nil; c = c.next {
				n++
			}
			return n
		}
		require.Eventually(t, func() bool { return waiting() == 3 }, testlevel.Patience(10*time.Second), 10*time.Microsecond)
		e.mu.Lock()
		for i := range 3 {
			q.pushLocked(e.queues.entry(q, data(i)))
		}
		e.mu.Unlock()
		wg.Wait()
	})
}

// Who waits for many operations polls as long as the largest message in flight is worth.
func TestInFlightOfMany(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	e := c.e[0]
	q := e.NewQueue(0)
	e.Irecv(1, 1, exact, make([]byte, 100)).Notify(q, data(0))
	e.Isend(1, 2, fill(1000, 1)).Notify(q, data(1))
	e.Isend(1, 3, fill(500, 1)).Notify(q, data(2))
	reqs := []Request{e.Irecv(1, 4, exact, nil), e.Isend(1, 5, fill(2000, 1)), {}}
	e.mu.Lock()
	some := e.queues.call()
	require.Zero(t, some.InFlight())
	some.q = q
	require.EqualValues(t, 1000, some.InFlight())
	some.q = nil
	some.link(len(reqs), func(i int) Request { return reqs[i] })
	require.EqualValues(t, 2000, some.InFlight())
	require.False(t, some.Ended())
	e.mu.Unlock()
	for _, tag := range []uint64{2, 3, 5} {
		c.take(0, 1, tag)
	}
	require.True(t, some.Ended(), "one of them has ended")
	reqs[0].Cancel()
	canceled(t, reqs[0])
	succeeded(t, reqs[1])
	report(t, q, 1, 2)
}
