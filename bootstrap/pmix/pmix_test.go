package pmix

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
)

func TestMain(m *testing.M) {
	if !ranktest.Process(openHere) {
		os.Exit(m.Run())
	}
}

func openHere(ctx context.Context) (string, space.Space, error) {
	p, err := find(os.Getenv)
	if err != nil || p == nil {
		return "", nil, fmt.Errorf("no place: %w", err)
	}
	s, err := p.Open(ctx)
	return p.Launcher, s, err
}

func TestFind(t *testing.T) {
	full := map[string]string{"PMIX_NAMESPACE": "ns", "PMIX_RANK": "3", "PMIX_SERVER_URI2": "x"}
	with := func(k, v string) map[string]string {
		m := map[string]string{k: v}
		for k, v := range full {
			if _, ok := m[k]; !ok {
				m[k] = v
			}
		}
		return m
	}
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{nil, ""},
		{full, "a launcher with PMIx"},
		{with("OMPI_COMM_WORLD_SIZE", "4"), "mpirun (Open MPI, PMIx)"},
		{with("PMIX_NAMESPACE", "slurm.pmix.7.0"), "srun --mpi=pmix (Slurm)"},
		{with("PMIX_RANK", ""), ""},
		{with("PMIX_SERVER_URI2", ""), ""},
		{with("PMIX_NAMESPACE", ""), ""},
	} {
		p, err := find(func(s string) string { return tt.env[s] })
		require.NoError(t, err)
		if tt.want == "" {
			require.Nil(t, p)
			continue
		}
		require.Equal(t, tt.want, p.Launcher)
		require.Equal(t, 3, p.Identity.Rank)
		require.Equal(t, -1, p.Identity.Size)
	}
}
