package benchkit

import (
	"context"
	"fmt"

	"github.com/tagmatch/tagmatch/p2p"
)

// Star measures loops in which every rank sends to rank 0, and rank 0 answers each after it has
// received all: the pattern of a barrier or a small reduction. It is for any number of ranks, in
// particular more than there are processors.
func Star(s *Session, size, iters int) (Result, error) {
	r, err := s.rounds("star", size, iters, 1, gather)
	r.Ranks = s.World.Size()
	return r, err
}

// gather is one rank's side.
func gather(w *p2p.World, l *Loop) error {
	ctx, round := context.Background(), 0
	heard := make([]int, w.Size()) // by rank: the round of its last message
	for range l.Rounds {
		round++
		if w.Rank() != 0 {
			if err := w.Send(ctx, 0, ping, l.Out); err != nil {
				return err
			}
			if _, err := w.Recv(ctx, pong, p2p.MaskExact, l.In); err != nil {
				return err
			}
			continue
		}
		for i := range w.Size() - 1 {
			if i > 0 && !l.again() {
				return l.err
			}
			st, err := w.Recv(ctx, ping, p2p.MaskExact, l.In)
			if err != nil {
				return err
			}
			if heard[st.Source] == round {
				return fmt.Errorf("round %d: rank %d was heard twice", round, st.Source)
			}
			heard[st.Source] = round
		}
		for peer := 1; peer < w.Size(); peer++ {
			if err := w.Send(ctx, peer, pong, l.Out); err != nil {
				return err
			}
		}
	}
	return nil
}
