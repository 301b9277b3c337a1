package doors

import (
	"context"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// BetweenLooks is how far two looks at a job are apart: long beside what a message or a collective
// call takes, so that a job in which anything moves is seen to move.
const BetweenLooks = 200 * time.Millisecond

// Rest is two looks at the ranks of a job, and what they say of its rest.
type Rest struct {
	Now, Before []inspect.State // Now is nil where Before shows that the job moves

	// For is for how long, at least, nothing has moved at any rank that answers. It is 0 where
	// something moves, or where no rank is in a call, as nobody waits then.
	For time.Duration
}

// LookForRest looks at the ranks of a job that has these doors here, on all hosts, and once more
// where nothing had moved for least by then. Ranks that are in no call count only with all: unless
// they look at themselves now and then they do not know for how long they have moved nothing.
// Without all it is enough that nothing has moved between the looks: what such a rank exchanges
// with others moves these too.
func LookForRest(ctx context.Context, names []Name, least time.Duration, all bool) (r Rest) {
	r.Before = Jobs(ctx, names)
	rested := restOf(r.Before, all)
	if rested < least {
		r.For = rested
		return r
	}
	select {
	case <-time.After(BetweenLooks):
	case <-ctx.Done():
	}
	if r.Now = Jobs(ctx, names); !Moved(r.Now, r.Before) && ctx.Err() == nil {
		r.For = restOf(r.Now, all)
	}
	return r
}

// restOf is Rest.For of one look.
func restOf(states []inspect.State, all bool) (least time.Duration) {
	waits, least := false, time.Duration(1<<63-1)
	for i := range states {
		s := &states[i]
		waits = waits || len(s.Calls) > 0
		if s.Silent == "" && (all || len(s.Calls) > 0) {
			least = min(least, time.Duration(s.Still)*time.Millisecond)
		}
	}
	if !waits {
		return 0
	}
	return least
}

// Moved reports whether anything has moved at the ranks since the look before. One that was not
// seen then has. A socket that another user has named as a door is no rank.
func Moved(now, before []inspect.State) bool {
	return slices.ContainsFunc(now, func(s inspect.State) bool {
		i := slices.IndexFunc(before, func(b inspect.State) bool { return b.Rank == s.Rank && b.Silent == "" })
		return s.Silent == "" && (i < 0 || before[i].Moved != s.Moved)
	})
}
