package p2p_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// waitset is a slice of requests, and beside it what a naive model knows of each.
type waitset struct {
	t    *testing.T
	rng  *rand.Rand
	w    *p2p.World
	reqs []p2p.Request
	want []outcome
}

// outcome is what the model knows of a request.
type outcome struct {
	active, ended bool
	null          bool // with ProcNull
	tag           p2p.Tag
	len           int64
	err           error
}

const waitsetRoom = 8 // bytes of the buffers

// post puts a receive, a request that fails, or an inactive one into place i.
func (s *waitset) post(i int, tag p2p.Tag) {
	switch s.rng.IntN(9) {
	case 0:
		s.reqs[i], s.want[i] = p2p.Request{}, outcome{}
	case 1:
		s.reqs[i] = s.w.Isend(s.w.Size(), tag, nil)
		s.want[i] = outcome{active: true, ended: true, err: p2p.ErrInvalid}
	case 2:
		s.reqs[i] = s.w.Comm().Irecv(p2p.ProcNull, p2p.AnyTag, nil)
		s.want[i] = outcome{active: true, ended: true, null: true}
	case 3: // consumed by another copy of the handle
		s.reqs[i] = s.w.Isend(0, tag, nil)
		_, err := s.reqs[i].Wait(background)
		require.NoError(s.t, err)
		_, err = s.w.Recv(background, tag, p2p.MaskExact, nil)
		require.NoError(s.t, err)
		s.want[i] = outcome{}
	default:
		s.reqs[i] = s.w.Irecv(tag, p2p.MaskExact, make([]byte, waitsetRoom))
		s.want[i] = outcome{active: true, tag: tag}
	}
}

// send ends the receive in place i, and waits until it has ended.
func (s *waitset) send(i int) {
	o := &s.want[i]
	o.ended, o.len = true, int64(s.rng.IntN(2*waitsetRoom))
	require.NoError(s.t, s.w.Send(background, 0, o.tag, make([]byte, o.len)))
	if o.len > waitsetRoom {
		o.err = p2p.ErrTruncated
	}
	for {
		st, done, err := s.reqs[i].Peek()
		if done {
			s.check(i, st, err)
			return
		}
	}
}

// check compares an outcome with the model's.
func (s *waitset) check(i int, st p2p.Status, err error) {
	o := s.want[i]
	require.ErrorIs(s.t, err, o.err)
	if o.active && !o.null && (o.err == nil || errors.Is(o.err, p2p.ErrTruncated)) {
		require.Equal(s.t, p2p.Status{Source: 0, Tag: o.tag, Len: o.len}, st)
	} else {
		require.Equal(s.t, p2p.ProcNull, st.Source)
	}
}

// consumed compares what was consumed with the model's, by indices, and follows it.
func (s *waitset) consumed(indices ...int) {
	for _, i := range indices {
		require.True(s.t, s.reqs[i] == p2p.Request{}, "request %d is left in the slice", i)
		s.want[i] = outcome{}
	}
	for i, o := range s.want {
		require.False(s.t, o.active && s.reqs[i] == p2p.Request{}, "request %d was consumed", i)
	}
}

// model returns the indices of the requests that have ended, and how many are active.
func (s *waitset) model() (ended []int, active int) {
	for i, o := range s.want {
		if o.active {
			active++
			if o.ended {
				ended = append(ended, i)
			}
		}
	}
	return ended, active
}

// refused is the error of a call that was refused, where there is one.
func (s *waitset) refused() error {
	for _, o := range s.want {
		if o.active && errors.Is(o.err, p2p.ErrInvalid) {
			return o.err
		}
	}
	return nil
}

func (s *waitset) all(done bool, err error, out []p2p.Completion) {
	ended, active := s.model()
	require.Equal(s.t, len(ended) == active, done)
	if !done {
		require.ErrorIs(s.t, err, s.refused())
		s.consumed()
		return
	}
	var first error
	for i, o := range s.want {
		if first == nil {
			first = o.err
		}
		require.EqualValues(s.t, i, out[i].Data)
		s.check(i, out[i].Status, out[i].Err)
	}
	require.ErrorIs(s.t, err, first)
	s.consumed(ended...)
}

