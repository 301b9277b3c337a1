//go:build linux && launchers

package launchertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// play starts this binary as ranks in a role.
func play(t *testing.T, role string, env []string, launcher ...string) Result {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return Run(t, append(env, roleVar+"="+role), append(launcher, self)...)
}

// requireWell checks that all of n ranks have done their part.
func requireWell(t *testing.T, r Result, n int) {
	t.Helper()
	require.Zero(t, r.Code, r.Out)
	for rank := range n {
		require.Contains(t, r.Out, fmt.Sprintf("rank %d of %d,", rank, n), r.Out)
	}
	require.Equal(t, n, strings.Count(r.Out, ": well\n"), r.Out)
}

// The examples, each built once into a directory that TestMain removes.
var (
	built    = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "launchertest") })
	pingpong = example("pingpong")
	farm     = example("farm")
)

func example(name string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := built()
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, name)
		out, err := exec.Command("go", "build", "-o", path, "../../../examples/"+name).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return path, err
	})
}

// requireSurvivors has a launcher start the farm example, of which rank 2 kills itself, and checks
// that the others go on. The launcher ends with one of codes. It returns all that was printed.
func requireSurvivors(t *testing.T, codes []int, launcher ...string) string {
	t.Helper()
	program, err := farm()
	require.NoError(t, err)
	r := Run(t, nil, append(launcher, program, "-die", "2", "-tasks", "2000")...)
	require.Contains(t, codes, r.Code, r.Out)
	require.Contains(t, r.Out, "rank 2 is lost", r.Out)
	require.Contains(t, r.Out, "sum of the squares: 2668667000\n", r.Out)
	return r.Out
}

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
		require.NotZero(t, r.Code, r.Out)
		if l.code != 0 {
			require.Equal(t, l.code, r.Code, r.Out)
		}
		require.NotContains(t, r.Out, ": well")
	})
	t.Run("killed", func(t *testing.T) {
		r := play(t, "killed", l.env, l.command(4)...)
		require.NotZero(t, r.Code, r.Out)
		require.NotContains(t, r.Out, ": well")
	})
}

func requireStarts(t *testing.T, l row) {
	t.Run("pingpong", func(t *testing.T) {
		program, err := pingpong()
		require.NoError(t, err)
		r := Run(t, l.env, append(l.command(2), program, "-sizes", "8,65536", "-iters", "100", "-check")...)
		require.Zero(t, r.Code, r.Out)
		require.Contains(t, r.Out, " 65536 bytes ", r.Out)
		require.Equal(t, 1, strings.Count(r.Out, " 8 bytes "), "one job: %s", r.Out)
	})
	t.Run("exchange", func(t *testing.T) {
		requireWell(t, play(t, "exchange", l.env, l.command(4)...), 4)
	})
}
