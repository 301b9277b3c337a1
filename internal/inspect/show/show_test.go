package show

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// states reads those of a file of testdata, which has a line for each rank as `tagmatch dump
// --json` prints it.
func states(t *testing.T, name string) (list []inspect.State) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var s inspect.State
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		list = append(list, s)
	}
	return list
}

// TestGolden compares what is shown of two jobs with what is in testdata. The difference that it
// prints is what to change there.
func TestGolden(t *testing.T) {
	for _, name := range []string{"held", "dup"} {
		t.Run(name, func(t *testing.T) {
			list := states(t, name)
			var b strings.Builder
			stuck := func(job string, rank int) bool { return job == list[0].Job && rank == 1 }
			require.NoError(t, Jobs(&b, list, stuck))
			require.NoError(t, Ranks(&b, list, stuck, false))
			want, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
			require.NoError(t, err)
			require.Equal(t, string(want), b.String())
		})
	}
}

func TestSummary(t *testing.T) {
	call := []inspect.Call{{Name: "Comm.Recv", Place: inspect.Place{State: "select"}}}
	polls := []inspect.Call{{Name: "Comm.Iprobe", Place: inspect.Place{State: "runnable"}}}
	run := []inspect.Place{{State: "runnable"}}
	for want, s := range map[string]inspect.State{
		"moving":              {Calls: call, Still: 999},
		"waiting for 1 s":     {Calls: call, Still: 1000},
		"waiting for 9 s":     {Calls: call, Still: 9999},
		"waiting for 3 min":   {Calls: call, Still: 180_000},
		"computing for 2 h":   {Outside: run, Still: 7_200_000},
		"computing for 1 s":   {Calls: polls, Outside: run, Still: 1000},
		"idle for 3 days":     {Still: inspect.Age(72 * time.Hour / time.Millisecond)},
		"silent: it is gone":  {Silent: "it is gone", Still: 1},
		"ended: world closed": {Broken: "world closed", Calls: call},
	} {
		require.Equal(t, want, Summary(&s, false))
	}
	require.Equal(t, "stuck for 10 s", Summary(&inspect.State{Calls: call, Still: 10_000}, true))
	require.Equal(t, "stuck for less than 1 s", Summary(&inspect.State{Calls: call, Still: 10}, true))
}

func TestWords(t *testing.T) {
	for want, n := range map[string]uint64{"0 bytes": 0, "1 byte": 1, "1023 bytes": 1023, "1 KiB": 1024, "1025 bytes": 1025, "3 MiB": 3 << 20, "2048 GiB": 1 << 41} {
		require.Equal(t, want, size(n))
	}
	for want, k := range map[string]inspect.Key{
		"tag 0x7":                         {Comm: inspect.CommWorld, Tag: 7},
		"any tag of Comm 3":               {Comm: "Comm 3", Any: true},
		"raw tag 0x8 mask 0xff":           {Comm: inspect.CommRaw, Tag: 8, Mask: 0xff},
		"raw any tag":                     {Comm: inspect.CommRaw, Any: true},
		"Barrier, Dup, Split or the like": {Comm: inspect.CommLibrary, Tag: 4},
	} {
		require.Equal(t, want, key(&k))
	}
}

// TestLong: whatever a state holds, no line is longer than 80 columns, or has the rest of another,
// and there are not many.
func TestLong(t *testing.T) {
	long := strings.Repeat("ü\n", 200)
	s := inspect.State{Rank: 1, Size: 2, Job: "j", Host: long, Program: long, Device: long, Losses: 300, Failed: map[int]string{0: long}}
	for i := range 100 {
		s.Receives = append(s.Receives, inspect.Receive{Key: inspect.Key{Comm: "Comm 2047", Tag: 1<<32 - uint64(i), Mask: 7}, Peer: inspect.Any, Bytes: 1<<60 + 1,
			N: 1_000_000, Kind: "receive", Where: "being received", Age: 1})
		s.Calls = append(s.Calls, inspect.Call{Name: long, Place: inspect.Place{At: long, N: 3, State: long}})
	}
	s.MoreReceives = 50
	var b strings.Builder
	list := []inspect.State{s, {Rank: 7, Job: "j", Silent: long}, {Rank: 8, Job: "k", Silent: long}, {Rank: 9, Job: "l", Broken: long}}
	nobody := func(string, int) bool { return false }
	require.NoError(t, Jobs(&b, list, nobody))
	require.NoError(t, Ranks(&b, list, nobody, false))
	lines := strings.Split(b.String(), "\n")
	require.Less(t, len(lines), 50)
	for _, line := range lines {
		require.LessOrEqual(t, len([]rune(line)), 80)
		require.NotContains(t, line, "\r")
	}
	require.Contains(t, b.String(), "and 92000050 more")
	require.Contains(t, b.String(), "and 299 more")
	require.Contains(t, b.String(), "job k: 1 rank, of which none answers")

	b.Reset()
	require.NoError(t, Ranks(&b, list[:1], nobody, true))
	require.Equal(t, 100, strings.Count(b.String(), "\n  receive  "))
	require.Equal(t, 100, strings.Count(b.String(), "\n  in       "))
	require.Contains(t, b.String(), strings.ReplaceAll(long, "\n", " "))
	require.Contains(t, b.String(), "and 50 more")
}