func (s *waitset) any(i int, st p2p.Status, err error) {
	ended, active := s.model()
	switch {
	case len(ended) != 0:
		require.Equal(s.t, ended[0], i)
		s.check(i, st, err)
		s.consumed(i)
	case active != 0:
		require.Equal(s.t, -1, i)
		s.consumed()
	default:
		require.Equal(s.t, -1, i)
		require.NoError(s.t, err)
	}
}

func (s *waitset) some(out []p2p.Completion) {
	ended, _ := s.model()
	require.Len(s.t, out, min(len(ended), len(out)))
	for n, c := range out {
		require.EqualValues(s.t, ended[n], c.Data)
		s.check(ended[n], c.Status, c.Err)
	}
	s.consumed(ended[:len(out)]...)
}

// call calls one of the functions, and compares what it does with the model.
func (s *waitset) call() {
	ended, active := s.model()
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	stuck := len(ended) == 0 && active != 0 // a function that waits would wait for ever
	if stuck {
		cancel()
	}
	out := make([]p2p.Completion, len(s.reqs))
	switch s.rng.IntN(6) {
	case 0:
		if len(ended) != active && s.refused() == nil {
			cancel()
			require.Equal(s.t, context.Canceled, p2p.WaitAll(ctx, s.reqs, out))
			s.consumed()
			return
		}
		err := p2p.WaitAll(ctx, s.reqs, out)
		s.all(len(ended) == active, err, out)
	case 1:
		done, err := p2p.TestAll(s.reqs, out)
		s.all(done, err, out)
	case 2:
		i, st, done, err := p2p.TestAny(s.reqs)
		require.Equal(s.t, !stuck, done)
		s.any(i, st, err)
	case 3:
		i, st, err := p2p.WaitAny(ctx, s.reqs)
		if stuck {
			require.Equal(s.t, context.Canceled, err)
		}
		s.any(i, st, err)
	case 4:
		out = out[:1+s.rng.IntN(len(out))]
		n, err := p2p.WaitSome(ctx, s.reqs, out)
		require.Equal(s.t, stuck, err != nil)
		require.LessOrEqual(s.t, n, len(out))
		require.Equal(s.t, min(len(ended), len(out)), n)
		s.some(out[:n])
	default:
		out = out[:s.rng.IntN(1+len(out))]
		n, left := p2p.TestSome(s.reqs, out)
		require.Equal(s.t, min(len(ended), len(out)), n)
		require.Equal(s.t, active > n, left)
		s.some(out[:n])
	}
}

// TestWaitsets plays the functions on slices against a naive model of them.
func TestWaitsets(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, mode := range []p2p.ProgressMode{p2p.ProgressAuto, p2p.ProgressManual} {
		p2ptest.RunConfig(t, 1, p2p.Config{Progress: mode}, func(w *p2p.World) {
			s := &waitset{t: t, rng: rand.New(rand.NewPCG(seed, 0)), w: w, reqs: make([]p2p.Request, 6), want: make([]outcome, 6)}
			for round := range 3000 {
				i := s.rng.IntN(len(s.reqs))
				switch o := s.want[i]; {
				case !o.active:
					s.post(i, p2p.Tag(round))
				case !o.ended && s.rng.IntN(2) == 0:
					s.send(i)
				}
				s.call()
			}
			for i := range s.reqs {
				s.reqs[i].Cancel()
				_, _ = s.reqs[i].Wait(background)
			}
		})
	}
}

