package main

import (
	"context"
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
	"github.com/tagmatch/tagmatch/internal/trace/tracing"
)

const traceHelp = `Trace has the ranks of a job on this host record what happens for a while, and
writes one file that Perfetto shows (ui.perfetto.dev): each message with its post,
match, first byte and end, an arrow from where it was sent to where it was received,
calls that wait, and when goroutines sleep. Of messages it has tags and sizes, and
no bytes.

Each rank keeps the newest --records records, of 64 bytes; a message takes one to
three at each end. How many more there were is told, and stands in the file. The
program runs on meanwhile; a record takes it some 10 ns and a look at the clock.

Exit code: 0; 1 if there is no such job, or a rank has not answered.`

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
			if long <= 0 || long > trace.Longest || records <= 0 || records > trace.Most {
				return fmt.Errorf("--for takes a time above 0, up to %v, and --records 1 to %d", trace.Longest, trace.Most)
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
	if err = errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(path)
	}
	return err
}

// record has ranks record. An interrupt ends that earlier, and what there is is written.
func record(ctx context.Context, names []doors.Name, long time.Duration, records int) ([]timeline.Rank, error) {
	if err := tracing.Begin(ctx, names, long, records); err != nil {
		return nil, err
	}
	select {
	case <-time.After(long):
	case <-ctx.Done():
	}
	return tracing.End(context.WithoutCancel(ctx), names)
}
