//go:build linux && launchers

package launchertest

import (
	"os"
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
}

const openMPI = "mpirun.openmpi --allow-run-as-root --oversubscribe"

// agent stands in for ssh: it runs the command on this host, whatever host it is for.
const agent = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nshift\nexec sh -c \"$*\"\n"

// twoHosts is mpirun with a daemon for each of two hosts, which are both this one.
func twoHosts(t *testing.T) string {
	t.Helper()
	ssh := filepath.Join(t.TempDir(), "agent.sh")
	require.NoError(t, os.WriteFile(ssh, []byte(agent), 0o700))
	return openMPI + " --mca plm_rsh_agent " + ssh + " --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include lo --host fakea:2,fakeb:2"
}

func TestOpenMPI(t *testing.T) {
	t.Parallel()
	for _, l := range []row{
		{name: "PMIx", command: line(openMPI), code: 42},
		{name: "its variables alone", command: line(openMPI), env: []string{"TAGMATCH_BOOTSTRAP=openmpi"}},
		{name: "bound to cores", command: line(openMPI + " --bind-to core:overload-allowed"), code: 42},
	} {
		t.Run(l.name, func(t *testing.T) { requireRow(t, l) })
	}
	t.Run("two hosts", func(t *testing.T) {
		requireWell(t, play(t, "exchange", nil, append(strings.Fields(twoHosts(t)), "-n", "4")...), 4)
	})
	t.Run("two hosts, its variables and a directory", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "shared")
		env := []string{"TAGMATCH_BOOTSTRAP=file", "TAGMATCH_STORE=" + dir}
		command := twoHosts(t) + " -x TAGMATCH_BOOTSTRAP -x TAGMATCH_STORE -x " + roleVar + " -n 4"
		requireWell(t, play(t, "exchange", env, strings.Fields(command)...), 4)
	})
	t.Run("two hosts, nothing that tells", func(t *testing.T) {
		command := twoHosts(t) + " -x TAGMATCH_BOOTSTRAP -x " + roleVar + " -n 4"
		r := play(t, "exchange", []string{"TAGMATCH_BOOTSTRAP=openmpi"}, strings.Fields(command)...)
		require.NotZero(t, r.code)
		require.Contains(t, r.out, "does not tell where rank 0 is: give it by `mpirun -x MASTER_ADDR=host")
	})
}

// TestWithoutClient: a program that does not import the PMIx client is one job all the same where
// mpirun's own variables do, and never several of one rank.
func TestWithoutClient(t *testing.T) {
	program, err := pingpong()
	require.NoError(t, err)
	r := run(t, nil, append(strings.Fields(openMPI), "-n", "2", program, "-sizes", "8", "-iters", "10", "-check")...)
	require.Zero(t, r.code, r.out)
	require.Equal(t, 1, strings.Count(r.out, "# device "), r.out)
}
