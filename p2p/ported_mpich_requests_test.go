package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedMPICHRequests has what MPICH's test/mpi/pt2pt and errors/pt2pt check of requests.
func TestPortedMPICHRequests(t *testing.T) {
	portedRows(t, 2, p2p.Config{},
		portedRow{"rqstatus", ranks(rqstatus)},
		portedRow{"rqfree", rqfree},
		portedRow{"waittestnull", ranks(func(t *testing.T, _ *p2p.World) { completeNone(t, nil) })},
		portedRow{"waitany_null", ranks(func(t *testing.T, _ *p2p.World) { completeNone(t, make([]p2p.Request, 10)) })},
		portedRow{"errinstatts", ranks(errinstatts)},
		portedRow{"errinstatta", ranks(errinstatta)},
		portedRow{"errinstatws", ranks(errinstatws)},
	)
}

// TestPortedMPICHPersistent has what it checks of persistent requests.
func TestPortedMPICHPersistent(t *testing.T) {
	portedRows(t, 2, p2p.Config{},
		portedRow{"inactivereq", ranks(inactivereq)},
		portedRow{"bsend3", ranks(bsend3)},
		portedRow{"pssend", ranks(pssend)},
		portedRow{"precv_anysrc", ranks(precvAnysrc)},
	)
}

// rqstatus: the status of a request can be asked for before it is completed, and of none.
func rqstatus(t *testing.T, w *p2p.World) {
	st, done, err := p2p.Request{}.Peek()
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, nothing, st)
	c, message, buf := w.Comm(), pattern(8, 1), fresh(8)
	if w.Rank() == 0 {
		require.NoError(t, c.Send(background, 1, 10, message))
		meetAll(t, w) // comes behind the message
		return
	}
	r := c.Irecv(0, 10, buf)
	meetAll(t, w)
	for range 2 {
		st, done, err = r.Peek()
		require.NoError(t, err)
		require.True(t, done)
		require.Equal(t, p2p.Status{Source: 0, Tag: 10, Len: 8}, st)
	}
	requireReceived(t, message, buf, wait(t, r), 0, 10)
	_, _, err = r.Peek()
	require.ErrorIs(t, err, p2p.ErrInactive)
}

// rqfree: sends and receives that are freed finish by themselves, small ones and rendezvous; a
// handle is inactive then.
func rqfree(t *testing.T, ws []*p2p.World) {
	from, to := ws[0].Comm(), ws[1].Comm()
	var freed []p2p.Request
	for _, by := range senders() {
		if by.post == nil {
			continue
		}
		for i, size := range []int{4, 40_000} {
			tag, message, buf := p2p.Tag(i), pattern(size, i), fresh(size)
			r := to.Irecv(0, tag, buf)
			s := by.post(from, 1, tag, message)
			s.Free()
			requireReceived(t, message, buf, wait(t, r), 0, tag)

			r = to.Irecv(0, tag, fresh(size))
			r.Free()
			by.send(t, from, 1, tag, message)
			freed = append(freed, r, s)
		}
	}
	for _, r := range freed {
		_, err := r.Wait(background)
		require.ErrorIs(t, err, p2p.ErrInactive)
	}
	arrived(t, ws[1], ws[0])
}

// completeNone: all calls on lists of requests succeed where there are none that are active.
func completeNone(t *testing.T, reqs []p2p.Request) {
	done, err := p2p.TestAll(reqs, nil)
	require.NoError(t, err)
	require.True(t, done)
	require.NoError(t, p2p.WaitAll(background, reqs, nil))
	i, st, done, err := p2p.TestAny(reqs)
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, -1, i)
	require.Equal(t, nothing, st)
	i, st, err = p2p.WaitAny(background, reqs)
	require.NoError(t, err)
	require.Equal(t, -1, i)
	require.Equal(t, nothing, st)
	out := make([]p2p.Completion, 1)
	n, active := p2p.TestSome(reqs, out)
	require.Zero(t, n)
	require.False(t, active)
	n, err = p2p.WaitSome(background, reqs, out)
	require.NoError(t, err)
	require.Zero(t, n)
}

// errinstatts: as errinstatwa, by TestSome, which may complete both at once or one after the other.
func errinstatts(t *testing.T, w *p2p.World) {
	someTooLong(t, w, func(reqs []p2p.Request, out []p2p.Completion) int {
		n, _ := p2p.TestSome(reqs, out)
		return n
	})
}

// errinstatws: the same by WaitSome, whose own error is none.
func errinstatws(t *testing.T, w *p2p.World) {
	someTooLong(t, w, func(reqs []p2p.Request, out []p2p.Completion) int {
		n, err := p2p.WaitSome(background, reqs, out)
		require.NoError(t, err)
		require.Positive(t, n)
		return n
	})
}

