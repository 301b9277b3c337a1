package launch

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// lookedAt is a supervisor of two ranks, one of which is on another host, with this
// Options.Diagnose. Signals reach neither.
func lookedAt(out *bytes.Buffer, diagnose func(ctx context.Context, pids []int, rested time.Duration) string) *supervisor {
	s := newSupervisor(&job{opt: &Options{Stderr: out, Grace: time.Hour, Diagnose: diagnose}})
	here := &rank{running: true, reaped: true, cmd: &exec.Cmd{Process: &os.Process{Pid: 77}}}
	s.ranks = []*rank{here, {n: 1, running: true, reaped: true, agent: &agent{}}}
	return s
}

// TestQuitDiagnoses: SIGQUIT prints what is wrong with the job, and reaches the ranks where a
// second one comes within 5 seconds.
func TestQuitDiagnoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := lookedAt(&out, func(_ context.Context, pids []int, rested time.Duration) string {
			require.Equal(t, []int{77}, pids)
			require.Zero(t, rested)
			return "all is well"
		})
		defer s.stopTimers()
		for range 2 {
			s.signalled(syscall.SIGQUIT)
			<-s.said
			require.Zero(t, s.dumped, "no rank got it")
			time.Sleep(insistTime)
		}
		require.Equal(t, "tagmatch: all is well\ntagmatch: all is well\n", out.String())
		s.signalled(syscall.SIGQUIT)
		time.Sleep(insistTime - 1)
		s.signalled(syscall.SIGQUIT)
		require.Equal(t, time.Now(), s.dumped)
		<-s.said
		require.False(t, s.ending)
	})
}

// TestLooksBeforeTheEnd: ranks are ended after they were looked at, and what was wrong is said
// last.
func TestLooksBeforeTheEnd(t *testing.T) {
	var out bytes.Buffer
	s := lookedAt(&out, func(_ context.Context, _ []int, rested time.Duration) string {
		require.Equal(t, 10*time.Second, rested)
		return "it hangs"
	})
	defer s.stopTimers()
	s.signalled(syscall.SIGTERM)
	require.False(t, s.ending)
	s.hasLooked(<-s.look.found)
	require.True(t, s.ending)
	require.Equal(t, syscall.SIGKILL, s.next, "SIGTERM was sent")
	for _, r := range s.ranks {
		s.unpassed++
		s.happened(event{rank: r.n, kind: rankGone, code: 143})
		r.passed = nil
	}
	s.happened(event{rank: 0, kind: rankPassed})
	<-s.said
	require.Equal(t, "tagmatch: got terminated\n", out.String())
	s.happened(event{rank: 1, kind: rankPassed})
	<-s.said
	require.Equal(t, "tagmatch: got terminated\ntagmatch: it hangs\n", out.String())
	require.Equal(t, 143, s.code)
}

// TestNoTimeToLook: a second signal ends ranks at once that are looked at, and a job that is ending
// is not looked at.
func TestNoTimeToLook(t *testing.T) {
	var out bytes.Buffer
	s := lookedAt(&out, func(ctx context.Context, _ []int, _ time.Duration) string {
		<-ctx.Done()
		return "too late"
	})
	defer s.stopTimers()
	s.signalled(syscall.SIGINT)
	s.signalled(syscall.SIGINT)
	require.True(t, s.ending)
	require.Zero(t, s.next, "SIGKILL was sent")
	require.Nil(t, s.look.found)
	s.wg.Wait()
	<-s.said

	s = lookedAt(&out, func(context.Context, []int, time.Duration) string { panic("looks") })
	defer s.stopTimers()
	s.end(syscall.SIGTERM)
	s.signalled(syscall.SIGINT)
	require.Nil(t, s.look.found)
}

// TestEndsWhileLookedAt: a job that ends by itself while it is looked at is not kept by that.
func TestEndsWhileLookedAt(t *testing.T) {
	in, release, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	var out bytes.Buffer
	ended := make(chan int)
	go func() {
		code, _ := Run(context.Background(), Options{N: 1, Command: []string{"sh", "-c", "kill -TERM $PPID; read nothing; exit 0"}, Stdin: in, Stderr: &out,
			Diagnose: func(ctx context.Context, _ []int, _ time.Duration) string {
				_ = release.Close() // the rank ends
				<-ctx.Done()
				return "too late"
			}})
		ended <- code
	}()
	select {
	case code := <-ended:
		require.Zero(t, code)
		require.Empty(t, out.String())
	case <-time.After(testlevel.Patience(time.Minute)):
		t.Fatal("it waits for the look")
	}
}
