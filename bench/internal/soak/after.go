package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

// after requires what must hold after a loss, and returns when all survivors have come that far.
func (l *watch) after(t *totals) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace+hung)
	defer cancel()
	if err := l.refused(ctx); err != nil {
		return err
	}
	l.loss.Over = time.Now()
	if got := l.w.Failed(); !slices.Equal(got, []int{l.loss.Rank}) {
		return fmt.Errorf("ranks %v are lost, want rank %d alone", got, l.loss.Rank)
	}
	l.w.AckFailures(l.loss.Rank)
	if err := l.goOn(ctx, l.others(), t); err != nil {
		return fmt.Errorf("survivors of rank %d: %w", l.loss.Rank, err)
	}
	if err := l.leave(ctx, l.others()); err != nil {
		return fmt.Errorf("the agreement of the survivors of rank %d: %w", l.loss.Rank, err)
	}
	return nil
}

// refused requires that each kind of call that depends on the lost rank fails and names it.
func (l *watch) refused(ctx context.Context) error {
	w, c, rank, buf := l.w, l.w.Comm(), l.loss.Rank, make([]byte, l.size)
	for name, call := range map[string]func() error{
		"Send":                 func() error { return c.Send(ctx, rank, tagUnheard, nil) },
		"Send of a long one":   func() error { return c.Send(ctx, rank, tagUnheard, buf) },
		"Ssend":                func() error { return w.Ssend(ctx, rank, tagUnheard, nil) },
		"Recv":                 func() error { return second(c.Recv(ctx, rank, tagUnsent, nil)) },
		"Recv from any source": func() error { return second(c.Recv(ctx, p2p.AnySource, tagUnsent, nil)) },
		"raw Recv":             func() error { return second(w.Recv(ctx, tagUnsent, p2p.MaskExact, nil)) },
		"Probe":                func() error { return second(c.Probe(ctx, rank, tagUnsent)) },
		"Mprobe":               func() error { return second(w.Mprobe(ctx, tagUnsent, p2p.MaskExact)) },
		"Dup":                  func() error { return second(c.Dup(ctx)) },
	} {
		if err := call(); !l.named(err) {
			return fmt.Errorf("%s after the loss of rank %d: %w", name, rank, orNone(err))
		}
	}
	return nil
}

func second[T any](_ T, err error) error { return err }

// goOn sends checked messages to the next survivor, and receives those of the previous one from any
// source.
func (l *watch) goOn(ctx context.Context, others []int, t *totals) error {
	c := l.w.Comm()
	me := slices.Index(others, c.Rank())
	next, prev := others[(me+1)%len(others)], others[(me+len(others)-1)%len(others)]
	scratch, buf := make([]byte, l.size), make([]byte, l.size)
	for i, size := range []int{0, min(8, l.size), l.size} {
		tag := tagAfter<<8 + p2p.Tag(i)
		out := message{src: c.Rank(), dst: next, seq: i, size: size, key: c.Rank()<<8 + i}
		in := message{src: prev, dst: c.Rank(), seq: i, size: size, key: prev<<8 + i}
		st, err := c.Sendrecv(ctx, next, tag, out.contents(scratch), p2p.AnySource, tag, buf)
		if err == nil && st != (p2p.Status{Source: prev, Tag: tag, Len: int64(size)}) {
			err = fmt.Errorf("got %+v from rank %d, want %d bytes with tag %#x", st, prev, size, tag)
		}
		if err == nil {
			err = in.compare(buf[:size], scratch)
		}
		if err != nil {
			return err
		}
		t.Messages++
		t.Bytes += uint64(size)
	}
	return nil
}

// leave returns when no survivor needs another one: the first of them has heard from all, and says
// so.
func (l *watch) leave(ctx context.Context, others []int) error {
	c, first := l.w.Comm(), others[0]
	if c.Rank() != first {
		return errors.Join(c.Send(ctx, first, tagDone, nil), second(c.Recv(ctx, first, tagDone, nil)))
	}
	for _, rank := range others[1:] {
		if _, err := c.Recv(ctx, rank, tagDone, nil); err != nil {
			return err
		}
	}
	for _, rank := range others[1:] {
		if err := c.Send(ctx, rank, tagDone, nil); err != nil {
			return err
		}
	}
	return nil
}
