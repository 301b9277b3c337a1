package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// Most of UCX's tests send with ucxTag, and receive with ucxWant, which differs from it in bits
// that ucxMask leaves out.
const (
	ucxTag  p2p.Tag  = 0x111337
	ucxWant p2p.Tag  = 0x1337
	ucxMask p2p.Mask = 0xffff
)

// TestPortedUCXTagMatch has what UCX's test_ucp_tag_match and test_ucp_tag_cancel check. What they
// call medium is eager, in several packets.
func TestPortedUCXTagMatch(t *testing.T) {
	portedRows(t, 3, p2p.Config{EagerLimit: 64 << 10},
		portedRow{"tag_match.send_recv_unexp", sendRecvUnexp},
		portedRow{"tag_match.send_recv_unexp_immediate", sendRecvUnexpImmediate},
		portedRow{"tag_match.send_recv_nb_exp", expected(8)},
		portedRow{"tag_match.send_recv_exp_medium", expected(50_000)},
		portedRow{"tag_match.send_recv_nb_partial_exp_medium", sendRecvPartial},
		portedRow{"tag_match.send2_nb_recv_exp_medium", send2Expected},
		portedRow{"tag_match.send2_nb_recv_medium_wildcard", send2Wildcard},
		portedRow{"tag_match.send_nb_recv_unexp", sendPostedUnexp},
		portedRow{"tag_match.send_recv_truncated", truncatedToNothing(8)},
		portedRow{"tag_match.send_nb_multiple_recv_unexp", sendMultipleUnexp},
		portedRow{"tag_cancel.cancel_exp", cancelExp},
		portedRow{"tag_cancel.cancel_matched", cancelMatched},
	)
}

// TestPortedTagMT has what UCX's test_ucp_tag_mt checks.
func TestPortedTagMT(t *testing.T) {
	portedRows(t, 2, p2p.Config{}, portedRow{"tag_mt.send_recv", tagMT})
}

// TestPortedUCXTagMatchRndv has what UCX's test_ucp_tag_match_rndv checks, where every message that
// has bytes is a rendezvous.
func TestPortedUCXTagMatchRndv(t *testing.T) {
	portedRows(t, 2, p2p.Config{EagerLimit: -1},
		portedRow{"tag_match_rndv.length0", rndvLength0},
		portedRow{"tag_match_rndv.req_exp", expected(1_148_576)},
		portedRow{"tag_match_rndv.rts_unexp", rndvUnexp},
		portedRow{"tag_match_rndv.truncated", truncatedToNothing(1_148_576)},
		portedRow{"tag_match_rndv.post_larger_recv", postLarger},
		portedRow{"tag_match_rndv.exp_huge_mix", expected(1000, 2000, 8000, 2<<20, 6<<20+32)},
		portedRow{"tag_match_rndv.bidir_multi_exp_post", bidirMulti},
		portedRow{"tag_match_rndv_align.recv_align", recvAlign},
	)
}

// received checks a receive of message from ws[0] by ucxWant.
func received(t *testing.T, message, buf []byte, st p2p.Status) {
	t.Helper()
	requireReceived(t, message, buf, st, 0, ucxTag)
}

// unexpected sends message from ws[0], and returns when it is at ws[1], where nothing matches it.
func unexpected(t *testing.T, ws []*p2p.World, message []byte) p2p.Request {
	t.Helper()
	return unexpectedBy(t, ws, ws[0].Isend, message)
}

func unexpectedBy(t *testing.T, ws []*p2p.World, send func(dst int, tag p2p.Tag, buf []byte) p2p.Request, message []byte) p2p.Request {
	t.Helper()
	before := ws[1].Metrics().UnexpectedNow
	s := send(1, ucxTag, message)
	arrived(t, ws[1], ws[0])
	require.Equal(t, before+1, ws[1].Metrics().UnexpectedNow)
	return s
}

// sendRecvUnexp: an unexpected message is received by a mask.
func sendRecvUnexp(t *testing.T, ws []*p2p.World) {
	message, buf := pattern(8, 1), fresh(8)
	require.NoError(t, ws[0].Send(background, 1, ucxTag, message))
	arrived(t, ws[1], ws[0])
	require.Equal(t, 1, ws[1].Metrics().UnexpectedNow)
	st, err := ws[1].Recv(background, ucxWant, ucxMask, buf)
	require.NoError(t, err)
	received(t, message, buf, st)
}

// sendRecvUnexpImmediate: a receive of an unexpected eager message has ended when it is posted.
func sendRecvUnexpImmediate(t *testing.T, ws []*p2p.World) {
	message, buf := pattern(8, 1), fresh(8)
	wait(t, unexpected(t, ws, message))
	r := ws[1].Irecv(ucxWant, ucxMask, buf)
	select {
	case <-r.Done():
	default:
		t.Error("the receive has not ended")
	}
	st, done, err := r.Test()
	require.NoError(t, err)
	require.True(t, done)
	received(t, message, buf, st)
}

