package tmsrq_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/progress/progresstest"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// Scenarios that take the engine, the transport and the device together.

// stack is ranks with engines; messages go to rank 1.
type stack struct {
	t    *testing.T
	f    *soft.Fabric
	dev  []*soft.Device
	e    []*progress.Engine
	tr   []transport.Transport
	fins [][]uint32 // by rank: app_ctx of the FINs that it got
	dead int        // a rank that is polled no more, or -1
	step bool       // devices receive in steps, not in polls
}

func newStack(t *testing.T, tm softtest.TM, n int) *stack {
	t.Helper()
	return newStackOn(t, raceFabric, tm, n, -1)
}

// newStackOn takes the options of the fabric, and least: engines keep shorter receives, in bytes,
// in software.
func newStackOn(t *testing.T, opts softtest.FabricOptions, tm softtest.TM, n, least int) *stack {
	t.Helper()
	s := &stack{t: t, dead: -1, step: opts.Stepped, tr: make([]transport.Transport, n), fins: make([][]uint32, n)}
	s.f, s.dev = raceDevicesOn(t, opts, tm, n)
	for i, d := range s.dev {
		e, err := progress.New(progresstest.With(progress.Config{Rank: i, Size: n, Manual: true, OffloadMin: least}, 1, nil),
			func(sink transport.Sink) (tr transport.Transport, err error) {
				s.tr[i], err = tmsrq.New(tmsrq.Config{Device: d, Rank: i, Size: n, MaxEager: maxEager, MaxTags: 64, SRQDepth: 64}, finSpy{sink, &s.fins[i]})
				return s.tr[i], err
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

// finSpy records the app_ctx of FINs.
type finSpy struct {
	transport.Sink
	fins *[]uint32
}

func (s finSpy) Fin(src int, appCtx uint32) {
	*s.fins = append(*s.fins, appCtx)
	s.Sink.Fin(src, appCtx)
}

func (s *stack) steps(n int) {
	for range n {
		for i, e := range s.e {
			if i == s.dead {
				continue
			}
			if s.step {
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

// open checks that a request has not ended.
func (s *stack) open(r progress.Request) {
	s.t.Helper()
	require.False(s.t, ended(r), "a request has ended")
}

func (s *stack) offload() progress.OffloadMetrics { return s.e[1].Metrics().Offload }

// 33: a rendezvous is longer than the buffer that the device has matched to it: the receive gets
// what fits, and how long the message is, and the send ends.
func TestRace33RendezvousTooLong(t *testing.T) {
	const size = 2 * maxEager
	s := newStack(t, softtest.TM{}, 2)
	for i, room := range []int{0, 1, 31, 32, maxEager - 1, maxEager, size - 1} { // from maxEager on it is the program's
		r, buf := s.recv(0, packed(0, 5), room)
		s.steps(10)
		req := s.e[0].Isend(1, packed(0, 5), fill(size, byte(i)))
		st, err := s.end(r)
		require.Equal(t, progress.ErrTruncated, err)
		require.Equal(t, progress.Status{Source: 0, Tag: packed(0, 5), Len: size}, st)
		require.Equal(t, fill(size, byte(i))[:room], buf)
		s.open(req)
		_, err = s.end(req)
		require.NoError(t, err)
		require.EqualValues(t, i+1, s.offload().Matched)
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

// 44: the connection fails after the data of a rendezvous was read and before its FIN: the send
// ends once, with the loss.
func TestRace44FinLost(t *testing.T) {
	s := newStack(t, softtest.TM{DelayFIN: 5000}, 3)
	r, buf := s.recv(0, packed(0, 5), maxEager+100)
	s.steps(5)
	data := fill(maxEager+100, 1)
	req := s.e[0].Isend(1, packed(0, 5), data)
	s.got(r, buf, 0, data)
	require.EqualValues(t, 1, s.offload().Matched)
	s.steps(50)
	s.open(req)
	softtest.Break(s.f, s.dev[0], s.dev[1])
	_, err := s.end(req)
	require.ErrorIs(t, err, progress.ErrPeerLost)
	require.Equal(t, []int{1}, s.e[0].Failed())
	s.steps(6000) // the FIN's time passes
	require.Zero(t, s.e[0].Metrics().RequestsNow)
	s.e[0].Isend(2, 5, fill(8, 1))
	_, err = s.end(s.e[2].Irecv(0, 5, exact, make([]byte, 8)))
	require.NoError(t, err)
}

// 45: a FIN arrives again, once after its send has ended, and once when another send uses the same
// slot: both are ignored.
func TestRace45FinTwice(t *testing.T) {
	s := newStack(t, softtest.TM{}, 2)
	size := maxEager + 100
	transfer := func() {
		r, buf := s.recv(0, packed(0, 5), size)
		data := fill(size, 1)
		req := s.e[0].Isend(1, packed(0, 5), data)
		s.got(r, buf, 0, data)
		_, err := s.end(req)
		require.NoError(t, err)
	}
	again := func(name uint32) {
		stale := s.e[0].Metrics().Stale
		require.NoError(t, s.tr[1].SendFin(0, name))
		s.until("the FIN", func() bool { return s.e[0].Metrics().Stale == stale+1 })
	}
	transfer()
	first := s.fins[0][0]
	again(first)

	place := func(name uint32) uint32 { return name & (1<<20 - 1) } // the rest of a name is the generation, see package progress
	for last := first; len(s.fins[0]) < 3 || place(last) != place(first); last = s.fins[0][len(s.fins[0])-1] {
		require.Less(t, len(s.fins[0]), 1000, "the place is not used again")
		transfer()
	}
	// Places are taken oldest first, so one round of open sends covers them all.
	round := len(s.fins[0])
	var open []progress.Request
	for range round {
		open = append(open, s.e[0].Isend(1, packed(0, 6), fill(size, 2)))
	}
	s.steps(100)
	again(first)
	for _, req := range open {
		s.open(req)
	}
	for _, req := range open {
		r, buf := s.recv(0, packed(0, 6), size)
		s.got(r, buf, 0, fill(size, 2))
		_, err := s.end(req)
		require.NoError(t, err)
	}
}

// 46: the receiver dies when its device has matched a rendezvous and is reading: the sender ends
// with the loss.
func TestRace46ReceiverDies(t *testing.T) {
	s := newStack(t, softtest.TM{}, 3)
	tag, size := packed(0, 5), 200_000
	r, buf := s.recv(0, tag, size)
	s.steps(5)
	req := s.e[0].Isend(1, tag, fill(size, 1))
	s.until("a part of the data", func() bool { return buf[3000] != 0 })
	require.EqualValues(t, 1, s.offload().Matched)
	s.open(r)
	softtest.Kill(s.f, s.dev[1])
	s.dead = 1
	_, err := s.end(req)
	require.ErrorIs(t, err, progress.ErrPeerLost)
	require.Equal(t, []int{1}, s.e[0].Failed())
	require.Zero(t, s.e[0].Metrics().RequestsNow)
	s.e[0].Isend(2, 5, fill(8, 1)) // others do not notice
	st, err := s.end(s.e[2].Irecv(0, 5, exact, make([]byte, 8)))
	require.NoError(t, err)
	require.EqualValues(t, 8, st.Len)
}

// 47: the sender dies while the receiver's device reads from it: the receive ends with the loss,
// and receives for others stay where they are.
func TestRace47SenderDies(t *testing.T) {
	s := newStack(t, softtest.TM{}, 3)
	tag, size := packed(0, 5), 200_000
	r, buf := s.recv(0, tag, size)
	mine, _ := s.recv(0, packed(0, 6), size)
	other, buf2 := s.recv(2, packed(2, 5), 8)
	s.steps(5)
	s.e[0].Isend(1, tag, fill(size, 1))
	s.until("a part of the data", func() bool { return buf[3000] != 0 })
	softtest.Kill(s.f, s.dev[0])
	s.dead = 0
	for _, req := range []progress.Request{r, mine} {
		_, err := s.end(req)
		require.ErrorIs(t, err, progress.ErrPeerLost)
	}
	require.Zero(t, buf[size-1])
	require.Equal(t, []int{0}, s.e[1].Failed())
	require.Equal(t, 1, s.offload().InDevice)
	s.e[2].Isend(1, packed(2, 5), fill(8, 2))
	s.got(other, buf2, 2, fill(8, 2))
	require.EqualValues(t, 2, s.offload().Matched)
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
