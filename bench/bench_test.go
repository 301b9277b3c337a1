package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/benchkit"
	"github.com/tagmatch/tagmatch/internal/benchkit/benchtest"
	"github.com/tagmatch/tagmatch/internal/invariant"
)

func TestMain(m *testing.M) { benchtest.Main(m, main) }

func TestOurs(t *testing.T) {
	for _, test := range []string{"lat", "bw", "rate"} {
		for _, device := range []string{"shm", "tcp"} {
			t.Run(test+"/"+device, func(t *testing.T) {
				stdout, stderr, err := benchtest.Run(t, test, "-device", device, "-sizes", "8,100k", "-iters", "10", "-json")
				require.NoError(t, err, stderr)
				lines := strings.Split(strings.TrimSpace(stdout), "\n")
				require.Len(t, lines, 2, stdout)
				var r benchkit.Result
				require.NoError(t, json.Unmarshal([]byte(lines[1]), &r))
				require.Equal(t, [3]any{test, device, 100 << 10}, [3]any{r.Test, r.Device, r.Size})
				if test != "lat" {
					require.Equal(t, 64, r.Window)
				}
			})
		}
	}
}

func TestStar(t *testing.T) {
	for _, ranks := range []string{"3", "8"} {
		stdout, stderr, err := benchtest.Run(t, "star", "-n", ranks, "-sizes", "8,100k", "-iters", "10", "-json")
		require.NoError(t, err, stderr)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		require.Len(t, lines, 2, stdout)
		var r benchkit.Result
		require.NoError(t, json.Unmarshal([]byte(lines[1]), &r))
		require.Equal(t, [3]any{"star", ranks, 100 << 10}, [3]any{r.Test, strconv.Itoa(r.Ranks), r.Size})
	}
}

func TestOverlap(t *testing.T) {
	stdout, stderr, err := benchtest.Run(t, "overlap", "-sizes", "100k", "-iters", "3", "-json")
	require.NoError(t, err, stderr)
	rows := map[[3]string]bool{}
	for line := range strings.Lines(stdout) {
		var r benchkit.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Equal(t, [3]any{"overlap", 100 << 10, 3}, [3]any{r.Test, r.Size, r.Iters})
		require.NotNil(t, r.OverlapPct)
		require.Positive(t, r.ComputeUs)
		require.Equal(t, r.Transport == "tmsrq", r.Async)
		require.Equal(t, r.Async, r.Offload != nil && r.Offload.Matched > 0, "%+v", r)
		rows[[3]string{r.Device, r.Transport, r.Progress}] = true
	}
	require.Len(t, rows, 8, stdout)

	stdout, stderr, err = benchtest.Run(t, "overlap", "-device", "shm", "-transport", "tmsrq", "-manual", "-sizes", "100k", "-iters", "1")
	require.NoError(t, err, stderr)
	require.Equal(t, 3, strings.Count(stdout, "\n"), stdout)
}

// TestFlood floods a rank with little room: it must stay within its bound, and get everything.
func TestFlood(t *testing.T) {
	const limit = 4 << 20
	ours := !raceDetector && !invariant.Enabled // which have memory of their own, and are slow
	messages, sizes, jobs := 20000, "0,2k", 16
	if !ours {
		messages, sizes, jobs = 5000, "2k", 8
	}
	t.Setenv("TAGMATCH_UNEXPECTED_LIMIT", strconv.Itoa(limit))
	stdout, stderr, err := benchtest.Run(t, "flood", "-sizes", sizes, "-messages", strconv.Itoa(messages), "-json")
	if ours || !strings.Contains(stderr, "the flooded rank had ") {
		require.NoError(t, err, "%s%s", stdout, stderr)
	}
	rows := map[[4]any]bool{}
	for line := range strings.Lines(stdout) {
		var r benchkit.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		f := r.Flood
		require.NotNil(t, f)
		require.Equal(t, [4]any{"flood", messages, int64(limit), int64(limit + benchkit.FloodConstant)}, [4]any{r.Test, r.Iters, f.Limit, f.Bound})
		require.True(t, f.Within || !ours, line)
		require.NotEmpty(t, f.Curve)
		require.LessOrEqual(t, f.Peak, f.EndPeak)
		require.GreaterOrEqual(t, f.HeldUp, uint64(f.Senders), line)
		if f.While == benchkit.WhileIdle { // the last message is received first, beyond the limit
			require.LessOrEqual(t, f.UnexpectedPeak, f.Limit)
			require.Greater(t, f.EndUnexpected, f.Limit)
			require.Positive(t, f.Released)
			require.Positive(t, f.WantsReceived)
		} else {
			require.Less(t, f.EndUnexpected, f.Limit*5/4)
			require.Equal(t, f.Within, f.EndPeak <= f.Bound)
		}
		rows[[4]any{r.Device, r.Transport, r.Size, f.While}] = true
	}
	require.Len(t, rows, jobs, stdout)
}

func TestFloodTable(t *testing.T) {
	stdout, stderr, err := benchtest.Run(t, "flood", "-device", "shm", "-transport", "rc", "-sizes", "40k", "-messages", "100", "-while", "recv", "-manual")
	require.NoError(t, err, "%s%s", stdout, stderr)
	require.Contains(t, stdout, "       40k      shm         rc   recv        100 ")
	for args, want := range map[string]string{
		"-messages -3":                     "-messages is -3: give 1 or more",
		"-while asleep":                    `-while is "asleep": give one of idle, recv, both`,
		"-sizes 1k -messages 100000000000": "messages of 1k take up to ",
	} {
		stdout, stderr, err := benchtest.Run(t, append([]string{"flood"}, strings.Fields(args)...)...)
		require.Error(t, err, args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, want)
	}
}