// expected is a row in which receives are posted before their messages, of these sizes, are sent.
func expected(sizes ...int) func(t *testing.T, ws []*p2p.World) {
	return func(t *testing.T, ws []*p2p.World) {
		for i, size := range sizes {
			message, buf := pattern(size, i), fresh(size)
			r := ws[1].Irecv(ucxWant, ucxMask, buf)
			_, done, err := r.Test()
			require.NoError(t, err)
			require.False(t, done)
			s := ws[0].Isend(1, ucxTag, message)
			received(t, message, buf, wait(t, r))
			wait(t, s)
		}
	}
}

// sendRecvPartial: a message that is under way arrives while its receiver calls Test.
func sendRecvPartial(t *testing.T, ws []*p2p.World) {
	for _, size := range []int{50_000, 5_000_000} {
		message, buf := pattern(size, 1), fresh(size)
		r := ws[1].Irecv(ucxWant, ucxMask, buf)
		s := ws[0].Isend(1, ucxTag, message)
		_, st := testAny(t, []p2p.Request{r})
		received(t, message, buf, st)
		wait(t, s)
	}
}

// send2Expected: two messages one after the other into the same buffer, by Send and by Isend.
func send2Expected(t *testing.T, ws []*p2p.World) {
	first, second, buf := pattern(50_000, 1), pattern(50_000, 2), fresh(50_000)
	r := ws[1].Irecv(ucxWant, ucxMask, buf)
	require.NoError(t, ws[0].Send(background, 1, ucxTag, first))
	received(t, first, buf, wait(t, r))
	r = ws[1].Irecv(ucxWant, ucxMask, buf)
	s := ws[0].Isend(1, ucxTag, second)
	received(t, second, buf, wait(t, r))
	wait(t, s)
}

// send2Wildcard: messages of two senders and two receives that match both, posted before the
// messages come or after. Each is received whole, in any order.
func send2Wildcard(t *testing.T, ws []*p2p.World) {
	for i, size := range []int{50_000, 50_000, 1_000_000, 1_000_000} {
		posted := i%2 != 0
		bufs := [][]byte{fresh(size), fresh(size)}
		var recvs, sends []p2p.Request
		post := func() {
			for _, buf := range bufs {
				recvs = append(recvs, ws[2].Irecv(0, p2p.MaskAny, buf))
			}
		}
		if posted {
			post()
		}
		for i := range 2 {
			sends = append(sends, ws[i].Isend(2, p2p.Tag(i+1), pattern(size, i)))
			arrived(t, ws[2], ws[i])
		}
		if !posted {
			require.Equal(t, 2, ws[2].Metrics().UnexpectedNow)
			post()
		}
		sources := 0
		for i, r := range recvs {
			st := wait(t, r)
			requireReceived(t, pattern(size, st.Source), bufs[i], st, st.Source, p2p.Tag(st.Source+1))
			sources += st.Source
		}
		require.Equal(t, 1, sources)
		require.NoError(t, p2p.WaitAll(background, sends, nil))
	}
}

// sendPostedUnexp: Isend of an unexpected message, which has completed when it was received.
func sendPostedUnexp(t *testing.T, ws []*p2p.World) {
	message, buf := pattern(8, 1), fresh(8)
	s := unexpected(t, ws, message)
	st, err := ws[1].Recv(background, ucxWant, ucxMask, buf)
	require.NoError(t, err)
	received(t, message, buf, st)
	_, done, err := s.Test()
	require.NoError(t, err)
	require.True(t, done)
}

// truncatedToNothing: an unexpected message into a buffer of no bytes is truncated, and its send
// completes.
func truncatedToNothing(size int) func(t *testing.T, ws []*p2p.World) {
	return func(t *testing.T, ws []*p2p.World) {
		s := unexpected(t, ws, pattern(size, 1))
		st, err := ws[1].Recv(background, ucxWant, ucxMask, nil)
		require.ErrorIs(t, err, p2p.ErrTruncated)
		require.Equal(t, p2p.Status{Source: 0, Tag: ucxTag, Len: int64(size)}, st)
		wait(t, s)
	}
}

// sendMultipleUnexp: a thousand unexpected messages are received in order, and all sends have
// completed then.
func sendMultipleUnexp(t *testing.T, ws []*p2p.World) {
	const messages = 1000
	var sends []p2p.Request
	for i := range messages {
		sends = append(sends, ws[0].Isend(1, ucxTag, numbered(8, i)))
	}
	arrived(t, ws[1], ws[0])
	require.Equal(t, messages, ws[1].Metrics().UnexpectedNow)
	for i := range messages {
		buf := fresh(8)
		st, err := ws[1].Recv(background, ucxWant, ucxMask, buf)
		require.NoError(t, err)
		received(t, numbered(8, i), buf, st)
	}
	for _, s := range sends {
		_, done, err := s.Test()
		require.NoError(t, err)
		require.True(t, done)
	}
}

