package progress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// 23: receives that find no room in the list stay in software, and so do those that overlap them.
func TestRace23ListFull(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 1})
	one, buf1 := r.recv(5, exact, 64)
	two, buf2 := r.recv(5, exact, 64)
	three, buf3 := r.recv(5, 4, 64)
	require.EqualValues(t, 1, r.m().KeptFull)
	require.EqualValues(t, 1, r.m().KeptOverlap)
	for i := range 3 {
		r.send(5, 8, byte(i))
	}
	r.step()
	r.got(one, buf1, 8, 0)
	r.got(two, buf2, 8, 1)
	r.got(three, buf3, 8, 2)
}

// 24: as entries leave, the oldest receive that may goes to the device.
func TestRace24Promotion(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 1})
	one, buf1 := r.recv(1, exact, 64)
	two, buf2 := r.recv(2, exact, 64)
	wild, bufW := r.recv(2, 2, 64)
	last, bufL := r.recv(4, exact, 64)
	r.step()
	for i, tag := range []uint64{1, 2, 2, 4} {
		r.send(9, 0, 0) // of which the next ADD tells
		r.send(tag, 8, byte(i))
		r.step()
		require.EqualValues(t, min(i+1, 3), r.m().Promoted, "message %d", i)
		require.Zero(t, r.m().Syncs)
	}
	r.got(one, buf1, 8, 0)
	r.got(two, buf2, 8, 1)
	r.got(wild, bufW, 8, 2)
	r.got(last, bufL, 8, 3)
	require.EqualValues(t, 4, r.m().Matched)
}

// 24: an entry leaves, and there is room: a receive that an older one in software overlaps does not
// go before that has ended, one behind both that nothing overlaps does.
func TestRace24PromotionInOrder(t *testing.T) {
	r := newRace(t, Config{OffloadMin: 32}, fakeOpts{tags: 1})
	one, buf1 := r.recv(1, exact, 64)
	small, bufS := r.recv(2, 2, 8)
	two, buf2 := r.recv(2, exact, 64)
	three, buf3 := r.recv(1, exact, 64)
	r.step()
	r.send(1, 8, 1)
	r.step()
	r.got(one, buf1, 8, 1)
	r.step()
	require.EqualValues(t, 1, r.m().Promoted)
	require.EqualValues(t, 1, r.dev.list[0].tag)
	r.send(1, 8, 2)
	r.step()
	r.got(three, buf3, 8, 2)
	r.step() // room again, for two
	require.EqualValues(t, 1, r.m().Promoted)
	r.send(2, 8, 3)
	r.step()
	r.got(small, bufS, 8, 3)
	require.EqualValues(t, 2, r.m().Promoted)
	r.send(2, 8, 4)
	r.step()
	r.got(two, buf2, 8, 4)
	require.EqualValues(t, 3, r.m().Matched)
}

// 25: without room for operations a receive stays in software until there is some, and one that
// overlaps it does not pass it when there is.
func TestRace25OpsExhausted(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4, maxOps: 1})
	r.dev.holdOps = true
	one, buf1 := r.recv(1, exact, 64)
	two, buf2 := r.recv(1, exact, 64)
	require.EqualValues(t, 1, r.m().KeptFull)
	r.dev.holdOps = false
	r.net.mu.Lock()
	r.dev.stepLocked(0) // there is room, unpolled
	r.net.mu.Unlock()
	three, buf3 := r.recv(1, 1, 64)
	require.EqualValues(t, 1, r.m().KeptOverlap)
	r.step()
	require.EqualValues(t, 2, r.m().Promoted)
	for i := range 3 {
		r.send(1, 8, byte(i))
	}
	r.step()
	r.got(one, buf1, 8, 0)
	r.got(two, buf2, 8, 1)
	r.got(three, buf3, 8, 2)
	require.EqualValues(t, 3, r.m().Matched)
}

// Operations in any number find room in a short command queue. What keeps it from being wedged
// (scenario 26) is the transport's: transport/tmsrq's TestRace26ManyOps.
func TestManyOpsOffloaded(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 2, maxOps: 2})
	for i := range 500 {
		var reqs [3]Request
		for k := range reqs {
			reqs[k], _ = r.recv(uint64(k), exact, 64)
		}
		reqs[i%3].Cancel()
		r.step()
		for k := range reqs {
			if k != i%3 {
				r.send(uint64(k), 8, 0)
			}
		}
		r.step()
		for k := range reqs {
			if _, err := ended(t, reqs[k]); k != i%3 {
				require.NoError(t, err)
			}
		}
	}
	r.quiet()
}

