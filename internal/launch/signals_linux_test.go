package launch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// stopped reports whether pid is.
func stopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	return err == nil && strings.HasPrefix(rest, "T")
}

// fakeSSH writes an agent for hosts that are all this one: it drops the host's name and, as with
// ssh, who ends it has not ended what it has started.
func fakeSSH(t *testing.T, front string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "agent")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nshift\ncd /\nexec "+front+"setsid -w env -i PATH=$PATH \"$@\"\n"), 0o700))
	return path
}

// meant are the signals that are for the ranks, and leave them running as this program has it.
var meant = []os.Signal{syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGXCPU, syscall.SIGCONT}

func init() {
	roles["signals"] = func(string) int {
		c := make(chan os.Signal, 16)
		signal.Notify(c, meant...)
		fmt.Printf("pid %d\n", os.Getpid())
		for sig := range c {
			fmt.Println("got", sig)
		}
		return 0
	}
}

// TestSignalsReachRanks: those that do not end the job, on this host and on others. A launcher that
// is stopped stops its ranks.
func TestSignalsReachRanks(t *testing.T) {
	for name, agent := range map[string]string{"here": "", "there": fakeSSH(t, "")} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NESTED_AGENT", agent)
			c, out := startNested(t, "exec env "+envRole+"=signals "+os.Args[0], 2)
			got := func(sig os.Signal) {
				t.Helper()
				require.Eventually(t, func() bool { return strings.Count(out.String(), "got "+sig.String()+"\n") == 2 }, testlevel.Patience(30*time.Second), 5*time.Millisecond, "%v: %v", sig, out)
			}
			for _, sig := range meant[:5] {
				require.NoError(t, c.Process.Signal(sig))
				got(sig)
			}
			require.NoError(t, c.Process.Signal(syscall.SIGTSTP))
			for _, pid := range append(pids(out.String()), c.Process.Pid) {
				require.Eventually(t, func() bool { return stopped(pid) }, testlevel.Patience(30*time.Second), 5*time.Millisecond, "%d", pid)
			}
			require.NoError(t, c.Process.Signal(syscall.SIGCONT))
			got(syscall.SIGCONT)
			require.NoError(t, c.Process.Signal(syscall.SIGTERM))
			_ = c.Wait() // says with which code it ended
			require.Equal(t, 128+int(syscall.SIGTERM), c.ProcessState.ExitCode(), "%v", out)
			requireGone(t, pids(out.String()))
		})
	}
}

// TestHangupTwice: the second SIGHUP of a terminal that is closed is not somebody who insists.
func TestHangupTwice(t *testing.T) {
	var out bytes.Buffer
	s := newSupervisor(&job{opt: &Options{Stderr: &out, Grace: time.Hour}, ranks: []*rank{{}}})
	defer s.stopTimers()
	s.signalled(syscall.SIGHUP)
	s.signalled(syscall.SIGHUP)
	require.Equal(t, syscall.SIGKILL, s.next, "SIGTERM was sent")
	require.Nil(t, s.giveUp)
	require.Equal(t, 1, s.signals)
	s.signalled(syscall.SIGTERM)
	require.NotNil(t, s.giveUp)
	<-s.said
	require.Equal(t, "tagmatch: got hangup\n", out.String())
}

// TestNohup: a launcher that was started with SIGHUP ignored goes on.
func TestNohup(t *testing.T) {
	script := "trap 'echo got USR1' USR1; echo pid $$; while :; do sleep 0.05; done"
	c, out := startNestedBy(t, exec.Command("sh", "-c", `trap "" HUP; exec "$0"`, os.Args[0]), script, 2)
	require.NoError(t, c.Process.Signal(syscall.SIGHUP))
	require.NoError(t, c.Process.Signal(syscall.SIGUSR1)) // comes behind it
	require.Eventually(t, func() bool { return strings.Count(out.String(), "got USR1\n") == 2 }, testlevel.Patience(30*time.Second), 5*time.Millisecond, "%v", out)
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	_ = c.Wait() // says with which code it ended
	require.Equal(t, 128+int(syscall.SIGTERM), c.ProcessState.ExitCode(), "%v", out)
	requireGone(t, pids(out.String()))
}
