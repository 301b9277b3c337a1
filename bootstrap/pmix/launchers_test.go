//go:build linux && launchers

package pmix

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/launchertest"
	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
)

// TestMpirun runs ranks under the real mpirun of Open MPI.
func TestMpirun(t *testing.T) {
	one := strings.Fields(launchertest.OpenMPI)
	for _, tt := range []struct {
		name  string
		args  []string
		n     int
		local int
	}{{"one", one, 1, 1}, {"two", one, 2, 2}, {"four", one, 4, 4}, {"two hosts", launchertest.TwoHosts(t), 4, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			r := mpirun(t, "join", tt.args, tt.n)
			require.Zero(t, r.Code, r.Out)
			for rank := range tt.n {
				require.Contains(t, r.Out, fmt.Sprintf("rank %d of %d, local %d of %d, mpirun (Open MPI, PMIx)", rank, tt.n, rank%tt.local, tt.local))
			}
		})
	}
}

func TestMpirunEnds(t *testing.T) {
	one := strings.Fields(launchertest.OpenMPI)
	r := mpirun(t, "abort", one, 3)
	require.Equal(t, 42, r.Code, r.Out)
	// The others fail in the fence, and one of them may be the first to exit.
	r = mpirun(t, "die", one, 3)
	require.Contains(t, []int{7, 3}, r.Code, r.Out)
}

func mpirun(t *testing.T, do string, launcher []string, n int) launchertest.Result {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return launchertest.Run(t, []string{ranktest.EnvProcess + "=" + do}, append(launcher, "-n", fmt.Sprint(n), self)...)
}
