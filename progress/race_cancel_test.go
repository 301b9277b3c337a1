package progress

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// 15: a DEL before any message succeeds; the message is unexpected then.
func TestRace15DelFirst(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, _ := r.recv(5, exact, 64)
	r.step()
	r.dev.holdOps = true
	req.Cancel()
	r.e.Poll()
	open(t, req) // the buffer is the device's
	r.release()
	canceled(t, req)
	r.send(5, 8, 1)
	r.step()
	require.Equal(t, 1, r.e.Metrics().UnexpectedNow)
	require.EqualValues(t, 1, r.m().Dels)
}

// 16: a DEL after the device has matched fails; the receive ends once, with its message.
func TestRace16DelAfterMatch(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, buf := r.recv(5, exact, 64)
	r.step()
	r.dev.holdCQ = true
	r.send(5, 8, 1)
	r.e.Poll()
	req.Cancel()
	req.Cancel()
	r.release()
	r.got(req, buf, 8, 1)
	require.EqualValues(t, 1, r.m().DelsLost)
	r.quiet()
}

// 17: a DEL while the data of a rendezvous is under way fails, before or after the data is there.
func TestRace17DelDuringRendezvous(t *testing.T) {
	for _, dataFirst := range []bool{false, true} {
		r := newRace(t, Config{}, fakeOpts{tags: 4})
		req, buf := r.recv(5, exact, 1000)
		r.step()
		r.dev.holdCQ, r.dev.holdData = true, !dataFirst
		s := r.send(5, 1000, 1)
		r.e.Poll()
		req.Cancel()
		r.e.Poll() // the DEL fails
		r.dev.holdCQ = false
		r.step()
		if !dataFirst {
			open(t, req)
			req.Cancel() // matched: too late at once
			open(t, s)
		}
		r.release()
		r.got(req, buf, 1000, 1)
		succeeded(t, s)
		require.EqualValues(t, 1, r.m().DelsLost)
		require.EqualValues(t, 1, r.m().Dels)
		r.quiet()
	}
}

// 18: a DEL of a dormant receive succeeds.
func TestRace18DelDormant(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, _ := r.dormant(5, 9)
	req.Cancel()
	r.release()
	canceled(t, req)
}

// 19: a receive that is to leave the device for two reasons, and is cancelled more than once, is
// deleted once.
func TestRace19CancelTwice(t *testing.T) {
	for _, full := range []bool{false, true} { // is the command queue: the transport keeps the DEL
		c := newCluster(t, 2, Config{Manual: true}, fakeOpts{tags: 4, maxOps: 1})
		e, dev := c.e[1], c.net.nodes[1].dev
		req := e.Irecv(0, 5, exact, make([]byte, 8))
		if !full {
			e.Poll() // the ADD is done
		}
		dev.holdOps = true
		for range 3 {
			req.Cancel()
		}
		c.net.kill(0)
		e.Poll()
		open(t, req)
		dev.holdOps = false
		c.step()
		canceled(t, req)
		require.EqualValues(t, 1, e.Metrics().Offload.Dels)
		require.Empty(t, dev.byID)
	}
}

// 21: a cancel meets an unexpected message for the receive: it is cancelled, and the message is the
// next one's.
func TestRace21CancelAgainstUnexpected(t *testing.T) {
	for _, second := range []bool{false, true} {
		r := newRace(t, Config{}, fakeOpts{tags: 4})
		req, _ := r.dormant(5, 5)
		r.dev.holdOps = true
		req.Cancel()
		var other Request
		buf := make([]byte, 64)
		if second {
			other = r.e.Irecv(0, 5, exact, buf)
		}
		r.dev.holdCQ = false
		r.step() // the message skips the first
		open(t, req)
		r.release()
		canceled(t, req)
		if !second {
			other = r.e.Irecv(0, 5, exact, buf)
		}
		r.got(other, buf, 8, 99)
		r.quiet()
	}
}

// 48: receiver and sender cancel while the data is under way, be it read by the device or by
// software: it is too late, and both end with the message.
func TestRace48CancelDuringRendezvous(t *testing.T) {
	for _, tags := range []int{0, 4} {
		c := newCluster(t, 2, Config{Manual: true}, fakeOpts{tags: tags})
		c.net.nodes[1].hold(true)
		buf := make([]byte, 1000)
		r := c.e[1].Irecv(0, 5, exact, buf)
		c.e[1].Poll()
		s := c.e[0].Isend(1, 5, fill(1000, 1))
		c.step()
		r.Cancel()
		c.step()
		open(t, r)
		s.Cancel() // too late as well
		c.step()
		open(t, s)
		m := c.e[1].Metrics().Offload
		require.Equal(t, [2]uint64{uint64(tags) / 4, 0}, [2]uint64{m.Matched, m.Dels})
		c.net.nodes[1].hold(false)
		c.step()
		succeeded(t, r, s)
		require.Equal(t, fill(1000, 1), buf)
		c.quiet()
	}
}
