package soft

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// goneRig has a queue pair whose peer is l, over 8192 bytes that can be accessed as prot says.
func goneRig(t *testing.T, prot int, l *fakeLink) (d *Device, q *queuePair, mr verbs.MR, cq verbs.CQ) {
	d, err := Open(Config{Fabric: NewFabric()})
	require.NoError(t, err)
	pd, err := d.AllocPD()
	require.NoError(t, err)
	cq, err = d.CreateCQ(verbs.CQInitAttr{CQE: 64})
	require.NoError(t, err)
	b, err := unix.Mmap(-1, 0, 8192, prot, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	mr, err = pd.RegMR(b, verbs.AccessRemoteRead|verbs.AccessLocalWrite)
	require.NoError(t, err)
	q = hostileQP(t, d, pd, cq, mr, b[:64], l)
	q.init.ReadFaults = true
	t.Cleanup(func() {
		q.link = nil
		require.NoError(t, q.Destroy())
		require.NoError(t, mr.Dereg())
		require.NoError(t, cq.Destroy())
		require.NoError(t, pd.Dealloc())
		require.NoError(t, d.Close())
		require.NoError(t, unix.Munmap(b))
	})
	return d, q, mr, cq
}

// TestPlaceGone: a READ of which a wire could not put a piece into place has failed, although the
// memory is back when the piece has come; those behind it have not.
func TestPlaceGone(t *testing.T) {
	l := &fakeLink{}
	d, q, _, cq := goneRig(t, unix.PROT_READ|unix.PROT_WRITE, l)
	w, payload := (*fromWire)(d), make([]byte, 64)
	h := wire.Header{Op: wire.OpReadResp, Flags: wire.FlagFirst | wire.FlagLast, QPN: q.num, Length: 64, Total: 64}
	for k, want := range []verbs.WCStatus{verbs.WCLocAccessErr, verbs.WCSuccess} {
		h.PSN = q.psn + uint32(2*k+1) // hostileQP posts one SEND and one READ by turns
		require.Len(t, w.Place(l, &h), 64)
		if want != verbs.WCSuccess {
			w.PlaceGone(l, &h)
			require.Nil(t, w.Place(l, &h))
		}
		_, _ = w.Receive(l, &h, payload)
		require.Equal(t, uint8(want), q.sq[(h.PSN-q.psn)&q.mask].status)
	}
	require.Equal(t, verbs.QPSRTS, q.State())
	var wc [4]verbs.WC
	n, err := verbstest.Poll(cq, wc[:])
	require.NoError(t, err)
	require.NotZero(t, n)
	require.Equal(t, verbs.WC{WRID: 1, Status: verbs.WCLocAccessErr, Opcode: verbs.WCRDMARead, QPNum: q.num}, wc[0])
}

// TestReadWaitsForRoom: the memory of a READ is looked at when its piece can be sent, not at each
// poll before. Here it is gone, and the READ is refused.
func TestReadWaitsForRoom(t *testing.T) {
	l := &fakeLink{full: true}
	_, q, mr, _ := goneRig(t, unix.PROT_NONE, l)
	q.answer(response{op: wire.OpReadResp, rkey: mr.RKey(), addr: mr.Addr(), total: 8192, alone: true})
	require.False(t, q.respond())
	require.Zero(t, q.resp.front().status)
	l.full = false
	require.True(t, q.respond())
	require.Zero(t, q.resp.len())
}
