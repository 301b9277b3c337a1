package bootstrap

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/internal/ports"
	"github.com/tagmatch/tagmatch/internal/ports/portstest"
)

// TestPorts: the rendezvous of rank 0 listens within the range. Where that has too few ports, rank
// 0 says how many are needed, and so do the others.
func TestPorts(t *testing.T) {
	const n = 7
	within := portstest.Free(t, 1)
	dir := t.TempDir()
	ctx, told := context.WithCancel(ranktest.Timeout(t)) // of rank 0
	defer told()
	detect := func(job string, n int, returned func(rank int)) ([]Bootstrap, []error) {
		list := make([]Bootstrap, n)
		return list, ranktest.Outcomes(n, func(r int) (err error) {
			opt := options(vars{EnvRank: strconv.Itoa(r), EnvWorldSize: strconv.Itoa(n), EnvStore: dir + "/s", EnvJobID: job,
				EnvPorts: within.String()})
			opt.toldFor = time.Minute
			defer returned(r)
			if r == 0 {
				list[r], err = Detect(ctx, opt)
			} else {
				list[r], err = Detect(ranktest.Timeout(t), opt)
			}
			return err
		})
	}
	list, errs := detect("enough", 2, func(int) {})
	for r, err := range errs {
		require.NoError(t, err, "rank %d", r)
	}
	_, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(within[0])))
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	var others atomic.Int32
	_, errs = detect("too few", n, func(r int) {
		if r != 0 && others.Add(1) == n-1 {
			told()
		}
	})
	require.ErrorContains(t, errs[0], "none of the 1 ports")
	for r, err := range errs {
		require.ErrorContains(t, err, "a host with 7 ranks needs 8 ports (TAGMATCH_PORTS)", "rank %d", r)
	}
	for _, b := range list {
		require.NoError(t, b.Close())
	}
	_, err = Detect(t.Context(), options(vars{EnvPorts: "9-8"}))
	require.ErrorContains(t, err, `TAGMATCH_PORTS is "9-8": give the lowest and the highest port`)
}

// TestPortOfLaunchers: where the launcher leaves the rendezvous' port open it is one of the range.
func TestPortOfLaunchers(t *testing.T) {
	r := ports.Range{4000, 4003}
	job := vars{"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "2"}
	port, err := strconv.Atoi(slurmPort(job.get, r))
	require.NoError(t, err)
	require.True(t, port >= r[0] && port <= r[1], port)
	require.Equal(t, "555", slurmPort(job.with("SLURM_STEP_RESV_PORTS", "555-560").get, r))
	pod := vars{"JOB_COMPLETION_INDEX": "1", EnvWorldSize: "2", EnvMasterAddr: "job-0.svc", EnvPorts: "4000-4003", "KUBERNETES_SERVICE_HOST": "x"}
	f, err := Inspect(options(pod))
	require.NoError(t, err)
	require.Equal(t, "kubernetes", f.Launcher)
	require.Equal(t, "job-0.svc:4000", f.Rendezvous)
}
