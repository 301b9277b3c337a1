package tmsrq_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// Scenarios that take the engine, the transport and the device together. What the engine does with
// any list, package progress shows; package internal/sim plays all of it in any order.

// stack is ranks with engines; messages go to rank 1.
type stack struct {
	t     *testing.T
	dev   []*soft.Device
	e     []*progress.Engine
	tr    []transport.Transport // of the engines
	ahead bool                  // devices receive in steps, not in polls
}

func newStack(t *testing.T, tm softtest.TM, n int) *stack {
	t.Helper()
	return newStackOn(t, raceFabric, tm, n)
}

// newAhead is two ranks. The device of rank 1 runs ahead of its engine: what it has done waits in
// its completion queue.
func newAhead(t *testing.T, tm softtest.TM) *stack {
	t.Helper()
	opts := raceFabric
	opts.Stepped = true
	return newStackOn(t, opts, tm, 2)
}

func newStackOn(t *testing.T, opts softtest.FabricOptions, tm softtest.TM, n int) *stack {
	t.Helper()
	return newStackOf(t, raceDevices(t, opts, tm, n), opts.Stepped)
}

func newStackOf(t *testing.T, devices []*soft.Device, ahead bool) *stack {
	t.Helper()
	s, n := &stack{t: t, dev: devices, ahead: ahead}, len(devices)
	for i, d := range s.dev {
		e, err := progress.New(progress.Config{Rank: i, Size: n, Manual: true, OffloadMin: -1},
			func(sink transport.Sink) (transport.Transport, error) {
				tr, err := tmsrq.New(tmsrq.Config{Device: d, Rank: i, Size: n, MaxEager: maxEager, MaxTags: 64, SRQDepth: 64}, sink)
				s.tr = append(s.tr, tr)
				return tr, err
			})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, e.Close(nil)) })
		s.e = append(s.e, e)
	}
	t.Cleanup(s.lawful)
	for i := range s.e {
		for k := range s.e {
			require.NoError(t, s.e[i].Connect(k, s.e[k].Address()))
		}
	}
	transporttest.Meet(t, func() { s.steps(1) }, s.tr...)
	return s
}

// lawful checks that no strict device has reported a fault of its host. It polls the events itself,
// which transports do only now and then.
func (s *stack) lawful() {
	for _, d := range s.dev {
		for ev, ok := d.PollAsync(); ok; ev, ok = d.PollAsync() {
			require.NotEqual(s.t, verbs.EventSRQErr, ev.Type, "%v", ev.Err)
		}
	}
}

func (s *stack) steps(n int) {
	for range n {
		for i, e := range s.e {
			if s.ahead {
				softtest.Step(s.dev[i])
			}
			e.Poll()
		}
	}
}

func (s *stack) until(what string, cond func() bool) {
	s.t.Helper()
	for range manySteps {
		if cond() {
			return
		}
		s.steps(1)
	}
	s.t.Fatal("waited in vain for " + what)
}

func (s *stack) recv(src int, tag uint64, n int) (progress.Request, []byte) {
	buf := make([]byte, n)
	return s.e[1].Irecv(src, tag, exact, buf), buf
}

// got checks how a receive ends.
func (s *stack) got(r progress.Request, buf []byte, src int, want []byte) {
	s.t.Helper()
	st, err := s.end(r)
	require.NoError(s.t, err)
	require.Equal(s.t, [2]int{src, len(want)}, [2]int{st.Source, int(st.Len)})
	require.Equal(s.t, want, buf[:len(want)])
}

// end polls all ranks until a request has ended.
func (s *stack) end(r progress.Request) (st progress.Status, err error) {
	s.t.Helper()
	s.until("the end of a request", func() bool { return ended(r) })
	return r.Wait(context.Background())
}

func ended(r progress.Request) bool {
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}

