package top

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/p2p"
)

var start = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// after is a rank that has counted for so long, at constant rates.
func after(rank int, d time.Duration, per Counts) Sample {
	n := uint64(d / time.Second)
	return Sample{Rank: rank, PID: 1000 + rank, Host: "node1", At: start.Add(d), Levels: Levels{Posted: rank, UnexpectedLimit: 1 << 30},
		Counts: Counts{Sent: n * per.Sent, Received: n * per.Received, SentBytes: n * per.SentBytes, ReceivedBytes: n * per.ReceivedBytes,
			Offloaded: n * per.Offloaded, Waited: d / time.Second * per.Waited, CPU: d / time.Second * per.CPU}}
}

// TestRates: rates of two samples are those at which a rank has counted.
func TestRates(t *testing.T) {
	per := Counts{Sent: 10, Received: 40, SentBytes: 1e6, ReceivedBytes: 2e6, Offloaded: 10, Waited: 300 * time.Millisecond, CPU: 2 * time.Second}
	now := after(1, 5*time.Second, per)
	table := Of([]Sample{now}, []Sample{after(0, time.Second, per), after(1, 3*time.Second, per)})
	require.Equal(t, Table{At: now.At, Late: -1, Rows: []Row{{Rank: 1, PID: 1001, Host: "node1", Levels: &now.Levels,
		Rates: &Rates{Seconds: 2, Sent: 10, Received: 40, SentBytes: 1e6, ReceivedBytes: 2e6, Offloaded: 0.25, Waiting: 0.3, CPU: 2}}}}, table)
}

// TestNoRates: where a sample does not continue the one before there are no rates.
func TestNoRates(t *testing.T) {
	per := Counts{Sent: 1, Received: 1, SentBytes: 1, ReceivedBytes: 1, Offloaded: 1, Waited: 1, CPU: 1}
	before, now := after(0, 10*time.Second, per), after(0, 11*time.Second, per)
	rated := func(change func(before, now *Sample)) bool {
		b, n := before, now
		change(&b, &n)
		return Of([]Sample{n}, []Sample{b}).Rows[0].Rates != nil
	}
	require.True(t, rated(func(*Sample, *Sample) {}))
	for name, change := range map[string]func(before, now *Sample){
		"it has appeared":           func(b, _ *Sample) { b.Rank = 1 },
		"it did not answer":         func(b, _ *Sample) { b.Silent = "it is stopped" },
		"it does not answer":        func(_, n *Sample) { n.Silent = "it is stopped" },
		"another process":           func(_, n *Sample) { n.PID++ },
		"no time has passed":        func(b, n *Sample) { b.At = n.At },
		"messages sent restarted":   func(_, n *Sample) { n.Sent = 3 },
		"messages received":         func(_, n *Sample) { n.Received = 3 },
		"bytes sent":                func(_, n *Sample) { n.SentBytes = 3 },
		"bytes received":            func(_, n *Sample) { n.ReceivedBytes = 3 },
		"offloaded receives":        func(_, n *Sample) { n.Offloaded = 3 },
		"time waited":               func(_, n *Sample) { n.Waited = 3 },
		"time of the processor":     func(_, n *Sample) { n.CPU = 3 },
		"one of them has wrapped":   func(b, _ *Sample) { b.Sent = math.MaxUint64 },
		"it is another World's 0":   func(_, n *Sample) { n.Counts = Counts{} },
		"there is no sample before": func(b, _ *Sample) { b.Rank = -1 },
	} {
		require.False(t, rated(change), name)
	}
	require.Empty(t, Of(nil, []Sample{before}).Rows)
}

// TestOffloaded: the device has matched what the engine counts as received a little later.
func TestOffloaded(t *testing.T) {
	share := func(received, offloaded uint64) float64 {
		return Of([]Sample{after(0, time.Second, Counts{Received: received, Offloaded: offloaded})}, []Sample{after(0, 0, Counts{})}).Rows[0].Rates.Offloaded
	}
	require.Zero(t, share(0, 0))
	require.Zero(t, share(0, 1))
	require.Equal(t, 0.5, share(2, 1))
	require.Equal(t, 1.0, share(2, 3))
}