// cancelExp: a posted receive is cancelled, and its buffer was not touched.
func cancelExp(t *testing.T, ws []*p2p.World) {
	buf := fresh(8)
	r := ws[1].Irecv(1, 1, buf)
	r.Cancel()
	requireCanceled(t, r)
	require.Equal(t, fresh(8), buf)
}

// cancelMatched: a receive is cancelled that its message may have matched, but maybe not completed;
// a later receive with the same tag has its message already.
func cancelMatched(t *testing.T, ws []*p2p.World) {
	const size, tag = 50_000, 0xfafa
	message, small := pattern(size, 1), pattern(8, 2)
	large, buf := fresh(size), fresh(8)
	first, second := ws[1].Irecv(tag, p2p.MaskExact, large), ws[1].Irecv(tag, p2p.MaskExact, buf)
	sends := []p2p.Request{ws[0].Isend(1, tag, message), ws[0].Isend(1, tag, small)}
	requireReceived(t, small, buf, wait(t, second), 0, tag)
	first.Cancel()
	requireReceived(t, message, large, wait(t, first), 0, tag)
	require.NoError(t, p2p.WaitAll(background, sends, nil))
}

// tagMT: goroutines send and receive at once in one World, each with a tag of its own.
func tagMT(t *testing.T, ws []*p2p.World) {
	inThreads(t, ws[0], 8, func(i int) {
		message, buf := pattern(8, i), fresh(8)
		require.NoError(t, ws[0].Send(background, 1, ucxTag+p2p.Tag(i), message))
		arrivedBy(t, ws[1], ws[0], p2p.Tag(i))
		st, err := ws[1].Recv(background, ucxWant+p2p.Tag(i), ucxMask, buf)
		require.NoError(t, err)
		requireReceived(t, message, buf, st, 0, ucxTag+p2p.Tag(i))
	})
}

// rndvLength0: a message of no bytes where there are no eager ones.
func rndvLength0(t *testing.T, ws []*p2p.World) {
	s := ws[0].Isend(1, 1, nil)
	st, err := ws[1].Recv(background, 1, p2p.MaskAny, nil)
	require.NoError(t, err)
	require.Equal(t, p2p.Status{Source: 0, Tag: 1}, st)
	wait(t, s)
}

// rndvUnexp: a rendezvous request is there before its receive; the send completes after that only.
func rndvUnexp(t *testing.T, ws []*p2p.World) {
	message, buf := pattern(1_148_576, 1), fresh(1_148_576)
	s := unexpected(t, ws, message)
	_, done, err := s.Test()
	require.NoError(t, err)
	require.False(t, done)
	st, err := ws[1].Recv(background, ucxWant, ucxMask, buf)
	require.NoError(t, err)
	received(t, message, buf, st)
	wait(t, s)
}

// postLarger: the posted buffer is longer than the message.
func postLarger(t *testing.T, ws []*p2p.World) {
	for _, test := range []struct{ size, room int }{{16, 32}, {1_148_576, 1_148_576 + 1024}} {
		message, buf := pattern(test.size, 1), fresh(test.room)
		r := ws[1].Irecv(ucxWant, ucxMask, buf)
		s := ws[0].Isend(1, ucxTag, message)
		received(t, message, buf, wait(t, r))
		wait(t, s)
	}
}

// bidirMulti: many rendezvous in both directions at once.
func bidirMulti(t *testing.T, ws []*p2p.World) {
	for _, test := range []struct{ size, messages int }{{8 << 10, rounds(50)}, {128 << 10, rounds(13)}, {512 << 10, 3}, {1 << 20, 1}} {
		var recvs, sends []p2p.Request
		var bufs [][]byte
		for i := range 2 * test.messages {
			from, to := ws[i%2], ws[1-i%2]
			bufs = append(bufs, fresh(test.size))
			recvs = append(recvs, to.Irecv(ucxWant, ucxMask, bufs[i]))
			sends = append(sends, from.Isend(to.Rank(), ucxTag, pattern(test.size, i)))
		}
		for i, r := range recvs {
			requireReceived(t, pattern(test.size, i), bufs[i], wait(t, r), i%2, ucxTag)
			wait(t, sends[i])
		}
	}
}

// recvAlign: rendezvous into buffers at odd offsets.
func recvAlign(t *testing.T, ws []*p2p.World) {
	for _, offset := range []int{0, 1, 511, 100} {
		for i, size := range []int{512, 139 << 10, 2000, 8000, 600_000} {
			whole := fresh(size + offset)
			r := ws[1].Irecv(ucxWant, ucxMask, whole[offset:])
			message := pattern(size, i)
			require.NoError(t, ws[0].Send(background, 1, ucxTag, message))
			received(t, message, whole[offset:], wait(t, r))
			requireBytes(t, fresh(offset), whole[:offset])
		}
	}
}
