package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	programs["unseen"] = unseenProgram
	roles["movesslowly"] = movesSlowlyRole
}

// watchdogLimit is short beside what the tests wait for, and long beside what a busy machine holds
// up a rank.
func watchdogLimit() time.Duration { return testlevel.Patience(2 * time.Second) }

// certain is what a watchdog has printed, with its verdict as it is where no other goroutine of a
// rank, such as one of the test's own, was about to run when the ranks were looked at.
func certain(text string) string { return strings.Replace(text, ", now: ", ", certain: ", 1) }

// TestWatchdog: the lowest rank that runs reports a job that hangs once, with what is wrong, and
// ends it.
func TestWatchdog(t *testing.T) {
	for fault, want := range map[string]struct {
		by    int
		texts []string
	}{
		"wrongTag":     {0, []string{"MISMATCH, certain: rank 1, with rank 0"}},
		"endlessLoop":  {0, []string{"LATE RANK, certain: rank 1", "this is a report, and no verdict.\n"}},
		"firstStopped": {1, []string{"NO ANSWER, certain: rank 0", "3 more ranks wait for this: ranks 1-3."}},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			eachDevice(t, func(t *testing.T, device string) {
				r := job{n: 4, role: "broken", device: device, grace: time.Second,
					env: []string{faultVar + "=" + fault, fmt.Sprintf("TAGMATCH_WATCHDOG=%v,abort", watchdogLimit())}}.run(t)
				require.Equal(t, 124, r.code, r.err)
				text := certain(strings.ReplaceAll(r.err, fmt.Sprintf("[%d] ", want.by), ""))
				require.Contains(t, text, fmt.Sprintf("tagmatch: rank %d: nothing of the job has moved for ", want.by))
				for _, s := range append(want.texts, "The watchdog ends the job.\n", "aborted the job with code 124: TAGMATCH_WATCHDOG: nothing of the job") {
					require.Contains(t, text, s)
				}
				require.Equal(t, 1, strings.Count(text, "(TAGMATCH_WATCHDOG).\n"), text)
			})
		})
	}
}

// TestWatchdogOfMoving: a job that moves is neither reported nor ended, though its rank 0 waits all
// the time.
func TestWatchdogOfMoving(t *testing.T) {
	t.Parallel()
	eachDevice(t, func(t *testing.T, device string) {
		limit := watchdogLimit()
		r := job{n: 3, role: "movesslowly", device: device, arg: int(3 * limit / time.Millisecond),
			env: []string{fmt.Sprintf("TAGMATCH_WATCHDOG=%v,abort", limit)}}.run(t)
		require.Zero(t, r.code, r.err)
		require.Empty(t, r.err)
	})
}

// movesSlowlyRole: ranks 1 and 2 exchange messages for some time, with pauses in which both
// compute, and rank 0 waits for the end of that.
func movesSlowlyRole(ctx context.Context, w *p2p.World) error {
	if w.Rank() == 0 {
		return receiveOne(ctx, w.Comm(), 1, 8)
	}
	pause := watchdogLimit() / 4
	for range int(number(argVar)) / int(pause/time.Millisecond) {
		other := 3 - w.Rank()
		if _, err := w.Comm().Sendrecv(ctx, other, 7, nil, other, 7, nil); err != nil {
			return err
		}
		time.Sleep(pause)
	}
	if w.Rank() == 1 {
		return w.Comm().Send(ctx, 0, 8, nil)
	}
	return nil
}

// TestWatchdogOfUnseen: a job of which not all ranks can be seen is reported, and not ended.
func TestWatchdogOfUnseen(t *testing.T) {
	t.Parallel()
	limit := watchdogLimit()
	r := job{n: 3, role: "unseen", device: "shm", arg: int(4 * limit / time.Millisecond),
		env: []string{fmt.Sprintf("TAGMATCH_WATCHDOG=%v,abort", limit)}}.run(t)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "[0] What moves at rank 1 is not seen.\n[0] So the watchdog does not end the job.\n")
}

// TestWatchdogAcrossHosts: a job on three hosts is reported by one rank, which ends it.
func TestWatchdogAcrossHosts(t *testing.T) {
	w := newNetwork(t, 3)
	w.startOnHosts("broken", faultVar+"=wrongTag", fmt.Sprintf("TAGMATCH_WATCHDOG=%v,abort", watchdogLimit()))
	ended := make(chan error, len(w.ranks))
	for _, p := range w.ranks {
		go func() { ended <- p.cmd.Wait() }()
	}
	patience := time.After(testlevel.Patience(2 * time.Minute))
	for range w.ranks {
		select {
		case err := <-ended:
			require.Error(t, err)
		case <-patience:
			require.Fail(t, "the watchdog has not ended the job")
		}
	}
	for rank, p := range w.ranks {
		reports := 0
		if rank == 0 {
			reports = 1
			require.Contains(t, certain(p.err.String()), "MISMATCH, certain: rank 1")
			require.Contains(t, p.err.String(), "The watchdog ends the job.\n")
		}
		require.Equal(t, reports, strings.Count(p.err.String(), "(TAGMATCH_WATCHDOG).\n"), "rank %d: %s", rank, &p.err)
	}
}

// unseenProgram has all ranks wait for rank 1 for some time, whose door is closed.
func unseenProgram(ctx context.Context) error {
	if os.Getenv("RANK") == "1" {
		if err := os.Setenv("TAGMATCH_INSPECT", "off"); err != nil {
			return err
		}
	}
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		return err
	}
	defer w.Close()
	waiting, cancel := context.WithTimeout(ctx, time.Duration(number(argVar))*time.Millisecond)
	defer cancel()
	if err := receiveOne(waiting, w.Comm(), 1, 7); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return w.Shutdown(ctx)
}

// TestWatchdogWithoutDoors: ranks that have no doors say that their watchdog cannot work.
func TestWatchdogWithoutDoors(t *testing.T) {
	r := job{n: 2, role: "noinspect", device: "shm", env: []string{"TAGMATCH_INSPECT=off", "TAGMATCH_WATCHDOG=1s,abort"}}.run(t)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "[1] tagmatch: rank 1 does without TAGMATCH_WATCHDOG: TAGMATCH_INSPECT is off\n")
}
