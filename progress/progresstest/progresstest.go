// Package progresstest is what tests and simulations do with engines beyond what programs may: decide
// when time is up.
package progresstest

import (
	"context"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/progress/internal/hook"
)

// WithGrace is cfg with another end of the time that a receiver has to answer for a send whose
// context has ended: when the context that grace makes ends, instead of by the clock. The engine
// calls grace with its lock held, from the call whose context has ended.
func WithGrace(cfg progress.Config, grace func() (context.Context, context.CancelFunc)) progress.Config {
	return hook.WithGrace(cfg, grace).(progress.Config)
}
