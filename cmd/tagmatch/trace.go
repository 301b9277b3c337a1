package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/internal/trace/timeline"
)

const traceHelp = `Trace has the ranks of a job on this host record what happens for a while, and
writes one file that Perfetto shows (ui.perfetto.dev): each message with its post,
match, first byte and end, an arrow from where it was sent to where it was received,
calls that wait, and when goroutines sleep. Of messages it has tags and sizes, and
no bytes.

Each rank keeps the newest --records records, of 56 bytes; a message takes one to
three at each end. How many more there were is told, and stands in the file. The
program runs on meanwhile; a record takes it some 10 ns and a look at the clock.

Exit code: 0; 1 if there is no such job, or a rank has not answered.`

// Bounds of how long a rank may take, beside the time of the trace.
const (
	traceAnswer = 10 * time.Second
	traceSlack  = 30 * time.Second // the ranks end a trace by themselves so much later
)

func newTrace() *cobra.Command {
	var out string
	var long time.Duration
	var records int
	c := &cobra.Command{
		Use:   "trace [JOB]",
		Short: "Record what the ranks of a job do, for Perfetto",
		Long:  traceHelp,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if long <= 0 || records <= 0 || records > trace.Most {
				return fmt.Errorf("--for takes a time above 0, and --records 1 to %d", trace.Most)
			}
			names, err := running()
			if err == nil {
				names, err = ofJob(names, strings.Join(args, ""))
			}
			if err == nil {
				err = traceJob(contextOf(c), c.OutOrStdout(), names, out, long, records)
			}
			return failed(err)
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "trace.json", "the file")
	c.Flags().DurationVar(&long, "for", 5*time.Second, "how long to record")
	c.Flags().IntVar(&records, "records", 1<<16, "how many records each rank keeps")
	return c
}

func traceJob(ctx context.Context, w io.Writer, names []doors.Name, path string, long time.Duration, records int) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	ranks, err := record(ctx, names, long, records)
	if err == nil {
		t := timeline.New(ranks)
		err = errors.Join(t.Write(file, t.About()), t.Summary(w, path))
	}
	return errors.Join(err, file.Close())
}

// record has ranks record, and collects what they have.
func record(ctx context.Context, names []doors.Name, long time.Duration, records int) ([]timeline.Rank, error) {
	if _, err := askTrace(ctx, names, trace.Request{Start: true, Records: records, For: long + traceSlack}); err != nil {
		_, _ = askTrace(context.WithoutCancel(ctx), names, trace.Request{Stop: true}) // those that have begun
		return nil, err
	}
	select {
	case <-time.After(long):
	case <-ctx.Done():
	}
	ctx = context.WithoutCancel(ctx) // an interrupt ends the trace, and what there is is written
	answers, err := askTrace(ctx, names, trace.Request{Stop: true})
	if err != nil {
		return nil, err
	}
	ranks := make([]timeline.Rank, len(answers))
	for i, a := range answers {
		ranks[i].Answer = a
	}
	return ranks, readRecords(ctx, names, ranks)
}

// readRecords reads what all ranks have recorded, a part of each at a time.
func readRecords(ctx context.Context, names []doors.Name, ranks []timeline.Rank) error {
	for from, more := 0, true; more; from += trace.MostInPart {
		answers, err := askTrace(ctx, names, trace.Request{Read: true, From: from})
		if err != nil {
			return err
		}
		more = false
		for i, a := range answers {
			part, err := trace.Decode(a.Part)
			if err != nil {
				return fmt.Errorf("rank %d: %w", a.Rank, err)
			}
			ranks[i].Events = append(ranks[i].Events, part...)
			more = more || len(part) == trace.MostInPart
		}
	}
	return nil
}

// askTrace asks all ranks the same. All errors are returned as one.
func askTrace(ctx context.Context, names []doors.Name, q trace.Request) (list []trace.Answer, err error) {
	for _, r := range doors.All(ctx, names, q.String(), traceAnswer) {
		a, e := readTrace(r)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("rank %d: %w", r.Rank, e))
		}
		list = append(list, a)
	}
	return list, err
}

func readTrace(r doors.Reply) (a trace.Answer, err error) {
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
