package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/diagnose"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
)

const columns = 80

// lookTwice asks the ranks of jobs for their states, on all hosts, and again when all have answered
// and some time is over.
func lookTwice(ctx context.Context, names []doors.Name) (now, before []inspect.State) {
	before = doors.Jobs(ctx, names)
	select {
	case <-time.After(doors.BetweenLooks):
	case <-ctx.Done():
	}
	return doors.Jobs(ctx, names), before
}

// diagnosisOf is what is wrong with a job.
func diagnosisOf(now, before []inspect.State) []diagnose.Verdict {
	return diagnose.Diagnose(doors.Look(now), doors.Look(before))
}

// stuckRanks finds the ranks of all jobs that are certain to wait for good. Of a mismatch that is
// said of the first rank alone.
func stuckRanks(now, before []inspect.State) func(job string, rank int) bool {
	stuck := map[string][]int{}
	for _, s := range now {
		if _, known := stuck[s.Job]; known {
			continue
		}
		stuck[s.Job] = nil
		for _, v := range diagnosisOf(ofOneJob(now, s.Job), ofOneJob(before, s.Job)) {
			switch {
			case !v.Certain || !v.Class.Deadlock():
			case v.Class == diagnose.Mismatch:
				stuck[s.Job] = append(stuck[s.Job], v.Ranks[0])
			default:
				stuck[s.Job] = append(stuck[s.Job], v.Ranks...)
			}
		}
	}
	return func(job string, rank int) bool { return slices.Contains(stuck[job], rank) }
}

func ofOneJob(states []inspect.State, job string) (list []inspect.State) {
	for _, s := range states {
		if s.Job == job {
			list = append(list, s)
		}
	}
	return list
}

// writeVerdicts writes what is wrong, or that nothing is known to be, and what the job does then.
func writeVerdicts(w io.Writer, verdicts []diagnose.Verdict, now, before []inspect.State) error {
	if len(verdicts) != 0 {
		return diagnose.Write(w, verdicts, columns)
	}
	does := "it moves"
	switch {
	case !slices.ContainsFunc(now, func(s inspect.State) bool { return s.Silent == "" }):
		_, err := fmt.Fprintln(w, "No rank of the job answers, so nothing is known of it. It may have ended.")
		return err
	case !doors.Moved(now, before):
		does = "it rests at the moment"
	}
	_, err := fmt.Fprintf(w, "Nothing is wrong with the job that can be seen: %s.\n", does)
	return err
}
