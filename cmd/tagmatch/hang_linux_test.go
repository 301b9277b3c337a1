package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/buffertest"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// envLaunch makes this test binary the command tagmatch, and envWaits a rank that waits for a
// message of another tag than the one that it is sent, or that answers one after the other.
const (
	envLaunch = "TAGMATCH_TEST_LAUNCH"
	envWaits  = "TAGMATCH_TEST_WAITS"
)

func init() {
	if os.Getenv(envLaunch) != "" {
		_ = os.Unsetenv(envLaunch)
		os.Exit(execute(os.Args[1:], nil, os.Stdout, os.Stderr))
	}
	if how := os.Getenv(envWaits); how != "" {
		if err := waitsFor(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func waitsFor(how string) error {
	ctx := context.Background()
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		return err
	}
	other := 1 - w.Rank()
	for step := 0; ; step++ {
		want := p2p.Tag(7)
		if how == "hangs" && step == 1 {
			want = 8
		}
		if _, err := w.Comm().Sendrecv(ctx, other, 7, nil, other, want, nil); err != nil {
			return err
		}
		if step == 0 {
			fmt.Println("works")
		}
	}
}

// startRun starts tagmatch run with two ranks, and returns when they exchange messages.
func startRun(t *testing.T, how string, program ...string) (c *exec.Cmd, out *buffertest.Buffer) {
	t.Helper()
	out = &buffertest.Buffer{}
	c = exec.Command(os.Args[0], append([]string{"run", "-n", "2", "--"}, program...)...)
	c.Env = append(os.Environ(), envLaunch+"=1", envWaits+"="+how, "TAGMATCH_DEVICE=shm")
	c.Stdout, c.Stderr = out, out
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()
	})
	until(t, out, "works\n", 2)
	return c, out
}

// until waits until the output has a text n times.
func until(t *testing.T, out *buffertest.Buffer, text string, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Count(out.String(), text) >= n }, testlevel.Patience(time.Minute), 10*time.Millisecond, "%q: %v", text, out)
}

// TestQuitShows: SIGQUIT at run prints what is wrong with its job, which goes on; a second one
// reaches the ranks, which end with their stacks, unless there is a shell that it ends first.
func TestQuitShows(t *testing.T) {
	t.Parallel()
	for how, program := range map[string][]string{"goroutine ": {os.Args[0]}, "was killed by a signal: quit\n": {"sh", "-c", os.Args[0] + "; exit $?"}} {
		t.Run(program[0], func(t *testing.T) {
			t.Parallel()
			c, out := startRun(t, "hangs", program...)
			untilStill(t, c.Process.Pid, time.Second)
			require.NoError(t, c.Process.Signal(syscall.SIGQUIT))
			until(t, out, "MISMATCH, certain: rank", 1)
			require.Regexp(t, `(?m)^tagmatch: job .*, 2 of 2 ranks, `, out.String())
			require.NotContains(t, out.String(), how)
			require.NoError(t, c.Process.Signal(syscall.SIGQUIT))
			until(t, out, how, 1)
			_ = c.Wait() // says with which code it ended
			require.NotZero(t, c.ProcessState.ExitCode())
		})
	}
}

// TestQuitOfStrangers: of ranks that are no programs of this library nothing can be said.
func TestQuitOfStrangers(t *testing.T) {
	c, out := startRun(t, "", "sh", "-c", "echo works; sleep 1000")
	require.NoError(t, c.Process.Signal(syscall.SIGQUIT))
	until(t, out, "tagmatch: no rank of this job on this host can be looked into (see tagmatch ps -h).\nCtrl-\\ again", 1)
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	_ = c.Wait() // says with which code it ended
	require.Equal(t, 143, c.ProcessState.ExitCode(), "%v", out)
	require.True(t, strings.HasSuffix(out.String(), "tagmatch: got terminated\n"), "%v", out)
}

// TestEndOfHang: the last output of a job that hangs, and is ended, is what was wrong with it, and
// one that moves says nothing of the kind.
func TestEndOfHang(t *testing.T) {
	t.Parallel()
	for how, text := range map[string]string{"hangs": "MISMATCH, certain: rank", "moves": ""} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c, out := startRun(t, how, os.Args[0])
			if how == "hangs" {
				untilStill(t, c.Process.Pid, 10*time.Second)
			}
			require.NoError(t, c.Process.Signal(syscall.SIGTERM))
			_ = c.Wait() // says with which code it ended
			require.Equal(t, 143, c.ProcessState.ExitCode(), "%v", out)
			_, end, _ := strings.Cut(out.String(), "tagmatch: got terminated\n")
			if text == "" {
				require.Empty(t, end)
				return
			}
			require.Regexp(t, `^tagmatch: nothing had moved for \S+\. job .*, 2 of 2 ranks`, end)
			require.Contains(t, end, text)
		})
	}
}

// untilStill waits until nothing has moved for so long in the job of a launcher.
func untilStill(t *testing.T, launcher int, least time.Duration) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", launcher))
	require.NoError(t, err)
	var pids []int
	for _, thread := range threads {
		children, err := os.ReadFile(thread)
		require.NoError(t, err)
		for _, pid := range strings.Fields(string(children)) {
			n, err := strconv.Atoi(pid)
			require.NoError(t, err)
			pids = append(pids, n)
		}
	}
	require.Len(t, pids, 2)
	require.Eventually(t, func() bool {
		names, err := ofGroups(pids)
		require.NoError(t, err)
		return doors.LookForRest(t.Context(), names, least, false).For >= least
	}, testlevel.Patience(2*time.Minute), 500*time.Millisecond)
}

// TestDoorsOfStrangers: a socket that another user has named after a rank of a job is none of the
// job's doors. The name alone decides that, so this process has both.
func TestDoorsOfStrangers(t *testing.T) {
	own := doors.Name{UID: os.Geteuid(), Job: "own" + strconv.Itoa(os.Getpid()), PID: os.Getpid()}
	forged := own
	forged.UID++
	for _, n := range []doors.Name{own, forged} {
		d, err := doors.Open(n, doors.Refuse)
		require.NoError(t, err)
		defer d.Close()
	}
	names, err := ofGroups([]int{syscall.Getpgrp()})
	require.NoError(t, err)
	require.Contains(t, names, own)
	require.NotContains(t, names, forged)
}
