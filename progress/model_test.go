package progress

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var seedFlag = flag.Uint64("seed", 0, "replay one random schedule")

// model is MPI matching, naively: the lists of one receiver, fed with what happens there in the
// order in which it does.
type model struct {
	posted  []*modelRecv
	arrived []*modelMsg
	lastSeq []int // by source
	count   int   // of arrivals
}

type modelRecv struct {
	req       Request
	tag, mask uint64
	buf       []byte
	got       *modelMsg
	canceled  bool
	left      []byte // of a receive that gave its message back: buf, which nobody may write to
	asked     bool   // to be cancelled, while the device had it: the outcome is the device's
	reported  bool
}

type modelMsg struct {
	src, dst, seq int
	arrival       int // at the receiver, of all sources
	tag           uint64
	data          []byte
	req           Request
	matched       bool
	asked         bool // its sender wanted it back while it was received
	withdrawn     bool
	reported      bool
}

func matches(r *modelRecv, m *modelMsg) bool { return (r.tag^m.tag)&r.mask == 0 }

func (md *model) post(r *modelRecv) {
	for i, m := range md.arrived {
		if matches(r, m) {
			md.arrived = append(md.arrived[:i:i], md.arrived[i+1:]...)
			r.got, m.matched = m, true
			return
		}
	}
	md.posted = append(md.posted, r)
}

// recalled tells whether only the device can still give the receive a message.
func (r *modelRecv) recalled() bool {
	return r.asked && (!r.req.op.Pending(r.req.gen) || r.req.op.state == opRecalled)
}

// arrive takes a message that comes to the engine; en is the entry of the device that matched it,
// if one did.
func (md *model) arrive(t *testing.T, m *modelMsg, en *fakeEntry) {
	require.Greater(t, m.seq, md.lastSeq[m.src], "message overtook another")
	md.lastSeq[m.src] = m.seq
	md.count++
	m.arrival = md.count
	for i, r := range md.posted {
		own := en != nil && &en.buf[0] == &r.buf[0]
		if matches(r, m) && (own || !r.recalled()) {
			require.Equal(t, en != nil, own, "the device and software differ")
			md.posted = append(md.posted[:i:i], md.posted[i+1:]...)
			r.got, m.matched = m, true
			return
		}
	}
	require.Nil(t, en, "the device matched a receive that was not there")
	md.arrived = append(md.arrived, m)
}

// giveBack ends a receive that has a message: the message is as if it had not been matched.
func (md *model) giveBack(r *modelRecv) {
	m := r.got
	r.got, r.canceled, m.matched = nil, true, false
	if m.asked {
		m.withdrawn = true
		return
	}
	i := slices.IndexFunc(md.arrived, func(x *modelMsg) bool { return x.arrival > m.arrival })
	if i < 0 {
		i = len(md.arrived)
	}
	md.arrived = slices.Insert(md.arrived, i, m)
}

func (md *model) withdraw(id uint32, src int) {
	for i, m := range md.arrived {
		if m.src == src && m.wireName() == id {
			m.withdrawn = true
			md.arrived = append(md.arrived[:i:i], md.arrived[i+1:]...)
			return
		}
	}
}

// wireName is the name of the message's rendezvous, impossible for an eager one.
func (m *modelMsg) wireName() uint32 {
	if m.req.op.Gen() != m.req.gen || m.req.op.region == nil {
		return ^uint32(0)
	}
	return m.req.op.slot.wire()
}

func (md *model) cancel(r *modelRecv) {
	for i, x := range md.posted {
		if x == r {
			r.canceled = true
			md.posted = append(md.posted[:i:i], md.posted[i+1:]...)
			return
		}
	}
}

// schedule is one random run.
type schedule struct {
	t      *testing.T
	c      *cluster
	rng    *rand.Rand
	models []*model
	msgs   []*modelMsg
	recvs  [][]*modelRecv // by rank
	seq    [][]int
}

func TestRandomSchedules(t *testing.T) { randomSchedules(t, 150, fakeOpts{}) }

// TestRandomSchedulesOffload is the same with devices that match, of several sizes.
func TestRandomSchedulesOffload(t *testing.T) {
	for _, tags := range []int{1, 2, 7, 127} {
		t.Run(fmt.Sprintf("tags=%d", tags), func(t *testing.T) { randomSchedules(t, 100, fakeOpts{tags: tags}) })
	}
}

// TestRandomSchedulesSplit has half of the messages come by another device than that with the list.
func TestRandomSchedulesSplit(t *testing.T) { randomSchedules(t, 100, fakeOpts{tags: 7, split: true}) }

