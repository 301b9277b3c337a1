package progress

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// 33: a rendezvous that is longer than its buffer is cut off by software, and its sender ends.
func TestRace33RendezvousTooLong(t *testing.T) {
	for _, software := range []bool{false, true} {
		for _, room := range []int{0, 64, 1000} {
			r := newRace(t, Config{}, fakeOpts{tags: 4, software: software})
			req, buf := r.recv(5, exact, room)
			r.step()
			s := r.send(5, 1000, 1)
			r.step()
			st, err := ended(t, req)
			require.Equal(t, room < 1000, errors.Is(err, ErrTruncated), "%v", err)
			require.Equal(t, Status{0, 5, 1000}, st)
			require.Equal(t, fill(1000, 1)[:room], buf)
			succeeded(t, s)
			require.EqualValues(t, 1, r.m().Matched)
			r.quiet()
		}
	}
}

// 3: the device matches, reads, answers and delivers; the sender ends with the answer and not
// before.
func TestRace03SenderEndsWithFin(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, buf := r.recv(5, exact, 1000)
	r.step()
	r.dev.holdData = true
	s := r.send(5, 1000, 1)
	r.step()
	require.EqualValues(t, 1, r.m().Matched)
	open(t, req, s)
	fins := 0
	r.net.onDeliver = func(dst int, p *packet) {
		if p.kind == pkFin {
			fins++
			require.Equal(t, fill(1000, 1), buf, "FIN before the data")
			require.Equal(t, 1, r.cluster.e[0].sends.used)
		}
	}
	r.dev.holdData = false
	r.e.Poll()
	require.Zero(t, fins)
	require.Equal(t, 1, r.cluster.e[0].sends.used, "the receiver is done, its answer under way")
	r.got(req, buf, 1000, 1)
	_, err := ended(t, s) // polls: the FIN is there
	require.NoError(t, err)
	require.Equal(t, 1, fins)
	r.quiet()
}

// finOf makes a rendezvous to rank dst and returns what the peer calls it.
func finOf(c *cluster, dst int) (s Request, name uint32) {
	c.net.onDeliver = func(_ int, p *packet) {
		if p.kind == pkRndv {
			name = p.app
		}
	}
	s = c.e[0].Isend(dst, 5, fill(1000, 1))
	c.e[dst].Poll()
	require.NotZero(c.t, name)
	c.net.onDeliver = nil
	return s, name
}

// crowd has rank 0 send so many messages to rank dst that its slots are used again.
func crowd(c *cluster, dst int) (reqs []Request) {
	for range 2 * eagerSlots {
		reqs = append(reqs, c.e[0].Isend(dst, 6, fill(1000, 1)))
	}
	return reqs
}

func (c *cluster) takeCrowd(dst int, reqs []Request) {
	for range reqs {
		c.take(0, dst, 6)
	}
	waitAll(c.t, reqs)
}

// 44: the connection fails with the FIN on it: the send ends once, with the loss, and a FIN that
// comes all the same ends nobody else's.
func TestRace44FinLost(t *testing.T) {
	c := newCluster(t, 3, Config{Manual: true}, fakeOpts{tags: 4})
	r := c.e[1].Irecv(0, 5, exact, make([]byte, 1000))
	c.e[1].Poll()
	s, name := finOf(c, 1)
	succeeded(t, r)
	require.Equal(t, pkFin, c.net.nodes[0].in[1][0].kind)
	c.net.nodes[0].in[1] = nil
	open(t, s)
	c.net.kill(1)
	c.step()
	requireLost(t, 1, s)
	_, _, err := s.Test()
	require.ErrorIs(t, err, ErrInactive)
	require.Empty(t, c.net.nodes[0].regions)
	others := crowd(c, 2)
	for _, src := range []int{1, 2} {
		c.callback(0, func(sink transport.Sink) { sink.Fin(src, name) })
	}
	require.Len(t, c.net.nodes[0].regions, len(others))
	c.takeCrowd(2, others)
}

// 45: software has answered; the same answer comes again, at once and when the slot is another
// send's: it is ignored.
func TestRace45FinTwice(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	s, name := finOf(c, 1)
	r := c.e[1].Irecv(0, 5, exact, make([]byte, 1000))
	c.step()
	succeeded(t, r, s)
	again := func(sink transport.Sink) { sink.Fin(1, name) }
	c.callback(0, again)
	others := crowd(c, 1)
	require.NotNil(t, c.e[0].sends.entries[name&(1<<slotIndexBits-1)].op)
	c.callback(0, again)
	c.callback(0, again)
	require.EqualValues(t, 3, c.e[0].Metrics().Stale)
	require.Len(t, c.net.nodes[0].regions, len(others))
	c.takeCrowd(1, others)
	c.quiet()
}

// 46: the receiver dies when its device has matched and not read: no FIN comes, and the sender ends
// with the loss.
func TestRace46ReceiverDies(t *testing.T) {
	c := newCluster(t, 2, Config{Manual: true}, fakeOpts{tags: 4})
	c.e[1].Irecv(0, 5, exact, make([]byte, 1000))
	c.e[1].Poll()
	c.net.nodes[1].dev.holdData = true
	s := c.e[0].Isend(1, 5, fill(1000, 1))
	c.step()
	require.EqualValues(t, 1, c.e[1].Metrics().Offload.Matched)
	open(t, s)
	s.Cancel() // it is too late for that: the peer has it
	c.net.kill(1)
	c.step()
	requireLost(t, 1, s)
	require.Empty(t, c.net.nodes[0].regions)
	require.Zero(t, c.e[0].Metrics().RequestsNow)
}

// 47: the sender dies while the device reads from it, and while it has other receives for it: they
// end with the loss, those for others stay.
func TestRace47SenderDies(t *testing.T) {
	c := newCluster(t, 3, Config{Manual: true}, fakeOpts{tags: 8})
	e, dev := c.e[0], c.net.nodes[0].dev
	dev.holdData = true
	inFlight := e.Irecv(2, 1, exact, make([]byte, 1000))
	posted := e.Irecv(2, 2, exact, make([]byte, 8))
	anyone := e.Irecv(AnySource, 0x13, 0xff, make([]byte, 8))
	buf := make([]byte, 8)
	other := e.Irecv(1, 4, exact, buf)
	c.step()
	c.e[2].Isend(0, 1, fill(1000, 1))
	c.step()
	c.net.kill(2)
	dev.holdData = false
	c.step()
	requireLost(t, 2, inFlight, posted, anyone)
	open(t, other)
	require.NoError(t, c.e[1].Send(bg, 0, 4, fill(8, 1)))
	c.step()
	succeeded(t, other)
	require.Equal(t, fill(8, 1), buf)
	require.EqualValues(t, 2, e.Metrics().Offload.Dels)
	require.Empty(t, dev.byID)
}
