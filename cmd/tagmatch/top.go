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

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/inspect/top"
)

const topHelp = `Top shows a table of the ranks of a job, on all its hosts, which it renews each second:

  msg/s             messages sent and received
  MB/s-in, -out     bytes of messages received and sent, in millions
                    (a large one counts when it has come)
  posted, unexp     receives that wait for a message, messages that wait for a receive
  mem%              memory of these messages, of the limit (UnexpectedLimit)
  dev%              messages received that the device has matched
  wait%             part of the time waited in calls other than Test and Iprobe; above
                    100 where several goroutines wait at once
  cpu%              processor time of the rank; 100 is one processor

Marked with * is the late rank, for which the others wait: the one that waits the least
itself, where half of the ranks wait for 20% of the time longer, or more. "-" is not
known, or not yet. More columns are shown where the terminal is wider than 80.

Keys: the arrows left and right, or < and >, take the column to sort by, r turns its
order round, q ends top.

JOB is the name that ps shows, or its beginning; it may be left out where there is one
job. With --json each second is a line, an object with all ranks: what is not known is
left out, and late is -1 where no rank is. Where the output, or the input, is no
terminal, the table of one second is printed, once.

Exit code: 0, also when the job has ended; 1 if there is no such job.`

// period is the time between two samples.
const period = time.Second

// sampler takes samples of the ranks of a job; none are left when that has ended. The title is a
// line about the job.
type sampler func(ctx context.Context) (title string, list []top.Sample)

func newTop(in *os.File) *cobra.Command {
	var asJSON bool
	var by string
	c := &cobra.Command{
		Use:   "top [JOB]",
		Short: "Show a live table of what the ranks of a job do",
		Long:  topHelp,
		Args:  oneJob,
		RunE: func(c *cobra.Command, args []string) error {
			v := top.View{Sort: -1, Width: columns}
			if c.Flags().Changed("sort") {
				var err error
				if v.Sort, err = top.ColumnOf(by); err != nil {
					return err
				}
			}
			look, err := samplerOf(strings.Join(args, ""))
			if err != nil {
				return failed(err)
			}
			ctx, out := contextOf(c), c.OutOrStdout()
			if asJSON {
				return failed(topJSON(ctx, out, look))
			}
			if s, ok := screenOf(in, out); ok {
				return failed(s.show(ctx, look, v))
			}
			return failed(topOnce(ctx, out, look, v))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object a second, a line each")
	c.Flags().StringVar(&by, "sort", "", "the column to sort by, or the beginning of its name")
	return c
}

// samplerOf is that of the job whose name begins so, or of the only one.
func samplerOf(job string) (sampler, error) {
	names, err := runningOf(job)
	if err != nil {
		return nil, err
	}
	first := names[0]
	return func(ctx context.Context) (string, []top.Sample) {
		names, _ := doors.Find() // running says where this fails
		answers := doors.JobsMetrics(ctx, first.OfJob(names))
		list := make([]top.Sample, len(answers))
		for i := range answers {
			list[i] = top.SampleOf(&answers[i])
		}
		return titleOf(answers), list
	}, nil
}

// titleOf is a line about a job, of what its ranks have answered.
func titleOf(answers []inspect.Metrics) string {
	title := ""
	for i := range answers {
		m := &answers[i]
		if title = "job " + m.Job; m.Silent == "" {
			return fmt.Sprintf("%s: %s, %d of %d ranks, started %s ago", title, m.Program, len(answers), m.Size, m.At.Sub(m.Started).Round(time.Second))
		}
	}
	return title
}

// watch calls each with samples of each second, and those before them, until that fails or the job
// or ctx has ended. The first time there are none before.
func watch(ctx context.Context, look sampler, each func(title string, now, before []top.Sample) error) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for before := []top.Sample(nil); ; {
		title, now := look(ctx)
		if len(now) == 0 || ctx.Err() != nil {
			return nil
		}
		if err := each(title, now, before); err != nil {
			return err
		}
		before = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func topJSON(ctx context.Context, w io.Writer, look sampler) error {
	lines := json.NewEncoder(w)
	return watch(ctx, look, func(_ string, now, before []top.Sample) error {
		if before == nil {
			return nil
		}
		return lines.Encode(top.Of(now, before))
	})
}

var errEnough = errors.New("one table was asked for")

// topOnce prints the table of one second.
func topOnce(ctx context.Context, w io.Writer, look sampler, v top.View) error {
	err := watch(ctx, look, func(title string, now, before []top.Sample) error {
		if before == nil {
			return nil
		}
		t := top.Of(now, before)
		v.Title = title
		if _, err := fmt.Fprintln(w, strings.Join(v.Lines(&t), "\n")); err != nil {
			return err
		}
		return errEnough
	})
	if err == nil {
		return errors.New("the job has ended within the second that it was watched")
	}
	if err == errEnough {
		return nil
	}
	return err
}
