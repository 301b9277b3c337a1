package progress

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// requireLost requires that requests have ended with the loss of a rank.
func requireLost(t *testing.T, rank int, reqs ...Request) {
	t.Helper()
	for i, r := range reqs {
		_, err := ended(t, r)
		require.ErrorIs(t, err, ErrPeerLost, "request %d", i)
		var pe *PeerError
		require.ErrorAs(t, err, &pe)
		require.Equal(t, []int{rank}, pe.Ranks)
		require.Error(t, pe.Cause)
	}
}

// Rank 2 dies while rank 0 has an operation with it in every state.
func TestPeerLost(t *testing.T) {
	c := manual(t, 3, fakeOpts{room: 2, maxRead: 100})
	e := c.e[0]
	c.net.nodes[0].holdRds = true

	reading := e.Irecv(2, 1, exact, make([]byte, 1000)) // ten reads, room for two
	big := c.e[2].Isend(0, 1, fill(1000, 0))
	e.Poll()
	require.NoError(t, c.e[2].Send(bg, 0, 2, fill(8, 7))) // arrives in time
	late := c.e[2].Isend(0, 3, fill(1000, 0))             // a request that nobody can read any more
	e.Poll()
	posted := e.Irecv(2, 4, exact, nil)
	anySource := e.Irecv(AnySource, 5, 0xFF, nil)
	other := e.Irecv(1, 6, exact, make([]byte, 8))
	requested := e.Isend(2, 7, fill(1000, 0))
	withdrawn := e.Isend(2, 8, fill(1000, 0))
	withdrawn.Cancel()
	queued := e.Isend(2, 9, fill(8, 0))
	open(t, reading, posted, anySource, other, requested, withdrawn, queued)
	c.net.kill(2)
	c.step()
	requireLost(t, 2, reading, posted, anySource, requested, withdrawn, queued)
	open(t, other)
	require.Equal(t, []int{2}, e.Failed())
	require.ErrorIs(t, e.Send(bg, 2, 1, nil), ErrPeerLost)
	_, err := e.Isend(2, 1, fill(1000, 0)).Wait(bg)
	require.ErrorIs(t, err, ErrPeerLost)

	// What arrived before stays, also for any source; after that receives from any source fail
	// until told otherwise.
	buf := make([]byte, 8)
	st, err := e.Recv(bg, AnySource, 2, exact, buf)
	require.NoError(t, err)
	require.Equal(t, Status{2, 2, 8}, st)
	require.Equal(t, fill(8, 7), buf)
	requireLost(t, 2, e.Irecv(AnySource, 3, exact, nil))
	requireLost(t, 2, e.Irecv(2, 3, exact, nil))
	e.AckFailures(AnySource, -1, 1, 2, 2, 99)
	again := e.Irecv(AnySource, 5, exact, buf)
	open(t, again)
	require.Equal(t, []int{2}, e.Failed())

	require.NoError(t, c.e[1].Send(bg, 0, 6, fill(8, 1)))
	require.NoError(t, c.e[1].Send(bg, 0, 5, fill(8, 1)))
	c.step()
	succeeded(t, other, again)
	require.Empty(t, c.net.nodes[0].regions)
	require.Zero(t, e.Metrics().ReadsNow+e.Metrics().RequestsNow+e.Metrics().UnexpectedNow)
	_, _ = big, late
}

// Of a lost rank's message that nobody can read any more a receive must not get the next one in its
// place, without a word. Those of another context are not behind it.
func TestNothingBehindALostMessage(t *testing.T) {
	const other = uint64(1)<<63 | 1<<40
	c := newCluster(t, 2, Config{Manual: true, ContextMask: testContexts}, fakeOpts{})
	e, sender := c.e[0], c.e[1]
	require.NoError(t, sender.Send(bg, 0, 3, fill(8, 1)))
	sender.Isend(0, 3, fill(1000, 0)) // a request that nobody can read any more
	require.NoError(t, sender.Send(bg, 0, 3, fill(8, 2)))
	require.NoError(t, sender.Send(bg, 0, 4, fill(8, 3))) // a receive with a mask could get it instead
	require.NoError(t, sender.Send(bg, 0, other, fill(8, 4)))
	c.step()
	require.Equal(t, 5, e.Metrics().UnexpectedNow)
	c.net.kill(1)
	c.step()

	buf := make([]byte, 8)
	_, err := e.Recv(bg, 1, 3, exact, buf)
	require.NoError(t, err)
	require.Equal(t, fill(8, 1), buf, "what was before it")
	requireLost(t, 1, e.Irecv(1, 3, exact, buf), e.Irecv(1, 4, exact, buf), e.Irecv(AnySource, 3, 1<<63, buf))
	_, err = e.Recv(bg, 1, other, exact, buf)
	require.NoError(t, err)
	require.Equal(t, fill(8, 4), buf)
	require.Zero(t, e.Metrics().UnexpectedNow)
	require.Zero(t, e.Metrics().UnexpectedBytes)
}

// A failed read means that the connection is gone, even before the transport says so.
func TestReadFails(t *testing.T) {
	c := manual(t, 2, fakeOpts{maxRead: 300})
	c.net.nodes[1].failRds = true
	s := c.e[0].Isend(1, 1, fill(1000, 0))
	r := c.e[1].Irecv(0, 1, exact, make([]byte, 1000))
	c.step()
	requireLost(t, 0, r)
	require.Equal(t, []int{0}, c.e[1].Failed())
	open(t, s)
}

