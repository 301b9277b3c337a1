//go:build linux && launchers

package pmix

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// agent stands in for ssh: it runs the command on this host, whatever host it is for.
const agent = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nshift\nexec sh -c \"$*\"\n"

// TestMpirun runs ranks under the real mpirun of Open MPI.
func TestMpirun(t *testing.T) {
	ssh := filepath.Join(t.TempDir(), "agent.sh")
	require.NoError(t, os.WriteFile(ssh, []byte(agent), 0o700))
	hosts := []string{"--mca", "plm_rsh_agent", ssh, "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "oob_tcp_if_include", "lo", "--host", "fakea:2,fakeb:2"}
	for _, tt := range []struct {
		name  string
		args  []string
		n     int
		local int
	}{{"one", nil, 1, 1}, {"two", nil, 2, 2}, {"four", nil, 4, 4}, {"two hosts", hosts, 4, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := mpirun(t, "join", append(tt.args, "-n", fmt.Sprint(tt.n)))
			require.NoError(t, err, out)
			for r := range tt.n {
				require.Contains(t, out, fmt.Sprintf("rank %d of %d, local %d of %d, mpirun (Open MPI, PMIx)", r, tt.n, r%tt.local, tt.local))
			}
		})
	}
}

func TestMpirunEnds(t *testing.T) {
	var exit *exec.ExitError
	out, err := mpirun(t, "abort", []string{"-n", "3"})
	require.ErrorAs(t, err, &exit, out)
	require.Equal(t, 42, exit.ExitCode(), out)
	// The others fail in the fence, and one of them may be the first to exit.
	out, err = mpirun(t, "die", []string{"-n", "3"})
	require.ErrorAs(t, err, &exit, out)
	require.Contains(t, []int{7, 3}, exit.ExitCode(), out)
}

// mpirun starts ranks again where mpirun of Open MPI 4.1 has crashed while it ended: it frees its
// PMIx server twice at times.
func mpirun(t *testing.T, do string, args []string) (out string, err error) {
	t.Helper()
	for range 3 {
		if out, err = mpirunOnce(t, do, args); !strings.Contains(out, "PMIx_server_finalize") {
			break
		}
	}
	return out, err
}

func mpirunOnce(t *testing.T, do string, args []string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	args = append([]string{"--allow-run-as-root", "--oversubscribe"}, args...)
	cmd := exec.CommandContext(ctx, "mpirun.openmpi", append(args, self)...)
	cmd.Env = append(os.Environ(), "TAGMATCH_TEST_PMIX="+do)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
