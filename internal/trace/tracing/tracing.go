// Package tracing asks the ranks of a job to record what they do, and collects the records, also
// those that ranks have left in files. It asks all ranks, on all hosts, through one of this host.
package tracing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/ranks"
	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/internal/trace/timeline"
)

const (
	patience  = 10 * time.Second // a rank that does not answer is asked again for so long
	rest      = 100 * time.Millisecond
	mostRanks = 1 << 20          // more than a job can have
	slack     = 30 * time.Second // ranks end a recording by themselves so much later
)

// Tracing is a recording of a job.
type Tracing struct {
	names  []doors.Name // of ranks of the job that are on this host
	id     int
	ranks  []int // that record
	events map[int][]trace.Record
	direct bool          // nobody was heard by way of rank 0, so ranks that have doors here are asked there
	lost   map[int]error // why ranks that have recorded are left out
}

// Begin has all ranks of a job record, each as many as the newest records, until End is called: a
// while after long they end it by themselves. Where one does not, none does. Ranks that have ended
// are left out. Names are doors of the job.
func Begin(ctx context.Context, names []doors.Name, long time.Duration, records int) (*Tracing, error) {
	t := &Tracing{names: names, id: 1 + int(rand.Int32N(math.MaxInt32)), events: map[int][]trace.Record{}, lost: map[int]error{}}
	answers, missing := t.ask(ctx, trace.Request{Start: true, Records: records, For: long + slack})
	for rank := range sizeOf(answers) {
		if _, ok := answers[rank]; !ok && missing[rank] == nil {
			missing[rank] = errUntold
		}
	}
	if len(answers) != 0 {
		maps.DeleteFunc(missing, func(_ int, why error) bool { return gone(why) })
	}
	if len(missing) != 0 {
		t.ask(context.WithoutCancel(ctx), trace.Request{Stop: true})
		return nil, failure(missing)
	}
	t.ranks = slices.Sorted(maps.Keys(answers))
	return t, nil
}

// End ends the recording, and collects what was recorded. An error names ranks that have recorded
// and are not in the list.
func (t *Tracing) End(ctx context.Context) (list []timeline.Rank, err error) {
	heads := t.collect(ctx, trace.Request{Stop: true}, t.ranks)
	groups := map[int][]int{} // by the first of a group's ranks, those that are read at once
	for rank := range heads {
		first := rank / trace.ReadAtOnce * trace.ReadAtOnce
		groups[first] = append(groups[first], rank)
	}
	for _, first := range slices.Sorted(maps.Keys(groups)) {
		t.read(ctx, trace.Request{Read: true, Rank: first}, groups[first], heads)
	}
	for _, rank := range t.ranks {
		if t.lost[rank] == nil {
			list = append(list, timeline.Rank{Answer: heads[rank], Events: t.events[rank]})
		}
	}
	if len(t.lost) != 0 {
		err = failure(t.lost)
	}
	return list, err
}

// read reads what ranks have recorded, a part of each at a time.
func (t *Tracing) read(ctx context.Context, q trace.Request, unread []int, heads map[int]trace.Answer) {
	for ; len(unread) > 0; q.From += trace.MostInPart {
		answers := t.collect(ctx, q, unread)
		unread = slices.DeleteFunc(unread, func(rank int) bool {
			return t.lost[rank] != nil || t.take(rank, answers[rank].Part, heads[rank].Records)
		})
	}
}

// take takes a part of a rank's records, and reports whether it was the last one.
func (t *Tracing) take(rank int, part []byte, records int) (last bool) {
	list, err := trace.Decode(part)
	t.events[rank] = append(t.events[rank], list...)
	have := len(t.events[rank])
	if err == nil && (have > records || have < records && len(list) != trace.MostInPart) {
		err = fmt.Errorf("of %d records it hands out %d", records, have)
	}
	if err != nil {
		t.lost[rank] = err
	}
	return err != nil || have == records
}

// collect asks until all the ranks that are wanted have answered. Those that do not are left out.
func (t *Tracing) collect(ctx context.Context, q trace.Request, wanted []int) map[int]trace.Answer {
	heard := map[int]trace.Answer{}
	wanted = slices.Clone(wanted)
	for end := time.Now().Add(patience); ; time.Sleep(rest) {
		answers, missing := t.ask(ctx, q)
		maps.Copy(heard, answers)
		wanted = slices.DeleteFunc(wanted, func(rank int) bool {
			if _, ok := heard[rank]; ok {
				return true
			}
			why := missing[rank]
			if silent(why) && !gone(why) && ctx.Err() == nil && time.Now().Before(end) {
				return false
			}
			t.lost[rank] = why
			return true
		})
		if len(wanted) == 0 {
			return heard
		}
	}
}

