package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedUCXTagOffload has what UCX's test_ucp_tag_offload* checks: which receives the device
// gets, and what becomes of them. The same calls have the same outcome with rc, where the counters
// of offloading stay zero.
func TestPortedUCXTagOffload(t *testing.T) {
	const size = 2048
	device := p2p.Config{OffloadMin: 1024}
	for _, row := range []struct {
		name  string
		ranks int
		cfg   p2p.Config
		fn    func(t *testing.T, ws []*p2p.World)
	}{
		{"tag_offload.post_after_cancel", 2, device, postAfterCancel},
		{"tag_offload.post_after_comp", 2, device, postAfterComp},
		{"tag_offload.post_wild", 2, device, postWild},
		{"tag_offload.post_dif_buckets", 2, device, postDifBuckets},
		{"tag_offload.force_thresh_basic", 2, p2p.Config{OffloadMin: -1}, forceBasic},
		{"tag_offload.force_thresh_blocked", 2, device, forceBlocked},
		{"tag_offload.eager_send_less", 2, device, eagerSendLess},
		{"tag_offload.small_rndv,small_sw_rndv", 2, p2p.Config{OffloadMin: -1, EagerLimit: -1}, smallRndv},
		{"tag_offload.eager_multi_recv", 2, p2p.Config{OffloadMin: -1, EagerLimit: 64 << 10}, eagerMultiRecv},
		{"tag_offload_multi.recv_from_multi", 4, device, recvFromMulti},
		{"tag_offload_status.check_offload_status", 2, p2p.Config{MaxTags: -1}, offloadStatus},
		{"tag_offload_stats.post", 2, device, statsPost},
		{"tag_offload_stats.block", 2, p2p.Config{OffloadMin: 1, MaxTags: 8}, statsBlock},
		{"tag_offload_stats.eager", 2, p2p.Config{OffloadMin: 64}, statsMatched(512)},
		{"tag_offload_stats.rndv,sw_rndv", 2, p2p.Config{OffloadMin: 64, EagerLimit: 1000}, statsMatched(size)},
	} {
		t.Run(row.name, func(t *testing.T) {
			worldsOnWirings(t, row.ranks, row.cfg, func(t *testing.T, ws []*p2p.World) {
				row.fn(t, ws)
				onRanks(t, ws, func(w *p2p.World) { requireSettled(t, w) })
			})
		})
	}
}

// requireOffload checks the counters that matter: how many receives the device was given, how many
// were kept in software as they are small, or overlap one that is, and what the device has now.
func requireOffload(t *testing.T, w *p2p.World, offloaded, small, overlap uint64, inDevice int) {
	t.Helper()
	o := w.Metrics().Offload
	if w.Metrics().Transport == "rc" {
		require.Equal(t, p2p.Offload{}, o)
		return
	}
	got := []uint64{o.Offloaded, o.KeptSmall, o.KeptOverlap, uint64(o.InDevice)}
	require.Equal(t, []uint64{offloaded, small, overlap, uint64(inDevice)}, got, "offloaded, small, overlap, now in the device")
}

// requireMatched checks how many messages the device has matched.
func requireMatched(t *testing.T, w *p2p.World, matched uint64) {
	t.Helper()
	if w.Metrics().Transport == "rc" {
		matched = 0
	}
	require.Equal(t, matched, w.Metrics().Offload.Matched)
}

func cancelAll(t *testing.T, reqs ...p2p.Request) {
	t.Helper()
	for _, r := range reqs {
		r.Cancel()
		requireCanceled(t, r)
	}
}

// postAfterCancel: a small receive that was cancelled keeps no later one out of the device.
func postAfterCancel(t *testing.T, ws []*p2p.World) {
	r := ws[1].Irecv(0x11, p2p.MaskExact, fresh(8))
	requireOffload(t, ws[1], 0, 1, 0, 0)
	cancelAll(t, r)
	r = ws[1].Irecv(0x11, p2p.MaskExact, fresh(2048))
	requireOffload(t, ws[1], 1, 1, 0, 1)
	cancelAll(t, r)
	requireOffload(t, ws[1], 1, 1, 0, 0)
}

// postAfterComp: nor does one that has its message.
func postAfterComp(t *testing.T, ws []*p2p.World) {
	buf := fresh(8)
	r := ws[1].Irecv(0x11, p2p.MaskExact, buf)
	requireOffload(t, ws[1], 0, 1, 0, 0)
	require.NoError(t, ws[0].Send(background, 1, 0x11, pattern(8, 1)))
	requireReceived(t, pattern(8, 1), buf, wait(t, r), 0, 0x11)
	r = ws[1].Irecv(0x11, p2p.MaskExact, fresh(2048))
	requireOffload(t, ws[1], 1, 1, 0, 1)
	cancelAll(t, r)
}

