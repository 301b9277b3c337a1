package pmix

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

func TestMain(m *testing.M) {
	if do := os.Getenv("TAGMATCH_TEST_PMIX"); do != "" {
		ctx, cancel := context.WithTimeout(context.Background(), testlevel.Patience(20*time.Second))
		defer cancel()
		if err := rank(ctx, do); err != nil {
			fmt.Println("failed:", err)
			os.Exit(3)
		}
		return
	}
	os.Exit(m.Run())
}

// rank is a process that a real launcher has started.
func rank(ctx context.Context, do string) error {
	p, err := find(os.Getenv)
	if err != nil || p == nil {
		return fmt.Errorf("no place: %v", err)
	}
	s, err := p.Open(ctx)
	if err != nil {
		return err
	}
	id := s.Identity()
	if last := id.Rank == id.Size-1; last && do == "abort" {
		s.Abort(42, "as the test wants")
		time.Sleep(10 * time.Second)
	} else if last && do == "die" {
		os.Exit(7)
	}
	value := make([]byte, 1000)
	for i := range value {
		value[i] = byte(i * 7)
	}
	got, err := s.Broadcast(ctx, value)
	if err != nil {
		return err
	}
	if string(got) != string(value) {
		return fmt.Errorf("got %d other bytes", len(got))
	}
	fmt.Printf("rank %d of %d, local %d of %d, %s\n", id.Rank, id.Size, id.LocalRank, id.LocalSize, p.Launcher)
	return s.Close()
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
