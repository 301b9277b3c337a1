package benchkit

import (
	"context"
	"flag"

	"github.com/tagmatch/tagmatch/p2p"
)

// Tags distinguish the two directions of rounds, and a stream from the message that ends a batch.
// Those here are of the first pair.
const (
	ping p2p.Tag = 1 + iota
	pong
	data
	done

	pairTags = iota // those of pair i of goroutines begin with i*pairTags+1
)

// pairTag is the tag of a pair of goroutines that has the meaning of tag.
func pairTag(tag p2p.Tag, pair int) p2p.Tag { return tag + p2p.Tag(pair*pairTags) }

// Latency measures half round trips of two ranks, where others of the job may wait.
type Latency struct {
	Verified
	Crowd
}

// NewLatency has the defaults.
func NewLatency() *Latency {
	l := &Latency{Crowd: Crowd{N: 2}}
	l.Sizes = Sizes{0, 8, 64, 512, 1 << 10, 4 << 10, 8 << 10, 64 << 10, 512 << 10, 1 << 20}
	return l
}

// Register adds the flags.
func (l *Latency) Register(fs *flag.FlagSet) { l.Verified.Register(fs); l.Crowd.Register(fs) }

// Faults of the flags.
func (l *Latency) Faults() []error { return append(l.Verified.Faults(), l.Crowd.Faults()...) }

// Ranks beyond two wait.
func (l *Latency) Ranks() (started, measuring int) { return l.N, 2 }

// Jobs are one without those that wait first, if there are any.
func (l *Latency) Jobs() []Job {
	if l.N <= 2 {
		return nil
	}
	return l.overTwo()
}

// Run measures a size.
func (l *Latency) Run(s *Session, size, iters int) error {
	r, err := s.rounds("lat", newLoop(s, size, iters, l.Check), 2, bounce)
	r.Ranks = s.World.Size()
	return s.Report(r, err)
}

func bounce(w *p2p.World, l *loop) error {
	ctx, ping, pong := context.Background(), pairTag(ping, l.pair), pairTag(pong, l.pair)
	for range l.rounds {
		if w.Rank() == 0 {
			if err := w.Send(ctx, 1, ping, l.out); err != nil {
				return err
			}
			if _, err := w.Recv(ctx, pong, p2p.MaskExact, l.in); err != nil {
				return err
			}
			continue
		}
		if _, err := w.Recv(ctx, ping, p2p.MaskExact, l.in); err != nil {
			return err
		}
		if err := w.Send(ctx, 0, pong, l.out); err != nil {
			return err
		}
	}
	return nil
}

// Alltoall measures exchanges in which each rank sends size bytes, an equal part to each other
// rank.
type Alltoall struct {
	Verified
	Crowd
}

// NewAlltoall has the defaults.
func NewAlltoall() *Alltoall {
	a := &Alltoall{Crowd: Crowd{N: 8}}
	a.Sizes = Sizes{1 << 10, 64 << 10, 1 << 20}
	return a
}

// Register adds the flags.
func (a *Alltoall) Register(fs *flag.FlagSet) { a.Verified.Register(fs); a.Crowd.Register(fs) }

// Faults of the flags.
func (a *Alltoall) Faults() []error { return append(a.Verified.Faults(), a.Crowd.Faults()...) }

// Ranks that measure are all.
func (a *Alltoall) Ranks() (started, measuring int) { return a.N, Everyone }

// Jobs compare with two ranks.
func (a *Alltoall) Jobs() []Job { return a.overTwo() }

// Messages are exchanges.
func (a *Alltoall) Messages(size int, _ string) int {
	if size > 64<<10 {
		return 500
	}
	return 5000
}

// Run measures a size.
func (a *Alltoall) Run(s *Session, size, iters int) error {
	r, err := s.rounds("alltoall", newLoop(s, size, iters, a.Check), 1, exchange)
	r.Ranks = s.World.Size()
	return s.Report(r, err)
}

func exchange(w *p2p.World, l *loop) error {
	n, rank := w.Size(), w.Rank()
	reqs := make([]p2p.Request, 0, 2*n)
	for range l.rounds {
		for d := range n - 1 {
			from, to := len(l.out)*d/(n-1), len(l.out)*(d+1)/(n-1)
			reqs = append(reqs, w.Comm().Irecv((rank+n-d-1)%n, ping, l.in[from:to]), w.Comm().Isend((rank+d+1)%n, ping, l.out[from:to]))
		}
		if err := p2p.WaitAll(context.Background(), reqs, nil); err != nil {
			return err
		}
		reqs = reqs[:0]
	}
	return nil
}
