package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
	"github.com/tagmatch/tagmatch/internal/cmdtest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// results runs a test with -json.
func results(t *testing.T, args ...string) []benchkit.Result {
	t.Helper()
	stdout, stderr, err := cmdtest.Run(t, append(args, "-json")...)
	require.NoError(t, err, stderr)
	var list []benchkit.Result
	for line := range strings.Lines(stdout) {
		var r benchkit.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		list = append(list, r)
	}
	return list
}

func TestDepth(t *testing.T) {
	for _, device := range []string{"shm", "tcp"} {
		rows := results(t, "depth", "-device", device, "-depths", "16,2000", "-iters", "10")
		require.Len(t, rows, 8)
		for i, kind := range []string{benchkit.KindPosted, benchkit.KindUnexpected, benchkit.KindAnySource, benchkit.KindMasks} {
			for j, depth := range []int{16, 2000} {
				r := rows[2*i+j]
				require.Equal(t, [6]any{"depth", device, kind, depth, 8, 10}, [6]any{r.Test, r.Device, r.Kind, r.Depth, r.Size, r.Iters})
				require.Positive(t, r.P50Us)
			}
			require.InDelta(t, rows[2*i+1].AvgUs/rows[2*i].AvgUs, rows[2*i+1].Over, 1e-9)
		}
	}
	for args, want := range map[string]string{
		"-kind any":    `-kind is "any": give one of posted, unexpected, anysource, masks, all`,
		"-depths 16,0": `"0" is not a number that can be used here: give 1 to 10000000, for example 16,1000`,
	} {
		_, stderr, err := cmdtest.Run(t, append([]string{"depth"}, strings.Fields(args)...)...)
		require.Error(t, err, args)
		require.Contains(t, stderr, want)
	}
}

func TestGoroutines(t *testing.T) {
	for _, test := range []string{"threads", "rate"} {
		rows := results(t, test, "-sizes", "8", "-goroutines", "1,4,64", "-iters", "1280")
		require.Len(t, rows, 3)
		for i, n := range []int{1, 4, 64} {
			r := rows[i]
			require.Equal(t, [4]any{test, n, 8, 1280}, [4]any{r.Test, r.Goroutines, r.Size, r.Iters})
			require.InDelta(t, r.MsgS/rows[0].MsgS, r.Over, 1e-9)
			if test == "threads" {
				require.InDelta(t, r.MsgS, float64(n)*1e6/r.AvgUs, r.MsgS*1e-9)
			}
		}
	}
	_, stderr, err := cmdtest.Run(t, "threads", "-goroutines", "1,100000")
	require.Error(t, err)
	require.Contains(t, stderr, "-goroutines has 100000: give 1 to 65536")
}

func TestIdle(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("wake-ups are measured beside Linux's futex")
	}
	rows := results(t, "idle", "-for", "50ms", "-iters", "3")
	require.Len(t, rows, 1)
	r := rows[0]
	require.Equal(t, [4]any{"idle", 8, 3, 0.05}, [4]any{r.Test, r.Size, r.Iters, r.ForS})
	require.Positive(t, r.CPUPct)
	require.InDelta(t, r.WakeUs/r.FutexUs, r.OverFutex, 1e-9)
	_, stderr, err := cmdtest.Run(t, "idle", "-for", "-1s")
	require.Error(t, err)
	require.Contains(t, stderr, "-for is -1s: give some time, such as 10s")
}

func TestEcho(t *testing.T) {
	rows := results(t, "echo", "-sizes", "0,2k", "-iters", "20")
	require.Len(t, rows, 6)
	for i, size := range []int{0, 2 << 10} {
		for j, waiter := range []string{"none", "asleep", "busy"} {
			r := rows[3*i+j]
			require.Equal(t, [4]any{"echo", waiter, size, 20}, [4]any{r.Test, r.Waiter, r.Size, r.Iters})
			require.Positive(t, r.P50Us)
			require.InDelta(t, r.P99Us/rows[3*i].P99Us, r.Over, 1e-9)
		}
	}
}

func TestCrowd(t *testing.T) {
	for _, args := range [][]string{{"lat", "-n", "4"}, {"alltoall", "-n", "4"}} {
		rows := results(t, append(args, "-sizes", "8,100k", "-iters", "5")...)
		require.Len(t, rows, 4, args)
		for i, want := range [][2]int{{2, 8}, {2, 100 << 10}, {4, 8}, {4, 100 << 10}} {
			r := rows[i]
			require.Equal(t, want, [2]int{r.Ranks, r.Size})
			require.Equal(t, [2]any{args[0], 5}, [2]any{r.Test, r.Iters})
			require.InDelta(t, r.AvgUs/rows[i%2].AvgUs, r.Over, 1e-9)
		}
	}
}

func TestOneCore(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("pins ranks")
	}
	rows := results(t, "lat", "-onecore", "-gomaxprocs", "1", "-sizes", "8", "-iters", "20")
	require.Len(t, rows, 1)
	_, stderr, err := cmdtest.Run(t, "lat", "-onecore", "-nopin")
	require.Error(t, err)
	require.Contains(t, stderr, "-onecore and -nopin exclude each other")
	code, stdout, stderr := cmdtest.Job(t, 2, "lat", "-onecore", "-sizes", "8", "-iters", "20")
	require.Equal(t, 2, code, stderr)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "bench lat: -onecore pins ranks that this command starts, and another launcher has started this one")
}

// TestRanks: what a rank keeps of each that it never talks to is within what is promised.
func TestRanks(t *testing.T) {
	testlevel.SkipIfQuick(t)
	stdout, stderr, err := cmdtest.Run(t, "ranks", "-n", "84872")
	require.NoError(t, err, stderr)
	var ranks, each int
	_, err = fmt.Sscanf(stdout, "%d ranks: %d bytes for each", &ranks, &each)
	require.NoError(t, err, stdout)
	require.Equal(t, 84872, ranks)
	require.Positive(t, each)
	require.LessOrEqual(t, each, 600)
}

func TestColl(t *testing.T) {
	rows := results(t, "coll", "-op", "allreduce", "-algorithms", "direct,doubling", "-n", "3", "-sizes", "8,100k", "-iters", "10")
	require.Len(t, rows, 6)
	for i, size := range []int{8, 100 << 10} {
		for j, algorithm := range []string{"auto", "direct", "doubling"} {
			r := rows[3*i+j]
			require.Equal(t, [6]any{"coll", "allreduce", algorithm, 3, size, 10}, [6]any{r.Test, r.What, r.Kind, r.Ranks, r.Size, r.Iters})
			require.Positive(t, r.LeastUs)
			require.LessOrEqual(t, r.LeastUs, r.CallUs)
			require.InDelta(t, r.CallUs/rows[3*i].CallUs, r.Over, 1e-9)
		}
	}
	for args, want := range map[string]string{
		"-op sort":                       `-op: there is no operation "sort" (-h lists them)`,
		"-sizes 8,9":                     "-sizes has 9: elements are float32, give a multiple of 4 bytes",
		"-op bcast,scan -algorithms all": "-algorithms is for one operation, and -op has bcast,scan",
		"-op bcast -algorithms fast":     "bcast has all, tree",
	} {
		_, stderr, err := cmdtest.Run(t, append([]string{"coll"}, strings.Fields(args)...)...)
		require.Error(t, err, args)
		require.Contains(t, stderr, want)
	}
}
