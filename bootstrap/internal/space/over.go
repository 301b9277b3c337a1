package space

import (
	"context"
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
