package progress

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// 23: receives that find no room in the list stay in software, and so do those that overlap them.
func TestRace23ListFull(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 1})
	p := r.post(spec{5, exact, 64}, spec{5, exact, 64}, spec{5, 4, 64})
	require.EqualValues(t, 1, r.m().KeptFull)
	require.EqualValues(t, 1, r.m().KeptOverlap)
	p.getAll(5, 5, 5)
}

// 24: as entries leave, the oldest receive that may goes to the device.
func TestRace24Promotion(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 1})
	p := r.post(spec{1, exact, 64}, spec{2, exact, 64}, spec{2, 2, 64}, spec{4, exact, 64})
	r.step()
	for i, tag := range []uint64{1, 2, 2, 4} {
		r.send(9, 0, 0) // of which the next ADD tells
		p.gets(i, tag)
		require.EqualValues(t, min(i+1, 3), r.m().Promoted, "message %d", i)
		require.Zero(t, r.m().Syncs)
	}
	require.EqualValues(t, 4, r.m().Matched)
}

// 24: an entry leaves, and there is room: a receive that an older one in software overlaps does not
// go before that has ended, one behind both that nothing overlaps does.
func TestRace24PromotionInOrder(t *testing.T) {
	r := newRace(t, Config{OffloadMin: 32}, fakeOpts{tags: 1})
	p := r.post(spec{1, exact, 64}, spec{2, 2, 8}, spec{2, exact, 64}, spec{1, exact, 64})
	r.step()
	for _, c := range []struct {
		gets     int
		tag      uint64
		promoted int
		next     []uint64 // in the device
	}{{0, 1, 1, []uint64{1}}, {3, 1, 1, nil}, {1, 2, 2, []uint64{2}}, {2, 2, 2, nil}} {
		p.gets(c.gets, c.tag)
		r.step()
		require.EqualValues(t, c.promoted, r.m().Promoted)
		var next []uint64
		for _, en := range r.dev.list {
			next = append(next, en.tag)
		}
		require.Equal(t, c.next, next)
	}
	require.EqualValues(t, 3, r.m().Matched)
}

// 25: without room for operations a receive stays in software until there is some, and one that
// overlaps it does not pass it when there is.
func TestRace25OpsExhausted(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4, maxOps: 1})
	r.dev.holdOps = true
	p := r.post(spec{1, exact, 64}, spec{1, exact, 64})
	require.EqualValues(t, 1, r.m().KeptFull)
	r.dev.holdOps = false
	r.net.mu.Lock()
	r.dev.stepLocked() // there is room, unpolled
	r.net.mu.Unlock()
	last, buf := r.recv(1, 1, 64)
	require.EqualValues(t, 1, r.m().KeptOverlap)
	r.step()
	require.EqualValues(t, 2, r.m().Promoted)
	p.getAll(1, 1)
	r.send(1, 8, 3)
	r.step()
	r.got(last, buf, 8, 3)
	require.EqualValues(t, 3, r.m().Matched)
}

// A receive that the list refuses, though it has told of room, is added later.
func TestAddRefused(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	r.dev.noAdd = true
	p := r.post(spec{1, exact, 64}, spec{2, exact, 64})
	r.step()
	require.Zero(t, r.m().Offloaded)
	r.dev.noAdd = false
	r.step()
	require.EqualValues(t, 2, r.m().Promoted)
	p.getAll(1, 2)
	require.EqualValues(t, 2, r.m().Matched)
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
		r.post(slices.Repeat([]spec{{5, exact, 64}}, 6)...).getAll(5, 5, 5, 5, 5, 5)
		_, err := r.e.Recv(bg, AnySource, 9, exact, nil)
		require.NoError(t, err, "round %d", round)
	}
	require.Positive(t, r.m().Rests)
	require.Positive(t, r.m().KeptOff)
	require.Zero(t, r.m().Matched)
	r.dev.noSync = false
	for range 200 {
		p := r.post(spec{5, exact, 64})
		r.step()
		p.gets(0, 5)
	}
	require.Positive(t, r.m().Matched)
	require.Equal(t, o.rest, o.backoff)
}

// 57: a device that is given up gets no receive, whatever leaves software. It is taken up again
// while receives wait there: those that overlap them do not pass them.
func TestRace57BackInOrder(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 8})
	r.e.off.resting = 4
	p := r.post(spec{1, exact, 64}, spec{2, exact, 64})
	for i, tag := range []uint64{1, 2} {
		p.gets(i, tag)
		require.Zero(t, r.m().Offloaded)
	}

	p = r.post(slices.Repeat([]spec{{5, exact, 64}}, 4)...)
	m := r.m()
	require.Equal(t, [3]uint64{4, 2, 0}, [3]uint64{m.KeptOff, m.KeptOverlap, m.Offloaded})
	r.step()
	p.getAll(5, 5, 5, 5)
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
		c := newCluster(t, 2, Config{Manual: true}, fakeOpts{tags: 2})
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
			require.True(t, reqs[0].op.Pending(reqs[0].gen()), "its buffer is the device's still")
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
