package main

import (
	"os"
	"runtime"
	"time"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/verbs"
	_ "github.com/tagmatch/tagmatch/verbs/ibverbs" // the driver that is measured
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// must ends the program: it measures, and nothing here is expected to fail.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func openDevice(port string) verbs.Device {
	check(os.Setenv("TAGMATCH_RDMA_PORT", port))
	return must(verbs.Drivers()[0].Open("rdma", verbs.DriverConfig{Lines: func(carried []byte) (verbs.LineDevice, error) {
		return soft.Open(soft.Config{Wires: []string{soft.WireTCP}, Secret: []byte("secret"), Carried: carried})
	}}))
}

// counter is a handler that looks at each completion.
type counter struct{ n, wrid uint64 }

func (c *counter) Complete(wc *verbs.WC) bool {
	c.n++
	c.wrid += wc.WRID
	return false
}

// writer is a queue pair that writes to memory of its own device.
type writer struct {
	cq verbs.CQ
	qp verbs.QP
	wr verbs.SendWR
	h  counter
}

func newWriter(d verbs.Device, flags verbs.WCExFlags) *writer {
	pd := must(d.AllocPD())
	cq := must(d.CreateCQ(verbs.CQInitAttr{CQE: 64, WCFlags: flags}))
	mr := must(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite|verbs.AccessRemoteWrite))
	qp := must(pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 64, MaxSendSGE: 2, MaxInlineData: 64}}))
	check(qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1, AccessFlags: verbs.AccessRemoteWrite}, verbs.QPMaskInit))
	check(qp.Modify(&verbs.QPAttr{State: verbs.QPSRTR, AV: verbs.AddressVector{Address: d.Address()}, PathMTU: verbs.MTU1024, DestQPN: qp.Num()}, verbs.QPMaskRTR))
	check(qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS, RetryCnt: 6, RNRRetry: 7}, verbs.QPMaskRTS))
	return &writer{cq: cq, qp: qp, wr: verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: mr.Addr(), RKey: mr.RKey(),
		SGList: []verbs.SGE{{Data: make([]byte, 8)}}}}
}

func (w *writer) post(i int, signalled bool) {
	w.wr.WRID, w.wr.Flags = uint64(i), verbs.SendInline
	if signalled {
		w.wr.Flags |= verbs.SendSignaled
	}
	must(w.qp.PostSend(&w.wr))
}

// posts posts, and polls behind each 32nd request.
func (w *writer) posts(turns int) time.Duration {
	start := time.Now()
	for i := range turns {
		signalled := i%32 == 31
		w.post(i, signalled)
		if signalled {
			must(w.cq.Drain(&w.h, 32))
		}
	}
	return time.Since(start)
}

func (w *writer) polls(turns int) time.Duration {
	start := time.Now()
	for range turns {
		must(w.cq.Drain(&w.h, 16))
	}
	return time.Since(start)
}

func (w *writer) filled() *writer {
	for i := range 16 {
		w.post(i, true)
	}
	return w
}

// sink counts messages.
type sink struct {
	transport.Sink
	eager int
}

func (*sink) Greeting(int) []byte                 { return nil }
func (*sink) Connected(int, []byte) error         { return nil }
func (s *sink) Eager(int, uint32, uint64, []byte) { s.eager++ }

// messages sends one way between two devices, one at a time.
type messages struct {
	from, to *rc.Transport
	got      sink
	payload  []byte
}

func newMessages() *messages {
	m := &messages{payload: make([]byte, 8)}
	m.from = must(rc.New(rc.Config{Device: openDevice("tmstub0"), Rank: 0, Size: 2, MaxEager: 8 << 10}, &sink{}))
	m.to = must(rc.New(rc.Config{Device: openDevice("tmstub1"), Rank: 1, Size: 2, MaxEager: 8 << 10}, &m.got))
	check(m.from.Connect(1, m.to.Address()))
	check(m.to.Connect(0, m.from.Address()))
	check(m.from.Grant(1, 0))
	check(m.to.Grant(0, 0))
	for !m.from.Drained() || !m.to.Drained() {
		must(m.from.Poll())
		must(m.to.Poll())
		runtime.Gosched()
	}
	return m
}

func (m *messages) run(turns int) time.Duration {
	start := time.Now()
	for i := range turns {
		check(m.from.SendEager(1, 0, uint64(i), m.payload))
		for want := m.got.eager + 1; m.got.eager < want; {
			must(m.to.Poll())
		}
		if i%32 == 31 {
			must(m.from.Poll())
		}
	}
	return time.Since(start)
}
