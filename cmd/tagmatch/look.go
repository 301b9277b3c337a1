package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/diagnose"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/inspect/show"
)

const psHelp = `Ps lists the jobs that have a rank on this host, and their ranks on all hosts: jobs
of this user, and for root those of all users. It asks each rank what it does:

  moving       messages move, or nothing is known of a rest
  waiting      it is in a call, and nothing has moved for so long
  stuck        the same, and it waits for good: tagmatch dump says why
  computing    it is in no call, and runs
  idle         it is in no call, and sleeps or waits for something else
  joining      it waits in Init for others
  silent       it has not answered within a second, with the reason
  ended        its World is of no use any more, with the reason

A rank here asks those of other hosts, through rank 0. A container with a network of
its own is such a host. A rank of which TAGMATCH_INSPECT is off is not seen.

Exit code: 0; 1 if there are none.`

const dumpHelp = `Dump says what is wrong with a job, if anything can be seen: who waits for whom, on
which host, where in the program, and what to do. A verdict is certain where two looks
at the ranks, a fifth of a second apart, exclude everything else; else it says "now".

Then it shows what the ranks do: the calls of the library that they are in, with the
line of the program; where they are outside of it; receives, messages and sends that
wait, each with its number and age. Ranks that are alike are shown together.

Of each kind the first few are shown, and the rest is counted: with --full all are
that a rank lists, some hundred of a kind.

JOB is the name that ps shows, or its beginning; it may be left out where there is
one job. With --json the first line has the verdicts, and each rank is one more, an
object. What an age counts from is when the rank came to rest after it: it is at
least that.

Exit code: 0; 1 if there is no such job.`

func newPs() *cobra.Command {
	return &cobra.Command{
		Use:   "ps",
		Short: "List the jobs that have ranks on this host",
		Long:  psHelp,
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			names, err := running()
			if err == nil {
				now, before := lookTwice(contextOf(c), names)
				err = show.Jobs(c.OutOrStdout(), now, stuckRanks(now, before))
			}
			return failed(err)
		},
	}
}

func newDump() *cobra.Command {
	var asJSON, full bool
	var rank int
	c := &cobra.Command{
		Use:   "dump [JOB]",
		Short: "Say why a job hangs, and what its ranks do",
		Long:  dumpHelp,
		Args:  oneJob,
		RunE: func(c *cobra.Command, args []string) error {
			names, err := runningOf(strings.Join(args, ""))
			if err != nil {
				return failed(err)
			}
			only := -1
			now, before := lookTwice(contextOf(c), names)
			if c.Flags().Changed("rank") {
				if only, err = indexOfRank(now, rank); err != nil {
					return failed(err)
				}
			}
			return failed(dump(c.OutOrStdout(), now, before, only, asJSON, full))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line: the verdicts, and each rank")
	c.Flags().BoolVar(&full, "full", false, "all that ranks list, a line each, instead of the first of each kind")
	c.Flags().IntVar(&rank, "rank", 0, "show only this rank, with the diagnosis of the job")
	return c
}

func contextOf(c *cobra.Command) context.Context {
	if ctx := c.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

// failed makes the error of a command one that is not about its usage.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitFailed, err}
}

// dump prints the diagnosis, and then what the ranks do, or the one at an index.
func dump(w io.Writer, now, before []inspect.State, only int, asJSON, full bool) error {
	verdicts := diagnosisOf(now, before)
	stuck, shown := stuckRanks(now, before), now
	if only >= 0 {
		shown = now[only : only+1]
	}
	if asJSON {
		return dumpJSON(w, verdicts, shown)
	}
	if _, err := fmt.Fprintf(w, "%s\n\n", show.Title(now)); err != nil {
		return err
	}
	if err := writeVerdicts(w, verdicts, now, before); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return show.Ranks(w, shown, stuck, full)
}

func dumpJSON(w io.Writer, verdicts []diagnose.Verdict, states []inspect.State) error {
	enc := json.NewEncoder(w)
	if err := enc.Encode(struct {
		Verdicts []diagnose.Verdict `json:"verdicts"`
	}{append([]diagnose.Verdict{}, verdicts...)}); err != nil { // an empty list is no null
		return err
	}
	for i := range states {
		if err := enc.Encode(&states[i]); err != nil {
			return err
		}
	}
	return nil
}

// running lists the doors of ranks; that there is none is an error.
func running() ([]doors.Name, error) {
	names, err := doors.Find()
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("no rank runs here that this user may look into: ranks of others, of other containers, and those with TAGMATCH_INSPECT=off are not seen")
	}
	return names, err
}

// runningOf is running of the job whose name begins so, or of the only one.
func runningOf(job string) ([]doors.Name, error) {
	names, err := running()
	if err != nil {
		return nil, err
	}
	return ofJob(names, job)
}

// ofJob picks the job whose name begins so, or the only one.
func ofJob(names []doors.Name, job string) (list []doors.Name, err error) {
	for _, n := range names {
		if strings.HasPrefix(n.Job, job) {
			list = append(list, n)
		}
	}
	switch {
	case len(list) == 0:
		return nil, fmt.Errorf("no job %s runs here: name one of %s", job, strings.Join(jobsOf(names), ", "))
	case slices.ContainsFunc(list, func(n doors.Name) bool { return n.Job != list[0].Job }):
		return nil, fmt.Errorf("several jobs run here, name one of them: %s", strings.Join(jobsOf(list), ", "))
	}
	for _, n := range list { // any user can give a socket the name of another one's job
		if first := list[0]; n.UID != first.UID {
			return nil, fmt.Errorf("users %d and %d both have a job %s: call tagmatch as the one whose job it is", first.UID, n.UID, n.Job)
		}
	}
	return list, nil
}

// jobsOf is the names of jobs, each once.
func jobsOf(names []doors.Name) (jobs []string) {
	for _, n := range names {
		if !slices.Contains(jobs, n.Job) {
			jobs = append(jobs, n.Job)
		}
	}
	return jobs
}

// indexOfRank finds one rank.
func indexOfRank(states []inspect.State, rank int) (int, error) {
	for i, s := range states {
		if s.Rank == rank {
			return i, nil
		}
	}
	return 0, fmt.Errorf("--rank %d: job %s has no such rank that is known of here: tagmatch ps lists them", rank, states[0].Job)
}
