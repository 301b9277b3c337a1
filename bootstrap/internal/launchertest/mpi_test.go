//go:build linux && launchers

package launchertest

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// line is a launcher's command line, with -n as the number of ranks.
func line(s string) func(n int) []string {
	return func(n int) []string { return append(strings.Fields(s), "-n", strconv.Itoa(n)) }
}

func TestHydra(t *testing.T) {
	t.Parallel()
	for _, l := range []row{
		{name: "fd", command: line("mpiexec.hydra"), code: 42},
		{name: "port", command: line("mpiexec.hydra -pmi-port"), code: 42},
		{name: "three proxies", command: line("mpiexec.hydra -launcher fork -hosts 127.0.0.1,127.0.0.2,127.0.0.3 -ppn 2")},
		{name: "bound to cores", command: line("mpiexec.hydra -bind-to core"), code: 42},
	} {
		t.Run(l.name, func(t *testing.T) { requireRow(t, l) })
	}
	t.Run("survivors", func(t *testing.T) {
		// Of these exit codes Hydra makes 1 in one run of 40 beside load.
		out := requireSurvivors(t, []int{128 + 9, 1}, "mpiexec.hydra", "-disable-auto-cleanup", "-n", "4",
			"sh", "-c", `trap "" USR1; "$@"; code=$?; echo "exit code $code"; exit $code`, "sh")
		require.Equal(t, 3, strings.Count(out, "exit code 0\n"), out)
		require.Equal(t, 1, strings.Count(out, "exit code 137\n"), out)
	})
}

func TestOpenMPI(t *testing.T) {
	t.Parallel()
	for _, l := range []row{
		{name: "PMIx", command: line(OpenMPI), code: 42},
		{name: "its variables alone", command: line(OpenMPI), env: []string{"TAGMATCH_BOOTSTRAP=openmpi"}},
		{name: "bound to cores", command: line(OpenMPI + " --bind-to core:overload-allowed"), code: 42},
	} {
		t.Run(l.name, func(t *testing.T) { requireRow(t, l) })
	}
	t.Run("survivors", func(t *testing.T) {
		requireSurvivors(t, []int{0}, append(strings.Fields(OpenMPI), "--enable-recovery", "-n", "4")...)
	})
	t.Run("two hosts", func(t *testing.T) {
		requireWell(t, play(t, "exchange", nil, append(TwoHosts(t), "-n", "4")...), 4)
	})
	t.Run("two hosts, its variables and a directory", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "shared")
		env := []string{"TAGMATCH_BOOTSTRAP=file", "TAGMATCH_STORE=" + dir}
		command := append(TwoHosts(t), "-x", "TAGMATCH_BOOTSTRAP", "-x", "TAGMATCH_STORE", "-x", roleVar, "-n", "4")
		requireWell(t, play(t, "exchange", env, command...), 4)
	})
	t.Run("two hosts, nothing that tells", func(t *testing.T) {
		command := append(TwoHosts(t), "-x", "TAGMATCH_BOOTSTRAP", "-x", roleVar, "-n", "4")
		r := play(t, "exchange", []string{"TAGMATCH_BOOTSTRAP=openmpi"}, command...)
		require.NotZero(t, r.Code)
		require.Contains(t, r.Out, "does not tell where rank 0 is: give it by `mpirun -x MASTER_ADDR=host")
	})
}

// TestWithoutClient: a program that does not import the PMIx client is one job all the same where
// mpirun's own variables do, and never several of one rank.
func TestWithoutClient(t *testing.T) {
	program, err := pingpong()
	require.NoError(t, err)
	r := Run(t, nil, append(strings.Fields(OpenMPI), "-n", "2", program, "-sizes", "8", "-iters", "10", "-check")...)
	require.Zero(t, r.Code, r.Out)
	require.Equal(t, 1, strings.Count(r.Out, " 8 bytes "), r.Out)
}
