package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/inspect/show"
)

const insist = ".\nCtrl-\\ again within 5 s sends SIGQUIT to the ranks."

// diagnoseRanks is launch.Options.Diagnose: of ranks that hang when a signal ends them only a
// verdict is worth a word.
func diagnoseRanks(ctx context.Context, pids []int, rested time.Duration) string {
	names, err := ofGroups(pids)
	switch {
	case rested == 0 && err != nil:
		return err.Error() + insist
	case rested == 0 && len(names) == 0:
		return "no rank of this job on this host can be looked into (see tagmatch ps -h)" + insist
	case rested == 0:
		now, before := lookTwice(ctx, names)
		return diagnosisText(now, before)
	case len(names) == 0:
		return ""
	}
	r := doors.LookForRest(ctx, names, rested, false)
	if r.For < rested || len(diagnosisOf(r.Now, r.Before)) == 0 {
		return ""
	}
	return fmt.Sprintf("nothing had moved for %v. %s", r.For.Truncate(time.Second), diagnosisText(r.Now, r.Before))
}

// diagnosisText is the title of the job and what is wrong with it.
func diagnosisText(now, before []inspect.State) string {
	var b strings.Builder
	b.WriteString(show.Title(now) + "\n")
	_ = writeVerdicts(&b, diagnosisOf(now, before), now, before) // memory takes it
	return strings.TrimSuffix(b.String(), "\n")
}

// ofGroups finds the doors of ranks by their process groups: the rank may be behind a shell. Root
// sees names of all users, and believes those of the processes' own.
func ofGroups(groups []int) ([]doors.Name, error) {
	names, err := doors.Find()
	root := os.Geteuid() == 0
	return slices.DeleteFunc(names, func(n doors.Name) bool {
		group, err := syscall.Getpgid(n.PID)
		return err != nil || !slices.Contains(groups, group) || root && !n.Runs()
	}), err
}
