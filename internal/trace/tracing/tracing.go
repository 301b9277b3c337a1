// Package tracing asks the ranks of a job to record what they do, and collects the records. It asks
// all ranks, on all hosts, through one of this host.
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
	patience = 10 * time.Second // a rank that does not answer is asked again for so long
	rest     = 100 * time.Millisecond
	slack    = 30 * time.Second // ranks end a recording by themselves so much later
)

// Tracing is a recording of a job.
type Tracing struct {
	names  []doors.Name // of ranks of the job that are on this host
	id     int
	ranks  []int // that record
	events map[int][]trace.Record
	lost   map[int]error // why ranks that have recorded are left out
}

// Begin has all ranks of a job record, each as many as the newest records, until End is called: a
// while after long they end it by themselves. Where one does not, none does. Ranks that have ended
// are left out. Names are doors of the job.
func Begin(ctx context.Context, names []doors.Name, long time.Duration, records int) (*Tracing, error) {
	t := &Tracing{names: names, id: 1 + int(rand.Int32N(math.MaxInt32)), events: map[int][]trace.Record{}, lost: map[int]error{}}
	answers, missing := t.ask(ctx, trace.Request{Start: true, Records: records, For: long + slack})
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
	for first := 0; first <= t.ranks[len(t.ranks)-1]; first += trace.ReadAtOnce {
		q := trace.Request{Read: true, Rank: first}
		t.read(ctx, q, slices.DeleteFunc(slices.Collect(maps.Keys(heads)), func(rank int) bool { return !q.Reads(rank) }))
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
func (t *Tracing) read(ctx context.Context, q trace.Request, unread []int) {
	for ; len(unread) > 0; q.From += trace.MostInPart {
		answers := t.collect(ctx, q, unread)
		unread = slices.DeleteFunc(unread, func(rank int) bool {
			part, err := trace.Decode(answers[rank].Part)
			if err != nil {
				t.lost[rank] = err
			}
			t.events[rank] = append(t.events[rank], part...)
			return len(part) < trace.MostInPart
		})
	}
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
			if errors.As(why, new(silence)) && !gone(why) && ctx.Err() == nil && time.Now().Before(end) {
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

// gone reports whether a rank has ended.
func gone(why error) bool { return why == silence(doors.Gone) || why == silence(doors.Left) }

// ask asks all ranks the same. Missing has why others have no answer; where no rank could be asked,
// of those of this host.
func (t *Tracing) ask(ctx context.Context, q trace.Request) (answers map[int]trace.Answer, missing map[int]error) {
	q.ID = t.id
	answers, missing = map[int]trace.Answer{}, map[int]error{}
	parts, err := doors.AskJob(ctx, t.names, q.String())
	if err != nil {
		for _, n := range t.names {
			missing[n.Rank] = silence(err.Error())
		}
	}
	for _, p := range parts {
		a, err := t.answer(p)
		if err != nil {
			missing[p.Rank] = err
		} else {
			answers[p.Rank] = a
		}
	}
	return answers, missing
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