// Wrong, late, repeated and forged answers change nothing; broken messages end the peer's
// connection, never the rank.
func TestForgedAnswers(t *testing.T) {
	c := manual(t, 3, fakeOpts{})
	s := c.e[0].Isend(1, 1, fill(1000, 0))
	var name uint32
	c.net.onDeliver = func(_ int, p *packet) {
		if p.kind == pkRndv {
			name = p.app
		}
	}
	c.step()
	c.callback(0, func(sink transport.Sink) {
		sink.Fin(2, name)                                     // of another rank
		sink.Fin(1, name+1<<slotIndexBits)                    // of another generation
		sink.Fin(1, name+1)                                   // of no slot
		sink.Fin(1, 1<<32-1)                                  //
		sink.Fin(99, name)                                    // of no rank
		sink.Ctrl(1, ctrl{ctrlWithdrawn, name, nil}.encode()) // without a WITHDRAW
		sink.Ctrl(1, ctrl{ctrlWithdraw, name, nil}.encode())  // of no request of theirs
	})
	open(t, s)
	c.callback(0, func(sink transport.Sink) {
		sink.Fin(1, name)
		sink.Fin(1, name)
	})
	succeeded(t, s)
	require.Empty(t, c.e[0].Failed()[:0])
	require.Equal(t, []int(nil), c.e[0].Failed())
}

func TestBrokenMessages(t *testing.T) {
	extra := func(src uint32) []byte {
		var b [rndvExtraLen]byte
		rndvExtra{src}.encode(&b)
		return b[:]
	}
	for name, do := range map[string]func(s transport.Sink){
		"source of eager":      func(s transport.Sink) { s.Eager(1, 0, 1, nil) },
		"source of rendezvous": func(s transport.Sink) { s.Rndv(1, &transport.RndvHdr{Extra: extra(0)}) },
		"no header":            func(s transport.Sink) { s.Rndv(1, &transport.RndvHdr{}) },
		"negative length":      func(s transport.Sink) { s.Rndv(1, &transport.RndvHdr{Len: 1 << 63, Extra: extra(1)}) },
		"address wraps":        func(s transport.Sink) { s.Rndv(1, &transport.RndvHdr{VA: 1<<64 - 1, Len: 2, Extra: extra(1)}) },
		"version": func(s transport.Sink) {
			s.Rndv(1, &transport.RndvHdr{Extra: append([]byte{9}, make([]byte, rndvExtraLen-1)...)})
		},
		"short control":   func(s transport.Sink) { s.Ctrl(1, []byte{1}) },
		"control version": func(s transport.Sink) { s.Ctrl(1, []byte{9, 1, 0, 0, 0, 0, 0, 0}) },
		"control kind":    func(s transport.Sink) { s.Ctrl(1, []byte{wireVersion, 200, 0, 0, 0, 0, 0, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			c := manual(t, 3, fakeOpts{})
			r := c.e[0].Irecv(1, 1, exact, nil)
			c.callback(0, do)
			_, err := ended(t, r)
			require.ErrorIs(t, err, ErrPeerLost)
			require.ErrorIs(t, err, ErrProtocol)
			require.Equal(t, []int{1}, c.e[0].Failed())
			// It is not heard any more.
			c.callback(0, func(s transport.Sink) {
				s.Eager(1, 1, 1, nil)
				s.Rndv(1, &transport.RndvHdr{Extra: extra(1)})
				s.PeerLost(1, errors.New("again"))
			})
			require.Zero(t, c.e[0].Metrics().UnexpectedNow)
			require.EqualValues(t, 1, c.e[0].Metrics().PeersLost)
			require.NoError(t, c.e[2].Send(bg, 0, 4, nil))
			_, err = c.e[0].Recv(bg, 2, 4, exact, nil)
			require.NoError(t, err)
		})
	}
}

func TestTagSinkWithoutTagList(t *testing.T) {
	for _, do := range []func(s transport.Sink){
		func(s transport.Sink) { s.Matched(1, 0, 0, 0) },
		func(s transport.Sink) { s.Delivered(1, 0, nil) },
		func(s transport.Sink) { s.Deleted(1, true) },
		func(s transport.Sink) { s.Incomplete(1, nil) },
	} {
		c := manual(t, 1, fakeOpts{})
		c.callback(0, do)
		require.ErrorIs(t, c.e[0].Send(bg, 0, 1, nil), ErrProtocol)
	}
}

// everybody is all ranks as Members.
type everybody struct{}

func (everybody) Contains(int) bool { return true }

// A loss that an error names is one that Failed lists and AckFailures acknowledges, from then on: a
// send fails when the transport has reported it, and not when it refuses the message.
func TestErrorNamesTheLost(t *testing.T) {
	for name, send := range map[string]func(e *Engine) error{
		"Send":       func(e *Engine) error { return e.Send(bg, 2, 1, nil) },
		"rendezvous": func(e *Engine) error { return e.Send(bg, 2, 1, fill(1000, 0)) },
		"Ssend":      func(e *Engine) error { return e.Ssend(bg, 2, 1, nil) },
		"Isend": func(e *Engine) error {
			_, err := e.Isend(2, 1, nil).Wait(bg)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := manual(t, 3, fakeOpts{})
			e := c.e[0]
			require.NoError(t, e.Loss(everybody{}))
			c.net.kill(2)
			err := send(e)
			var pe *PeerError
			require.ErrorAs(t, err, &pe)
			require.Equal(t, []int{2}, pe.Ranks)
			require.Equal(t, []int{2}, e.Failed())
			require.Equal(t, pe, e.Loss(everybody{}))
			require.NoError(t, e.Loss(ranksOf{0, 1}))
			e.AckFailures(AnySource, pe.Ranks...)
			any := e.Irecv(AnySource, 1, exact, nil)
			c.step()
			open(t, any)
			require.Equal(t, pe, e.Loss(everybody{}), "that AckFailures was told")
		})
	}
}