// postWild: a wildcard that is kept in software keeps all later receives there, and each message
// goes to the first receive that matches.
func postWild(t *testing.T, ws []*p2p.World) {
	buf, large := fresh(8), fresh(2048)
	wild := ws[1].Irecv(0x11, 1<<62, buf) // every tag of this test
	other := ws[1].Irecv(0x13, p2p.MaskExact, large)
	requireOffload(t, ws[1], 0, 1, 1, 0)
	for i := range 2 {
		require.NoError(t, ws[0].Send(background, 1, 0x13, pattern(8, i)))
	}
	requireReceived(t, pattern(8, 0), buf, wait(t, wild), 0, 0x13)
	requireReceived(t, pattern(8, 1), large, wait(t, other), 0, 0x13)
}

// postDifBuckets: a small receive keeps a large one with its tag in software, and lets one with
// another tag go.
func postDifBuckets(t *testing.T, ws []*p2p.World) {
	buf := fresh(2048)
	reqs := []p2p.Request{
		ws[1].Irecv(0x11, p2p.MaskExact, fresh(8)),
		ws[1].Irecv(0x11, p2p.MaskExact, fresh(2048)),
		ws[1].Irecv(0x13, p2p.MaskExact, buf),
	}
	requireOffload(t, ws[1], 1, 1, 1, 1)
	require.NoError(t, ws[0].Send(background, 1, 0x13, pattern(100, 1)))
	requireReceived(t, pattern(100, 1), buf, wait(t, reqs[2]), 0, 0x13)
	requireMatched(t, ws[1], 1)
	cancelAll(t, reqs[:2]...)
}

// forceBasic: UCX forces small receives into the device when a large one with their tag is posted;
// here Config.OffloadMin -1 has all go there. The device matches them in the order of posting.
func forceBasic(t *testing.T, ws []*p2p.World) {
	var reqs []p2p.Request
	var bufs [][]byte
	for _, size := range []int{8, 8, 8, 8, 8, 8, 8, 5000} {
		bufs = append(bufs, fresh(size))
		reqs = append(reqs, ws[1].Irecv(0x11, p2p.MaskExact, bufs[len(bufs)-1]))
	}
	requireOffload(t, ws[1], 8, 0, 0, 8)
	for i := range reqs {
		require.NoError(t, ws[0].Send(background, 1, 0x11, pattern(8, i)))
	}
	for i, r := range reqs {
		requireReceived(t, pattern(8, i), bufs[i], wait(t, r), 0, 0x11)
	}
	requireMatched(t, ws[1], 8)
}

// forceBlocked: a large receive that earlier ones keep in software goes to the device once they
// have ended.
func forceBlocked(t *testing.T, ws []*p2p.World) {
	var reqs []p2p.Request
	for range 6 {
		reqs = append(reqs, ws[1].Irecv(0x11, p2p.MaskExact, fresh(8)))
	}
	reqs = append(reqs, ws[1].Irecv(0x11, p2p.MaskExact&^0xff, fresh(8)))
	buf := fresh(5000)
	large := ws[1].Irecv(0x11, p2p.MaskExact, buf)
	requireOffload(t, ws[1], 0, 7, 1, 0)
	for len(reqs) > 0 {
		cancelAll(t, reqs[len(reqs)-1])
		reqs = reqs[:len(reqs)-1]
		if len(reqs) > 0 {
			arrived(t, ws[1], ws[0]) // the engine has polled
			require.Zero(t, ws[1].Metrics().Offload.Promoted)
		}
	}
	arrived(t, ws[1], ws[0])
	if ws[1].Metrics().Transport == "tmsrq" {
		require.EqualValues(t, 1, ws[1].Metrics().Offload.Promoted)
		require.Equal(t, 1, ws[1].Metrics().Offload.InDevice)
	}
	require.NoError(t, ws[0].Send(background, 1, 0x11, pattern(5000, 1)))
	requireReceived(t, pattern(5000, 1), buf, wait(t, large), 0, 0x11)
}

// eagerSendLess: one byte into a large buffer that the device has.
func eagerSendLess(t *testing.T, ws []*p2p.World) {
	buf := fresh(4 << 10)
	r := ws[1].Irecv(0x11, p2p.MaskExact, buf)
	requireOffload(t, ws[1], 1, 0, 0, 1)
	require.NoError(t, ws[0].Send(background, 1, 0x11, []byte{7}))
	requireReceived(t, []byte{7}, buf, wait(t, r), 0, 0x11)
	requireMatched(t, ws[1], 1)
}

