package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/trace"
)

// told is a message that rank from sends at a true time, and rank to receives some time later.
type told struct {
	from, to int
	at, took int64
}

// job is the traces of ranks that exchange messages. Each is on a host of its own, whose wall clock
// is off by so much.
func job(off []int64, messages ...told) []Rank {
	list := make([]Rank, len(off))
	for i := range list {
		list[i] = Rank{Answer: trace.Answer{Rank: i, Size: len(off), Host: fmt.Sprint("h", i), Mono: 1e6 * int64(i), Wall: 1e12 + off[i], Comms: []string{"World"}}}
	}
	number := map[[2]int]uint64{}
	for _, m := range messages {
		n := number[[2]int{m.from, m.to}] + 300
		number[[2]int{m.from, m.to}] = n
		out, in := &list[m.from].Events, &list[m.to].Events
		*out = append(*out, trace.Record{At: m.at, Kind: trace.Sent, Peer: int32(m.to), Number: n})
		*in = append(*in, trace.Record{At: m.at + m.took, Kind: trace.Arrived, Peer: int32(m.from), Number: n, Seq: n})
	}
	return list
}

// TestClocks: the fastest messages there and back bound how far two clocks differ, also by way of
// other hosts.
func TestClocks(t *testing.T) {
	line := New(job([]int64{0, 5_000_000, -7_000_000, 90},
		told{0, 1, 1_000, 400}, told{0, 1, 2_000, 50}, told{1, 0, 3_000, 70}, told{1, 0, 4_000, 900},
		told{1, 2, 5_000, 30}, told{2, 1, 6_000, 20}, told{2, 3, 7_000, 10}))
	require.Equal(t, []Clock{{"h0", 0, 0}, {"h1", -5_000_000 + 10, 60}, {"h2", 7_000_000 + 10 - 5, 60 + 25}, {"h3", 0, Unknown}}, line.Clocks)
	for _, m := range line.Messages {
		require.True(t, m.To == 3 || m.Arrived >= m.Sent, m)
	}
	var text bytes.Buffer
	require.NoError(t, line.Summary(&text, "t.json"))
	require.Equal(t, `t.json: job , 4 of 4 ranks, 7 messages
  of 7 messages only one end is in it: 7 were sent, 0 received
  the clock of h1 was moved by -4.99999ms, which is right within 60ns
  the clock of h2 was moved by 7.000005ms, which is right within 85ns
  the clock of h3 may differ: there are no messages there and back
`, text.String())
	clocks := written(t, line).About["clocks"].(map[string]any)
	require.EqualValues(t, 60, clocks["h1"].(map[string]any)["uncertainty ns"])
	require.Contains(t, clocks["h3"].(map[string]any)["uncertainty ns"], "unknown")
}

// TestClocksInRing: messages go round, and none goes back.
func TestClocksInRing(t *testing.T) {
	line := New(job([]int64{0, 3_000, 900_000}, told{0, 1, 1_000, 100}, told{1, 2, 2_000, 100}, told{2, 0, 3_000, 100}))
	require.Equal(t, []Clock{{"h0", 0, 0}, {"h1", -3_000 + 50, 150}, {"h2", -900_000 - 50, 150}}, line.Clocks)
}

// TestClocksWithin: whatever clocks and messages are, the true correction is within the bounds.
func TestClocksWithin(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		off := []int64{0}
		for range 1 + r.IntN(5) {
			off = append(off, r.Int64N(2e9)-1e9)
		}
		var messages []told
		for at := range int64(r.IntN(40)) {
			messages = append(messages, told{r.IntN(len(off)), r.IntN(len(off)), 10_000 * at, 100 + r.Int64N(1_000)})
		}
		for i, c := range New(job(off, messages...)).Clocks {
			if d := c.Offset + off[i]; c.Within != Unknown {
				require.LessOrEqual(t, max(d, -d), c.Within+1, "seed %d, host %d: %+v", seed, i, c)
			}
		}
	}
}

