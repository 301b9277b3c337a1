package bootstrap

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/ports"
	"github.com/tagmatch/tagmatch/internal/ports/portstest"
)

func TestPortsNeeded(t *testing.T) {
	require.Equal(t, "a host with 4 ranks needs 5 ports (TAGMATCH_PORTS): one for the data of each rank, one for the rendezvous at rank 0",
		PortsNeeded(4, 8))
	require.Equal(t, "a host with 100 ranks needs 104 ports (TAGMATCH_PORTS): one for the data of each rank, one for the rendezvous at rank 0, "+
		"and 3 for ranks that pass on what others have put", PortsNeeded(-1, 100))
	for size := range 200 { // who passes on is who listens for it
		n := 0
		for r := range size {
			if (tree{size, fanOut}).passes(r) {
				n++
			}
		}
		require.Equal(t, n, relays(size), "%d ranks", size)
	}
}

// TestPorts: the rendezvous of rank 0, and ranks that pass on what others have put, listen within
// the range. Where that has too few, rank 0 says how many are needed, and so do the others.
func TestPorts(t *testing.T) {
	const n = 7
	within := portstest.Free(t, 6) // rank 0, and ranks 1 and 2 as parents
	dir := t.TempDir()
	ctx, told := context.WithCancel(timeout(t)) // of rank 0
	defer told()
	detect := func(job string, within ports.Range, returned func(rank int)) ([]Bootstrap, []error) {
		list := make([]Bootstrap, n)
		return list, outcomes(n, func(r int) (err error) {
			opt := options(vars{EnvRank: strconv.Itoa(r), EnvWorldSize: strconv.Itoa(n), EnvStore: dir + "/s", EnvJobID: job,
				EnvPorts: within.String()})
			opt.fanOut, opt.toldFor = 2, time.Minute
			defer returned(r)
			if r == 0 {
				list[r], err = Detect(ctx, opt)
			} else {
				list[r], err = Detect(timeout(t), opt)
			}
			return err
		})
	}
	list, errs := detect("enough", within, func(int) {})
	for r, err := range errs {
		require.NoError(t, err, "rank %d", r)
	}
	inside := func(ln net.Listener) {
		port := ln.Addr().(*net.TCPAddr).Port
		require.True(t, port >= within[0] && port <= within[1], "%d is not in %v", port, within)
	}
	inside(list[0].(*endpoint).up.(*rootLink).store.ln)
	for _, r := range []int{1, 2} {
		inside(list[r].(*endpoint).children.ln)
	}
	taken := list[0].(*endpoint).up.(*rootLink).store.ln.Addr().(*net.TCPAddr).Port
	var others atomic.Int32
	_, errs = detect("too few", ports.Range{taken, taken}, func(r int) {
		if r != 0 && others.Add(1) == n-1 {
			told()
		}
	})
	require.ErrorContains(t, errs[0], "none of the 1 ports")
	for r, err := range errs {
		require.ErrorContains(t, err, "a host with 7 ranks needs 8 ports (TAGMATCH_PORTS)", "rank %d", r)
	}
	closeAll(t, list)
	_, err := Detect(t.Context(), options(vars{EnvPorts: "9-8"}))
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
