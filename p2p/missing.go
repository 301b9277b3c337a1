package p2p

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/internal/ranks"
	"github.com/tagmatch/tagmatch/progress"
)

// askFor is how long a collective call that has failed waits for other ranks to say whether they
// have made it. One that makes progress answers in much less.
const askFor = time.Second

// withMissing adds to the error of a collective call which ranks have not made it.
func (c *Comm) withMissing(err error) error {
	w := c.w
	if w.eng.Err() != nil || c.ranks() == 0 {
		return err // the reason is here
	}
	waiting, done := context.WithTimeout(context.Background(), askFor)
	defer done()
	w.eng.Call(func(e progress.Callback) { w.contexts.Inquire(e, &c.comm, done) })
	_ = w.progressUntil(waiting)
	var missing map[contexts.Absence][]int
	w.eng.Call(func(e progress.Callback) { missing = w.contexts.Conclude(e, &c.comm) })
	if loss, ok := errors.AsType[*PeerError](err); ok { // it names these already
		missing[contexts.Lost] = slices.DeleteFunc(missing[contexts.Lost], func(r int) bool { return slices.Contains(loss.Ranks, r) })
	}
	var parts []string
	for _, why := range [...]struct {
		contexts.Absence
		one, many string
	}{
		{contexts.Absent, "has not called it", "have not called it"},
		{contexts.Other, "has made another call on this Comm", "have made another call on this Comm"},
		{contexts.Silent, "does not answer", "do not answer"},
		{contexts.Lost, "is lost", "are lost"},
	} {
		if rs := missing[why.Absence]; len(rs) != 0 {
			parts = append(parts, c.named(rs)+" "+plural(len(rs), why.one, why.many))
		}
	}
	if len(parts) == 0 {
		return err
	}
	return &missingError{err, strings.Join(parts, ", ")}
}

// named lists ranks of the World, and says so where those of c are others.
func (c *Comm) named(world []int) string {
	if c.group != nil {
		return ranks.List(world) + " of the World"
	}
	return ranks.List(world)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// missingError is the error of a collective call that not all ranks have made.
type missingError struct {
	err error
	who string
}

func (e *missingError) Error() string {
	return strings.TrimPrefix(e.err.Error(), prefix) + ": " + e.who
}
func (e *missingError) Unwrap() error { return e.err }
