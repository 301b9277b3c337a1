package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
	"github.com/tagmatch/tagmatch/bench/internal/judge"
	"github.com/tagmatch/tagmatch/bench/internal/peers"
	"github.com/tagmatch/tagmatch/internal/cmdtest"
	"github.com/tagmatch/tagmatch/internal/cpus"
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

func TestMain(m *testing.M) { cmdtest.Main(m, main) }

func TestOurs(t *testing.T) {
	for _, test := range []string{"lat", "bw", "rate"} {
		for _, device := range []string{"shm", "tcp"} {
			t.Run(test+"/"+device, func(t *testing.T) {
				stdout, stderr, err := cmdtest.Run(t, test, "-device", device, "-sizes", "8,100k", "-iters", "10", "-json")
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

func TestOverlap(t *testing.T) {
	stdout, stderr, err := cmdtest.Run(t, "overlap", "-offload-min", "0", "-sizes", "100k", "-iters", "3", "-json")
	require.NoError(t, err, stderr)
	rows := map[[3]string]bool{}
	for line := range strings.Lines(stdout) {
		var r benchkit.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Equal(t, [3]any{"overlap", 100 << 10, 3}, [3]any{r.Test, r.Size, r.Iters})
		require.NotNil(t, r.OverlapPct)
		require.Positive(t, r.ComputeUs)
		require.Equal(t, r.Transport == "tmsrq", r.Async)
		require.Equal(t, r.Async, r.Matched > 0, "%+v", r)
		rows[[3]string{r.Device, r.Transport, r.Progress}] = true
	}
	require.Len(t, rows, 8, stdout)

	stdout, stderr, err = cmdtest.Run(t, "overlap", "-device", "shm", "-transport", "tmsrq", "-manual", "-sizes", "100k", "-iters", "1")
	require.NoError(t, err, stderr)
	require.Equal(t, 3, strings.Count(stdout, "\n"), stdout)

	t.Setenv("TAGMATCH_ASYNC", "on") // which has no say in the lines
	for _, r := range results(t, "overlap", "-device", "shm", "-offload-min", "0", "-manual", "-async=false", "-sizes", "100k", "-iters", "1") {
		require.False(t, r.Async)
	}
}

func TestSoak(t *testing.T) {
	for _, device := range []string{"shm", "tcp"} {
		rows := results(t, "soak", "-device", device, "-n", "3", "-sizes", "100k", "-iters", "10", "-for", "1ms")
		require.Len(t, rows, 1)
		r := rows[0]
		require.Equal(t, [6]any{"soak", device, 3, 100 << 10, 10, 1}, [6]any{r.Test, r.Device, r.Ranks, r.Size, r.Iters, r.Rounds})
		require.Positive(t, r.Messages)
	}
}

// TestSoakFaults: ranks die, the survivors see it, and nothing is wrong.
func TestSoakFaults(t *testing.T) {
	stdout, stderr, err := cmdtest.Run(t, "soak", "-n", "3", "-sizes", "100k", "-iters", "10", "-fault", "5s", "-for", "6s", "-seed", "2", "-json")
	require.NoError(t, err, "%s%s", stdout, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	require.Len(t, lines, 2, stdout)
	var job, all map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &job))
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &all))
	require.Positive(t, job["messages"])
	require.Positive(t, job["noticed_ms"])
	require.Equal(t, map[string]any{job["how"].(string): 1.0}, all["deaths"])

	// Under another launcher nobody would end a rank.
	code, _, stderr := cmdtest.Job(t, 2, "soak", "-fault", "5s", "-for", "6s")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "-fault ends ranks that this command starts")
	for args, want := range map[string]string{
		"-seed 3":                     "-seed is 3 without -fault: give -fault some time, such as 10s",
		"-fault 10ms":                 "-fault is 10ms: give 5s or more, or 0 for no faults",
		"-fault 20s -for 10s":         "-fault is 20s, and -for ends before, after 10s",
		"-fault 10s -n 65":            "-n is 65: give up to 64 ranks with -fault",
		"-fault 10s -sizes 8,64 -n 2": "-sizes is 8,64: give one with -fault",
	} {
		_, stderr, err := cmdtest.Run(t, append([]string{"soak"}, strings.Fields(args)...)...)
		require.ErrorContains(t, err, "exit status 2", args)
		require.Contains(t, stderr, want)
	}
}

// TestFlood floods a rank with little room: it must stay within its bound, and get everything.
func TestFlood(t *testing.T) {
	if testlevel.Race || invariant.Enabled { // which have memory of their own
		stdout, stderr, err := cmdtest.Run(t, "flood", "-device", "shm", "-sizes", "2k", "-iters", "300")
		require.NoError(t, err, "%s%s", stdout, stderr)
		return
	}
	const limit, messages = 4 << 20, 30000 // of which no sender alone has room for its own
	t.Setenv("TAGMATCH_UNEXPECTED_LIMIT", strconv.Itoa(limit))
	rows := map[[4]any]bool{}
	for _, r := range results(t, "flood", "-sizes", "0,2k", "-iters", strconv.Itoa(messages)) {
		f := r.Flood
		require.NotNil(t, f)
		require.Equal(t, [4]any{"flood", messages, int64(limit), int64(limit + benchkit.FloodConstant)}, [4]any{r.Test, r.Iters, f.Limit, f.Bound})
		require.True(t, f.Within)
		require.LessOrEqual(t, f.Peak, f.EndPeak)
		require.GreaterOrEqual(t, f.HeldUp, uint64(3))
		if f.While == benchkit.WhileIdle { // the last message is received first, beyond the limit
			require.LessOrEqual(t, f.UnexpectedPeak, f.Limit)
			require.Greater(t, f.EndUnexpected, f.Limit)
			require.Positive(t, f.Released)
			require.Positive(t, f.WantsReceived)
		} else {
			require.Less(t, f.EndUnexpected, f.Limit*5/4)
			require.LessOrEqual(t, f.EndPeak, f.Bound)
		}
		rows[[4]any{r.Device, r.Transport, r.Size, f.While}] = true
	}
	require.Len(t, rows, 16)
}

func TestFloodTable(t *testing.T) {
	stdout, stderr, err := cmdtest.Run(t, "flood", "-device", "shm", "-transport", "rc", "-sizes", "40k", "-iters", "100", "-while", "recv", "-manual")
	require.NoError(t, err, "%s%s", stdout, stderr)
	require.Regexp(t, ` shm +rc +40k +100 .* recv `, stdout)
	_, stderr, err = cmdtest.Run(t, "flood", "-while", "asleep")
	require.Error(t, err)
	require.Contains(t, stderr, `-while is "asleep": give one of idle, recv, both`)
}

func TestUsage(t *testing.T) {
	for _, test := range []string{"idle", "echo", "flood"} {
		_, stderr, err := cmdtest.Run(t, test, "-check")
		require.ErrorContains(t, err, "exit status 2")
		require.Equal(t, "bench "+test+": flag provided but not defined: -check (-h lists the flags)\n", stderr)
	}
	_, stderr, err := cmdtest.Run(t, "fly")
	require.Error(t, err)
	require.Contains(t, stderr, `there is no test "fly"`)
	_, stderr, err = cmdtest.Run(t, "compare", "-rows", "shm-lat-8,fly*", "-peers", "nobody", "-rounds", "0", "-sample", "-1s")
	require.Error(t, err)
	require.Contains(t, stderr, `-rows: there is no row "fly*" (-h lists them)`)
	require.Contains(t, stderr, `-peers: "nobody" is not one of ucx, openmpi, mpich, gloo`)
	require.Contains(t, stderr, "-rounds is 0: give 1 or more")
	require.Contains(t, stderr, "-sample is -1s: give up to 1m")
	_, stderr, err = cmdtest.Run(t, "compare", "-h")
	require.NoError(t, err)
	require.Contains(t, stderr, "\n  shm-lat-8              <= 1.25 (1)    ucx, openmpi, mpich   half round trip\n")
}

func TestCompareNeedsPeers(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, stderr, err := cmdtest.Run(t, "compare")
	require.Error(t, err)
	require.Contains(t, stderr, "ucx_perftest is not installed: apt-get install ucx-utils")
}

// TestCompareEnded: asked to end by either signal, compare leaves nothing behind. The signal comes
// from the first program of a peer that it runs.
func TestCompareEnded(t *testing.T) {
	if list, err := cpus.Allowed(); err != nil || len(list) < 2 {
		t.Skip("comparing takes two processors")
	}
	for _, sig := range []string{"INT", "TERM"} {
		bin, tmp := t.TempDir(), t.TempDir()
		for _, name := range []string{"ucx_perftest", "ucx_info"} {
			script := "#!/bin/sh\nkill -" + sig + " $PPID\nexec sleep 60\n"
			require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700))
		}
		t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
		t.Setenv("TMPDIR", tmp)
		_, stderr, err := cmdtest.Run(t, "compare", "-rows", "shm-lat-8", "-peers", "ucx")
		require.ErrorContains(t, err, "exit status 1", stderr)
		require.Contains(t, stderr, "bench compare: context canceled")
		left, err := os.ReadDir(tmp)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

func TestLimits(t *testing.T) {
	if list, err := cpus.Allowed(); err != nil || len(list) < 2 {
		t.Skip("measuring limits takes two processors")
	}
	seen := map[string]int{}
	for _, r := range results(t, "limits", "-iters", "200") {
		require.Equal(t, "limits", r.Test)
		require.Positive(t, r.MidUs, r.What)
		require.Positive(t, r.MBs, r.What)
		seen[r.What]++
	}
	require.Equal(t, map[string]int{"line": 1, "cma": 4, "cma2": 4, "socket": 1, "yield": 1}, seen)
	stdout, stderr, err := cmdtest.Run(t, "limits", "-only", "yield,cma", "-iters", "20")
	require.NoError(t, err, stderr)
	require.Regexp(t, `\n +yield +8 +20 .*\n +cma +64k +20 `, stdout)
	for args, want := range map[string]string{
		"-only line,sky":          `-only: there is no limit "sky" (-h lists them)`,
		"-only line -sizes 8,100": "a line takes 8 bytes",
	} {
		_, stderr, err = cmdtest.Run(t, append([]string{"limits"}, strings.Fields(args)...)...)
		require.Error(t, err, args)
		require.Contains(t, stderr, want)
	}
}

func TestChoose(t *testing.T) {
	rows, err := choose(judge.Table(), []string{"tcp-lat-8", "shm-bw-*-cold"})
	require.NoError(t, err)
	require.Equal(t, "shm-bw-64k-cold", rows[0].Name)
	require.Equal(t, "tcp-lat-8", rows[len(rows)-1].Name)
	rows, err = choose(judge.Table(), []string{"*"})
	require.NoError(t, err)
	require.Len(t, rows, len(judge.Table()))
	rows, err = choose(judge.Table(), nil)
	require.NoError(t, err)
	require.Less(t, len(rows), len(judge.Table()))
	for _, r := range rows {
		require.True(t, r.Must != 0 || r.Aim != 0, r.Name)
	}
}

func TestCompare(t *testing.T) {
	if _, err := peers.Find(t.Context(), peers.Names, t.TempDir()); err != nil {
		t.Skip(err)
	}
	if list, err := cpus.Allowed(); err != nil || len(list) < 2 {
		t.Skip("comparing takes two processors")
	}
	rows, names, plain, twice := "shm-lat-8,shm-rate-8-sliding,tcp-bw-64k,coll-allreduce-2-shm-64k", peers.Names, 1, "-twice"
	if !testlevel.CI() {
		rows, names, plain, twice = "shm-lat-8", names[:1], 0, "-twice=false"
	}
	stdout, stderr, err := cmdtest.Run(t, "compare", twice, "-rows", rows, "-peers", strings.Join(names, ","), "-rounds", "1", "-sample", "5ms", "-json")
	require.NoError(t, err, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	require.Len(t, lines, 2+strings.Count(rows, ","))
	var h judge.Host
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &h))
	require.Equal(t, [2]any{"host", len(names)}, [2]any{h.Test, len(h.Peers)})
	for _, line := range lines[1:] {
		var r judge.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Empty(t, r.Errors)
		if plain > 0 {
			require.Equal(t, judge.Default, r.References[0].Name)
			r.References = r.References[1:]
		}
		switch r.What {
		case "rate":
			require.Len(t, r.References, 1)
			require.Equal(t, [2]any{"ucx", true}, [2]any{r.References[0].Name, r.Sliding})
		case "bw":
			require.Len(t, r.References, 2)
		default:
			require.Len(t, r.References, min(len(names), 3))
		}
		// Nobody promises a test machine to be quiet.
		require.Equal(t, judge.Noisy, r.Verdict)
		require.NotEmpty(t, r.Ours.Samples)
		require.Positive(t, r.Ours.Samples[0].Value)
	}
}
