package tmsrq_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// Scenarios in which rank 1's device runs ahead of its engine: what it has done waits in its
// completion queue.

func newAhead(t *testing.T, tm softtest.TM) *stack {
	t.Helper()
	return newAheadOf(t, tm, -1)
}

// newAheadOf is newAhead with engines that keep receives of fewer bytes than least in software.
func newAheadOf(t *testing.T, tm softtest.TM, least int) *stack {
	t.Helper()
	opts := raceFabric
	opts.Stepped = true
	return newStackOn(t, opts, tm, 2, least)
}

func (s *stack) recvMask(tag, mask uint64, n int) (progress.Request, []byte) {
	buf := make([]byte, n)
	return s.e[1].Irecv(progress.AnySource, tag, mask, buf), buf
}

// send sends 8 bytes made from seed to rank 1, whose device receives them; its engine does not
// poll.
func (s *stack) send(tag uint64, seed byte) {
	s.e[0].Isend(1, tag, fill(8, seed))
	for range 3 {
		softtest.Step(s.dev[0])
		s.e[0].Poll()
		softtest.Step(s.dev[1])
	}
}

func (s *stack) canceled(r progress.Request) {
	s.t.Helper()
	_, err := s.end(r)
	require.Equal(s.t, progress.ErrCanceled, err)
}

// dormant posts a receive behind a message of tag other, with seed 99, that the engine has not
// seen.
func (s *stack) dormant(tag, other uint64) (progress.Request, []byte) {
	s.t.Helper()
	before := s.offload().Offloaded
	s.send(other, 99)
	require.Zero(s.t, s.e[1].Metrics().UnexpectedNow)
	r, buf := s.recv(progress.AnySource, tag, 64)
	require.Equal(s.t, before+1, s.offload().Offloaded)
	return r, buf
}

// works checks that the device matches a new receive's message.
func (s *stack) works(tag uint64) {
	s.t.Helper()
	matched := s.offload().Matched
	s.steps(10)
	r, buf := s.recv(progress.AnySource, tag, 64)
	s.steps(10)
	s.send(tag, 77)
	s.got(r, buf, 0, fill(8, 77))
	require.Equal(s.t, matched+1, s.offload().Matched)
}

// counts checks how receives have left the device: matched, by force, by a DEL that was in time, by
// one that was not.
func (s *stack) counts(matched, drops, dels, lost int) {
	s.t.Helper()
	m := s.offload()
	require.Equal(s.t, [4]int{matched, drops, dels, lost}, [4]int{int(m.Matched), int(m.Drops), int(m.Dels), int(m.DelsLost)})
}

// 4: a message that arrives before its receive is delivered from the unexpected queue, and counted.
// The receive is never added to the device's list, and the device matches the next one.
func TestRace04MessageFirst(t *testing.T) {
	s := newAhead(t, softtest.TM{})
	s.send(5, 1)
	s.steps(1)
	require.Equal(t, 1, s.e[1].Metrics().UnexpectedNow)
	r, buf := s.recv(progress.AnySource, 5, 64)
	s.got(r, buf, 0, fill(8, 1))
	require.Zero(t, s.offload().Offloaded)
	r, buf = s.recv(progress.AnySource, 5, 64)
	s.send(5, 2)
	s.got(r, buf, 0, fill(8, 2))
	s.counts(1, 0, 0, 0)
	require.Zero(t, s.offload().Syncs, "the ADD has told the device")
}

// 5: a receive is posted after its message was counted by the device: it is dormant, software gives
// it the message, and its slot is free again, whether its DEL is signalled (as in a list of one
// entry) or not.
func TestRace05MessageUnpolled(t *testing.T) {
	for _, tags := range []int{1, 4} {
		s := newAhead(t, softtest.TM{MaxNumTags: tags})
		for i := range 5 * tags {
			r, buf := s.dormant(5, 5)
			s.got(r, buf, 0, fill(8, 99))
			require.Zero(t, s.offload().InDevice)
			s.counts(i, i+1, 0, 0)
			s.works(5)
		}
	}
}

