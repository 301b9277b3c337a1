package p2p

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/trace"
)

// TestCommNames: a trace names so many Comms, the last for all others.
func TestCommNames(t *testing.T) {
	comms := commNames{index: map[string]uint16{}}
	for i := range 2 * trace.MostComms {
		require.EqualValues(t, min(i, trace.MostComms-1), comms.number(fmt.Sprint("Comm ", i)))
	}
	require.Len(t, comms.names, trace.MostComms)
	require.Equal(t, trace.OtherComms, comms.names[trace.MostComms-1])
	require.EqualValues(t, 5, comms.number("Comm 5"))
}

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
