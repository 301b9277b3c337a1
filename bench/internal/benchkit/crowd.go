package benchkit

import (
	"context"
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/p2p"
)

// What is measured where ranks are more than processors, or than those that are active.

// crowdRows are a job of two ranks, and one of as many as -n says.
func crowdRows(f Flags) []Flags {
	var rows []Flags
	for _, n := range []int{2, f.Ranks} {
		row := f
		row.Ranks = n
		rows = append(rows, row)
	}
	return rows
}

// LatencyRows are, where -n gives more ranks than the two that are active, one job without them
// first.
func LatencyRows(f Flags) []Flags {
	if f.Ranks <= 2 {
		return nil
	}
	return crowdRows(f)
}

// AlltoallRows compare as many ranks as -n says with two.
func AlltoallRows(f Flags) []Flags { return crowdRows(f) }

// Latency is PingPong, where other ranks of the job and the processors may be what matters.
func Latency(s *Session, size, iters int) (Result, error) {
	r, err := PingPong(s, size, iters)
	r.Ranks = s.World.Size()
	return r, err
}

// greet connects each rank that waits with each that measures, in both directions. Both call it,
// with the ranks of the other kind.
func (s *Session) greet(from, to int) error {
	ctx, c := context.Background(), s.World.Comm()
	for rank := from; rank < to; rank++ {
		if _, err := c.Sendrecv(ctx, rank, tagGreet, nil, rank, tagGreet, nil); err != nil {
			return fmt.Errorf("greeting rank %d: %w", rank, err)
		}
	}
	return nil
}

// park waits in Recv, as a rank that has nothing to do, until dismiss.
func (s *Session) park(measuring int) error {
	if err := s.greet(0, measuring); err != nil {
		return err
	}
	_, err := s.World.Comm().Recv(context.Background(), 0, tagDismiss, nil)
	return err
}

// dismiss ends the waiting of the ranks that do not measure; the first rank calls it.
func (s *Session) dismiss(measuring int) error {
	var err error
	for rank := measuring; rank < s.World.Size(); rank++ {
		err = errors.Join(err, s.World.Comm().Send(context.Background(), rank, tagDismiss, nil))
	}
	return err
}

// Alltoall measures exchanges in which each rank sends size bytes, an equal part to each other
// rank.
func Alltoall(s *Session, size, iters int) (Result, error) {
	r, err := s.rounds("alltoall", size, iters, 1, exchange)
	r.Ranks = s.World.Size()
	return r, err
}

func exchange(w *p2p.World, l *Loop) error {
	n, rank := w.Size(), w.Rank()
	reqs := make([]p2p.Request, 0, 2*n)
	for range l.Rounds {
		for d := range n - 1 {
			from, to := len(l.Out)*d/(n-1), len(l.Out)*(d+1)/(n-1)
			reqs = append(reqs, w.Comm().Irecv((rank+n-d-1)%n, ping, l.In[from:to]), w.Comm().Isend((rank+d+1)%n, ping, l.Out[from:to]))
		}
		if err := p2p.WaitAll(context.Background(), reqs, nil); err != nil {
			return err
		}
		reqs = reqs[:0]
	}
	return nil
}

// AlltoallMessages is the default number of exchanges of a size.
func AlltoallMessages(size int) int {
	if size > 64<<10 {
		return 500
	}
	return 5000
}

var latencyOfRanksTable = layout{
	of:   func(r *Result) bool { return r.Ranks > 0 },
	note: latencyTable.note,
	columns: []column{sizeColumn, ranksColumn, roundsColumn("round trips", 11), avgColumn, p50Column, p99Column, megabytesColumn,
		overColumn},
	over: overRanks,
}

var alltoallTable = layout{
	of: func(r *Result) bool { return r.Test == "alltoall" },
	note: func(r *Result) string {
		return wires(r) + "; us of an exchange in which each rank sends an equal part of so many bytes to each other, and that over two ranks"
	},
	columns: []column{sizeColumn, ranksColumn, roundsColumn("exchanges", 10), avgColumn, p50Column, p99Column, megabytesColumn, overColumn},
	over:    overRanks,
}

func overRanks(r *Result) (string, float64) { return fmt.Sprint(r.Device, r.Size), r.AvgUs }