// 6, 7: as 5, with a second message before the first is polled, and with a second receive or none:
// the device does not match the dormant entries, and the messages keep their order.
func TestRace07TwoByTwo(t *testing.T) {
	for _, receives := range []int{1, 2} {
		s := newAhead(t, softtest.TM{MaxNumTags: 4})
		one, buf1 := s.dormant(5, 5)
		var two progress.Request
		var buf2 []byte
		if receives == 2 {
			two, buf2 = s.recv(progress.AnySource, 5, 64)
		}
		s.send(5, 2)
		s.got(one, buf1, 0, fill(8, 99))
		if receives == 1 {
			s.steps(10)
			require.Equal(t, 1, s.e[1].Metrics().UnexpectedNow)
			two, buf2 = s.recv(progress.AnySource, 5, 64)
		}
		s.got(two, buf2, 0, fill(8, 2))
		s.counts(0, receives, 0, 0)
		s.works(5)
	}
}

// 8: a live receive stays live when an unexpected message arrives that the engine has not polled.
func TestRace08LiveStaysLive(t *testing.T) {
	s := newAhead(t, softtest.TM{})
	r, buf := s.recv(progress.AnySource, 5, 64)
	s.send(9, 1)
	s.send(5, 2)
	s.got(r, buf, 0, fill(8, 2))
	s.counts(1, 0, 0, 0)
}

// 9, 10: software gives a dormant receive its message if no operation has reported to the device
// that all messages are handled; after a SYNC the device matches it.
func TestRace09DormantWithoutSync(t *testing.T) {
	s := newAhead(t, softtest.TM{})
	r, buf := s.dormant(5, 9)
	require.Positive(t, s.e[1].Poll(), "which is not idle: no SYNC")
	require.Equal(t, 1, s.offload().Dormant)
	s.send(5, 2)
	require.Positive(t, s.e[1].Poll())
	s.got(r, buf, 0, fill(8, 2))
	s.counts(0, 1, 0, 0)
	require.Zero(t, s.offload().Syncs)
	s.works(5)
}

func TestRace10SyncWakes(t *testing.T) {
	s := newAhead(t, softtest.TM{})
	for i := range 3 {
		r, buf := s.dormant(5, 9)
		s.steps(10)
		require.EqualValues(t, i+1, s.offload().Syncs)
		s.send(5, byte(i))
		s.got(r, buf, 0, fill(8, byte(i)))
		s.counts(i+1, 0, 0, 0)
		r, buf = s.recv(progress.AnySource, 9, 64)
		s.got(r, buf, 0, fill(8, 99))
	}
}

// 11: a SYNC has no effect in the device: software gives dormant receives their messages, as
// without a SYNC. The next operation reports the same count once more, although it has not changed
// for the engine.
func TestRace11SyncLost(t *testing.T) {
	for _, add := range []bool{false, true} {
		s := newAhead(t, softtest.TM{DropSync: 1})
		r, buf := s.dormant(5, 9)
		s.steps(10)
		require.EqualValues(t, 1, s.offload().Syncs)
		require.Zero(t, s.offload().Dormant, "the engine knows no better")
		if add {
			next, bufN := s.recv(progress.AnySource, 7, 64)
			s.send(7, 1)
			s.got(next, bufN, 0, fill(8, 1))
			s.counts(1, 0, 0, 0)
		}
		s.send(5, 2)
		s.got(r, buf, 0, fill(8, 2))
		if add {
			s.counts(2, 0, 0, 0)
		} else {
			s.counts(0, 1, 0, 0)
		}
		s.works(5)
	}
}

// 15: a receive is cancelled before any message: its message is unexpected.
func TestRace15DelFirst(t *testing.T) {
	for _, delay := range []int{0, 20} {
		s := newAhead(t, softtest.TM{DelayOps: delay, MaxNumTags: 1})
		r, _ := s.recv(progress.AnySource, 5, 64)
		s.steps(50)
		r.Cancel()
		s.canceled(r)
		s.send(5, 1)
		s.until("the message", func() bool { return s.e[1].Metrics().UnexpectedNow == 1 })
		s.counts(0, 0, 1, 0)
		next, _ := s.recv(progress.AnySource, 6, 64)
		require.Equal(t, 1, s.offload().InDevice, "the slot is free")
		next.Cancel()
		s.canceled(next)
	}
}

// 16: a receive is cancelled after the device has matched it: it ends once, with its message.
func TestRace16DelAfterMatch(t *testing.T) {
	s := newAhead(t, softtest.TM{MaxNumTags: 1})
	r, buf := s.recv(progress.AnySource, 5, 64)
	s.steps(10)
	s.send(5, 1)
	r.Cancel()
	r.Cancel()
	s.got(r, buf, 0, fill(8, 1))
	s.steps(10)
	s.counts(1, 0, 1, 1)
	s.works(5)
}

