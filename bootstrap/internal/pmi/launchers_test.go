//go:build linux && launchers

package pmi

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// TestHydra runs ranks under the real mpiexec of MPICH.
func TestHydra(t *testing.T) {
	hosts := []string{"-launcher", "fork", "-hosts", "127.0.0.1,127.0.0.2,127.0.0.3", "-ppn", "2"}
	for _, tt := range []struct {
		name  string
		args  []string
		n     int
		local string // in what rank 1 says
	}{
		{"one", nil, 1, ""},
		{"two", nil, 2, "local 1 of 2"},
		{"sixteen", nil, 16, "local 1 of 16"},
		{"port", []string{"-pmi-port"}, 4, "local 1 of 4"},
		{"three hosts", hosts, 6, "local 1 of 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := hydra(t, "join", append(tt.args, "-n", itoa(tt.n)))
			require.NoError(t, err, out)
			for r := range tt.n {
				require.Contains(t, out, "rank "+itoa(r)+" of "+itoa(tt.n))
			}
			if tt.local != "" {
				require.Contains(t, out, "rank 1 of "+itoa(tt.n)+", "+tt.local)
			}
		})
	}
}

func TestHydraAbort(t *testing.T) {
	out, err := hydra(t, "abort", []string{"-n", "3"})
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, out)
	require.Equal(t, 42, exit.ExitCode(), out)
	require.NotContains(t, out, "failed")
}

func hydra(t *testing.T, do string, args []string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), testlevel.Patience(30*time.Second))
	defer cancel()
	cmd := exec.CommandContext(ctx, "mpiexec.hydra", append(args, self)...)
	cmd.Env = append(os.Environ(), ranktest.EnvProcess+"="+do)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
