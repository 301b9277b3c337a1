package tmsrq_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// 19: Del or ForceDel for a receive a second time, before and after the outcome of the first is
// known and when another receive has its slot, or for a matched receive: the transport refuses it,
// and posts nothing.
func TestRace19DelTwice(t *testing.T) {
	for _, delay := range []int{0, 30} {
		r := newRaceRig(t, softtest.TM{DelayOps: delay, MaxNumTags: 2}, 2)
		refused := func(err error) {
			t.Helper()
			require.Error(t, err)
			require.NotErrorIs(t, err, transport.ErrAgain)
		}
		for i := range uint64(20) {
			buf := make([]byte, 20_000)
			r.add(2*i, 5, nil)
			require.NoError(t, r.l.Del(2*i, 0))
			refused(r.l.Del(2*i, 0))
			refused(r.l.ForceDel(2*i, 0))
			require.Equal(t, transporttest.Event{Kind: "deleted", ID: 2 * i, OK: true}, r.event("deleted", int(i)))
			refused(r.l.Del(2*i, 0))
			refused(r.l.ForceDel(2*i, 0))
			r.add(2*i+1, 5, buf)
			refused(r.l.Del(2*i, 0))
			r.settle()
			r.send(0, 5, fill(len(buf), byte(i)))
			require.Equal(t, 2*i+1, r.event("matched", int(i)).ID)
			require.Len(t, r.of(1, "delivered"), int(i), "the data is under way")
			refused(r.l.Del(2*i+1, 0))
			require.Equal(t, 2*i+1, r.event("delivered", int(i)).ID)
			require.Equal(t, fill(len(buf), byte(i)), buf)
			refused(r.l.Del(2*i+1, 0))
			r.settle()
		}
		require.Len(t, r.of(1, "deleted"), 20)
		require.Empty(t, r.of(1, "eager"))
	}
}

