package soft

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/loop"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// TestFailureOvertakesRead: the peer refuses a send while a read before it, which the peer has no
// part in, is being copied. Both complete, the send with the cause.
func TestFailureOvertakesRead(t *testing.T) {
	r := newRig(t, loop.NewFabric(loop.Options{Direct: true}))
	q, peer := r.q[0].(*queuePair), r.q[1].(*queuePair)
	q.attr.MaxRdAtomic = 1
	q.hdr.Status = 0 // not one try when the peer is not ready
	src, dst := make([]byte, 3*wire.MaxChunk), make([]byte, 3*wire.MaxChunk)
	from, err := peer.pd.RegMR(src, verbs.AccessRemoteRead)
	require.NoError(t, err)
	to, err := q.pd.RegMR(dst, verbs.AccessLocalWrite)
	require.NoError(t, err)
	read := verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: []verbs.SGE{{Data: dst, LKey: to.LKey()}},
		RemoteAddr: from.Addr(), RKey: from.RKey()}
	_, err = q.PostSend(&read)
	require.NoError(t, err)
	r.post(t, 0, 2)
	r.poll(t, 1)
	var got []verbs.WC
	for range 10 {
		got = append(got, r.poll(t, 0)...)
	}
	require.Equal(t, verbs.QPSErr, q.State())
	require.Len(t, got, 2)
	require.Equal(t, []uint64{1, 2}, []uint64{got[0].WRID, got[1].WRID})
	require.Equal(t, []verbs.WCStatus{verbs.WCWRFlushErr, verbs.WCRNRRetryExcErr}, []verbs.WCStatus{got[0].Status, got[1].Status})
	require.NoError(t, from.Dereg())
	require.NoError(t, to.Dereg())
}

// TestReadBesideWrite: while a WRITE is on its way, of which the peer knows nothing yet, other
// memory is read directly, without the peer's doing; what the WRITE changes is not.
func TestReadBesideWrite(t *testing.T) {
	for name, c := range map[string]struct {
		at, n  int // what is read; bytes 64 to 71 are written
		direct bool
	}{
		"below": {0, 64, true}, "above": {72, 64, true}, "across": {0, 128, false}, "first byte": {60, 5, false}, "last byte": {71, 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, loop.NewFabric(loop.Options{Direct: true}))
			q, peer := r.q[0].(*queuePair), r.q[1].(*queuePair)
			theirs, mine := make([]byte, 256), make([]byte, 256)
			remote, err := peer.pd.RegMR(theirs, verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessLocalWrite)
			require.NoError(t, err)
			local, err := q.pd.RegMR(mine, verbs.AccessLocalWrite)
			require.NoError(t, err)
			post := func(wr verbs.SendWR, at int, b []byte) {
				wr.SGList, wr.RemoteAddr, wr.RKey = []verbs.SGE{{Data: b, LKey: local.LKey()}}, remote.Addr()+uint64(at), remote.RKey()
				_, err := q.PostSend(&wr)
				require.NoError(t, err)
			}
			copy(mine, "changed!")
			post(verbs.SendWR{Opcode: verbs.WRRDMAWrite}, 64, mine[:8])
			got := mine[8:][:c.n]
			post(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled}, c.at, got)
			polls := 0
			for ; len(r.poll(t, 0)) == 0; polls++ {
				require.Less(t, polls, 10)
				if polls > 3 {
					r.poll(t, 1)
				}
			}
			require.Equal(t, c.direct, polls <= 3)
			require.Equal(t, theirs[c.at:][:c.n], got, "the peer has executed the write by now, if it matters")
			require.NoError(t, remote.Dereg())
			require.NoError(t, local.Dereg())
		})
	}
}

// TestSendDeregistered: memory that is deregistered while a SEND of it waits for room is not sent.
// The SEND fails as on a NIC, and nothing refers to the memory.
func TestSendDeregistered(t *testing.T) {
	r := newRig(t, loop.NewFabric(loop.Options{Queue: 1, MaxPayload: 256}))
	q := r.q[0].(*queuePair)
	src := make([]byte, 4096)
	object := weak.Make(&src[0])
	mr, err := q.pd.RegMR(src, 0)
	require.NoError(t, err)
	_, err = q.PostSend(&verbs.SendWR{WRID: 3, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{{Data: src, LKey: mr.LKey()}}})
	require.NoError(t, err)
	require.NotEqual(t, q.posted, q.sent)
	require.NoError(t, mr.Dereg())
	require.Eventually(t, func() bool { // a stack may still have a word of it
		runtime.GC()
		return object.Value() == nil
	}, testlevel.Patience(20*time.Second), time.Millisecond)
	var got []verbs.WC
	for range 10 {
		r.poll(t, 1)
		got = append(got, r.poll(t, 0)...)
	}
	require.Len(t, got, 1)
	require.Equal(t, verbs.WCLocProtErr, got[0].Status)
	require.Equal(t, verbs.QPSErr, q.State())
}
