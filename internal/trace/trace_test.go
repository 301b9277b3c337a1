package trace

import (
	"math"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecords(t *testing.T) {
	require.EqualValues(t, Size, reflect.TypeFor[Record]().Size())
	require.EqualValues(t, 256<<20, Most*Size, "as is said of Most")
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
	b[54] = byte(Kinds)
	_, err = Decode(b)
	require.ErrorContains(t, err, "no record is of kind")
	got, err = Decode(nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestRequests(t *testing.T) {
	for _, q := range []Request{{ID: math.MaxInt32, Start: true, Records: 5, For: 3 * time.Second}, {ID: 3, Stop: true}, {ID: 1, Read: true}, {ID: 2, Read: true, From: 70, Rank: 64}} {
		got, ok := ParseRequest(q.String())
		require.True(t, ok)
		require.Equal(t, q, got)
	}
	for _, s := range []string{"", "state", "trace", "trace ", "trace start", "trace start 1 2", "trace start 1 -1 2", "trace read 1 99999999999 0", "trace stop 2147483648", "trace stop 1 1", "trace stop 0", "trace start 0 1 1", "trace read 0 0 0", "trace stop", "trace  stop 1", "trace read 1 01 0"} {
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

// TestComms: a trace names so many Comms, and the last is for all others.
func TestComms(t *testing.T) {
	list := make([]Record, 2*MostComms)
	for i := range list {
		list[i] = Record{Kind: Queued, Tag: uint64(i)}
	}
	list = append(list, Record{Kind: Queued, Tag: 5}, Record{Kind: Parked, Tag: 6})
	names := Name(list, func(tag uint64) (string, uint64) { return strconv.FormatUint(tag, 10), tag + 1 })
	require.Len(t, names, MostComms)
	require.Equal(t, OtherComms, names[MostComms-1])
	for i, r := range list[:2*MostComms] {
		require.EqualValues(t, min(i, MostComms-1), r.Comm)
	}
	require.Equal(t, Record{Kind: Queued, Tag: 6, Comm: 5}, list[2*MostComms])
	require.Equal(t, Record{Kind: Parked, Tag: 6}, list[2*MostComms+1])
}

// TestRing: the newest records are kept, in order.
func TestRing(t *testing.T) {
	require.Len(t, NewRing(Most+1).Records, Most)
	r := NewRing(0)
	require.Len(t, r.Records, Least)
	for n := range uint64(3 * Least) {
		list, lost := r.Newest()
		require.EqualValues(t, max(n, Least)-Least, lost)
		require.Len(t, list, int(n-lost))
		for i, got := range list {
			require.Equal(t, lost+uint64(i), got.Seq)
		}
		r.Records[n%Least].Seq = n
		*r.Count++
	}
}
