// Package progresstest is what simulations do with engines beyond what programs may: repeat a run,
// and decide when time is up.
package progresstest

import (
	"context"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/progress/internal/hook"
)

// With is cfg with hash tables of this seed, and with another end of the time that a receiver has
// to answer for a send whose context has ended: when the context that grace makes ends, instead of
// by the clock. The engine calls grace with its lock held, from the call whose context has ended.
func With(cfg progress.Config, seed uint64, grace func() (context.Context, context.CancelFunc)) progress.Config {
	return hook.With(cfg, seed, grace).(progress.Config)
}

// Credit is what messages from rank from to rank to have cost in all: the credit that the sender
// has used, what of that the receiver has charged, and what of that is free again. When nothing is
// under way all three are equal.
func Credit(receiver, sender *progress.Engine, to, from int) (used, charged, consumed uint64) {
	return hook.Credit(receiver, sender, to, from)
}
