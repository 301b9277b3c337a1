package jobtest

import (
	"bytes"
	"context"
	"fmt"
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

// lookAt starts a job and calls see with two looks at its ranks at a time, until that returns
// false, which ends the job, or the job has ended. Patience is how long it may take.
func (j job) lookAt(t *testing.T, between time.Duration, see func(now, before []inspect.State) bool) (code int) {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), testlevel.Patience(2*time.Minute))
	defer end()
	mark := fmt.Sprintf("JOBTEST_LOOK=%d.%d", os.Getpid(), time.Now().UnixNano())
	env := append(os.Environ(), mark,
		roleVar+"="+j.role, fmt.Sprintf("%s=%d", argVar, j.arg), fmt.Sprintf("%s=%d", seedVar, j.seed), "TAGMATCH_DEVICE="+j.device)
	var out bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		var err error
		code, err = launch.Run(ctx, launch.Options{N: j.n, Command: []string{os.Args[0]}, Env: append(env, j.env...), Stdout: &out, Stderr: &out})
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			require.NoError(t, err, "%s", &out)
			require.Zero(t, code, "%s", &out)
			return code
		default:
		}
		names := doorsOf(t, mark)
		before := doors.States(ctx, names)
		time.Sleep(between)
		if len(names) == j.n && !see(doors.States(ctx, names), before) {
			end()
			t.Log("the job, which was ended: ", <-ended)
			return code
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

// TestDiagnosed starts programs with a fault, and looks at them until the verdict is certain: it
// must name what is wrong, and the rank that is.
func TestDiagnosed(t *testing.T) {
	for fault, want := range map[string]struct {
		class   diagnose.Class
		culprit int
		text    string
	}{
		"tag":       {diagnose.Mismatch, 1, "and has one of rank 0 with tag 0x8 (1 byte), off by one"},
		"bigtag":    {diagnose.Mismatch, 1, "and has one of rank 0 with tag 0x8 (1 MiB), off by one"},
		"source":    {diagnose.Mismatch, 1, "and has one of rank 2 with tag 0x7 (1 byte): the source differs"},
		"comm":      {diagnose.Mismatch, 1, "the Comm differs"},
		"cycle":     {diagnose.Cycle, 0, "rank 0 waits for a message of rank 3 (tag 0x7)"},
		"sendcycle": {diagnose.SendCycle, 0, "rank 0 waits for rank 1 to receive 1 MiB (tag 0x7)"},
		"dup":       {diagnose.Collective, 1, "wait in Dup 1 of World"},
		"allreduce": {diagnose.Collective, 1, "wait in coll.AllReduce 2 of Comm 1"},
		"held":      {diagnose.HeldUp, 1, "rank 1 has no memory for more messages"},
		"spin":      {diagnose.Late, 1, "is in no call of the library at "},
	} {
		t.Run(fault, func(t *testing.T) {
			eachDevice(t, func(t *testing.T, device string) {
				found := ""
				see := func(now, before []inspect.State) bool {
					for _, v := range verdictsOf(now, before) {
						found += fmt.Sprintf("%+v\n", v)
						if v.Class == want.class && v.Certain && v.Ranks[0] == want.culprit && strings.Contains(v.What, want.text) {
							found = ""
							return false
						}
					}
					found = found[max(0, len(found)-4000):]
					return true
				}
				job{n: 4, role: "broken", device: device, env: []string{faultVar + "=" + fault}}.lookAt(t, 20*time.Millisecond, see)
				require.Empty(t, found)
			})
		})
	}
}

// TestNeverAccused looks at a job without a fault, whose ranks wait for each other in all ways, and
// for one that computes: there is never a verdict that says that ranks wait for good.
func TestNeverAccused(t *testing.T) {
	steps := 120
	if testlevel.CI() {
		steps = 1200
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
		j := job{n: 4, role: "faultless", device: device, seed: uint64(time.Now().UnixNano()), arg: steps / effort, env: []string{"TAGMATCH_UNEXPECTED_LIMIT=262144"}}
		j.lookAt(t, 2*time.Millisecond, see)
		require.Positive(t, rested, "of %d looks none has seen all ranks rest: nothing could be certain", looks)
	})
}