// TestSampleOf: what a rank says is read, or why it is not.
func TestSampleOf(t *testing.T) {
	m := inspect.Metrics{Rank: 3, PID: 7, Host: "node1", At: start, CPU: time.Second, UnexpectedLimit: 100, Values: []byte(`{"EagerSent":1,"RndvSent":2,
		"EagerReceived":3,"RndvReceived":5,"EagerSentBytes":10,"RndvSentBytes":20,"EagerReceivedBytes":30,"RndvReceivedBytes":50,"Waited":8,"PostedNow":9,
		"UnexpectedNow":11,"UnexpectedBytes":12,"Offload":{"Matched":4}}`)}
	want := Sample{Rank: 3, PID: 7, Host: "node1", At: start, Levels: Levels{9, 11, 12, 100},
		Counts: Counts{Sent: 3, Received: 8, SentBytes: 30, ReceivedBytes: 80, Offloaded: 4, Waited: 8, CPU: time.Second}}
	require.Equal(t, want, SampleOf(&m))
	m.Values = []byte("[")
	require.Equal(t, Sample{Rank: 3, PID: 7, Host: "node1", At: start, Silent: "its counters cannot be read: unexpected end of JSON input"}, SampleOf(&m))
	m.Silent = "its process is stopped"
	require.Equal(t, m.Silent, SampleOf(&m).Silent)
}

// TestValues: the numbers have the names that package p2p gives them.
func TestValues(t *testing.T) {
	text, err := json.Marshal(p2p.Metrics{})
	require.NoError(t, err)
	var all, used map[string]any
	require.NoError(t, json.Unmarshal(text, &all))
	text, err = json.Marshal(values{})
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &used))
	require.Subset(t, slices.Collect(maps.Keys(all)), slices.Collect(maps.Keys(used)))
	require.Contains(t, all["Offload"], "Matched")
}

// waiting makes the table of ranks that wait for so many percent of the time.
func waiting(percent ...int) Table {
	var now, before []Sample
	for rank, p := range percent {
		per := Counts{Waited: time.Duration(p) * 10 * time.Millisecond}
		now, before = append(now, after(rank, 2*time.Second, per)), append(before, after(rank, time.Second, per))
	}
	return Of(now, before)
}

// TestLate: a rank is late where it waits less than half of the others, and by much.
func TestLate(t *testing.T) {
	for _, tt := range []struct {
		waits []int
		late  int
	}{
		{nil, -1},
		{[]int{0}, -1},
		{[]int{0, 0}, -1},
		{[]int{100, 100, 100, 100}, -1},
		{[]int{99, 0, 99, 99}, 1},
		{[]int{99, 99, 99, 80}, -1}, // 19 points
		{[]int{30, 30, 9, 30}, 2},
		{[]int{90, 1, 2, 90}, 1}, // the other one is late too
		{[]int{90, 0, 0, 0}, -1}, // it waits for workers that are as busy as each other
		{[]int{0, 90}, 0},
		{[]int{200, 150}, 1}, // several goroutines wait at once
		{[]int{90, 0, 90, 90, 0}, 1},
	} {
		table := waiting(tt.waits...)
		require.Equal(t, tt.late, table.Late, tt.waits)
		for _, r := range table.Rows {
			require.Equal(t, r.Rank == tt.late, r.Late)
		}
	}
}

// job is n ranks at constant rates, of which rank 1 is late, rank 2 does not answer, and rank 3 has
// just started.
func job(n int) Table {
	var now, before []Sample
	for rank := range n {
		per := Counts{Sent: uint64(100 * (rank*7%n + 1)), Received: uint64(300 * rank), SentBytes: uint64(rank) * 12_345_678, ReceivedBytes: 4_700_000_000,
			Waited: 970 * time.Millisecond, CPU: 1060 * time.Millisecond}
		per.Offloaded = per.Received / 3
		if rank == 1 {
			per.Waited = 20 * time.Millisecond
		}
		s := after(rank, 2*time.Second, per)
		s.Unexpected, s.UnexpectedBytes = 1234*rank, int64(rank)<<20
		if rank == 2 {
			s = Sample{Rank: 2, PID: s.PID, Host: s.Host, At: s.At, Silent: "its process is stopped"}
		}
		now = append(now, s)
		if rank != 3 {
			before = append(before, after(rank, time.Second, per))
		}
	}
	return Of(now, before)
}

