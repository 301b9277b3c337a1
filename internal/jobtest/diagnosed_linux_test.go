package jobtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/diagnose"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/launch"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// betweenLooks is as long as between those of `tagmatch dump`.
const betweenLooks = 200 * time.Millisecond

// lookAt starts a job and calls see with two looks at its ranks at a time, until that returns
// false, which ends the job, or the job has ended. With keep one of its ranks may be gone.
func (j job) lookAt(t *testing.T, between time.Duration, see func(now, before []inspect.State) bool) {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), testlevel.Patience(2*time.Minute))
	ranks := j.n
	if j.keep {
		ranks--
	}
	mark := fmt.Sprintf("JOBTEST_LOOK=%d.%d", os.Getpid(), time.Now().UnixNano())
	env := append(os.Environ(), mark,
		roleVar+"="+j.role, fmt.Sprintf("%s=%d", argVar, j.arg), fmt.Sprintf("%s=%d", seedVar, j.seed), "TAGMATCH_DEVICE="+j.device)
	var out bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		code, err := launch.Run(ctx, launch.Options{N: j.n, Command: []string{os.Args[0]}, Env: append(env, j.env...), Stdout: &out, Stderr: &out, Grace: j.grace, KeepGoing: j.keep})
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d", code)
		}
		ended <- err
	}()
	defer func() {
		end()
		for range ended {
			t.Log("the job was ended")
		}
	}()
	for {
		select {
		case err := <-ended:
			require.NoError(t, err, "%s", &out)
			return
		default:
		}
		names := doorsOf(t, mark)
		before := doors.States(ctx, names)
		time.Sleep(between)
		if len(names) >= ranks && !see(doors.States(ctx, names), before) {
			return
		}
	}
}

// doorsOf is the doors of the processes that were started with this in their environment.
func doorsOf(t *testing.T, mark string) (list []doors.Name) {
	t.Helper()
	names, err := doors.Find()
	require.NoError(t, err)
	for _, n := range names {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", n.PID))
		if err == nil && slices.Contains(strings.Split(string(env), "\x00"), mark) {
			list = append(list, n)
		}
	}
	return list
}

func verdictsOf(now, before []inspect.State) []diagnose.Verdict {
	return diagnose.Diagnose(doors.Look(now), doors.Look(before))
}

// TestDiagnosed starts programs with a fault, and looks at them until what is said of them is what
// docs/debugging.md shows.
func TestDiagnosed(t *testing.T) {
	page := readPage(t)
	for _, fault := range slices.Sorted(maps.Keys(brokenPrograms)) {
		t.Run(fault, func(t *testing.T) {
			if !*updatePage { // one answer after the other is written
				t.Parallel()
			}
			eachDevice(t, func(t *testing.T, device string) {
				j := job{n: 4, role: "broken", device: device, env: []string{faultVar + "=" + fault}, grace: 100 * time.Millisecond}
				got := j.answer(t, fault, page[fault].answer)
				if *updatePage {
					writeAnswer(t, fault, got)
					return
				}
				require.Equal(t, page[fault].answer, got)
			})
		})
	}
}

// answer is what is said of a program with a fault: want as soon as that is said, or what was said
// last. Where a rank leaves without Shutdown it is the launcher that says it.
func (j job) answer(t *testing.T, fault, want string) (got string) {
	t.Helper()
	switch fault {
	case "noShutdown":
		return launcherSays(j.run(t))
	case "unacknowledged":
		j.keep = true
	}
	defer func() {
		if got != want {
			t.Logf("what was said last:\n%s", got)
		}
	}()
	settled := 0
	j.lookAt(t, betweenLooks, func(now, before []inspect.State) bool {
		verdicts := verdictsOf(now, before)
		if fault == "leak" { // a rank that sleeps now and then is late at some moments
			verdicts = slices.DeleteFunc(verdicts, func(v diagnose.Verdict) bool { return v.Class != diagnose.Leak })
		}
		for _, v := range verdicts {
			require.False(t, fault == "slowRank" && v.Certain && v.Class.Deadlock(), "%+v", v)
		}
		last := got
		if got = answerOf(t, verdicts); got != last || got == "" {
			settled = 0
		}
		settled++
		if *updatePage {
			return settled < 3
		}
		return got != want
	})
	return got
}

// launcherSays is what the launcher itself says of a job.
func launcherSays(r result) (said string) {
	for line := range strings.Lines(r.err) {
		if strings.HasPrefix(line, "tagmatch") {
			said += asOnPage(line)
		}
	}
	return said
}

// TestNeverAccused looks at a job without a fault, whose ranks wait for each other in all ways, and
// for one that computes: there is never a verdict that says that ranks wait for good.
func TestNeverAccused(t *testing.T) {
	steps := 60
	if testlevel.CI() {
		steps = 600
	}
	eachDevice(t, func(t *testing.T, device string) {
		looks, rested := 0, 0
		see := func(now, before []inspect.State) bool {
			looks++
			for _, v := range verdictsOf(now, before) {
				require.False(t, v.Certain && v.Class.Deadlock(), "%+v\n%+v\n%+v", v, now, before)
			}
			if !slices.ContainsFunc(now, func(s inspect.State) bool { return s.Moved != before[s.Rank].Moved }) {
				rested++
			}
			return true
		}
		for jobs := 0; rested == 0; jobs++ { // a job that is short beside the looks at it may never be seen to rest
			require.Less(t, jobs, 50, "of %d looks none has seen all ranks rest: nothing could be certain", looks)
			j := job{n: 4, role: "faultless", device: device, seed: uint64(time.Now().UnixNano()), arg: steps / effort, env: []string{"TAGMATCH_UNEXPECTED_LIMIT=262144"}}
			j.lookAt(t, 2*time.Millisecond, see)
		}
		t.Logf("%d looks, of which %d have seen all ranks rest, and none has accused anybody", looks, rested)
	})
}
