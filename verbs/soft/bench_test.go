package soft_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// pair is a sender and a receiver: a device connected to itself, by the loop without delays, so
// that what is measured is the core, or two devices.
type pair struct {
	sendPD  verbs.PD
	pd      verbs.PD // the receiver's, as are the next three
	channel verbs.CompChannel
	cq      verbs.CQ
	srq     verbs.SRQ
	sendCQ  verbs.CQ
	q1, q2  verbs.QP
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newSelfPair(tb testing.TB) *pair {
	d := must(soft.Open(soft.Config{Fabric: soft.NewFabric()}))
	return newPair(tb, d, d)
}

func newSHMPair(tb testing.TB) *pair {
	if runtime.GOOS != "linux" {
		tb.Skip("shared memory needs Linux")
	}
	var devs [2]*soft.Device
	for i := range devs {
		devs[i] = must(soft.Open(soft.Config{Wires: []string{soft.WireSHM}, Rank: i, Secret: []byte("secret")}))
	}
	return newPair(tb, devs[0], devs[1])
}

// newPair connects a queue pair of one device with one of the other, and closes both at the end.
func newPair(tb testing.TB, from, to verbs.Device) *pair {
	var ends []func() error // last first
	tb.Cleanup(func() {
		for _, end := range slices.Backward(ends) {
			if err := end(); err != nil {
				tb.Error(err)
			}
		}
	})
	open := func(d verbs.Device) *pair {
		e := &pair{pd: must(d.AllocPD()), channel: must(d.CreateCompChannel())}
		e.cq = must(d.CreateCQ(verbs.CQInitAttr{CQE: 256, Channel: e.channel}))
		e.srq = must(e.pd.CreateSRQ(&verbs.SRQInitAttr{SRQAttr: verbs.SRQAttr{MaxWR: 256, MaxSGE: 1}}))
		ends = append(ends, d.Close, e.pd.Dealloc, e.channel.Close, e.cq.Destroy, e.srq.Destroy)
		return e
	}
	qp := func(e *pair) verbs.QP {
		q := must(e.pd.CreateQP(&verbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, SRQ: e.srq, Type: verbs.QPTRC,
			Cap: verbs.QPCap{MaxSendWR: 128, MaxSendSGE: 2, MaxInlineData: 256}}))
		ends = append(ends, q.Destroy)
		return q
	}
	p := open(to)
	sender := p
	if from != to {
		sender = open(from)
	}
	p.sendPD, p.sendCQ, p.q1, p.q2 = sender.pd, sender.cq, qp(sender), qp(p)
	soft.RaiseQP(tb, p.q1, to, p.q2.Num(), 7)
	soft.RaiseQP(tb, p.q2, from, p.q1.Num(), 7)
	return p
}

// message sends one inline message from q1 to q2, every 32nd signalled, and receives it.
type messenger struct {
	*pair
	wr   verbs.SendWR
	rwr  verbs.RecvWR
	list [2]verbs.SGE
	got  int // messages of the poll under way
	i    int
}

func newMessenger(tb testing.TB, p *pair, hdr, body int) *messenger {
	m := &messenger{pair: p}
	m.list = [2]verbs.SGE{{Data: make([]byte, hdr)}, {Data: make([]byte, body)}}
	m.wr = verbs.SendWR{Opcode: verbs.WRSend, SGList: m.list[:]}
	buf := make([]byte, 4096)
	mr := must(m.pd.RegMR(buf, verbs.AccessLocalWrite))
	tb.Cleanup(func() {
		if err := mr.Dereg(); err != nil {
			tb.Error(err)
		}
	})
	m.rwr.SGList = []verbs.SGE{{Data: buf, LKey: mr.LKey()}}
	for range 64 {
		_ = must(m.srq.PostSRQRecv(&m.rwr))
	}
	return m
}

func (m *messenger) one() {
	m.wr.Flags = verbs.SendInline
	if m.i++; m.i%32 == 0 {
		m.wr.Flags |= verbs.SendSignaled
	}
	if _, err := m.q1.PostSend(&m.wr); err != nil {
		panic(err)
	}
	for tries := m.i; m.poll(m.cq) == 0; tries++ {
		m.pollSends(tries) // it may have to connect
	}
	m.pollSends(m.i)
}

// pollSends polls a sender of its own now and then.
func (m *messenger) pollSends(i int) {
	if m.sendCQ != m.cq && i%8 == 0 {
		m.poll(m.sendCQ)
	}
}

// poll returns how many messages were received, and posts a receive for each.
func (m *messenger) poll(cq verbs.CQ) int {
	m.got = 0
	_ = must(cq.Drain(m, 16))
	return m.got
}

// Complete implements verbs.Handler.
func (m *messenger) Complete(wc *verbs.WC) bool {
	if wc.Status != verbs.WCSuccess {
		panic(wc.Status)
	}
	if wc.Opcode == verbs.WCRecv {
		m.got++
		_ = must(m.srq.PostSRQRecv(&m.rwr))
	}
	return false
}

// BenchmarkMessage is a send, its receive and the posting of a new receive: over the loop to
// ourselves, whose mutexes and copies are in it (see the profile for the core), and between two
// devices over shared memory, both served by this goroutine.
func BenchmarkMessage(b *testing.B) {
	for name, open := range map[string]func(testing.TB) *pair{"loop": newSelfPair, "shm": newSHMPair} {
		for _, body := range []int{8, 192} {
			b.Run(fmt.Sprintf("%s/%dB", name, body), func(b *testing.B) {
				m := newMessenger(b, open(b), 16, body)
				m.one() // connects
				b.ReportAllocs()
				for b.Loop() {
					m.one()
				}
			})
		}
	}
}

func BenchmarkPollIdle(b *testing.B) {
	p := newSelfPair(b)
	var none verbstest.Collector
	b.ReportAllocs()
	for b.Loop() {
		_, _ = p.cq.Drain(&none, 16)
	}
}

func BenchmarkRegister(b *testing.B) {
	p := newSelfPair(b)
	buf := make([]byte, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		mr, err := p.pd.RegMR(buf, verbs.AccessRemoteRead)
		if err != nil {
			b.Fatal(err)
		}
		if err := mr.Dereg(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNoAllocs holds the budget of the small-message path and of registering: no allocation, but
// for what checks keep.
func TestNoAllocs(t *testing.T) {
	m := newMessenger(t, newSelfPair(t), 16, 8)
	for range 300 {
		m.one()
	}
	if n := testing.AllocsPerRun(1000, m.one); n != 0 && !invariant.Enabled {
		t.Errorf("%v allocations a message", n)
	}
	buf := make([]byte, 64)
	if n := testing.AllocsPerRun(1000, func() {
		mr, err := m.pd.RegMR(buf, verbs.AccessRemoteRead)
		if err != nil || mr.Dereg() != nil {
			t.Fatal(err)
		}
	}); n != 0 && !invariant.Enabled {
		t.Errorf("%v allocations a registration", n)
	}
}
