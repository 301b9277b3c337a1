package p2p_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedUCXTagProbe has what UCX's test_ucp_tag_probe checks, and others of its tests that
// probe.
func TestPortedUCXTagProbe(t *testing.T) {
	portedRows(t, 2, p2p.Config{},
		portedRow{"tag_probe.send_probe", sendProbe},
		portedRow{"tag_probe.send_medium_msg_probe", msgProbe(20_000, 20_000)},
		portedRow{"tag_probe.send_medium_msg_probe_truncated", msgProbe(20_000, 0)},
		portedRow{"tag_probe.send_rndv_msg_probe", msgProbe(1_148_576, 1_148_576)},
		portedRow{"tag_probe.send_2_msg_probe", send2Probe},
		portedRow{"tag_probe.limited_probe_size", limitedProbe},
		portedRow{"tag_xfer.send_contig_recv_contig_exp_rndv_probe", msgProbe(1_148_544, 1_148_544)},
		portedRow{"tag_offload.eager_multi_probe", msgProbe(32<<10, 32<<10)},
	)
}

// sends are the two ways in which UCX's tests send what is probed.
var sends = []func(w *p2p.World, dst int, tag p2p.Tag, buf []byte) p2p.Request{(*p2p.World).Isend, (*p2p.World).Issend}

// taken waits for a message by Improbe.
func taken(t *testing.T, w *p2p.World) *p2p.Message {
	t.Helper()
	for {
		m, found, err := w.Improbe(ucxWant, ucxMask)
		require.NoError(t, err)
		if found {
			return m
		}
		runtime.Gosched() // there may be one processor for both ranks
	}
}

// sendProbe: nothing is found before something is sent; what is found is there still.
func sendProbe(t *testing.T, ws []*p2p.World) {
	for _, send := range sends {
		_, found, err := ws[1].Iprobe(ucxWant, ucxMask)
		require.NoError(t, err)
		require.False(t, found)
		message, buf := pattern(8, 1), fresh(8)
		s := send(ws[0], 1, ucxTag, message)
		for range 2 {
			st := looked(t, ws[1])
			require.Equal(t, p2p.Status{Source: 0, Tag: ucxTag, Len: 8}, st)
		}
		received(t, message, buf, wait(t, ws[1].Irecv(ucxWant, ucxMask, buf)))
		wait(t, s)
	}
}

// looked waits for a message by Iprobe.
func looked(t *testing.T, w *p2p.World) p2p.Status {
	t.Helper()
	for {
		st, found, err := w.Iprobe(ucxWant, ucxMask)
		require.NoError(t, err)
		if found {
			return st
		}
		runtime.Gosched()
	}
}

// msgProbe: a message is taken by a probe and received afterwards, into as many bytes or fewer.
// Nobody else finds it in between.
func msgProbe(size, room int) func(t *testing.T, ws []*p2p.World) {
	return func(t *testing.T, ws []*p2p.World) {
		for _, send := range sends {
			_, found, err := ws[1].Improbe(ucxWant, ucxMask)
			require.NoError(t, err)
			require.False(t, found)
			message, buf := pattern(size, 1), fresh(room)
			s := send(ws[0], 1, ucxTag, message)
			m := taken(t, ws[1])
			require.Equal(t, p2p.Status{Source: 0, Tag: ucxTag, Len: int64(size)}, m.Status())
			_, found, err = ws[1].Iprobe(ucxWant, ucxMask)
			require.NoError(t, err)
			require.False(t, found)
			st, err := m.Irecv(buf).Wait(background)
			if room < size {
				requireTruncated(t, message, buf, st, err, ucxTag)
			} else {
				require.NoError(t, err)
				received(t, message, buf, st)
			}
			wait(t, s)
		}
	}
}

// send2Probe: two messages are taken in the order of sending and received in the other.
func send2Probe(t *testing.T, ws []*p2p.World) {
	const size = 80_000
	first, second := pattern(size, 1), pattern(size, 2)
	posted := []p2p.Request{ws[0].Isend(1, ucxTag, first), ws[0].Isend(1, ucxTag, second)}
	m1, m2 := taken(t, ws[1]), taken(t, ws[1])
	for _, test := range []struct {
		m    *p2p.Message
		want []byte
	}{{m2, second}, {m1, first}} {
		buf := fresh(size)
		received(t, test.want, buf, wait(t, test.m.Irecv(buf)))
	}
	require.NoError(t, p2p.WaitAll(background, posted, nil))
}

// limitedProbe: a thousand messages are taken one by one, in order, and none is lost.
func limitedProbe(t *testing.T, ws []*p2p.World) {
	const messages = 1000
	var posted []p2p.Request
	for i := range messages {
		posted = append(posted, ws[0].Isend(1, ucxTag, numbered(100, i)))
	}
	for i := range messages {
		m := taken(t, ws[1])
		require.Equal(t, numbered(100, i), m.Bytes())
		buf := fresh(100)
		st, err := m.Recv(background, buf)
		require.NoError(t, err)
		received(t, numbered(100, i), buf, st)
	}
	_, found, err := ws[1].Improbe(ucxWant, ucxMask)
	require.NoError(t, err)
	require.False(t, found)
	require.NoError(t, p2p.WaitAll(background, posted, nil))
}
