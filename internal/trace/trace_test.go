package trace

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecords(t *testing.T) {
	require.EqualValues(t, 256<<20, Most*reflect.TypeFor[Record]().Size(), "as is said of Most")
	list := []Record{
		{At: math.MaxInt64, Op: math.MaxUint64, Seq: 1, Number: 2, Tag: math.MaxUint64, Bytes: 3, Peer: -7, Comm: math.MaxUint16, Kind: Awake, Failed: true},
		{Kind: Queued, Call: true}, {Kind: Received, Device: true},
	}
	var b []byte
	for i := range list {
		b = list[i].Append(b)
	}
	got, err := Decode(b)
	require.NoError(t, err)
	require.Equal(t, list, got)
	_, err = Decode(b[1:])
	require.ErrorContains(t, err, "167 bytes")
	b[54] = byte(kinds)
	_, err = Decode(b)
	require.ErrorContains(t, err, "no record is of kind")
	got, err = Decode(nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestRequests(t *testing.T) {
	for _, q := range []Request{{ID: math.MaxInt32, Start: true, Records: 5, For: 3 * time.Second}, {Stop: true}, {ID: 1, Read: true}, {ID: 2, Read: true, From: 70, Rank: 64}} {
		got, ok := ParseRequest(q.String())
		require.True(t, ok)
		require.Equal(t, q, got)
	}
	for _, s := range []string{"", "state", "trace", "trace ", "trace start", "trace start 1 2", "trace start 1 -1 2", "trace read 1 99999999999 0", "trace stop 2147483648", "trace stop 1 1", "trace stop", "trace  stop 1", "trace read 1 01 0"} {
		_, ok := ParseRequest(s)
		require.False(t, ok, s)
	}
}

// TestReads: ranks hand out records in groups.
func TestReads(t *testing.T) {
	q := Request{Read: true, Rank: 64}
	for rank, want := range map[int]bool{0: false, 63: false, 64: true, 127: true, 128: false} {
		require.Equal(t, want, q.Reads(rank), rank)
	}
	require.False(t, Request{Stop: true}.Reads(0))
}