func someTooLong(t *testing.T, w *p2p.World, some func(reqs []p2p.Request, out []p2p.Completion) int) {
	if w.Rank() == 1 {
		sendOneTooLong(t, w)
		return
	}
	reqs, bufs := receiveOneTooLong(t, w)
	out, part := make([]p2p.Completion, 2), make([]p2p.Completion, 2)
	for got := 0; got < 2; {
		n := some(reqs, part)
		for _, c := range part[:n] {
			out[c.Data] = c
			require.Equal(t, p2p.Request{}, reqs[c.Data])
		}
		got += n
	}
	requireOneTooLong(t, out, bufs)
}

// errinstatta: the same by TestAll, which changes nothing until both have ended.
func errinstatta(t *testing.T, w *p2p.World) {
	if w.Rank() == 1 {
		sendOneTooLong(t, w)
		return
	}
	reqs, bufs := receiveOneTooLong(t, w)
	out := make([]p2p.Completion, 2)
	for {
		done, err := p2p.TestAll(reqs, out)
		if done {
			require.ErrorIs(t, err, p2p.ErrTruncated)
			break
		}
		require.NoError(t, err)
		require.Equal(t, make([]p2p.Completion, 2), out)
		require.NotContains(t, reqs, p2p.Request{})
	}
	requireOneTooLong(t, out, bufs)
}

// inactivereq: what has not been started is nothing to wait for. MPI has the request of a
// persistent operation, which is inactive between starts; here each start gives a Request, there is
// none before, and one that was completed is ErrInactive.
func inactivereq(t *testing.T, w *p2p.World) {
	c, message := w.Comm(), pattern(40, w.Rank())
	var none p2p.Request
	st, done, err := none.Test()
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, nothing, st)
	require.Equal(t, nothing, wait(t, none))

	send := c.SendInit(0, 27, message)
	for range 2 {
		var reqs []p2p.Request
		var bufs [][]byte
		for peer := range w.Size() {
			if w.Rank() == 0 {
				bufs = append(bufs, fresh(40))
				reqs = append(reqs, c.Irecv(peer, 27, bufs[peer]))
			}
		}
		r := send.Start()
		wait(t, r)
		for peer, buf := range bufs {
			requireReceived(t, pattern(40, peer), buf, wait(t, reqs[peer]), peer, 27)
		}
		_, err = r.Wait(background)
		require.ErrorIs(t, err, p2p.ErrInactive)
	}
	for _, src := range []int{0, p2p.AnySource} {
		c.RecvInit(src, 27, fresh(40)) // never started: nothing is posted
	}
	require.Zero(t, w.Metrics().PostedNow)
	require.Equal(t, nothing, wait(t, c.RecvInit(p2p.ProcNull, 27, fresh(40)).Start()))
	require.Equal(t, nothing, wait(t, c.SendInit(p2p.ProcNull, 27, message).Start()))
}

// bsend3: bsend2 by persistent sends, whose buffer is filled before each start.
func bsend3(t *testing.T, w *p2p.World) {
	c, out := w.Comm(), make([]byte, 40)
	for j := range 10 {
		send := c.SendInit(0, p2p.Tag(27+j), out)
		copy(out, pattern(len(out), w.Rank()+10*j))
		wait(t, send.Start())
	}
	for peer := range w.Size() {
		for j := range 10 {
			if w.Rank() == 0 {
				buf := fresh(40)
				st, err := c.Recv(background, peer, p2p.Tag(27+j), buf)
				require.NoError(t, err)
				requireReceived(t, pattern(40, peer+10*j), buf, st, peer, p2p.Tag(27+j))
			}
		}
	}
}

// pssend: a persistent synchronous send has not completed before its receive is posted, and cannot
// be started again until then.
func pssend(t *testing.T, w *p2p.World) {
	c := w.Comm()
	if w.Rank() == 1 {
		meetAll(t, w)
		st, err := c.Recv(background, 0, 0, nil)
		require.NoError(t, err)
		require.Equal(t, p2p.Status{Source: 0, Tag: 0}, st)
		return
	}
	send := c.SsendInit(1, 0, nil)
	r := send.Start()
	_, done, err := r.Test()
	require.NoError(t, err)
	require.False(t, done)
	_, err = send.Start().Wait(background)
	require.ErrorIs(t, err, p2p.ErrInvalid)
	meetAll(t, w)
	wait(t, r)
}

// precvAnysrc (precv_anysrc): a persistent receive from any source with any tag, started when its
// message is there: eager, the largest eager one, and a rendezvous.
func precvAnysrc(t *testing.T, w *p2p.World) {
	c := w.Comm()
	for i, size := range []int{64, 32 << 10, 2_000_000} {
		message, buf := pattern(size, i), fresh(size)
		if w.Rank() == 1 {
			s := c.Isend(0, 1, message)
			meetAll(t, w)
			wait(t, s)
			continue
		}
		r := c.RecvInit(p2p.AnySource, p2p.AnyTag, buf)
		meetAll(t, w)
		requireReceived(t, message, buf, wait(t, r.Start()), 1, 1)
	}
}
