package space

import (
	"context"
	"math/rand/v2"
	"time"
)

// Over reports whether ctx has ended, or is past its deadline. A call that the deadline has cut
// short can return before ctx.Err tells: the network has a timer of its own.
func Over(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	at, ok := ctx.Deadline()
	return ok && !time.Now().Before(at)
}

// Pause waits for half of wait and up to as long again, so that ranks do not try all at once. It
// returns early, and false, where ctx ends.
func Pause(ctx context.Context, wait time.Duration) bool {
	t := time.NewTimer(wait/2 + rand.N(wait))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
