package doors

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// standVar is the rank of which this process, started by TestBehind, is to have the door.
const standVar = "DOORS_STAND"

func init() {
	rank, err := strconv.Atoi(os.Getenv(standVar))
	if err != nil {
		return
	}
	if _, err := Open(behind(rank, os.Getpid()), echo); err != nil {
		os.Exit(1)
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // ends with the test
	os.Exit(0)
}

// behind is a door of the job of TestBehind.
func behind(rank, pid int) Name {
	return Name{UID: os.Geteuid(), Job: "behind" + os.Getenv("DOORS_RUN"), Rank: rank, PID: pid}
}

// stand starts a process that has the door of a rank.
func stand(t *testing.T, rank int) (pid int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), standVar+"="+strconv.Itoa(rank))
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	n := behind(rank, cmd.Process.Pid)
	eventually(t, func() bool {
		_, _, err := Ask(t.Context(), n, "state")
		return err == nil
	})
	return cmd.Process.Pid
}

func eventually(t *testing.T, so func() bool) {
	t.Helper()
	require.Eventually(t, so, testlevel.Patience(30*time.Second), time.Millisecond)
}

// TestBehind: each rank that is stopped has one that tells of it, which is the last one before it
// that runs; the first rank is behind the last.
func TestBehind(t *testing.T) {
	t.Setenv("DOORS_RUN", strconv.Itoa(os.Getpid()))
	first, second := stand(t, 1), stand(t, 2)
	zero, last := behind(0, os.Getpid()), behind(3, os.Getpid())
	for _, n := range []Name{zero, last} {
		d, err := Open(n, echo)
		require.NoError(t, err)
		defer d.Close()
	}
	require.Empty(t, Behind(zero))
	stop := func(pid int, signal syscall.Signal, want string) {
		require.NoError(t, syscall.Kill(pid, signal))
		eventually(t, func() bool { return Process(pid) == want })
	}
	stop(first, syscall.SIGSTOP, Stopped)
	stop(second, syscall.SIGSTOP, Stopped)
	both := []Halted{{behind(1, first), Stopped}, {behind(2, second), Stopped}}
	require.Equal(t, both, Behind(zero))
	require.Empty(t, Behind(last), "rank 0 runs")
	require.Equal(t, both[1:], Behind(both[0].Name), "rank 3 runs")
	stop(first, syscall.SIGCONT, Busy)
	require.Empty(t, Behind(zero))
	stop(first, syscall.SIGSTOP, Stopped)
	require.Empty(t, Behind(behind(7, 1)), "it has no door")
}

// TestBehindWraps: the first ranks are behind the last one.
func TestBehindWraps(t *testing.T) {
	t.Setenv("DOORS_RUN", "w"+strconv.Itoa(os.Getpid()))
	pid := stand(t, 1)
	last := behind(3, os.Getpid())
	d, err := Open(last, echo)
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	eventually(t, func() bool { return Process(pid) == Stopped })
	require.Equal(t, []Halted{{behind(1, pid), Stopped}}, Behind(last))
}