func (s *stack) offload() progress.OffloadMetrics { return s.e[1].Metrics().Offload }

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
func (s *stack) counts(matched, forced, dels, lost int) {
	s.t.Helper()
	m := s.offload()
	require.Equal(s.t, [4]int{matched, forced, dels, lost}, [4]int{int(m.Matched), int(m.ForcedDels), int(m.Dels), int(m.DelsLost)})
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

// 10: a SYNC makes dormant receives live.
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

// 43: receives are posted while the packets of an unexpected message arrive. The device has counted
// it and software has not polled it: the receives are dormant, whatever else arrives meanwhile, and
// messages of one source keep their order.
func TestRace43ReceiveBetweenFragments(t *testing.T) {
	for _, interloper := range []bool{false, true} {
		s := newStack(t, softtest.TM{}, 3)
		long, short, other := fill(20_000, 1), fill(8, 2), fill(8, 3)
		s.e[0].Isend(1, 5, long)
		s.e[0].Isend(1, 5, short)
		s.steps(5)
		r1, buf1 := s.recv(progress.AnySource, 5, maxEager)
		r2, buf2 := s.recv(progress.AnySource, 5, maxEager)
		require.EqualValues(t, 2, s.offload().Offloaded)
		require.Zero(t, s.e[1].Metrics().UnexpectedNow, "it shows only when it is whole")
		if interloper {
			s.e[2].Isend(1, 5, other)
			s.got(r1, buf1, 2, other)
			require.Zero(t, s.offload().Matched)
			s.got(r2, buf2, 0, long)
			r1, buf1 = s.recv(0, 5, maxEager)
			s.got(r1, buf1, 0, short)
		} else {
			s.got(r1, buf1, 0, long)
			require.Zero(t, s.offload().Matched)
			s.got(r2, buf2, 0, short)
		}
		matched := s.offload().Matched
		r3, buf3 := s.recv(0, 5, 8)
		s.steps(10)
		s.e[0].Isend(1, 5, short)
		s.got(r3, buf3, 0, short)
		require.Equal(t, matched+1, s.offload().Matched, "all were counted, each once")
	}
}

// 51: the same buffer is posted twice, long enough to be given to the device or not: each receive
// ends with its own message, also if the other is cancelled.
func TestRace51SameBufferTwice(t *testing.T) {
	for _, size := range []int{64, maxEager} {
		s := newStack(t, softtest.TM{}, 2)
		buf := make([]byte, size)
		var reqs [3]progress.Request
		for i := range reqs {
			reqs[i] = s.e[1].Irecv(0, packed(0, uint32(i)), exact, buf)
		}
		reqs[1].Cancel()
		_, err := s.end(reqs[1])
		require.Equal(t, progress.ErrCanceled, err)
		for _, i := range []int{2, 0} {
			s.e[0].Isend(1, packed(0, uint32(i)), fill(size, byte(i)))
			s.got(reqs[i], buf, 0, fill(size, byte(i)))
		}
		require.EqualValues(t, 2, s.offload().Matched)
		require.Zero(t, s.offload().InDevice)
	}
}

// 58: a message of many packets is not unexpected for the engine before all of them have arrived,
// and then it has its whole length. A message that the device has matched never is.
func TestRace58NotBeforeWhole(t *testing.T) {
	s := newStack(t, softtest.TM{}, 2)
	r, buf := s.recv(0, packed(0, 5), maxEager)
	s.steps(5)
	s.e[0].Isend(1, packed(0, 5), fill(20_000, 1)) // the device's
	s.e[0].Isend(1, packed(0, 6), fill(20_000, 2)) // unexpected
	steps := 0
	s.until("the message", func() bool {
		m := s.e[1].Metrics()
		require.Equal(t, int64(m.UnexpectedNow)*(20<<10+256), m.UnexpectedBytes) // with a record each
		if steps++; steps < 35 {                                                 // packets
			require.Zero(t, m.UnexpectedNow)
		}
		return m.UnexpectedNow == 1
	})
	s.got(r, buf, 0, fill(20_000, 1))
	require.EqualValues(t, 1, s.offload().Matched)
	require.Equal(t, 1, s.e[1].Metrics().UnexpectedNow)
	r, buf = s.recv(0, packed(0, 6), maxEager)
	s.got(r, buf, 0, fill(20_000, 2))
}
