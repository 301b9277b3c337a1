//go:build linux && launchers

package launchertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// result is what a job has printed, both streams, and its exit code.
type result struct {
	out  string
	code int
}

// run starts a command with additional variables.
func run(t *testing.T, env []string, command ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(clean(os.Environ()), env...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err, "%s: %s", command, out)
	}
	require.NoError(t, ctx.Err(), "%s: %s", command, out)
	return result{string(out), cmd.ProcessState.ExitCode()}
}

// clean drops what this process may have of another job.
func clean(env []string) (list []string) {
	for _, v := range env {
		if !strings.HasPrefix(v, "TAGMATCH_") {
			list = append(list, v)
		}
	}
	return list
}

// play starts this binary as ranks in a role.
func play(t *testing.T, role string, env []string, launcher ...string) result {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	var r result
	for range 3 {
		r = run(t, append(env, roleVar+"="+role), append(launcher, self)...)
		if !strings.Contains(r.out, "PMIx_server_finalize") {
			break // else mpirun of Open MPI 4.1 has crashed while it ended, as it does at times
		}
	}
	return r
}

// requireWell checks that all of n ranks have done their part.
func requireWell(t *testing.T, r result, n int) {
	t.Helper()
	require.Zero(t, r.code, r.out)
	for rank := range n {
		require.Contains(t, r.out, fmt.Sprintf("rank %d of %d,", rank, n), r.out)
	}
	require.Equal(t, n, strings.Count(r.out, ": well\n"), r.out)
}

// pingpong is the example, built once.
var pingpong = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "launchertest")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "pingpong")
	out, err := exec.Command("go", "build", "-o", path, "../../../examples/pingpong").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

// row is a launcher as it starts two ranks and four.
type row struct {
	name string
	// command starts n ranks of what follows.
	command func(n int) []string
	env     []string
	code    int // exit code of an Abort by 42; 0: any other than 0
}

// requireRow has a launcher start the pingpong example and a test of four ranks, which ends well,
// by an Abort, and by the death of a rank.
func requireRow(t *testing.T, l row) {
	requireStarts(t, l)
	t.Run("abort", func(t *testing.T) {
		r := play(t, "abort", l.env, l.command(4)...)
		require.NotZero(t, r.code, r.out)
		if l.code != 0 {
			require.Equal(t, l.code, r.code, r.out)
		}
		require.NotContains(t, r.out, ": well")
	})
	t.Run("killed", func(t *testing.T) {
		r := play(t, "killed", l.env, l.command(4)...)
		require.NotZero(t, r.code, r.out)
		require.NotContains(t, r.out, ": well")
	})
}

func requireStarts(t *testing.T, l row) {
	t.Run("pingpong", func(t *testing.T) {
		program, err := pingpong()
		require.NoError(t, err)
		r := run(t, l.env, append(l.command(2), program, "-sizes", "8,65536", "-iters", "100", "-check")...)
		require.Zero(t, r.code, r.out)
		require.Contains(t, r.out, "64k", r.out)
		require.Equal(t, 1, strings.Count(r.out, "# device "), "one job: %s", r.out)
	})
	t.Run("exchange", func(t *testing.T) {
		requireWell(t, play(t, "exchange", l.env, l.command(4)...), 4)
	})
}