// silence is why a rank has not answered.
type silence string

func (s silence) Error() string { return string(s) }

func silent(why error) bool { return errors.As(why, new(silence)) }

// gone reports whether a rank has ended.
func gone(why error) bool { return why == silence(doors.Gone) || why == silence(doors.Left) }

// ask asks all ranks the same: those of this host that it does not reach through rank 0 at their
// own doors. Missing has why others have no answer, at least those that record.
func (t *Tracing) ask(ctx context.Context, q trace.Request) (answers map[int]trace.Answer, missing map[int]error) {
	q.ID = t.id
	answers, missing = map[int]trace.Answer{}, map[int]error{}
	take := func(parts []inspect.Part) {
		for _, p := range parts {
			if a, err := t.answer(p); err == nil {
				answers[p.Rank] = a
				delete(missing, p.Rank)
			} else {
				missing[p.Rank] = err
			}
		}
	}
	var err error
	if !t.direct || !t.here() {
		var parts []inspect.Part
		parts, err = doors.AskJob(ctx, t.names, q.String())
		take(parts)
		t.direct = len(answers) == 0
	}
	take(doors.AskEach(ctx, slices.DeleteFunc(slices.Clone(t.names), func(n doors.Name) bool {
		_, heard := answers[n.Rank]
		why, known := missing[n.Rank]
		return heard || t.lost[n.Rank] != nil || known && (gone(why) || !silent(why) || why == silence(doors.Stopped))
	}), q.String()))
	for _, rank := range t.ranks {
		if _, heard := answers[rank]; !heard && missing[rank] == nil {
			missing[rank] = errUntold
			if err != nil {
				missing[rank] = silence(err.Error())
			}
		}
	}
	return answers, missing
}

// here reports whether all ranks that still record have doors on this host.
func (t *Tracing) here() bool {
	return !slices.ContainsFunc(t.ranks, func(rank int) bool {
		return t.lost[rank] == nil && !slices.ContainsFunc(t.names, func(n doors.Name) bool { return n.Rank == rank })
	})
}

// errUntold is of a rank of which those that were asked say nothing.
const errUntold = silence("it could not be asked")

// sizeOf is how many ranks the job has.
func sizeOf(answers map[int]trace.Answer) (size int) {
	for _, a := range answers {
		size = max(size, a.Size)
	}
	return size
}

// answer is what a rank has answered.
func (t *Tracing) answer(p inspect.Part) (a trace.Answer, err error) {
	if len(p.Lines) == 0 {
		return a, silence(p.Why)
	}
	if why := doors.Refusal(p.Lines[0]); why != "" {
		return a, errors.New(why)
	}
	if err := json.Unmarshal(p.Lines[0], &a); err != nil {
		return a, fmt.Errorf("its answer is no trace: %w", err)
	}
	if job := t.names[0].Job; a.Version != trace.Version || a.Job != job || a.Rank != p.Rank {
		return a, fmt.Errorf("its answer is of rank %d of job %s, version %d, and this tagmatch knows %d: use that of the same release as the program", a.Rank, a.Job, a.Version, trace.Version)
	}
	if a.Rank < 0 || a.Rank >= a.Size || a.Size > mostRanks || a.Records < 0 || a.Records > trace.Most {
		return a, fmt.Errorf("it says that it is rank %d of %d, and has %d records", a.Rank, a.Size, a.Records)
	}
	return a, nil
}

// failure is one error for ranks, which tells what they have in common once.
func failure(why map[int]error) (err error) {
	of := map[string][]int{}
	for _, rank := range slices.Sorted(maps.Keys(why)) {
		text := why[rank].Error()
		of[text] = append(of[text], rank)
	}
	for _, text := range slices.SortedFunc(maps.Keys(of), func(a, b string) int { return of[a][0] - of[b][0] }) {
		err = errors.Join(err, fmt.Errorf("%s: %s", ranks.List(of[text]), text))
	}
	return err
}
