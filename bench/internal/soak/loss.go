package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
	"github.com/tagmatch/tagmatch/p2p"
)

// Loss is what a rank has seen of the end of another one.
type Loss struct {
	Rank int
	At   time.Time // when a receive from any source told of it
	Over time.Time // when all that depended on that rank had ended
}

// grace is how long what depends on survivors may go on when they all know of a loss: receives take
// what has arrived, sends end by that, and Dup and Split, which take half a second, by themselves.
const grace = 3 * time.Second

// hung is how long nothing that must end takes.
const hung = 20 * time.Second

// Tags of what only the loss of a rank ends, and of what survivors do after it, in the World's
// Comm.
const (
	tagUnsent  p2p.Tag = tagEnd + 1 + iota // nobody sends it
	tagUnheard                             // nobody receives it
	tagKnown
	tagAfter
	tagDone
)

// errLost tells that a round ended as it must where a rank is lost.
var errLost = errors.New("a rank is lost")

// errGrace ends what is left of a round.
var errGrace = errors.New("the round ended with the loss of a rank")

// Endure is Run until a rank is lost, which it calls ready for. It returns when all survivors have
// checked what must come of that: each operation with that rank, whatever it was in the middle of,
// ends with an error that names the rank; messages among the survivors arrive as before. Totals are
// those of this rank; with an error the Loss may be zero.
func Endure(w *p2p.World, o Options, ready func() error) (benchkit.Soak, Loss, error) {
	var t totals
	l := newWatch(w, o)
	defer l.stop(context.Canceled)
	if err := ready(); err != nil {
		return t.Soak, Loss{}, err
	}
	for {
		r := &round{Options: o, w: w, base: l.ctx, watch: l, seed: rand.Uint64() | 1}
		err := l.pardon(t.play(r))
		if errors.Is(err, errLost) {
			break
		}
		if err != nil {
			return t.Soak, Loss{}, err // watch.run may be writing l.loss
		}
	}
	err := l.after(&t)
	return t.Soak, l.loss, err
}

// watch hears of the loss of a rank.
type watch struct {
	w        *p2p.World
	size     int // of the largest message
	ctx      context.Context
	stop     context.CancelCauseFunc
	standing [][]p2p.Request // by rank: nothing but its loss ends them
	known    chan struct{}   // closed when loss and err are set
	loss     Loss
	err      error
}

func newWatch(w *p2p.World, o Options) *watch {
	l := &watch{w: w, size: o.Size, known: make(chan struct{})}
	l.ctx, l.stop = context.WithCancelCause(context.Background())
	c := w.Comm()
	for rank := range w.Size() {
		var list []p2p.Request
		if rank != w.Rank() {
			list = []p2p.Request{
				c.Irecv(rank, tagUnsent, make([]byte, o.Size)),
				c.RecvInit(rank, tagUnsent, make([]byte, 8)).Start(),
				c.Issend(rank, tagUnheard, make([]byte, 8)),
				c.Issend(rank, tagUnheard, make([]byte, o.Size)),
			}
		}
		l.standing = append(l.standing, list)
	}
	go l.run()
	return l
}

// run waits for a loss, then for all that depends on that rank, and ends the round.
func (l *watch) run() {
	defer close(l.known)
	_, err := l.w.Recv(l.ctx, tagUnsent, p2p.MaskExact, nil)
	l.loss.At = time.Now()
	loss, ok := errors.AsType[*p2p.PeerError](err)
	if !ok || len(loss.Ranks) != 1 {
		l.err = fmt.Errorf("a receive from any source has not ended with the loss of one rank: %w", err)
		l.stop(errGrace)
		return
	}
	l.loss.Rank = loss.Ranks[0]
	if l.err = l.ended(); l.err == nil {
		l.err = l.allKnow()
	}
	time.AfterFunc(grace, func() { l.stop(errGrace) })
}

// ended requires that what stood with the lost rank ends, and what stands with others does not.
func (l *watch) ended() error {
	ctx, cancel := context.WithTimeout(l.ctx, hung)
	defer cancel()
	for rank, list := range l.standing {
		for i, r := range list {
			if rank == l.loss.Rank {
				if _, err := r.Wait(ctx); !l.named(err) {
					return fmt.Errorf("operation %d with rank %d, which is lost: %w", i, rank, orNone(err))
				}
				continue
			}
			if st, done, err := r.Peek(); done {
				return fmt.Errorf("operation %d with rank %d, which lives, has ended: %+v: %w", i, rank, st, orNone(err))
			}
			r.Cancel()
			if _, err := r.Wait(ctx); !errors.Is(err, p2p.ErrCanceled) {
				return fmt.Errorf("operation %d with rank %d, which lives, was cancelled: %w", i, rank, orNone(err))
			}
		}
	}
	return nil
}

// allKnow returns when all survivors know of the loss.
func (l *watch) allKnow() error {
	ctx, cancel := context.WithTimeout(l.ctx, hung)
	defer cancel()
	var reqs []p2p.Request
	for _, rank := range l.others() {
		reqs = append(reqs, l.w.Comm().Isend(rank, tagKnown, nil), l.w.Comm().Irecv(rank, tagKnown, nil))
	}
	if err := p2p.WaitAll(ctx, reqs, nil); err != nil {
		return fmt.Errorf("not all survivors of rank %d know of its loss: %w", l.loss.Rank, err)
	}
	return nil
}

// others are all survivors, this rank too.
func (l *watch) others() (list []int) {
	for rank := range l.w.Size() {
		if rank != l.loss.Rank {
			list = append(list, rank)
		}
	}
	return list
}

// orNone is an error that can be shown.
func orNone(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// named reports whether an error names the lost rank, and no other.
func (l *watch) named(err error) bool {
	loss, ok := errors.AsType[*p2p.PeerError](err)
	return ok && slices.Equal(loss.Ranks, []int{l.loss.Rank})
}

// pardon makes errLost of an error that the loss explains: it names the rank, or is of an operation
// with a survivor, which has given up the round too. A nil watch explains nothing.
func (l *watch) pardon(err error) error {
	if l == nil || err == nil || errors.Is(err, errLost) {
		return err
	}
	if errors.Is(err, p2p.ErrPeerLost) {
		select {
		case <-l.known:
		case <-time.After(hung):
			return fmt.Errorf("a receive from any source does not end, where others do: %w", err)
		}
		if l.err == nil && l.named(err) {
			return errLost
		}
		return errors.Join(l.err, err)
	}
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if ended && context.Cause(l.ctx) == errGrace {
		<-l.known
		if l.err == nil {
			return errLost
		}
		return l.err
	}
	return err
}

// late adds to the error of an operation with a rank that this is the lost one: it should have
// ended before the round did.
func (x *exchange) late(err error, rank int) error {
	l := x.round.watch
	if l == nil || context.Cause(l.ctx) != errGrace || errors.Is(err, p2p.ErrPeerLost) || rank != l.loss.Rank {
		return err
	}
	return fmt.Errorf("an operation with rank %d goes on, %v after its loss", rank, time.Since(l.loss.At))
}

// overdue is late for requests of which some may go on.
func (x *exchange) overdue(err error, reqs []p2p.Request, rank func(i int) int) error {
	if err == nil {
		return nil
	}
	for i, r := range reqs {
		if _, done, _ := r.Peek(); !done {
			if late := x.late(err, rank(i)); late != err {
				return late
			}
		}
	}
	return err
}
