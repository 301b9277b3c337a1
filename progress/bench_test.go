package progress

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
)

// loopTransport is a rank talking to itself with next to no cost, so that benchmarks see the
// engine.
type loopTransport struct {
	fakeNode
	ring       [64][64]byte
	tags       [64]uint64
	lens       [64]int
	head, tail uint32
	granted    uint64
}

func (l *loopTransport) SendEager(_ int, _ uint32, tag uint64, payload []byte) error {
	if l.tail-l.head == uint32(len(l.ring)) {
		return transport.ErrAgain
	}
	i := l.tail % uint32(len(l.ring))
	l.tags[i], l.lens[i] = tag, copy(l.ring[i][:], payload)
	l.tail++
	return nil
}

func (l *loopTransport) Poll() (int, error) {
	if l.head == l.tail {
		return 0, nil
	}
	i := l.head % uint32(len(l.ring))
	l.head++
	l.sink.Eager(0, 0, l.tags[i], l.ring[i][:l.lens[i]])
	return 1, nil
}

func (l *loopTransport) Grant(_ int, total uint64) error { l.granted = total; return nil }
func (l *loopTransport) Granted(int) uint64              { return l.granted }

func newLoop(t testing.TB) *Engine { return newLoopOf(t, 0) }

// newLoopOf is newLoop with an unexpectedLimit.
func newLoopOf(t testing.TB, unexpectedLimit int64) *Engine {
	l := &loopTransport{fakeNode: *newFakeNet(1, fakeOpts{maxEager: 64}).nodes[0]}
	e, err := New(Config{Size: 1, Manual: true, seed: 1, UnexpectedLimit: unexpectedLimit}, func(s transport.Sink) (transport.Transport, error) {
		l.sink = s
		return l, nil
	})
	require.NoError(t, err)
	require.NoError(t, e.Connect(0, e.Address()))
	l.meet(e, 0)
	t.Cleanup(func() { require.NoError(t, e.Close(nil)) })
	return e
}

// paths are the ways of a small message that must not allocate.
var paths = map[string]func(ctx context.Context, e *Engine, buf []byte) error{
	"send-recv": func(ctx context.Context, e *Engine, buf []byte) error {
		if err := e.Send(ctx, 0, 1, buf); err != nil {
			return err
		}
		_, err := e.Recv(ctx, 0, 1, exact, buf)
		return err
	},
	"sendrecv": func(ctx context.Context, e *Engine, buf []byte) error {
		_, ok, err := e.Sendrecv(ctx, 0, 1, buf, 0, 1, exact, buf)
		if !ok {
			return errors.New("the send has not ended at once")
		}
		return err
	},
	"unexpected": func(ctx context.Context, e *Engine, buf []byte) error {
		if err := e.Send(ctx, 0, 1, buf); err != nil {
			return err
		}
		e.Poll()
		_, err := e.Recv(ctx, 0, 1, exact, buf)
		return err
	},
	"nonblocking": func(ctx context.Context, e *Engine, buf []byte) error {
		r := e.Irecv(0, 1, exact, buf)
		if _, err := e.Isend(0, 1, buf).Wait(ctx); err != nil {
			return err
		}
		_, err := r.Wait(ctx)
		return err
	},
	"parts": func(ctx context.Context, e *Engine, buf []byte) error {
		for i := range threeParts {
			threeParts[i] = buf
		}
		r := e.IrecvVec(0, 1, exact, threeParts)
		if _, err := e.IsendVec(0, 1, threeParts).Wait(ctx); err != nil {
			return err
		}
		_, err := r.Wait(ctx)
		return err
	},
	"wildcard": func(ctx context.Context, e *Engine, buf []byte) error {
		if err := e.Send(ctx, 0, 1, buf); err != nil {
			return err
		}
		_, err := e.Recv(ctx, AnySource, 0, 0, buf)
		return err
	},
}

// threeParts are not on a stack, from which they would escape.
var threeParts = make([][]byte, 3)

func TestNoAllocation(t *testing.T) {
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	for name, path := range paths {
		for _, ctx := range []context.Context{bg, ctx} {
			e := newLoop(t)
			buf := make([]byte, 8)
			requireNoAllocation(t, 10000, name, func() error { return path(ctx, e, buf) })
		}
	}
}

// requireNoAllocation runs f until it is warm, and then counts.
func requireNoAllocation(t *testing.T, runs int, name string, f func() error) {
	t.Helper()
	run := func() {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		run()
	}
	if invariant.Enabled {
		return // what is known of each operation is allocated
	}
	require.Zero(t, testing.AllocsPerRun(runs, run), name)
}

func BenchmarkMessage(b *testing.B) {
	for name, path := range paths {
		b.Run(name, func(b *testing.B) {
			e := newLoop(b)
			buf := make([]byte, 8)
			b.ReportAllocs()
			for b.Loop() {
				if err := path(bg, e, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("transport", func(b *testing.B) { // what the others contain that is not the engine's
		e := newLoop(b)
		buf := make([]byte, 8)
		tr := e.tr
		tr.(*loopTransport).sink = nullSink{}
		for b.Loop() {
			_ = tr.SendEager(0, 0, 1, buf)
			_, _ = tr.Poll()
		}
	})
}

// BenchmarkDepth is a message behind so many receives, or messages, that do not match.
func BenchmarkDepth(b *testing.B) {
	queue := map[string]func(e *Engine, tag uint64, buf []byte){
		"posted":     func(e *Engine, tag uint64, buf []byte) { e.Irecv(0, tag, exact, buf) },
		"masks":      func(e *Engine, tag uint64, buf []byte) { e.Irecv(AnySource, tag, exact&^(1<<(tag%16)), buf) },
		"unexpected": func(e *Engine, tag uint64, buf []byte) { _ = e.Send(bg, 0, tag, buf); e.Poll() },
	}
	for kind, queue := range queue {
		for _, depth := range []uint64{0, 16, 50_000} {
			b.Run(fmt.Sprintf("%s/%d", kind, depth), func(b *testing.B) {
				e := newLoop(b)
				buf := make([]byte, 8)
				for i := range depth {
					queue(e, 1<<32|i, buf)
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := paths["nonblocking"](bg, e, buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkWindow is a message of 64 that are posted and waited for together.
func BenchmarkWindow(b *testing.B) {
	e := newLoop(b)
	var reqs [64]Request
	buf := make([]byte, 8)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := &reqs[i%len(reqs)]
		if i >= len(reqs) {
			if _, err := r.Wait(bg); err != nil {
				b.Fatal(err)
			}
		}
		*r = e.Irecv(0, 1, exact, buf)
		if _, err := e.Isend(0, 1, buf).Wait(bg); err != nil {
			b.Fatal(err)
		}
	}
}

type nullSink struct{ transport.Sink }

func (nullSink) Eager(int, uint32, uint64, []byte) {}