// 18: a dormant receive is cancelled, whether the engine knows that it is dormant or not.
func TestRace18DelDormant(t *testing.T) {
	for _, known := range []bool{false, true} {
		s := newAhead(t, softtest.TM{})
		r, _ := s.dormant(5, 9)
		if known {
			require.Positive(t, s.e[1].Poll())
			require.Equal(t, 1, s.offload().Dormant)
		}
		r.Cancel()
		s.canceled(r)
		s.counts(0, 0, 1, 0)
		s.works(5)
	}
}

// 20: the queue of list operations has no room for the DEL of a cancel: it is posted later.
func TestRace20CancelWithoutRoom(t *testing.T) {
	for _, faster := range []bool{false, true} {
		s := newAhead(t, softtest.TM{MaxOps: 1})
		r, buf := s.recv(progress.AnySource, 5, 64) // its ADD fills the queue until it is polled
		if faster {
			s.send(5, 1)
		}
		r.Cancel()
		if faster {
			s.got(r, buf, 0, fill(8, 1))
		} else {
			s.canceled(r)
			s.counts(0, 0, 1, 0)
		}
		s.works(6)
	}
}

// 21: a receive is cancelled while its message is in the completion queue as an unexpected one: the
// receive is cancelled, and the next one gets the message.
func TestRace21CancelAgainstUnexpected(t *testing.T) {
	for _, delay := range []int{0, 20} {
		for _, early := range []bool{false, true} { // is the next one
			s := newAhead(t, softtest.TM{DelayOps: delay})
			r, buf := s.dormant(5, 5)
			var next progress.Request
			var bufN []byte
			if early {
				next, bufN = s.recv(progress.AnySource, 5, 64)
			}
			r.Cancel()
			s.canceled(r)
			require.Equal(t, make([]byte, 64), buf)
			if !early {
				next, bufN = s.recv(progress.AnySource, 5, 64)
			}
			s.got(next, bufN, 0, fill(8, 99))
			require.Zero(t, s.offload().Matched)
		}
	}
}

// 23, 24: receives that find no room wait in software, go to the device in their order as entries
// leave, and never before an older one that they overlap.
func TestRace24Promotion(t *testing.T) {
	s := newAhead(t, softtest.TM{MaxNumTags: 1})
	var reqs []progress.Request
	var bufs [][]byte
	for range 5 {
		r, buf := s.recv(progress.AnySource, 5, 64)
		reqs, bufs = append(reqs, r), append(bufs, buf)
	}
	m := s.offload()
	require.Equal(t, [3]uint64{1, 1, 3}, [3]uint64{m.Offloaded, m.KeptFull, m.KeptOverlap})
	for i := range reqs {
		s.send(9, 0) // of which the next ADD tells
		s.send(5, byte(i))
		s.got(reqs[i], bufs[i], 0, fill(8, byte(i)))
		s.steps(10)
		require.EqualValues(t, min(i+1, 4), s.offload().Promoted)
	}
	s.counts(5, 0, 0, 0)
	require.Zero(t, s.offload().Syncs)
}

// 24: there is room: a receive that an older one in software overlaps does not go before that has
// ended; one behind both that nothing overlaps does.
func TestRace24PromotionInOrder(t *testing.T) {
	s := newAheadOf(t, softtest.TM{MaxNumTags: 1}, 32)
	one, buf1 := s.recvMask(1, exact, 64)
	small, bufS := s.recvMask(2, 2, 8)
	two, buf2 := s.recvMask(2, exact, 64)
	three, buf3 := s.recvMask(1, exact, 64)
	for i, c := range []struct {
		tag      uint64
		r        progress.Request
		buf      []byte
		promoted int
	}{{1, one, buf1, 1}, {1, three, buf3, 1}, {2, small, bufS, 2}, {2, two, buf2, 2}} {
		s.steps(10)
		s.send(c.tag, byte(i))
		s.got(c.r, c.buf, 0, fill(8, byte(i)))
		s.steps(10)
		require.EqualValues(t, c.promoted, s.offload().Promoted, "message %d", i)
	}
	s.counts(3, 0, 0, 0)
}

// 39: wildcard and exact receives take messages in the order of posting, whichever of them software
// keeps.
func TestRace39WildcardAndExact(t *testing.T) {
	for _, masks := range [][2]uint64{{6, exact}, {exact, 6}} {
		for _, sizes := range [][2]int{{64, 64}, {10, 64}, {64, 10}, {10, 10}} {
			s := newAheadOf(t, softtest.TM{}, 32)
			one, buf1 := s.recvMask(4, masks[0], sizes[0])
			two, buf2 := s.recvMask(4, masks[1], sizes[1])
			s.steps(10)
			s.send(4, 1)
			s.send(4, 2)
			s.got(one, buf1, 0, fill(8, 1))
			s.got(two, buf2, 0, fill(8, 2))
		}
	}
}