// smallRndv: a message of no bytes, which is always eager, and a rendezvous of one, which with
// tmsrq the device reads, and with rc software.
func smallRndv(t *testing.T, ws []*p2p.World) {
	for size := range 2 {
		buf := fresh(size)
		r := ws[1].Irecv(0x11, p2p.MaskExact, buf)
		s := ws[0].Isend(1, 0x11, pattern(size, 1))
		requireReceived(t, pattern(size, 1), buf, wait(t, r), 0, 0x11)
		wait(t, s)
	}
	requireOffload(t, ws[1], 2, 0, 0, 0)
	requireMatched(t, ws[1], 2)
	require.EqualValues(t, 1, ws[1].Metrics().RndvReceived)
}

// eagerMultiRecv: a receive is posted while its message, of many packets, is arriving. It gets it,
// and the one posted after it the next.
func eagerMultiRecv(t *testing.T, ws []*p2p.World) {
	const size = 64 << 10
	for i := range rounds(50) {
		var sends, recvs []p2p.Request
		bufs := [][]byte{fresh(size), fresh(size)}
		for k := range bufs {
			sends = append(sends, ws[0].Isend(1, 0x11, pattern(size, 2*i+k)))
		}
		for _, buf := range bufs {
			recvs = append(recvs, ws[1].Irecv(0x11, ucxMask, buf))
		}
		for k, buf := range bufs {
			requireReceived(t, pattern(size, 2*i+k), buf, wait(t, recvs[k]), 0, 0x11)
		}
		require.NoError(t, p2p.WaitAll(background, sends, nil))
	}
}

// recvFromMulti: receives from several senders are all in the device, and each gets the message of
// its sender, in the opposite order.
func recvFromMulti(t *testing.T, ws []*p2p.World) {
	c := ws[0].Comm()
	reqs, bufs := make([]p2p.Request, 4), make([][]byte, 4)
	for source := range reqs {
		bufs[source] = fresh(2048)
		reqs[source] = c.Irecv(source, 0x11, bufs[source])
	}
	requireOffload(t, ws[0], 4, 0, 0, 4)
	for source := 3; source >= 0; source-- {
		require.NoError(t, ws[source].Comm().Send(background, 0, 0x11, pattern(2048, source)))
		requireReceived(t, pattern(2048, source), bufs[source], wait(t, reqs[source]), source, 0x11)
	}
	requireOffload(t, ws[0], 4, 0, 0, 0)
	requireMatched(t, ws[0], 4)
}

// offloadStatus: without a tag list nothing is offloaded, and everything is received.
func offloadStatus(t *testing.T, ws []*p2p.World) {
	expected(8, 5000, 100_000)(t, ws)
	require.Equal(t, p2p.Offload{}, ws[1].Metrics().Offload)
}

// statsPost: a posted receive is counted, and so is its deletion when it is cancelled.
func statsPost(t *testing.T, ws []*p2p.World) {
	r := ws[1].Irecv(0x11, p2p.MaskExact, fresh(2048))
	requireOffload(t, ws[1], 1, 0, 0, 1)
	cancelAll(t, r)
	requireOffload(t, ws[1], 1, 0, 0, 0)
	if ws[1].Metrics().Transport == "tmsrq" {
		require.EqualValues(t, 1, ws[1].Metrics().Offload.Dels)
	}
}

// statsBlock: a wildcard may go to the device, unlike UCX's; what the list has no room for is kept
// in software, and each message goes to its receive all the same.
func statsBlock(t *testing.T, ws []*p2p.World) {
	const receives, room = 12, 8
	wild := ws[1].Irecv(0, 1<<62, fresh(64))
	requireOffload(t, ws[1], 1, 0, 0, 1)
	cancelAll(t, wild)
	var reqs []p2p.Request
	var bufs [][]byte
	for tag := range p2p.Tag(receives) {
		bufs = append(bufs, fresh(64))
		reqs = append(reqs, ws[1].Irecv(tag, p2p.MaskExact, bufs[tag]))
	}
	requireOffload(t, ws[1], 1+room, 0, 0, room)
	if ws[1].Metrics().Transport == "tmsrq" {
		require.EqualValues(t, receives-room, ws[1].Metrics().Offload.KeptFull)
	}
	for tag := receives - 1; tag >= 0; tag-- {
		require.NoError(t, ws[0].Send(background, 1, p2p.Tag(tag), pattern(64, tag)))
	}
	for tag, r := range reqs {
		requireReceived(t, pattern(64, tag), bufs[tag], wait(t, r), 0, p2p.Tag(tag))
	}
}

// statsMatched: an unexpected message is matched by software, one whose receive is posted before by
// the device.
func statsMatched(size int) func(t *testing.T, ws []*p2p.World) {
	return func(t *testing.T, ws []*p2p.World) {
		before := ws[1].Metrics().Unexpected
		xfer{}.move(t, ws, pattern(size, 1))
		require.Greater(t, ws[1].Metrics().Unexpected, before)
		requireMatched(t, ws[1], 0)
		xfer{expected: true}.move(t, ws, pattern(size, 2))
		requireMatched(t, ws[1], 1)
	}
}