// TestClocksDrift: clocks that run at different rates contradict each other, the more the longer a
// trace takes. Corrections stay within what clocks have differed by meanwhile, and say how exact.
func TestClocksDrift(t *testing.T) {
	const hosts, most = 40, 5 * 20_000 // clocks are up to 20 us a second apart, and it takes 5
	r := rand.New(rand.NewPCG(1, 1))
	off, rate := make([]int64, hosts), make([]int64, hosts)
	for i := range off {
		off[i], rate[i] = int64(i)*r.Int64N(1e8)-1e9*int64(min(i, 1)), r.Int64N(20)-10
	}
	list := job(off)
	number := map[[2]int]uint64{}
	for at := int64(0); at < 5e9; at += 1_000_000 {
		from, to := r.IntN(hosts), r.IntN(hosts)
		came := at + 2_000 + r.Int64N(1_000)
		number[[2]int{from, to}] += 300
		n := number[[2]int{from, to}]
		list[from].Events = append(list[from].Events, trace.Record{At: at + at*rate[from]/1e6, Kind: trace.Sent, Peer: int32(to), Number: n})
		list[to].Events = append(list[to].Events, trace.Record{At: came + came*rate[to]/1e6, Kind: trace.Arrived, Peer: int32(from), Number: n, Seq: n})
	}
	line := New(list)
	for i, c := range line.Clocks {
		d := c.Offset + off[i]
		require.LessOrEqual(t, max(d, -d), int64(most), "host %d: %+v", i, c)
		require.True(t, c.Within >= 0 && c.Within <= 2*most, "host %d: %+v", i, c)
	}
	two := New(job([]int64{0, 0}, told{0, 1, 1_000, -100}, told{1, 0, 2_000, 50}))
	require.Equal(t, Clock{"h1", 75, 25}, two.Clocks[1])
}

// TestHostile: ranks may say what they like, and a file may be damaged.
func TestHostile(t *testing.T) {
	kinds := int(trace.Kinds)
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		wild := func() int64 {
			return []int64{0, 1, -1, 7, math.MaxInt64, math.MinInt64, r.Int64() - r.Int64(), r.Int64N(4)}[r.IntN(8)]
		}
		var list []Rank
		for i := range 1 + r.IntN(3) {
			a := Rank{Answer: trace.Answer{Rank: i, Size: 3, Host: fmt.Sprint(r.IntN(3)), Mono: wild(), Wall: wild()}}
			for range r.IntN(60) {
				a.Events = append(a.Events, trace.Record{At: wild(), Op: uint64(r.IntN(3)), Seq: uint64(r.IntN(3)), Number: uint64(r.IntN(4)), Tag: uint64(wild()),
					Bytes: uint64(wild()), Peer: int32(r.IntN(4) - 1), Comm: uint16(wild()), Kind: trace.Kind(r.IntN(kinds)), Failed: r.IntN(2) == 0, Call: r.IntN(2) == 0, Device: r.IntN(2) == 0})
			}
			list = append(list, a)
		}
		line := New(list)
		var b bytes.Buffer
		require.NoError(t, line.Write(&b, line.About()))
		require.True(t, json.Valid(b.Bytes()))
		require.NoError(t, line.Summary(&b, "t.json"))
	}
}

// TestSameName: machines of the same name have no clock in common.
func TestSameName(t *testing.T) {
	list := job([]int64{0, 2_000, 3_000}, told{0, 1, 1_000, 100})
	for i := range list {
		list[i].Host, list[i].Mono = "localhost", []int64{500, 600, 3600e9}[i]
	}
	line := New(list)
	require.Len(t, line.Clocks, 1)
	require.Equal(t, []int64{1e12, 1e12 + 100, 1e12 + 3_000}, line.starts())
}

// TestSummaryOfMany: of many ranks the summary says what was lost in one line.
func TestSummaryOfMany(t *testing.T) {
	line := New(job(make([]int64, 12)))
	said := func() string {
		var text bytes.Buffer
		require.NoError(t, line.Summary(&text, "t.json"))
		return text.String()
	}
	for i := range 8 {
		line.Ranks[i].Lost = uint64(100 - i)
	}
	require.Contains(t, said(), "  rank 7 had no room for its first 93 records\n")
	line.Ranks[11].Lost = 200
	require.Contains(t, said(), "ranks, 0 messages\n  9 ranks had no room for their first records, rank 11 for 200, which is most\n  the clock of")
	require.Len(t, line.About()["records lost"], 9)
}
