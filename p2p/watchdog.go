package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/diagnose"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/ranks"
	"github.com/tagmatch/tagmatch/internal/settings"
)

const (
	// watchdogTicks is how often a rank looks at its counters within the limit of its watchdog.
	watchdogTicks = 8

	// watchdogCode is the exit code of a job that a watchdog ends, that of timeout(1).
	watchdogCode = 124

	watchdogColumns = 80
)

// watchdog reports that nothing of the job has moved for a time, while a call waits. Each rank
// looks at its own counters now and then. When they rest, the lowest one that runs on a host asks
// all others, and the lowest one that answers reports.
//
// Time is counted in ticks, so that a job that is stopped and continued has not rested meanwhile.
type watchdog struct {
	w     *World
	name  doors.Name // of this rank's door
	limit time.Duration
	abort bool
	out   io.Writer

	moved uint64        // at the last tick
	rest  time.Duration // for how long nothing has moved at this rank, or at one that was asked
	next  time.Duration // the rest of the job that is reported
	last  time.Time     // the end of the last tick
}

// startWatchdog starts the watchdog of a rank with this door, where there is to be one. err is why
// it has none.
func (w *World) startWatchdog(name doors.Name, err error) {
	limit, abort, _ := settings.ParseWatchdog(w.cfg.Watchdog) // which is valid
	switch {
	case limit == 0 || w.parts.boot.Info().Launcher == inside:
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "tagmatch: rank %d does without TAGMATCH_WATCHDOG: %v\n", w.rank, err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stopWatchdog = stop
	d := &watchdog{w: w, name: name, limit: limit, abort: abort, out: os.Stderr, next: limit, last: time.Now()}
	w.watcher.Go(func() { d.run(ctx) })
}

var errNoDoor = errors.New("TAGMATCH_INSPECT is off")

func (d *watchdog) run(ctx context.Context) {
	t := time.NewTicker(d.limit / watchdogTicks)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			d.tick(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (d *watchdog) tick(ctx context.Context) {
	now, moved := time.Now(), d.w.eng.Moved()
	late := now.Sub(d.last) > d.limit/2    // this process was stopped
	defer func() { d.last = time.Now() }() // a look takes longer than that where ranks do not answer
	if late || moved != d.moved {
		d.moved, d.rest, d.next = moved, 0, d.limit
		return
	}
	if d.rest += d.limit / watchdogTicks; d.rest < d.next {
		return
	}
	names, err := doors.Find()
	if err != nil {
		return // the next tick tries again
	}
	names = d.name.OfJob(names)
	if !d.lowest(names) {
		return
	}
	r := doors.LookForRest(ctx, names, d.next, true)
	if r.For < d.next {
		d.rest = min(d.rest, r.For)
		if r.For < d.limit {
			d.next = d.limit
		}
		return
	}
	d.next = 2 * r.For
	lower := func(s inspect.State) bool { return s.Rank < d.w.rank && s.Silent == "" }
	if !slices.ContainsFunc(r.Before, lower) && !slices.ContainsFunc(r.Now, lower) {
		d.report(&r) // else a rank of another host does, or has ended the job by now
	}
}

// lowest reports whether no lower rank runs that this one can see.
func (d *watchdog) lowest(names []doors.Name) bool {
	return !slices.ContainsFunc(names, func(n doors.Name) bool { return n.Rank < d.w.rank && doors.Process(n.PID) == doors.Busy })
}

// report says what is wrong with a job in which nothing moves, and ends it where that is asked for
// and all of it was seen.
func (d *watchdog) report(r *doors.Rest) {
	what := fmt.Sprintf("nothing of the job has moved for %v", r.For.Truncate(time.Second))
	var b strings.Builder
	fmt.Fprintf(&b, "tagmatch: rank %d: %s (TAGMATCH_WATCHDOG).\n", d.w.rank, what)
	verdicts := diagnose.Diagnose(doors.Look(r.Now), doors.Look(r.Before))
	_ = diagnose.Write(&b, verdicts, watchdogColumns) // memory takes it
	if len(verdicts) == 0 {
		b.WriteString("Why is not to be seen: tagmatch dump shows what the ranks do.\n")
	}
	if slices.ContainsFunc(verdicts, func(v diagnose.Verdict) bool { return v.Class == diagnose.Late }) {
		b.WriteString("A rank that computes may still come: this is a report, and no verdict.\n")
	}
	unseen := d.unseen(r)
	if len(unseen) != 0 {
		fmt.Fprintf(&b, "What moves at %s is not seen.\n", ranks.List(unseen))
	}
	ends := d.abort && len(unseen) == 0
	if ends {
		b.WriteString("The watchdog ends the job.\n")
	} else if d.abort {
		b.WriteString("So the watchdog does not end the job.\n")
	}
	_, _ = io.WriteString(d.out, b.String()) // there is nobody to be told
	if ends {
		d.w.Abort(watchdogCode, "TAGMATCH_WATCHDOG: "+what)
	}
}

// unseen lists the ranks that are not lost, and at which something may move that is not counted:
// nothing is known of them, or they are receiving a message, whose bytes count when all have come.
func (d *watchdog) unseen(r *doors.Rest) (list []int) {
	seen := make([]bool, d.w.size)
	for _, s := range r.Now {
		if s.Rank < len(seen) {
			known := s.Silent == "" && !receives(&s) || slices.Contains([]string{doors.Stopped, doors.Blocked, doors.Gone}, s.Silent)
			seen[s.Rank] = seen[s.Rank] || known // there may be sockets that others have named as its door
		}
	}
	for _, rank := range d.w.Failed() {
		seen[rank] = true
	}
	for rank, ok := range seen {
		if !ok {
			list = append(list, rank)
		}
	}
	return list
}

// receives reports whether the bytes of a message are on their way to a rank.
func receives(s *inspect.State) bool {
	return slices.ContainsFunc(s.Receives, func(r inspect.Receive) bool { return r.Where == inspect.WhereRead })
}
