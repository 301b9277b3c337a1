package soft_test

import (
	"testing"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// selfPair is a device connected to itself: the loop without delays, so that what is measured is
// the core.
type selfPair struct {
	dev    verbs.Device
	pd     verbs.PD
	cq     verbs.CQ
	srq    verbs.SRQ
	q1, q2 verbs.QP
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newSelfPair(tb testing.TB) *selfPair {
	d := must(soft.Open(soft.Config{Fabric: soft.NewFabric()}))
	p := &selfPair{dev: d, pd: must(d.AllocPD()), cq: must(d.CreateCQ(verbs.CQInitAttr{CQE: 256}))}
	p.srq = must(p.pd.CreateSRQ(&verbs.SRQInitAttr{SRQAttr: verbs.SRQAttr{MaxWR: 256, MaxSGE: 1}}))
	mk := func() verbs.QP {
		return must(p.pd.CreateQP(&verbs.QPInitAttr{SendCQ: p.cq, RecvCQ: p.cq, SRQ: p.srq, Type: verbs.QPTRC,
			Cap: verbs.QPCap{MaxSendWR: 128, MaxSendSGE: 2, MaxInlineData: 256}}))
	}
	p.q1, p.q2 = mk(), mk()
	soft.RaiseQP(tb, p.q1, d, p.q2.Num(), 7)
	soft.RaiseQP(tb, p.q2, d, p.q1.Num(), 7)
	tb.Cleanup(func() {
		for _, f := range []func() error{p.q1.Destroy, p.q2.Destroy, p.srq.Destroy, p.cq.Destroy, p.pd.Dealloc, d.Close} {
			if err := f(); err != nil {
				tb.Error(err)
			}
		}
	})
	return p
}

// message sends one inline message from q1 to q2, every 32nd signalled, and receives it.
type messenger struct {
	*selfPair
	wr   verbs.SendWR
	rwr  verbs.RecvWR
	list [2]verbs.SGE
	wc   [16]verbs.WC
	i    int
}

func newMessenger(tb testing.TB, hdr, body int) *messenger {
	m := &messenger{selfPair: newSelfPair(tb)}
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
	for got := false; !got; {
		n, err := m.cq.PollCQ(m.wc[:])
		if err != nil {
			panic(err)
		}
		for k := range m.wc[:n] {
			if m.wc[k].Status != verbs.WCSuccess {
				panic(m.wc[k].Status)
			}
			if m.wc[k].Opcode == verbs.WCRecv {
				got = true
				if _, err := m.srq.PostSRQRecv(&m.rwr); err != nil {
					panic(err)
				}
			}
		}
	}
}

// BenchmarkMessage is a send, its receive and the posting of a new receive, over the loop to
// ourselves. The loop's own mutexes and copies are in it; see the profile for the core.
func BenchmarkMessage(b *testing.B) {
	m := newMessenger(b, 16, 8)
	b.ReportAllocs()
	for b.Loop() {
		m.one()
	}
}

func BenchmarkPollIdle(b *testing.B) {
	p := newSelfPair(b)
	var wc [16]verbs.WC
	b.ReportAllocs()
	for b.Loop() {
		_, _ = p.cq.PollCQ(wc[:])
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
	m := newMessenger(t, 16, 8)
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
