package peers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// Printed by version 1.13.1 with -f -v.
const (
	ucxLat = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n" +
		"20000,6.448,6.661,6.661,1.15,1.15,150125,150125\n"
	ucxBW = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n" +
		"5000,78.889,170.487,170.487,5865.54,5865.54,5866,5866\n"
	// The line of several threads has fewer columns than names.
	ucxThreads = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n" +
		"100000,23.848,1.28,167727\n"
)

func TestParseUCX(t *testing.T) {
	lat := Job{Test: "lat", Size: 8}
	s, err := parseUCX(lat, ucxLat)
	require.NoError(t, err)
	require.Equal(t, Sample{"p50_us": 6.448, "mid_us": 6.448}, s)
	s, err = parseUCX(Job{Test: "bw", Size: 1 << 20}, ucxBW)
	require.NoError(t, err)
	require.InDelta(t, 6150.9, s["mb_s"], 0.1)
	require.InDelta(t, 5866, s["msg_s"], 0.1)
	s, err = parseUCX(Job{Test: "threads", Size: 8, Threads: 4}, ucxThreads)
	require.NoError(t, err)
	require.Equal(t, Sample{"avg_us": 23.848}, s)
	for _, out := range []string{"", "garbage", strings.Replace(ucxLat, "50.0_percentile_lat", "other", 1), strings.Replace(ucxLat, "6.448", "0", 1), ucxThreads} {
		_, err = parseUCX(lat, out)
		require.ErrorContains(t, err, "ucx_perftest")
	}
}

// TestSamePattern: who takes part in a stream does what ours does there.
func TestSamePattern(t *testing.T) {
	for _, test := range []string{"rate", "bw"} {
		windows := Job{Test: test, Device: "shm", Size: 8, Window: 64}
		sliding, cold := windows, windows
		sliding.Sliding, cold.Cold = true, true
		require.Equal(t, [3]bool{false, true, false}, [3]bool{ucx{}.Can(windows), ucx{}.Can(sliding), ucx{}.Can(cold)})
		require.Equal(t, [3]bool{true, false, true}, [3]bool{(&mpi{}).Can(windows), (&mpi{}).Can(sliding), (&mpi{}).Can(cold)})
		require.Contains(t, ucx{}.Command(sliding, 10, [2]int{0, 1}), " -t tag_bw -s 8 -n 10 -w 2 -c 1 -f -v -O 64")
	}
	require.NotContains(t, ucx{}.Command(Job{Test: "lat"}, 10, [2]int{0, 1}), "-O")
}

func TestParse(t *testing.T) {
	s, err := Parse([]byte(`{"test":"lat","p50_us":1.5,"offload":{"drops":1},"async":true}`))
	require.NoError(t, err)
	require.Equal(t, Sample{"p50_us": 1.5}, s)
	_, err = Parse([]byte("Segmentation fault"))
	require.ErrorContains(t, err, `"Segmentation fault" is no result`)
}

func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Find(t.Context(), Names, t.TempDir())
	require.ErrorContains(t, err, "ucx_perftest is not installed: apt-get install ucx-utils")
	require.ErrorContains(t, err, "mpicc.openmpi is not installed: apt-get install openmpi-bin libopenmpi-dev")
	require.ErrorContains(t, err, "mpicc.mpich is not installed: apt-get install mpich libmpich-dev")
	require.ErrorContains(t, err, "-peers chooses among ucx,openmpi,mpich,gloo")
	list, err := Find(t.Context(), nil, t.TempDir())
	require.NoError(t, err)
	require.Empty(t, list)
}

// TestResultOf: a program that hangs after its result has measured, one that fails has not.
func TestResultOf(t *testing.T) {
	for script, want := range map[string]string{
		"echo 5":                 "5\n",
		"echo 5; exec sleep 100": "5\n",
		"trap 'kill $!; echo BAD TERMINATION; exit 9' TERM; echo 5; sleep 100 & wait": "5\n",
	} {
		out, err := resultOf(t.Context(), nil, []string{"/bin/sh", "-c", script})
		require.NoError(t, err)
		require.Equal(t, want, string(out))
	}
	out, err := resultOf(t.Context(), nil, []string{"/bin/sh", "-c", "echo 5; echo no memory >&2; exit 3"})
	require.ErrorContains(t, err, "exit status 3")
	require.Equal(t, "no memory\n5\n", string(out))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = resultOf(ctx, nil, []string{"/bin/sh", "-c", "printf 5; exec sleep 100"})
	require.Error(t, err)
}

// TestPeers runs every test of every peer.
func TestPeers(t *testing.T) {
	found, err := Find(t.Context(), Names, t.TempDir())
	if err != nil {
		t.Skip(err)
	}
	jobs := map[string]Job{
		"mid_us":       {Test: "lat", Device: "shm", Size: 8},
		"p50_us":       {Test: "lat", Device: "tcp", Size: 8},
		"msg_s":        {Test: "rate", Device: "shm", Size: 8, Window: 64},
		"mb_s":         {Test: "bw", Device: "tcp", Size: 70000, Window: 8},
		"cpu_s_per_gb": {Test: "bw", Device: "shm", Size: 1 << 20, Window: 8, Cold: true},
		"sliding":      {Test: "bw", Device: "shm", Size: 70000, Window: 8, Sliding: true},
		"p99_us":       {Test: "depth", Device: "shm", Size: 8, Kind: "unexpected", Depth: 50},
		"avg_us":       {Test: "threads", Device: "shm", Size: 8, Threads: 2},
	}
	ops := []string{"allreduce", "reducescatter"}
	if testlevel.CI() {
		ops = append(ops, "bcast", "allgather", "alltoall", "barrier")
	}
	for _, op := range ops {
		jobs["coll "+op] = Job{Test: "coll", Device: "tcp", Op: op, Size: 4000, Ranks: 2}
	}
	for _, p := range found {
		require.NotContains(t, []string{"", "unknown"}, p.Version(), p.Name())
		for figure, j := range jobs {
			if !p.Can(j) {
				continue
			}
			switch {
			case j.Sliding:
				figure = "mb_s"
			case j.Test == "coll":
				figure = "call_us"
			}
			s, err := p.Run(t.Context(), j, 100, [2]int{0, 1})
			require.NoError(t, err)
			require.Positive(t, s[figure], p.Command(j, 100, [2]int{0, 1}))
		}
	}
	_, err = found[1].Run(t.Context(), Job{Test: "depth", Device: "shm", Size: 8, Kind: "imagined"}, 100, [2]int{0, 1})
	require.ErrorContains(t, err, "-k is not posted")
}