func TestUsage(t *testing.T) {
	_, stderr, err := benchtest.Run(t, "fly")
	require.Error(t, err)
	require.Contains(t, stderr, `there is no test "fly"`)
	_, stderr, err = benchtest.Run(t, "compare", "-tests", "lat,fly", "-rounds", "0")
	require.Error(t, err)
	require.Contains(t, stderr, `-tests: "fly" is not one of lat, bw`)
	require.Contains(t, stderr, "-rounds is 0: give 1 or more")
}

func TestCompareNeedsUCX(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, stderr, err := benchtest.Run(t, "compare")
	require.Error(t, err)
	require.Contains(t, stderr, "ucx_perftest is not installed: apt-get install ucx-utils")
}

func TestCompare(t *testing.T) {
	if _, err := findUCX(); err != nil {
		t.Skip(err)
	}
	cpus, err := processors()
	require.NoError(t, err)
	if len(cpus) < 2 {
		t.Skip("comparing takes two processors")
	}
	stdout, stderr, err := benchtest.Run(t, "compare", "-sizes", "8", "-rounds", "1", "-iters", "200", "-json")
	require.NoError(t, err, stderr)
	for line := range strings.Lines(stdout) {
		var f figure
		require.NoError(t, json.Unmarshal([]byte(line), &f))
		require.Equal(t, "compare", f.Test)
		// Nobody promises a test machine to be quiet.
		require.Equal(t, len(f.Ratios) > 0, f.Ours > 0 && f.UCX > 0 && f.Ratio > 0)
		require.Positive(t, len(f.Ratios)+f.Rejected)
	}
	require.Equal(t, 4, strings.Count(stdout, "\n"))
}

// Printed by version 1.13.1 with -f -v.
const (
	ucxLat = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n" +
		"20000,6.448,6.661,6.661,1.15,1.15,150125,150125\n"
	ucxBW = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n" +
		"5000,78.889,170.487,170.487,5865.54,5865.54,5866,5866\n"
)

func TestParseUCX(t *testing.T) {
	s, err := parseUCX("lat", 8, ucxLat)
	require.NoError(t, err)
	require.Equal(t, sample{LatUs: 6.448}, s)
	s, err = parseUCX("bw", 1<<20, ucxBW)
	require.NoError(t, err)
	require.InDelta(t, 6150.9, s.MBs, 0.1)
	for _, out := range []string{"", "garbage", strings.Replace(ucxLat, "50.0_percentile_lat", "other", 1), strings.Replace(ucxLat, "6.448", "0", 1)} {
		_, err = parseUCX("lat", 8, out)
		require.ErrorContains(t, err, "ucx_perftest")
	}
}

func TestFigure(t *testing.T) {
	f := newFigure(job{test: "lat", device: "shm", size: 8, iters: 10})
	f.add(sample{LatUs: 1.4}, sample{LatUs: 1}, 100, 101, 109)
	f.add(sample{LatUs: 9}, sample{LatUs: 1}, 100, 120, 100) // not quiet
	f.add(sample{LatUs: 3.2}, sample{LatUs: 2}, 100, 100, 100)
	f.finish()
	require.Equal(t, 1, f.Rejected)
	require.InDelta(t, 1.5, f.Ratio, 1e-9)
	require.True(t, *f.Pass)
	f.add(sample{LatUs: 30}, sample{LatUs: 2}, 100, 100, 100)
	f.finish()
	require.False(t, *f.Pass)
	var out bytes.Buffer
	require.NoError(t, f.print(&out, false))
	require.Equal(t, "shm lat        8 B: ours 3.200, UCX 2.000 us, ratio 1.60 FAIL (mark: at most 1.50)\n"+
		"    ratios 1.40 1.60 15.00; 1 rounds rejected; hop 100 ns\n", out.String())

	f = newFigure(job{test: "bw", device: "shm", size: 1 << 20})
	f.add(sample{MBs: 20, CPUPerGB: 0.2}, sample{MBs: 10, CPUPerGB: 0.1}, time.Microsecond)
	f.finish()
	require.True(t, *f.Pass)
	out.Reset()
	require.NoError(t, f.print(&out, false))
	require.Contains(t, out.String(), "ratio 2.00 PASS (mark: at least 1.00)")
	require.Contains(t, out.String(), "cpu s/GB ours 0.200, UCX 0.100")

	f = newFigure(job{test: "bw", device: "tcp", size: 1 << 20})
	for _, mbs := range []float64{5, 20, 10} {
		f.add(sample{MBs: mbs}, sample{MBs: 10}, 100, 120)
	}
	f.finish()
	require.Nil(t, f.Pass)
	out.Reset()
	require.NoError(t, f.print(&out, false))
	require.Contains(t, out.String(), "no quiet round among 3: measure again on a machine with less noise; ratios 0.50 to 2.00, median 1.00\n")
}

func TestProbe(t *testing.T) {
	cpus, err := processors()
	if err != nil || len(cpus) < 2 {
		t.Skip("the probe takes two processors")
	}
	hop, err := probeHop([2]int(cpus[:2]))
	require.NoError(t, err)
	require.Positive(t, hop)
}
