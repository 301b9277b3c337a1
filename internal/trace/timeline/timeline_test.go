package timeline

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/internal/trace/tracetest"
)

func rank(n int, mono int64, events ...trace.Record) Rank {
	return Rank{trace.Answer{Rank: n, Size: 2, Host: "h", Program: "p", Job: "ab", PID: 9, Mono: mono, Comms: []string{"World"}}, events}
}

// written checks the file of a timeline.
func written(t *testing.T, line *Timeline) tracetest.File {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, line.Write(&b, line.About()))
	f, err := tracetest.Check(b.Bytes())
	require.NoError(t, err, b.String())
	require.Equal(t, len(line.Messages), f.Messages)
	return f
}

// TestProtocols has an eager message that was awaited, one that was not, and a rendezvous. The
// clock of rank 1 begins 100 ns later.
func TestProtocols(t *testing.T) {
	line := New([]Rank{
		rank(0, 1000,
			trace.Record{At: 10, Kind: trace.Sent, Peer: 1, Number: 300, Tag: 1, Bytes: 8},
			trace.Record{At: 210, Kind: trace.Sent, Peer: 1, Number: 600, Tag: 2, Bytes: 9},
			trace.Record{At: 220, Kind: trace.Queued, Op: 7, Peer: 1, Tag: 3, Bytes: 1e6},
			trace.Record{At: 300, Kind: trace.Requested, Op: 7, Peer: 1, Number: 856, Tag: 3, Bytes: 1e6},
			trace.Record{At: 310, Kind: trace.Call, Op: 7},
			trace.Record{At: 320, Kind: trace.Parked, Op: 7},
			trace.Record{At: 900, Kind: trace.SendEnded, Op: 7},
			trace.Record{At: 950, Kind: trace.Woken, Op: 7}),
		rank(1, 1100,
			trace.Record{At: 5, Kind: trace.Posted, Op: 4, Peer: 0, Tag: 1, Bytes: 100, Call: true},
			trace.Record{At: 90, Kind: trace.Received, Op: 4, Peer: 0, Number: 300, Tag: 1, Bytes: 8},
			trace.Record{At: 150, Kind: trace.Arrived, Seq: 1, Peer: 0, Number: 600, Tag: 2, Bytes: 9},
			trace.Record{At: 250, Kind: trace.Asked, Seq: 2, Peer: 0, Number: 856, Tag: 3, Bytes: 1e6},
			trace.Record{At: 400, Kind: trace.Taken, Seq: 1},
			trace.Record{At: 500, Kind: trace.Reading, Op: 4, Seq: 2},
			trace.Record{At: 600, Kind: trace.Wait, Op: 4},
			trace.Record{At: 700, Kind: trace.Ended, Op: 4, Bytes: 1e6}),
	})
	world := func(tag, bytes uint64) End { return End{true, "World", tag, bytes} }
	require.Equal(t, []*Message{
		{From: 0, To: 1, Number: 300, Protocol: Eager, Out: world(1, 8), In: world(1, 8), Arrow: true, Posted: 11, Sent: 11, Done: 11, Arrived: 191, Matched: 191, Received: 191},
		{From: 0, To: 1, Number: 600, Protocol: Eager, Out: world(2, 9), In: world(2, 9), Arrow: true, Posted: 211, Sent: 211, Done: 211, Arrived: 251, Matched: 501, Received: 501},
		{From: 0, To: 1, Number: 856, Protocol: Rendezvous, Out: world(3, 1e6), In: world(3, 1e6), Arrow: true,
			Posted: 221, Sent: 301, Done: 901, Arrived: 351, Matched: 601, Reads: 601, Received: 801},
	}, line.Messages)
	require.Equal(t, []Slice{{Name: "Send", Begin: 221, End: 951, Peer: 1, Tag: 3, Bytes: 1e6, About: true,
		Inner: []Slice{{Name: "parked", Begin: 321, End: 951, Peer: -1}}}}, line.Activities[0].Calls)
	require.Equal(t, []Slice{{Name: "Recv", Begin: 106, End: 191, Tag: 1, Bytes: 100, About: true}, {Name: "Wait", Begin: 701, End: 801, Peer: -1}}, line.Activities[1].Calls)
	f := written(t, line)
	require.Equal(t, 3, f.Arrows)
	require.Equal(t, 1, f.Names["parked"])
	require.EqualValues(t, 3, f.About["arrows"])
	var text bytes.Buffer
	require.NoError(t, line.Summary(&text, "t.json"))
	require.Equal(t, "t.json: job ab, 2 of 2 ranks, 3 messages\n", text.String())
}

