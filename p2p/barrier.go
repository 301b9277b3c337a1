package p2p

import (
	"context"

	"github.com/tagmatch/tagmatch/p2p/internal/coll"
)

// Barrier returns when all ranks of c have called it, and says nothing of messages: those that were
// sent before may still be on their way. It takes ceil(log2 Size) messages of each rank, which no
// receive of the program can match. It is collective like Dup, has the same order with calls of Dup
// and Split on c, and fails like them where ctx ends or a rank of c is lost: further collective
// calls on c fail on that rank then.
func (c *Comm) Barrier(ctx context.Context) error {
	_, err := c.collective(ctx, callBarrier, func(ctx context.Context) (*Comm, error) {
		return nil, coll.Barrier(ctx, c.operation())
	})
	return err
}