// TestWaitsetArguments gives the functions what they cannot do: an error says so, and nothing is
// consumed.
func TestWaitsetArguments(t *testing.T) {
	var worlds [2]*p2p.World
	for i := range worlds {
		worlds[i] = single(t)
	}
	send := func(w *p2p.World) p2p.Request { return w.Isend(0, 1, nil) }
	reqs := []p2p.Request{{}, send(worlds[0]), send(worlds[1])}
	kept := append([]p2p.Request(nil), reqs...)
	out := make([]p2p.Completion, 2)
	var none context.Context
	_, _, err := p2p.WaitAny(background, reqs)
	require.ErrorIs(t, err, p2p.ErrInvalid)
	require.ErrorContains(t, err, "request 2 is of another World")
	_, err = p2p.WaitSome(background, reqs, out)
	require.ErrorIs(t, err, p2p.ErrInvalid)
	_, err = p2p.WaitSome(background, reqs, nil)
	require.ErrorIs(t, err, p2p.ErrInvalid)
	_, _, err = p2p.WaitAny(none, reqs)
	require.ErrorIs(t, err, p2p.ErrInvalid)
	_, err = p2p.WaitSome(none, reqs, out)
	require.ErrorIs(t, err, p2p.ErrInvalid)
	_, err = p2p.TestAll(reqs, out)
	require.ErrorIs(t, err, p2p.ErrInvalid)
	for i := range reqs {
		require.True(t, kept[i] == reqs[i])
	}
	for done := false; !done; { // of two Worlds: nothing waits, and a device may need some polls
		done, err = p2p.TestAll(reqs, nil)
		require.NoError(t, err)
	}
	for _, w := range worlds {
		_, err := w.Recv(background, 1, p2p.MaskExact, nil)
		require.NoError(t, err)
	}
}

// single makes a World of one rank, which does not take the place of the process's own.
func single(t *testing.T) *p2p.World {
	started, end := make(chan *p2p.World), make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		p2ptest.Run(t, 1, func(w *p2p.World) {
			started <- w
			<-end
		})
	}()
	t.Cleanup(func() {
		close(end)
		<-over
	})
	return <-started
}

// TestWaitAnyOverRanks has rank 0 wait for any of the messages of the others, while several of its
// goroutines do, over the same requests.
func TestWaitAnyOverRanks(t *testing.T) {
	for _, cfg := range []p2p.Config{{}, {Progress: p2p.ProgressManual}, {SpinLimit: -1}} {
		p2ptest.RunConfig(t, 3, cfg, func(w *p2p.World) {
			const rounds = 200
			c := w.Comm()
			for round := range rounds {
				if w.Rank() != 0 {
					require.NoError(t, c.Send(background, 0, p2p.Tag(round), []byte{1}))
					continue
				}
				var reqs []p2p.Request
				for src := 1; src < 3; src++ {
					reqs = append(reqs, c.Irecv(src, p2p.Tag(round), make([]byte, 1)))
				}
				got := make(chan int, 2)
				for range 2 {
					go func() {
						mine := append([]p2p.Request(nil), reqs...)
						n := 0
						for {
							i, st, err := p2p.WaitAny(background, mine)
							if i < 0 {
								break
							}
							if err != nil || st.Source != i+1 {
								t.Error(i, st, err)
							}
							n++
						}
						got <- n
					}()
				}
				require.Equal(t, 2, <-got+<-got)
			}
		})
	}
}

// TestWaitsetDeadlines has contexts end waits at any time: what was not consumed goes on.
func TestWaitsetDeadlines(t *testing.T) {
	for _, cfg := range []p2p.Config{{}, {Progress: p2p.ProgressManual}, {SpinLimit: -1}} {
		p2ptest.RunConfig(t, 2, cfg, func(w *p2p.World) {
			const n = 300
			c, rng := w.Comm(), rand.New(rand.NewPCG(1, 0))
			if w.Rank() == 1 {
				for i := range n {
					require.NoError(t, c.Send(background, 0, p2p.Tag(i), nil))
					time.Sleep(time.Duration(rng.IntN(20)) * time.Microsecond)
				}
				return
			}
			var reqs []p2p.Request
			for i := range n {
				reqs = append(reqs, c.Irecv(1, p2p.Tag(i), nil))
			}
			out := make([]p2p.Completion, 5)
			for left := n; left > 0; {
				ctx, cancel := context.WithTimeout(background, time.Duration(rng.IntN(60))*time.Microsecond)
				var got int
				var err error
				if rng.IntN(2) == 0 {
					got, err = p2p.WaitSome(ctx, reqs, out)
				} else if _, _, err = p2p.WaitAny(ctx, reqs); err == nil {
					got = 1
				}
				cancel()
				if err != nil {
					require.Equal(t, context.DeadlineExceeded, err)
				}
				left -= got
			}
			require.True(t, allInactive(reqs))
		})
	}
}

func allInactive(reqs []p2p.Request) bool {
	for _, r := range reqs {
		if r != (p2p.Request{}) {
			return false
		}
	}
	return true
}