func randomSchedules(t *testing.T, count int, opts fakeOpts) {
	if testing.Short() {
		count = 20
	}
	first := rand.Uint64N(1 << 40)
	if *seedFlag != 0 {
		first, count = *seedFlag, 1
	}
	for i := range count {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { runSchedule(t, seed, opts) })
	}
}

func runSchedule(t *testing.T, seed uint64, opts fakeOpts) {
	rng := rand.New(rand.NewPCG(seed, 7))
	n := 1 + rng.IntN(4)
	cfg := Config{Manual: true, seed: seed | 1, UnexpectedLimit: 1 << (10 + rng.IntN(12)), EagerLimit: 16 << rng.IntN(5)}
	opts.room, opts.random, opts.maxRead = rng.IntN(5), true, 1<<(4+rng.IntN(10))
	if opts.tags != 0 {
		cfg.OffloadMin = []int{-1, -1, 300}[rng.IntN(3)]
		opts.maxOps, opts.rts = rng.IntN(5), rng.IntN(3)
		opts.count = []uint16{0, 65530}[rng.IntN(2)]
	}
	c := newCluster(t, n, cfg, opts)
	c.net.rng, c.net.seed = rng, seed
	s := &schedule{t: t, c: c, rng: rng, recvs: make([][]*modelRecv, n)}
	for i := range n {
		s.models = append(s.models, &model{lastSeq: make([]int, n)})
		s.seq = append(s.seq, make([]int, n))
		if rng.IntN(2) == 0 { // given up and taken up again all the time
			o := &c.e[i].off
			o.sample, o.rest, o.backoff = 4, 8, 8
		}
	}
	c.net.onDeliver = s.observe
	for range 2000 {
		s.act()
	}
	s.finish()
}

// observe feeds the receiver's model with what its engine is about to see.
func (s *schedule) observe(dst int, p *packet) {
	switch p.kind {
	case pkEager:
		s.models[dst].arrive(s.t, s.msgs[binary.LittleEndian.Uint64(p.payload)], p.entry)
	case pkRndv:
		s.models[dst].arrive(s.t, s.msgs[binary.LittleEndian.Uint64(p.peek)], p.entry)
	case pkCtrl:
		if c, err := decodeCtrl(p.payload); err == nil && c.kind == ctrlWithdraw {
			s.models[dst].withdraw(c.id, p.src)
			for _, m := range s.msgs {
				m.asked = m.asked || m.matched && m.src == p.src && m.dst == dst && m.wireName() == c.id
			}
		}
	}
}

func (s *schedule) act() {
	rank := s.rng.IntN(len(s.models))
	switch k := s.rng.IntN(16); {
	case k < 4:
		s.send(rank)
	case k < 8:
		s.recv(rank)
	case k == 8 && len(s.recvs[rank]) != 0:
		r := s.recvs[rank][s.rng.IntN(len(s.recvs[rank]))]
		if !r.reported {
			s.cancel(rank, r)
		}
	case k == 10 && len(s.recvs[rank]) != 0 && s.c.net.opts.tags == 0:
		s.abandon(rank, s.recvs[rank][s.rng.IntN(len(s.recvs[rank]))])
	case k == 9 && len(s.msgs) != 0:
		s.msgs[s.rng.IntN(len(s.msgs))].req.Cancel()
	default:
		s.c.e[rank].Poll()
	}
	s.check(16)
}

func (s *schedule) cancel(rank int, r *modelRecv) {
	if op := r.req.op; op.Pending(r.req.gen) && (op.state == opOffloaded || op.state == opRecalled) {
		r.asked = true
	} else {
		s.models[rank].cancel(r)
	}
	r.req.Cancel()
}

// abandon does what the context of a blocking receive does: it has no effect while another waits
// that the message matches.
func (s *schedule) abandon(rank int, r *modelRecv) {
	e := s.c.e[rank]
	e.mu.Lock()
	defer e.mu.Unlock()
	if op := r.req.op; !r.reported && op.Pending(r.req.gen) && op.state == opReading {
		md := s.models[rank]
		alone := !slices.ContainsFunc(md.posted, func(x *modelRecv) bool { return matches(x, r.got) })
		require.Equal(s.t, alone, op.abandon())
		if alone {
			md.giveBack(r)
			r.left = slices.Clone(r.buf)
		}
	}
}

