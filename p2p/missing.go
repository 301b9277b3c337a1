package p2p

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/internal/ranks"
	"github.com/tagmatch/tagmatch/progress"
)

// askFor is how long a collective call that has failed waits for other ranks to say whether they
// have made it. One that makes progress answers in much less.
const askFor = time.Second

// withMissing adds to the error of a collective call which ranks have not made it. Where ranks are
// lost the error names these: it asks nobody, and adds what others have found.
func (c *Comm) withMissing(err error) error {
	w := c.w
	if c.ranks() == 0 {
		return err // the reason is here
	}
	if !errors.Is(err, ErrPeerLost) && c.ask() != nil {
		return err
	}
	var missing map[contexts.Absence][]int
	if w.eng.Call(func(e progress.Callback) { missing = w.contexts.Conclude(e, &c.comm) }) != nil {
		return err
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
	return fmt.Errorf("%w: %s", err, strings.Join(parts, ", "))
}

// ask asks other ranks about the call, and returns when they have answered, or not in time; its
// error is that of an engine which has ended.
func (c *Comm) ask() error {
	w := c.w
	limit := askFor
	if w.patient {
		limit = time.Minute
	}
	waiting, done := context.WithTimeout(context.Background(), limit)
	defer done()
	err := w.eng.Call(func(e progress.Callback) { w.contexts.Inquire(e, &c.comm, done) })
	if err == nil {
		_ = w.progressUntil(waiting)
	}
	return err
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
