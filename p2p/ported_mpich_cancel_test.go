package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedMPICHCancel has what MPICH's test/mpi/pt2pt checks of cancelling and of requests.
func TestPortedMPICHCancel(t *testing.T) {
	portedRows(t, 2, p2p.Config{},
		portedRow{"rcancel", ranks(rcancel)},
		portedRow{"cancelrecv", ranks(cancelrecv)},
		portedRow{"cancelanysrc", ranks(cancelanysrc)},
	)
}

// TestPortedMPICHErrors has what MPICH's test/mpi/errors/pt2pt checks.
func TestPortedMPICHErrors(t *testing.T) {
	portedRows(t, 2, p2p.Config{},
		portedRow{"truncmsg1", ranks(truncmsg1)},
		portedRow{"truncmsg2", ranks(truncmsg2)},
		portedRow{"errinstatwa", ranks(errinstatwa)},
	)
}

// rcancel: of four posted receives three are cancelled, in another order than they were posted in,
// and the fourth gets its message.
func rcancel(t *testing.T, w *p2p.World) {
	c := w.Comm()
	if w.Rank() == 0 {
		require.NoError(t, c.Send(background, 1, 1, nil))
		return
	}
	var reqs []p2p.Request
	for tag, size := range []int{1, 100, 10_000, 1_000_000} {
		reqs = append(reqs, c.Irecv(0, p2p.Tag(tag), fresh(size)))
	}
	for _, i := range []int{2, 3, 0} {
		reqs[i].Cancel()
		requireCanceled(t, reqs[i])
	}
	require.Equal(t, p2p.Status{Source: 0, Tag: 1, Len: 0}, wait(t, reqs[1]))
}

// cancelrecv: of three receives of large messages the second is cancelled before anything is sent;
// the others get theirs. Of two sends the one that nobody receives is cancelled, the other is
// received.
func cancelrecv(t *testing.T, w *p2p.World) {
	const size = 256 << 10
	c := w.Comm()
	if w.Rank() == 1 {
		meetAll(t, w)
		meetAll(t, w)
		require.NoError(t, c.Send(background, 0, 0, pattern(size, 0)))
		received, alone := c.Isend(0, 2, pattern(size, 2)), c.Isend(0, 4, pattern(size, 4))
		alone.Cancel()
		requireCanceled(t, alone)
		wait(t, received)
		return
	}
	var reqs []p2p.Request
	var bufs [][]byte
	for tag := range 3 {
		bufs = append(bufs, fresh(size))
		reqs = append(reqs, c.Irecv(1, p2p.Tag(tag), bufs[tag]))
	}
	meetAll(t, w)
	reqs[1].Cancel()
	meetAll(t, w)
	out := make([]p2p.Completion, 3)
	require.ErrorIs(t, p2p.WaitAll(background, reqs, out), p2p.ErrCanceled)
	for i, o := range out {
		if i == 1 {
			require.ErrorIs(t, o.Err, p2p.ErrCanceled)
			require.Equal(t, fresh(size), bufs[i], "buffer of a receive that got nothing")
			continue
		}
		require.NoError(t, o.Err)
		requireReceived(t, pattern(size, i), bufs[i], o.Status, 1, p2p.Tag(i))
	}
}

// cancelanysrc: a cancelled receive from any source takes no message from the next one.
func cancelanysrc(t *testing.T, w *p2p.World) {
	c := w.Comm()
	if w.Rank() == 1 {
		meetAll(t, w)
		require.NoError(t, c.Send(background, 0, 0, []byte{42}))
		return
	}
	r := c.Irecv(p2p.AnySource, 0, fresh(4))
	r.Cancel()
	requireCanceled(t, r)
	meetAll(t, w)
	buf := fresh(4)
	requireReceived(t, []byte{42}, buf, wait(t, c.Irecv(p2p.AnySource, 0, buf)), 1, 0)
}

// truncmsg1: a message that is longer than the buffer is an error of the receiver's, for eager
// messages and rendezvous, posted before or not. The buffer has the first bytes.
func truncmsg1(t *testing.T, w *p2p.World) {
	c := w.Comm()
	for _, test := range []struct{ length, room int }{{8, 4}, {256, 252}, {400_000, 399_996}, {400_000, 8}, {8, 0}} {
		message := pattern(test.length, test.room)
		if w.Rank() == 0 {
			require.NoError(t, c.Send(background, 1, 0, message))
			meetAll(t, w)
			require.NoError(t, c.Send(background, 1, 2, message))
			continue
		}
		buf := fresh(test.room)
		st, err := c.Recv(background, 0, 0, buf)
		requireTruncated(t, message, buf, st, err, 0)
		clear(buf)
		r := c.Irecv(0, 2, buf)
		meetAll(t, w)
		st, err = r.Wait(background)
		requireTruncated(t, message, buf, st, err, 2)
	}
}

func requireTruncated(t *testing.T, message, buf []byte, st p2p.Status, err error, tag p2p.Tag) {
	t.Helper()
	require.ErrorIs(t, err, p2p.ErrTruncated)
	require.Equal(t, p2p.Status{Source: 0, Tag: tag, Len: int64(len(message))}, st)
	requireBytes(t, message[:len(buf)], buf)
}

// truncmsg2: 3 bytes where 16 are expected. MPICH wants an error, as an element is not complete;
// here it is the length, of which the status tells the truth.
func truncmsg2(t *testing.T, w *p2p.World) {
	c := w.Comm()
	if w.Rank() == 1 {
		require.NoError(t, c.Send(background, 0, 0xabc, []byte{1, 3, 5}))
		return
	}
	buf := fresh(16)
	st, err := c.Recv(background, 1, 0xabc, buf)
	require.NoError(t, err)
	requireReceived(t, []byte{1, 3, 5}, buf, st, 1, 0xabc)
}

// errinstatwa: of two receives that are waited for together one is truncated: the call says so, and
// each has its own outcome.
func errinstatwa(t *testing.T, w *p2p.World) {
	if w.Rank() == 1 {
		sendOneTooLong(t, w)
		return
	}
	reqs, bufs := receiveOneTooLong(t, w)
	out := make([]p2p.Completion, 2)
	err := p2p.WaitAll(background, reqs, out)
	require.ErrorIs(t, err, p2p.ErrTruncated)
	require.Equal(t, out[1].Err, err)
	requireOneTooLong(t, out, bufs)
}

// receiveOneTooLong posts two receives with room for 40 bytes before sendOneTooLong sends to them.
func receiveOneTooLong(t *testing.T, w *p2p.World) (reqs []p2p.Request, bufs [][]byte) {
	bufs = [][]byte{fresh(40), fresh(40)}
	for i, buf := range bufs {
		reqs = append(reqs, w.Comm().Irecv(1, p2p.Tag(10*i), buf))
	}
	meetAll(t, w)
	return reqs, bufs
}

func sendOneTooLong(t *testing.T, w *p2p.World) {
	meetAll(t, w)
	require.NoError(t, w.Comm().Send(background, 0, 0, pattern(40, 1)))
	require.NoError(t, w.Comm().Send(background, 0, 10, pattern(44, 2)))
}

func requireOneTooLong(t *testing.T, out []p2p.Completion, bufs [][]byte) {
	require.NoError(t, out[0].Err)
	requireReceived(t, pattern(40, 1), bufs[0], out[0].Status, 1, 0)
	require.ErrorIs(t, out[1].Err, p2p.ErrTruncated)
	require.Equal(t, p2p.Status{Source: 1, Tag: 10, Len: 44}, out[1].Status)
	requireBytes(t, pattern(44, 2)[:40], bufs[1])
}
