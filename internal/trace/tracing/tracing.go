// Package tracing asks ranks to record what they do, by their doors, and collects the records.
package tracing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/ranks"
	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/internal/trace/timeline"
)

const (
	limit = 10 * time.Second // that a rank has for an answer
	slack = 30 * time.Second // ranks end a recording by themselves so much later
)

// Begin has the ranks of a job record, each as many as the newest records, until End is called: a
// while after long they end it by themselves. Where one does not, none does.
func Begin(ctx context.Context, names []doors.Name, long time.Duration, records int) error {
	list, err := ask(ctx, names, trace.Request{Start: true, Records: records, For: long + slack})
	if err == nil {
		return nil
	}
	var begun []doors.Name
	for i, a := range list {
		if a.Version != 0 {
			begun = append(begun, names[i])
		}
	}
	_, _ = ask(context.WithoutCancel(ctx), begun, trace.Request{Stop: true})
	return err
}

// End ends the recording, and collects what was recorded.
func End(ctx context.Context, names []doors.Name) ([]timeline.Rank, error) {
	answers, err := ask(ctx, names, trace.Request{Stop: true})
	if err != nil {
		return nil, err
	}
	list := make([]timeline.Rank, len(answers))
	for i, a := range answers {
		list[i].Answer = a
	}
	return list, read(ctx, names, list)
}

// read reads what all ranks have recorded, a part of each at a time.
func read(ctx context.Context, names []doors.Name, list []timeline.Rank) error {
	for from, more := 0, true; more; from += trace.MostInPart {
		answers, err := ask(ctx, names, trace.Request{Read: true, From: from})
		if err != nil {
			return err
		}
		more = false
		for i, a := range answers {
			part, err := trace.Decode(a.Part)
			if err != nil {
				return fmt.Errorf("rank %d: %w", a.Rank, err)
			}
			list[i].Events = append(list[i].Events, part...)
			more = more || len(part) == trace.MostInPart
		}
	}
	return nil
}

// ask asks all ranks the same. All errors are returned as one, which tells what ranks have in
// common once.
func ask(ctx context.Context, names []doors.Name, q trace.Request) (list []trace.Answer, err error) {
	var texts []string
	of := map[string][]int{}
	for _, r := range doors.All(ctx, names, q.String(), limit) {
		a, err := answer(r)
		list = append(list, a)
		if err == nil {
			continue
		}
		text := err.Error()
		if of[text] == nil {
			texts = append(texts, text)
		}
		of[text] = append(of[text], r.Rank)
	}
	for _, text := range texts {
		err = errors.Join(err, fmt.Errorf("%s: %s", ranks.List(of[text]), text))
	}
	return list, err
}

func answer(r doors.Reply) (a trace.Answer, err error) {
	if err = r.Err; err != nil {
		return a, err
	}
	if err := json.Unmarshal(r.Lines[0], &a); err != nil {
		return a, fmt.Errorf("its answer is no trace: %w", err)
	}
	if a.Version != trace.Version || a.Job != r.Job || a.Rank != r.Rank {
		return a, fmt.Errorf("its answer is of rank %d of job %s, version %d, and this tagmatch knows %d: use that of the same release as the program", a.Rank, a.Job, a.Version, trace.Version)
	}
	return a, nil
}
