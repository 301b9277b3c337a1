package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/internal/trace/timeline"
	"github.com/tagmatch/tagmatch/internal/trace/tracing"
)

const traceHelp = `Trace has the ranks of a job, on all hosts, record what happens for a while, and
writes one file that Perfetto shows (ui.perfetto.dev): each message with its post,
match, first byte and end, an arrow from where it was sent to where it was received,
calls that wait, and when goroutines sleep. Of messages it has tags and sizes, and
no bytes. Ranks that have ended are left out.

Each rank keeps the newest --records records, of 64 bytes; a message takes one to
three at each end. How many more there were is told, and stands in the file, and so
is of how many messages only one end was recorded. The program runs on meanwhile; a
record takes it some 5 ns and a look at the clock, 20 to 80 ns. What one poll brings
has the time of its end.

Clocks of several hosts are compared by the messages between them: how far each was
moved, and how exactly that is known, is told, and stands in the file.

Ctrl-C ends the recording, and what there is by then is written. JOB is the name that
ps shows, or its beginning; it may be left out where there is one job.

With TAGMATCH_TRACE=ring each rank records from its beginning into a file of 4 MiB, in
the directory for temporary files or, with TAGMATCH_TRACE=ring:DIR, in DIR: its name is
tagmatch-JOB-RANK-PID.trace. A Shutdown without an error removes it. However else the
rank ends, its newest 65,536 records stay there, and trace --read puts those of the
ranks of a job together. It can do so while they run, too.

Exit code: 0; 1 if there is no such job, a rank has not answered, or the file cannot
be written. A rank that fails after it has begun is left out of the file, and named.`

func newTrace() *cobra.Command {
	var out string
	var long time.Duration
	var records int
	var read bool
	c := &cobra.Command{
		Use:   "trace [JOB] | trace --read FILE...",
		Short: "Record what the ranks of a job do, for Perfetto",
		Long:  traceHelp,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case !read:
				return oneJob(c, args)
			case len(args) == 0:
				return errors.New("--read: name the files that the ranks of a job have left")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if read {
				return failed(writeTrace(c.ErrOrStderr(), out, func() ([]timeline.Rank, error) { return tracing.ReadFiles(args) }))
			}
			if long <= 0 || long > trace.Longest {
				return fmt.Errorf("--for %v: give a time above 0, such as 5s, and up to %v", long, trace.Longest)
			}
			if records <= 0 || records > trace.Most {
				return fmt.Errorf("--records %d: give 1 to %d", records, trace.Most)
			}
			names, err := runningOf(strings.Join(args, ""))
			if err == nil {
				err = writeTrace(c.ErrOrStderr(), out, func() ([]timeline.Rank, error) { return record(contextOf(c), names, long, records) })
			}
			return failed(err)
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "trace.json", "the file")
	c.Flags().DurationVar(&long, "for", 5*time.Second, "how long to record")
	c.Flags().IntVar(&records, "records", 1<<16, "how many records each rank keeps")
	c.Flags().BoolVar(&read, "read", false, "read files of TAGMATCH_TRACE instead of recording")
	c.MarkFlagsMutuallyExclusive("read", "for")
	c.MarkFlagsMutuallyExclusive("read", "records")
	return c
}

// writeTrace writes what the ranks of a job have recorded to a file, which may be the standard
// output, and tells w of it. An error of get beside ranks says that others are missing.
func writeTrace(w io.Writer, path string, get func() ([]timeline.Rank, error)) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666) // that it cannot be written is told at once
	if err != nil {
		return fmt.Errorf("%w: name a file that can be written with -o", err)
	}
	ranks, missing := get()
	if len(ranks) == 0 {
		return errors.Join(missing, file.Close(), removeEmpty(path))
	}
	t := timeline.New(ranks)
	if err = errors.Join(replace(file, t), file.Close()); err == nil {
		err = t.Summary(w, path)
	}
	return errors.Join(missing, err)
}

// replace writes a timeline in place of what a file has held.
func replace(file *os.File, t *timeline.Timeline) error {
	if i, err := file.Stat(); err != nil || i.Mode().IsRegular() { // a device or a pipe has no length
		if err = errors.Join(err, file.Truncate(0)); err != nil {
			return err
		}
	}
	return t.Write(file, t.About())
}

// removeEmpty removes the file that nothing was written into. One that held something stays, and so
// does what is no file.
func removeEmpty(path string) error {
	if i, err := os.Lstat(path); err != nil || !i.Mode().IsRegular() || i.Size() != 0 {
		return err
	}
	return os.Remove(path)
}

// record has ranks record. A signal ends that earlier, and what there is is written. An error names
// ranks that are not in the list.
func record(ctx context.Context, names []doors.Name, long time.Duration, records int) ([]timeline.Rank, error) {
	enough, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	t, err := tracing.Begin(ctx, names, long, records)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(long):
	case <-enough.Done():
		stop() // another signal ends this process: ranks may let it wait
	}
	return t.End(context.WithoutCancel(ctx))
}