// 52: a signalled DEL for a receive that a message by another path matches in software: the outcome
// of the DEL decides. It succeeds, and the device does not use the receive; or it fails, and the
// receive ends with the message that the device has matched. The engine avoids such messages
// (TestRace52 in package progress).
func TestRace52OtherPath(t *testing.T) {
	for name, c := range map[string]struct {
		delay  int
		before func(r *raceRig)
		after  func(r *raceRig)
		ok     bool
	}{
		"DEL is first":              {0, func(*raceRig) {}, func(r *raceRig) { r.send(0, 5, fill(8, 1)) }, true},
		"message is matched unseen": {0, func(r *raceRig) { r.send(0, 5, fill(8, 1)); r.unseen(5) }, func(*raceRig) {}, false},
		"message passes the DEL":    {90, func(*raceRig) {}, func(r *raceRig) { r.send(0, 5, fill(8, 1)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRaceRig(t, softtest.TM{DelayOps: c.delay}, 2)
			buf := make([]byte, 8)
			r.add(1, 5, buf)
			r.settle()
			c.before(r)
			require.NoError(t, r.l.Del(1, 0))
			c.after(r)
			require.Equal(t, c.ok, r.event("deleted", 0).OK)
			r.settle()
			if c.ok {
				require.Equal(t, make([]byte, 8), buf)
				require.Equal(t, fill(8, 1), r.of(1, "eager")[0].Data)
				require.Empty(t, r.of(1, "matched"))
			} else {
				require.Equal(t, fill(8, 1), buf)
				require.EqualValues(t, 1, r.of(1, "delivered")[0].ID)
				require.Empty(t, r.of(1, "eager"))
			}
			require.Len(t, r.of(1, "deleted"), 1)
		})
	}
}

// 52: a forced DEL of such a receive is illegal, as it is live: the device reports that, and the
// transport ends.
func TestRace52OtherPathByForce(t *testing.T) {
	r := newRaceRig(t, softtest.TM{}, 2)
	r.add(1, 5, make([]byte, 8))
	r.settle()
	if invariant.Enabled {
		require.PanicsWithError(t, "invariant V11: unsignalled DEL of a live entry", func() { _ = r.l.ForceDel(1, 0) })
		r.gone = 1
		return
	}
	require.NoError(t, r.l.ForceDel(1, 0))
	require.NoError(t, r.tr[1].Arm()) // the next poll looks for events
	_, err := r.tr[1].Poll()
	require.ErrorContains(t, err, "V11")
	r.gone = 1
}

// 20: the receive of a DEL that waits for room is matched: the DEL has failed, but the count of
// handled messages that it carries is reported to the device all the same. Otherwise entries that
// were added before would stay dormant.
func TestRace20CountOfLateDel(t *testing.T) {
	r := newRaceRig(t, softtest.TM{MaxOps: 1}, 2)
	r.add(1, 5, make([]byte, 8))
	r.settle()
	r.send(0, 9, nil)
	r.event("eager", 0)
	buf := make([]byte, 8)
	require.NoError(t, r.l.Add(2, 6, exact, buf, 0)) // dormant; fills the queue until it is polled
	require.NoError(t, r.l.Del(1, 1))
	r.send(0, 5, fill(8, 1))
	r.unseen(5)
	require.Equal(t, transporttest.Event{Kind: "deleted", ID: 1}, r.event("deleted", 0))
	r.settle()
	r.send(0, 6, fill(8, 2))
	r.event("delivered", 1)
	require.Equal(t, fill(8, 2), buf)
	require.Len(t, r.of(1, "eager"), 1)
}

// 26: far more unsignalled operations than their queue holds, without a poll before it is full: the
// transport signals some of them, so that the queue empties.
func TestRace26ManyOps(t *testing.T) {
	for _, ops := range []int{1, 2, 8} {
		r := newRaceRig(t, softtest.TM{MaxOps: ops, MaxNumTags: 16}, 2)
		r.send(0, 9, nil)
		r.unseen(5) // counted by the device: what is added without that is dormant
		for id := range uint64(40 * ops) {
			err := r.l.Add(id, 5, exact, nil, 0)
			if err == transport.ErrAgain {
				r.until("room for operations", func() bool { return r.l.Free() > 0 })
				err = r.l.Add(id, 5, exact, nil, 0)
			}
			require.NoError(t, err, "%d operations at once, receive %d", ops, id)
			require.NoError(t, r.l.ForceDel(id, 0))
		}
		r.settle()
		require.Positive(t, r.l.Free())
		require.Empty(t, r.of(1, "deleted"))
	}
}

// 26: the slot of a receive that a forced DEL has removed is not used again before the completion
// of its ADD was polled.
func TestRace26SlotOfSignalledAdd(t *testing.T) {
	r := newRaceRig(t, softtest.TM{MaxOps: 4, MaxNumTags: 2}, 2)
	r.send(0, 9, nil)
	r.unseen(5)                                      // what is added without that message is dormant
	require.NoError(t, r.l.Add(1, 5, exact, nil, 0)) // unsignalled
	require.NoError(t, r.l.Add(2, 6, exact, nil, 0)) // signalled
	require.NoError(t, r.l.ForceDel(2, 0))           // unsignalled
	require.Zero(t, r.l.Free())
	r.until("the completion of the ADD", func() bool { return r.l.Free() == 1 })
	r.settle()
}

// 55: Close while receives are in the list, the device reads, some packets of a message have
// arrived, completions are not polled and a DEL waits for room: the sink is not called any more,
// and no object is left in the device.
func TestRace55Close(t *testing.T) {
	for polls := range 12 {
		r := newRaceRig(t, softtest.TM{DelayOps: 30, MaxOps: 2}, 3)
		big := fill(100_000, 3)
		r.add(1, packed(0, 1), make([]byte, len(big)))
		r.add(2, packed(2, 2), make([]byte, maxEager))
		r.settle()
		r.add(3, 7, make([]byte, 8))
		for id := uint64(1); id <= 3; id++ {
			if id != 1 {
				require.NoError(t, r.l.Del(id, 0))
			}
		}
		r.rndv(packed(0, 1), big, uint64(len(big)))
		r.send(2, packed(2, 9), fill(maxEager, 1))
		r.send(0, 8, nil)
		r.unseen(8)
		for range polls {
			r.step()
		}
		n := len(r.sink[1].Events)
		require.NoError(t, r.tr[1].Close())
		r.freeSpin()
		require.NoError(t, r.dev[1].Close())
		require.Len(t, r.sink[1].Events, n)
		_, err := r.tr[1].Poll()
		require.Error(t, err)
		require.Error(t, r.l.Add(9, 9, exact, nil, 0))
		r.gone = 1
		r.until("the loss", func() bool { return len(r.of(0, "lost"))+len(r.of(2, "lost")) == 2 })
	}
}
