package p2p

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/progress"
)

// TestTraceFits: a part, of whatever records, fits into a reply, and so does what a rank says at
// the end of a trace.
func TestTraceFits(t *testing.T) {
	var tr tracing
	tr.done = &trace.Trace{Records: make([]trace.Record, trace.MostInPart+1)}
	for i := range tr.done.Records {
		tr.done.Records[i] = trace.Record{At: rand.Int64(), Op: rand.Uint64(), Seq: rand.Uint64(), Number: rand.Uint64(), Tag: rand.Uint64(),
			Bytes: rand.Uint64(), Peer: rand.Int32(), Comm: uint16(rand.Uint32()), Kind: trace.Sent}
	}
	part := trace.Answer{Program: "p", Job: "0123abcd", Part: tr.part(0)}
	end := trace.Answer{Program: "p", Job: "0123abcd"}
	for range trace.MostComms {
		end.Comms = append(end.Comms, fmt.Sprint("Comm ", rand.Uint32()))
	}
	for _, a := range []trace.Answer{part, end} {
		line, err := json.Marshal(a)
		require.NoError(t, err)
		b := pack(&reply{Lines: []json.RawMessage{line}})
		require.Less(t, len(b), bootstrap.MaxReply)
		got, err := unpack(b)
		require.NoError(t, err)
		require.Len(t, got.Lines, 1)
	}
	require.Len(t, tr.part(trace.MostInPart), len(tr.part(0))/trace.MostInPart)
}

// TestTraceOrder: what is asked of a rank at once may come in any order, and others may ask too.
func TestTraceOrder(t *testing.T) {
	w, err := Init(t.Context(), Config{})
	require.NoError(t, err)
	defer w.Close()
	ask := func(q trace.Request) error {
		_, err := w.tracing.serve(q, &inspect.State{})
		return err
	}
	start := func(id int) error { return ask(trace.Request{ID: id, Start: true, Records: 10, For: time.Minute}) }
	require.ErrorIs(t, ask(trace.Request{ID: 5, Stop: true}), errNoTrace)
	require.ErrorIs(t, start(5), errNoTrace, "who has begun it does not want it any more")
	require.NoError(t, start(6))
	require.NoError(t, start(6), "it may come by way of several ranks")
	require.ErrorIs(t, start(7), progress.ErrTracing)
	require.ErrorIs(t, ask(trace.Request{ID: 7, Stop: true}), errNoTrace)
	require.ErrorIs(t, ask(trace.Request{ID: 6, Read: true}), errNoTrace, "it has not ended")
	require.NoError(t, ask(trace.Request{ID: 6, Stop: true}))
	require.NoError(t, ask(trace.Request{ID: 6, Stop: true}))
	require.NoError(t, ask(trace.Request{ID: 6, Read: true}))
	require.ErrorIs(t, ask(trace.Request{ID: 7, Read: true}), errNoTrace)
	require.NoError(t, start(8))
	require.ErrorIs(t, ask(trace.Request{ID: 6, Read: true}), errNoTrace, "another one has begun")
}

// TestBothClocks: where something comes between the looks at two clocks they are looked at again.
func TestBothClocks(t *testing.T) {
	n := 0
	looks := []int64{0, 20e6, 30e6, 30e6 + 1000}
	mono, _ := bothClocks(func() int64 {
		n++
		return looks[n-1]
	})
	require.Equal(t, int64(30e6+500), mono)
	require.Len(t, looks, n)

	n = 0
	mono, _ = bothClocks(func() int64 {
		n++
		return int64(n) * 1e6 * int64(41-n)
	})
	require.Equal(t, int64((19*22+20*21)*1e6/2), mono, "none was good, and the best counts")

	var a trace.Answer
	stamp(&a, time.Now().Add(-time.Hour))
	require.Equal(t, monotonic() != 0, a.Mono != 0)
	mono, wall := bothClocks(func() int64 { return 0 })
	require.Zero(t, mono)
	require.False(t, wall.IsZero())
}