// TestCostsLate: a device has matched an eager message, whose cost is told when more have come. Of
// one of which nothing is told those behind it have no partner.
func TestCostsLate(t *testing.T) {
	line := New([]Rank{
		rank(0, 1000,
			trace.Record{At: 1, Kind: trace.Sent, Peer: 1, Number: 1300, Tag: 1, Bytes: 44},
			trace.Record{At: 2, Kind: trace.Sent, Peer: 1, Number: 1600, Tag: 2, Bytes: 44},
			trace.Record{At: 3, Kind: trace.Sent, Peer: 1, Number: 2000, Tag: 3, Bytes: 144},
			trace.Record{At: 4, Kind: trace.Sent, Peer: 1, Number: 2300, Tag: 4, Bytes: 44}),
		rank(1, 1000,
			trace.Record{At: 11, Kind: trace.Begun, Op: 1, Seq: 1, Number: 1000, Tag: 1},
			trace.Record{At: 12, Kind: trace.Arrived, Seq: 2, Number: 1300, Tag: 2, Bytes: 44},
			trace.Record{At: 13, Kind: trace.Received, Op: 1, Number: 300, Tag: 1, Bytes: 44, Device: true},
			trace.Record{At: 14, Kind: trace.Taken, Seq: 2},
			trace.Record{At: 15, Kind: trace.Begun, Op: 1, Seq: 3, Number: 1600, Tag: 3},
			trace.Record{At: 16, Kind: trace.Arrived, Seq: 4, Number: 1900, Tag: 4, Bytes: 44},
			trace.Record{At: 17, Kind: trace.Taken, Seq: 4}),
	})
	require.Len(t, line.Messages, 4)
	for i, m := range line.Messages {
		require.Equal(t, i < 2, m.Arrow, m)
		require.Equal(t, i < 2, m.Out.Tag == m.In.Tag, m)
	}
	require.Equal(t, 2, written(t, line).Arrows)
	var text bytes.Buffer
	line.Ranks[1].Lost, line.Ranks[1].Size, line.Ranks[0].Size = 5, 3, 3
	require.NoError(t, line.Summary(&text, "t.json"))
	require.Equal(t, `t.json: job ab, 2 of 3 ranks, 4 messages
  of 2 messages only one end is in it: 2 were sent, 0 received
  rank 1 had no room for its first 5 records
`, text.String())
}

// TestCut has calls, sleeps and reads that began before the recording, or go on after it, and calls
// that overlap.
func TestCut(t *testing.T) {
	line := New([]Rank{rank(0, 5000,
		trace.Record{At: 1, Kind: trace.Woken, Op: 1},
		trace.Record{At: 2, Kind: trace.Returned, Op: 1},
		trace.Record{At: 3, Kind: trace.SendEnded, Op: 2},
		trace.Record{At: 4, Kind: trace.Ended, Op: 3},
		trace.Record{At: 5, Kind: trace.Awake},
		trace.Record{At: 6, Kind: trace.Parked, Op: 4},
		trace.Record{At: 7, Kind: trace.Woken, Op: 4},
		trace.Record{At: 8, Kind: trace.Posted, Op: 5, Peer: -1, Call: true},
		trace.Record{At: 9, Kind: trace.Parked, Op: 5},
		trace.Record{At: 10, Kind: trace.Matched, Op: 6, Peer: 1, Number: 5, Seq: 1},
		trace.Record{At: 11, Kind: trace.Reading, Op: 7, Seq: 9},
		trace.Record{At: 12, Kind: trace.Asleep})})
	a := line.Activities[0]
	require.Equal(t, []Slice{{Name: "call", Begin: 7, End: 8, Peer: -1, Inner: []Slice{{Name: "parked", Begin: 7, End: 8, Peer: -1}}},
		{Name: "Recv", Begin: 9, End: 13, Peer: -1, About: true, Inner: []Slice{{Name: "parked", Begin: 10, End: 13, Peer: -1}}}}, a.Calls)
	require.Len(t, lanes(a.Calls), 1)
	require.Len(t, lanes([]Slice{{Begin: 1, End: 3}, {Begin: 2, End: 4}, {Begin: 3, End: 5}}), 2)
	require.Equal(t, []int{1, 1, 1}, []int{len(a.Reads), len(a.DeviceReads), len(a.Sleeps)})
	require.Equal(t, 2, written(t, line).Names["parked"])
}

// TestManyAtOnce: records of which each has to do with all before it, as a rank that means harm
// makes them, are read in good time.
func TestManyAtOnce(t *testing.T) {
	const many = 1 << 20
	var events []trace.Record
	for i := range uint64(many) { // messages of which nothing is known until all have come
		events = append(events, trace.Record{Kind: trace.Begun, Op: i + 1, Peer: 1, Number: 5})
	}
	for i := range uint64(many) {
		events = append(events, trace.Record{Kind: trace.Received, Op: i + 1, Peer: 1, Number: 3, Device: true})
	}
	for range many { // calls that wait for the same, until it ends
		events = append(events, trace.Record{Kind: trace.Wait, Op: 1})
	}
	events = append(events, trace.Record{Kind: trace.Ended, Op: 1})
	for range many { // and until the end of the recording
		events = append(events, trace.Record{Kind: trace.Wait, Op: 2})
	}
	line := New([]Rank{rank(0, 1000, events...)})
	require.Len(t, line.Messages, many)
	require.EqualValues(t, 5+3, line.Messages[0].Number)
	require.EqualValues(t, 5+3*many, line.Messages[many-1].Number)
	require.Len(t, line.Activities[0].Calls, 2*many)
	require.Len(t, lanes(line.Activities[0].Calls), many)
}