// TestGolden compares tables with what is in testdata. The difference that it prints is what to
// change there.
func TestGolden(t *testing.T) {
	for _, tt := range []struct {
		ranks, width, height int
		sort                 string
		reverse              bool
	}{
		{4, 80, 24, "", false},
		{4, 200, 50, "cpu%", false},
		{4, 30, 0, "mem", true},
		{500, 80, 24, "", false},
		{500, 200, 24, "rank", true},
		{500, 80, 4, "posted", false},
	} {
		name := fmt.Sprintf("%d-%dx%d", tt.ranks, tt.width, tt.height)
		t.Run(name, func(t *testing.T) {
			v := View{Title: "job bac55896: prog", Foot: "q quit", Sort: -1, Reverse: tt.reverse, Width: tt.width, Height: tt.height}
			if tt.sort != "" {
				var err error
				v.Sort, err = ColumnOf(tt.sort)
				require.NoError(t, err)
			}
			table := job(tt.ranks)
			got := strings.Join(v.Lines(&table), "\n") + "\n"
			want, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

// TestFits: whatever is shown has room in the terminal, and every rank is shown or counted.
func TestFits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(rt, "ranks")
		table := job(n)
		text := rapid.String().Draw(rt, "text")
		for i := range table.Rows {
			r := &table.Rows[i]
			r.Host = text
			if r.Silent != "" {
				r.Silent = text
			}
		}
		v := View{Title: text, Foot: rapid.SampledFrom([]string{"", "q quit"}).Draw(rt, "foot"), Sort: rapid.IntRange(-1, len(Columns)-1).Draw(rt, "sort"),
			Reverse: rapid.Bool().Draw(rt, "reverse"), Width: rapid.IntRange(12, 250).Draw(rt, "width"), Height: rapid.IntRange(6, 70).Draw(rt, "height")}
		lines := v.Lines(&table)
		require.LessOrEqual(rt, len(lines), v.Height)
		for _, line := range lines {
			require.LessOrEqual(rt, utf8.RuneCountInString(line), v.Width)
			require.NotContains(rt, line, "\n")
		}
		rows, more := lines[above:len(lines)-min(1, len(v.Foot))], 0
		if n > 0 {
			if _, err := fmt.Sscanf(rows[len(rows)-1], " and %d more", &more); err == nil {
				rows = rows[1:]
			}
		}
		require.Equal(rt, n, len(rows)+more)
	})
}

// TestSorted: every column sorts all ranks, those of which the value is not known last.
func TestSorted(t *testing.T) {
	for i := range Columns {
		for _, reverse := range []bool{false, true} {
			c := &Columns[i]
			table := job(9)
			v := View{Sort: i, Reverse: reverse, Width: 200}
			lines := v.Lines(&table)[above:]
			require.Len(t, lines, 9)
			if c.value != nil && c.Name != "rank" && c.Name != "pid" {
				require.Contains(t, lines[8]+lines[7], "its process is stopped", c.Name)
			}
		}
	}
}

func TestColumnOf(t *testing.T) {
	for name, want := range map[string]string{"rank": "rank", "MB/s-o": "MB/s-out", "mb/S": "MB/s-in", "w": "wait%", "host": "host"} {
		i, err := ColumnOf(name)
		require.NoError(t, err)
		require.Equal(t, want, Columns[i].Name)
	}
	for _, name := range []string{"", "rate", "ranks"} {
		_, err := ColumnOf(name)
		require.ErrorContains(t, err, fmt.Sprintf("there is no column %q to sort by: name one of rank, pid, msg/s, ", name))
	}
}

func TestNumbers(t *testing.T) {
	for want, v := range map[string]float64{"0": 0, "1": 0.6, "99999": 99_999.4, "100k": 99_999.6, "12346k": 12_345_678, "100M": 1e8, "1000G": 1e12} {
		require.Equal(t, want, count(v))
	}
	require.Equal(t, "12345.7", megabytes(12_345_678_900))
	require.Equal(t, "106", percent(1.06))
	require.Equal(t, 0.5, part(1, 2))
	require.True(t, math.IsNaN(part(1, -1)))
}