func (s *schedule) send(rank int) {
	dst := s.rng.IntN(len(s.models))
	s.seq[rank][dst]++
	m := &modelMsg{src: rank, dst: dst, seq: s.seq[rank][dst], tag: uint64(rank)<<3 | s.rng.Uint64N(8),
		data: make([]byte, 8+s.rng.IntN(600))}
	for i := range m.data {
		m.data[i] = byte(s.rng.Uint32())
	}
	binary.LittleEndian.PutUint64(m.data, uint64(len(s.msgs)))
	s.msgs = append(s.msgs, m)
	if s.rng.IntN(8) == 0 {
		m.req = s.c.e[rank].Issend(dst, m.tag, m.data)
	} else {
		m.req = s.c.e[rank].Isend(dst, m.tag, m.data)
	}
}

// A tag is source<<3 | number: a receive that asks for a source does so by its mask too.
func (s *schedule) recv(rank int) {
	masks := []uint64{exact, exact, exact, 0, 6, 1}
	r := &modelRecv{tag: s.rng.Uint64N(8), mask: masks[s.rng.IntN(len(masks))], buf: make([]byte, 8+s.rng.IntN(800))}
	src := s.rng.IntN(2*len(s.models)) - len(s.models)
	if src < 0 {
		src = AnySource
		r.mask &= 7
	} else {
		r.mask |= 7 << 3
		r.tag |= uint64(src) << 3
	}
	r.req = s.c.e[rank].Irecv(src, r.tag, r.mask, r.buf)
	s.models[rank].post(r)
	s.recvs[rank] = append(s.recvs[rank], r)
}

// check looks at some requests, and compares what has ended with the models.
func (s *schedule) check(one int) {
	for rank, list := range s.recvs {
		for _, r := range list {
			if !r.reported && (one == 1 || s.rng.IntN(one) == 0) {
				s.checkRecv(rank, r)
			}
		}
	}
	for _, m := range s.msgs {
		if !m.reported && (one == 1 || s.rng.IntN(one) == 0) {
			s.checkSend(m)
		}
	}
}

func (s *schedule) checkRecv(rank int, r *modelRecv) {
	st, err, ok := r.req.op.consume(r.req.gen)
	if !ok {
		return
	}
	r.reported = true
	if r.asked && err == ErrCanceled {
		s.models[rank].cancel(r)
	}
	if r.canceled {
		require.Equal(s.t, ErrCanceled, err)
		return
	}
	require.NotNil(s.t, r.got, "receive ended without a message: %v", err)
	m := r.got
	if len(m.data) > len(r.buf) {
		require.Equal(s.t, ErrTruncated, err)
	} else {
		require.NoError(s.t, err)
	}
	require.Equal(s.t, Status{m.src, m.tag, int64(len(m.data))}, st)
	n := min(len(m.data), len(r.buf))
	require.Equal(s.t, m.data[:n], r.buf[:n], "rank %d", rank)
}

func (s *schedule) checkSend(m *modelMsg) {
	_, err, ok := m.req.op.consume(m.req.gen)
	if !ok {
		return
	}
	m.reported = true
	if err != nil {
		require.Equal(s.t, ErrCanceled, err)
		require.False(s.t, m.matched, "a canceled message was received")
	} else {
		require.False(s.t, m.withdrawn, "a withdrawn message counts as sent")
	}
}

// settle lets everything run that can.
func (s *schedule) settle() {
	s.c.net.opts.random = false
	s.c.step()
	s.check(1)
}

func (s *schedule) finish() {
	s.settle()
	for rank, list := range s.recvs {
		for _, r := range list {
			if !r.reported {
				require.Nil(s.t, r.got, "a matched receive does not end")
				s.cancel(rank, r)
			}
		}
	}
	for _, m := range s.msgs {
		if !m.reported {
			require.False(s.t, m.matched, "a matched send does not end")
			m.req.Cancel()
		}
	}
	s.settle()
	for _, list := range s.recvs {
		for _, r := range list {
			require.True(s.t, r.reported)
			require.True(s.t, r.left == nil || bytes.Equal(r.left, r.buf), "written to after its end")
		}
	}
	for _, m := range s.msgs {
		require.True(s.t, m.reported)
	}
	// Only eager messages that nobody wanted are left, and the model knows each of them.
	for i, e := range s.c.e {
		require.Equal(s.t, len(s.models[i].arrived), e.unexp.Len())
		for _, m := range s.models[i].arrived {
			buf := make([]byte, len(m.data))
			_, err := e.Recv(bg, AnySource, m.tag, exact, buf)
			require.NoError(s.t, err)
			require.Equal(s.t, m.data, buf)
		}
	}
	s.c.step()
	s.c.quiet()
}