// 57: messages that always come before the device is ready: it is given up, order is kept, and it
// is taken up again.
func TestRace57SwitchUnderLoad(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 8})
	r.dev.noSync = true
	o := &r.e.off
	o.sample, o.rest, o.backoff = 8, 16, 16
	for round := range 12 {
		r.dev.holdCQ = true
		r.send(9, 0, 0)
		r.e.Poll()
		var reqs []Request
		var bufs [][]byte
		for range 6 {
			req, buf := r.recv(5, exact, 64)
			reqs, bufs = append(reqs, req), append(bufs, buf)
		}
		for i := range reqs {
			r.send(5, 8, byte(i))
		}
		r.release()
		for i := range reqs {
			r.got(reqs[i], bufs[i], 8, byte(i))
		}
		_, err := r.e.Recv(bg, AnySource, 9, exact, nil)
		require.NoError(t, err, "round %d", round)
	}
	require.Positive(t, r.m().Rests)
	require.Positive(t, r.m().KeptOff)
	require.Zero(t, r.m().Matched)
	r.dev.noSync = false
	for i := range 200 {
		req, buf := r.recv(5, exact, 64)
		r.step()
		r.send(5, 8, byte(i))
		r.step()
		r.got(req, buf, 8, byte(i))
	}
	require.Positive(t, r.m().Matched)
	require.Equal(t, o.rest, o.backoff)
}

// 57: a device that is given up gets no receive, whatever leaves software. It is taken up again
// while receives wait there: those that overlap them do not pass them.
func TestRace57BackInOrder(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 8})
	r.e.off.resting = 4
	one, buf1 := r.recv(1, exact, 64)
	two, buf2 := r.recv(2, exact, 64)
	for i, tag := range []uint64{1, 2} {
		r.send(tag, 8, byte(i))
		r.step()
		require.Zero(t, r.m().Offloaded)
	}
	r.got(one, buf1, 8, 0)
	r.got(two, buf2, 8, 1)

	var reqs [4]Request
	var bufs [4][]byte
	for i := range reqs {
		reqs[i], bufs[i] = r.recv(5, exact, 64)
	}
	m := r.m()
	require.Equal(t, [3]uint64{4, 2, 0}, [3]uint64{m.KeptOff, m.KeptOverlap, m.Offloaded})
	r.step()
	for i := range reqs {
		r.send(5, 8, byte(i))
	}
	r.step()
	for i := range reqs {
		r.got(reqs[i], bufs[i], 8, byte(i))
	}
	require.EqualValues(t, 4, r.m().Matched)
}

// closing tells when the engine lets go of its transport.
type closing struct {
	transport.Transport
	before func()
}

func (c closing) Close() error {
	c.before()
	return c.Transport.Close()
}

// 55: the engine ends while receives are in the device, one of them matched and one being taken
// out: their buffers are the device's until the transport is closed; each ends once.
func TestRace55Close(t *testing.T) {
	for _, abort := range []bool{false, true} {
		c := newCluster(t, 2, Config{Manual: true, OffloadMin: -1}, fakeOpts{tags: 2})
		e, dev := c.e[1], c.net.nodes[1].dev
		var reqs []Request
		for tag := range uint64(4) {
			reqs = append(reqs, e.Irecv(0, tag, exact, make([]byte, 8)))
		}
		c.step()
		reqs[1].Cancel()
		dev.holdData = true
		require.NoError(t, c.e[0].Send(bg, 1, 0, nil))
		e.Poll()
		dev.holdCQ = true
		if abort {
			e.Abort(nil)
			open(t, reqs[0])
		}
		e.tr = closing{e.tr, func() {
			require.True(t, reqs[0].op.Pending(reqs[0].gen), "its buffer is the device's still")
		}}
		require.NoError(t, e.Close(nil))
		for i, r := range reqs {
			if i == 1 && !abort {
				continue // was taken out before
			}
			_, err := ended(t, r)
			require.Error(t, err)
		}
		require.Zero(t, e.off.entries+e.off.slots.used+e.posted.Len())
	}
}