// 40: while software keeps a receive from any source, a later one that overlaps it is kept too.
func TestRace40AnySourceInSoftware(t *testing.T) {
	s := newAheadOf(t, softtest.TM{}, 32)
	wild, bufW := s.recvMask(0, 0, 10)
	exactly, buf := s.recvMask(4, exact, 64)
	s.steps(10)
	m := s.offload()
	require.Equal(t, [3]uint64{0, 1, 1}, [3]uint64{m.Offloaded, m.KeptSmall, m.KeptOverlap})
	s.send(4, 1)
	s.got(wild, bufW, 0, fill(8, 1))
	s.steps(10)
	s.send(4, 2)
	s.got(exactly, buf, 0, fill(8, 2))
	s.counts(1, 0, 0, 0)
}

// 41: receives that overlap nothing go to the device around one that software keeps.
func TestRace41Unrelated(t *testing.T) {
	s := newAheadOf(t, softtest.TM{}, 32)
	var reqs [3]progress.Request
	var bufs [3][]byte
	for tag, size := range []int{64, 10, 64} {
		reqs[tag], bufs[tag] = s.recvMask(uint64(tag), exact, size)
	}
	require.EqualValues(t, 2, s.offload().Offloaded)
	s.steps(10)
	for tag := range 3 {
		s.send(uint64(tag), byte(tag))
	}
	for tag := range reqs {
		s.got(reqs[tag], bufs[tag], 0, fill(8, byte(tag)))
	}
	s.counts(2, 0, 0, 0)
}

// 25: the queue of list operations is full, as completions are not polled: a receive waits in
// software, and is added to the list when they are.
func TestRace25OpsExhausted(t *testing.T) {
	s := newAhead(t, softtest.TM{MaxOps: 1, MaxNumTags: 4})
	one, buf1 := s.recv(progress.AnySource, 5, 64)
	two, buf2 := s.recv(progress.AnySource, 5, 64)
	three, buf3 := s.recvMask(5, 4, 64)
	m := s.offload()
	require.Equal(t, [3]uint64{1, 1, 1}, [3]uint64{m.Offloaded, m.KeptFull, m.KeptOverlap})
	s.steps(10)
	require.EqualValues(t, 2, s.offload().Promoted)
	require.Equal(t, 3, s.offload().InDevice)
	for i := range 3 {
		s.send(5, byte(i))
	}
	s.got(one, buf1, 0, fill(8, 0))
	s.got(two, buf2, 0, fill(8, 1))
	s.got(three, buf3, 0, fill(8, 2))
	s.counts(3, 0, 0, 0)
}

// 57: all messages arrive before their receives: offloading rests, and no message is lost or
// overtakes another. Later it begins again while receives wait in software, which later receives do
// not overtake.
func TestRace57SwitchUnderLoad(t *testing.T) {
	s := newAhead(t, softtest.TM{})
	const batch = 10
	for round := 0; s.offload().KeptOff < 3*batch; round++ {
		require.Less(t, round, 50, "the device is not given up")
		require.Zero(t, s.offload().Matched)
		s.send(9, 0)
		var reqs [batch]progress.Request
		var bufs [batch][]byte
		for i := range reqs {
			reqs[i], bufs[i] = s.recv(progress.AnySource, 5, 64)
		}
		for i := range reqs {
			s.send(5, byte(i))
		}
		for i := range reqs {
			s.got(reqs[i], bufs[i], 0, fill(8, byte(i)))
		}
		r, buf := s.recv(0, 9, 8)
		s.got(r, buf, 0, fill(8, 0))
	}
	require.EqualValues(t, 1, s.offload().Rests)
	off := s.offload().KeptOff
	var reqs [500]progress.Request
	var bufs [len(reqs)][]byte
	for i := range reqs {
		reqs[i], bufs[i] = s.recv(0, 5, 64)
	}
	m := s.offload()
	require.EqualValues(t, len(reqs), m.KeptOff-off+m.KeptOverlap)
	require.Positive(t, m.KeptOverlap, "the rest is over")
	s.steps(10)
	for i := range reqs {
		s.send(5, byte(i))
		s.got(reqs[i], bufs[i], 0, fill(8, byte(i)))
	}
	require.EqualValues(t, len(reqs), s.offload().Matched)
	s.works(5)
}
