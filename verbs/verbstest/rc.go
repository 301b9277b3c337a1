package verbstest

import (
	"syscall"
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 8 that need no data to move.

// testBadAttributes: an attribute with an impossible value makes Modify fail, and nothing has changed, the others included.
func testBadAttributes(t *testing.T, open Opener) {
	e := newEnv(t, open, 1)
	n := e.nodes[0]
	qp := n.newQP(qpConf{})
	refused := func(what string, attr *verbs.QPAttr, mask verbs.QPAttrMask) {
		t.Helper()
		before, _ := qp.Query()
		if err := qp.Modify(attr, mask); err == nil {
			t.Fatalf("%v takes a bad %s", before.State, what)
		} else {
			e.errno(err, syscall.EINVAL)
		}
		if after, _ := qp.Query(); !sameAttr(before, after) || qp.State() != before.State {
			t.Fatalf("a bad %s changed %+v to %+v", what, before, after)
		}
	}
	try := func(base func() (*verbs.QPAttr, verbs.QPAttrMask), spoil map[string]func(a *verbs.QPAttr)) {
		t.Helper()
		for what, f := range spoil {
			attr, mask := base()
			f(attr)
			refused(what, attr, mask)
		}
		e.ok(qp.Modify(base()))
	}
	try(func() (*verbs.QPAttr, verbs.QPAttrMask) { return initAttr(allAccess) }, map[string]func(a *verbs.QPAttr){
		"Port":        func(a *verbs.QPAttr) { a.Port = 9 },
		"PKeyIndex":   func(a *verbs.QPAttr) { a.PKeyIndex = 60_000 },
		"AccessFlags": func(a *verbs.QPAttr) { a.AccessFlags = 1 << 30 },
	})
	try(func() (*verbs.QPAttr, verbs.QPAttrMask) { return rtrAttr(n.dev, qp.Num()) }, map[string]func(a *verbs.QPAttr){
		"PathMTU 0":       func(a *verbs.QPAttr) { a.PathMTU = 0 },
		"PathMTU 6":       func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU4096 + 1 },
		"RQPSN":           func(a *verbs.QPAttr) { a.RQPSN = 1 << 24 },
		"DestQPN":         func(a *verbs.QPAttr) { a.DestQPN = 1 << 24 },
		"MinRNRTimer":     func(a *verbs.QPAttr) { a.MinRNRTimer = 32 },
		"MaxDestRdAtomic": func(a *verbs.QPAttr) { a.MaxDestRdAtomic = 255 },
		"address":         func(a *verbs.QPAttr) { a.AV.Address = []byte("nowhere") },
	})
	try(func() (*verbs.QPAttr, verbs.QPAttrMask) { return rtsAttr(7) }, map[string]func(a *verbs.QPAttr){
		"SQPSN":       func(a *verbs.QPAttr) { a.SQPSN = 1 << 24 },
		"RetryCnt":    func(a *verbs.QPAttr) { a.RetryCnt = 8 },
		"RNRRetry":    func(a *verbs.QPAttr) { a.RNRRetry = 8 },
		"Timeout":     func(a *verbs.QPAttr) { a.Timeout = 32 },
		"MaxRdAtomic": func(a *verbs.QPAttr) { a.MaxRdAtomic = 255 },
	})
	if a, _ := qp.Query(); a.RNRRetry != 7 || a.RetryCnt != 7 || a.MinRNRTimer != 14 || a.AccessFlags != allAccess || a.State != verbs.QPSRTS {
		t.Errorf("%+v", a)
	}
}

func sameAttr(a, b verbs.QPAttr) bool {
	same := string(a.AV.Address) == string(b.AV.Address)
	a.AV.Address, b.AV.Address = nil, nil
	return same && a.State == b.State && a.PathMTU == b.PathMTU && a.RQPSN == b.RQPSN && a.SQPSN == b.SQPSN && a.DestQPN == b.DestQPN &&
		a.AccessFlags == b.AccessFlags && a.MaxRdAtomic == b.MaxRdAtomic && a.MaxDestRdAtomic == b.MaxDestRdAtomic &&
		a.MinRNRTimer == b.MinRNRTimer && a.Timeout == b.Timeout && a.RetryCnt == b.RetryCnt && a.RNRRetry == b.RNRRetry
}

// testAcceptFromRTR: a receive that was posted in INIT takes a packet as soon as its queue pair is in RTR, not before.
func testAcceptFromRTR(t *testing.T, open Opener) {
	e := newEnv(t, open, 2)
	a, b := e.nodes[0], e.nodes[1]
	qa, qb := a.newQP(qpConf{}), b.newQP(qpConf{})
	e.ok(qb.Modify(initAttr(allAccess)))
	b.recv(qb, 1, nil)
	a.raise(qa, b.dev, qb.Num(), qpConf{})
	a.send(qa, inline(2, verbs.SendSignaled, nil))
	b.none()
	e.ok(qb.Modify(rtrAttr(a.dev, qa.Num())))
	b.want(1, verbs.WCSuccess)
	a.want(2, verbs.WCSuccess)
	_, err := qb.PostSend(&verbs.SendWR{Opcode: verbs.WRSend})
	e.errno(err, syscall.EINVAL)
}

// testRNRTimer: the responder's timer says how long a requester with finite retries waits: with the longest one a receive comes in
// time for a message that was there before another one, to a responder with the shortest timer, was given up.
func testRNRTimer(t *testing.T, open Opener) {
	e := newEnv(t, open, 3)
	a, b, c := e.nodes[0], e.nodes[1], e.nodes[2]
	connect := func(from, to *node, retries, timer uint8) (verbs.QP, verbs.QP) {
		conf := qpConf{rnr: retries, rnrSet: true}
		q, p := from.newQP(qpConf{}), to.newQP(qpConf{})
		from.raise(q, to.dev, p.Num(), conf)
		attr, mask := rtrAttr(from.dev, q.Num())
		attr.MinRNRTimer = timer
		e.ok(p.Modify(initAttr(allAccess)))
		e.ok(p.Modify(attr, mask))
		e.ok(p.Modify(rtsAttr(7)))
		return q, p
	}
	long, peer := connect(a, b, 6, 0) // 655.36 ms each
	short, _ := connect(c, b, 1, 1)   // 10 us
	a.send(long, inline(1, verbs.SendSignaled, nil))
	c.send(short, inline(2, verbs.SendSignaled, nil))
	c.want(2, verbs.WCRNRRetryExcErr)
	e.settle()
	if len(a.got) > 0 {
		t.Fatalf("%+v", a.got[0])
	}
	b.recv(peer, 3, nil)
	a.want(1, verbs.WCSuccess)
	b.want(3, verbs.WCSuccess)
}

// testOpcodeTable: the opcode-by-type table of ibv_post_send(3). A queue pair refuses what its type does not carry in whatever state;
// of what RC carries a device may leave out memory windows and invalidation.
func testOpcodeTable(t *testing.T, open Opener) {
	e := newEnv(t, open, 2)
	a, b := e.nodes[0], e.nodes[1]
	carries := map[verbs.QPType]string{ // by opcode 0 to 15
		verbs.QPTUD: "..xx......x.....", verbs.QPTUC: "xxxx...xxx......", verbs.QPTRC: "xxxxxxxxxx......",
		verbs.QPTXRCSend: "xxxxxxxxxx......", verbs.QPTRawPacket: "..x.......x.....",
	}
	for typ, row := range carries {
		qp, err := a.pd.CreateQP(&verbs.QPInitAttr{SendCQ: a.cq, RecvCQ: a.cq, Type: typ, Cap: verbs.QPCap{MaxSendWR: 4}})
		if err != nil {
			e.errno(err, syscall.EOPNOTSUPP)
			if typ == verbs.QPTRC {
				t.Fatal("no RC")
			}
			continue
		}
		for op := range verbs.SendOpcode(17) {
			if op < 16 && row[op] == 'x' {
				continue
			}
			wr := &verbs.SendWR{Opcode: op}
			bad, err := qp.PostSend(wr)
			e.errno(err, syscall.EINVAL)
			if bad != wr {
				t.Errorf("%v on %v: wrong failing request", op, typ)
			}
		}
		e.ok(qp.Destroy())
	}
	mr, buf := a.mem(8)
	rmr, _ := b.mem(8)
	for op := range verbs.SendOpcode(16) {
		qa, qb := e.connect(a, b, qpConf{}, qpConf{})
		b.recv(qb, 1, nil)
		wr := rdma(op, uint64(op), sge(mr, buf), rmr, 0)
		if op == verbs.WRSend || op == verbs.WRSendWithImm || op == verbs.WRSendWithInv {
			wr.SGList, wr.Imm = nil, rmr.RKey()
		}
		_, err := qa.PostSend(&wr)
		switch optional := op == verbs.WRLocalInv || op == verbs.WRBindMW || op == verbs.WRSendWithInv; {
		case carries[verbs.QPTRC][op] == '.':
			e.errno(err, syscall.EINVAL)
		case err != nil && optional:
			e.errno(err, syscall.EOPNOTSUPP)
		default:
			e.ok(err)
			a.want(uint64(op), verbs.WCSuccess)
		}
		e.settle()
		b.got = nil
	}
}

// testSendFlags: which flags go with which opcode on RC.
func testSendFlags(t *testing.T, open Opener) {
	e, _, _, qa, _ := pair(t, open)
	const (
		send, imm, write, writeImm = verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm
		read, swap, add            = verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd
	)
	for _, c := range []struct {
		flag verbs.SendFlags
		bad  []verbs.SendOpcode
	}{
		{verbs.SendSolicited, []verbs.SendOpcode{write, read, swap, add}},
		{verbs.SendInline, []verbs.SendOpcode{read, swap, add}},
		{verbs.SendIPCsum, []verbs.SendOpcode{send, imm, write, writeImm, read, swap, add}},
		{1 << 5, []verbs.SendOpcode{send, write, read}},
		{1 << 31, []verbs.SendOpcode{send, write, read}},
	} {
		for _, op := range c.bad {
			wr := &verbs.SendWR{Opcode: op, Flags: c.flag}
			bad, err := qa.PostSend(wr)
			e.errno(err, syscall.EINVAL)
			if bad != wr {
				t.Errorf("%v with %#x: wrong failing request", op, uint32(c.flag))
			}
		}
	}
}

// testSolicited: a receiver that is armed for solicited events is woken by a message that asks for it, also if the device works for
// another CQ meanwhile, and if messages came before that ask for nothing: they leave the CQ armed. Wake-ups for what arrives, of
// which a device may make any number, are used up first: what is left is the event.
func testSolicited(t *testing.T, open Opener) {
	e := newEnv(t, open, 2)
	a, b := e.nodes[0], e.nodes[1]
	ch, err := b.dev.CreateCompChannel()
	e.ok(err)
	cq, err := b.dev.CreateCQ(verbs.CQInitAttr{CQE: 64, Channel: ch})
	e.ok(err)
	b.onFree(ch.Close)
	b.onFree(cq.Destroy)
	qa, qb := e.connect(a, b, qpConf{}, qpConf{cq: cq})
	awake := func() { ch.Wake(); e.ok(ch.Wait()) }
	for i := range uint64(20) {
		e.ok(cq.Arm(true))
		b.pollCQ(cq)
		for range i % 3 {
			b.recv(qb, 100, nil)
			a.send(qa, inline(100, verbs.SendSignaled, nil))
			a.want(100, verbs.WCSuccess) // it has arrived, but its CQ was not polled
		}
		b.recv(qb, i, nil)
		a.send(qa, inline(i, verbs.SendSignaled|verbs.SendSolicited, nil))
		awake()
		a.want(i, verbs.WCSuccess)
		woken := make(chan error, 1)
		go func() { woken <- ch.Wait() }()
		select {
		case err := <-woken:
			e.ok(err)
		case <-time.After(patience):
			ch.Wake()
			t.Fatal("the receiver sleeps on")
		}
		e.until("the messages", func() bool { b.pollCQ(cq); return len(b.got) > int(i%3) })
		for range i % 3 {
			b.want(100, verbs.WCSuccess)
		}
		b.want(i, verbs.WCSuccess)
	}
}

// testErrorFields: an error completion names its request and its queue pair, also when several fail on one CQ.
func testErrorFields(t *testing.T, open Opener) {
	e := newEnv(t, open, 2)
	a, b := e.nodes[0], e.nodes[1]
	mr, buf := a.mem(64)
	rmr, _ := b.mem(8)
	want := map[uint64]uint32{}
	for i := range uint64(4) {
		qa, qb := e.connect(a, b, qpConf{}, qpConf{})
		b.recv(qb, 100+i, nil)
		a.send(qa, rdma(verbs.WRRDMAWrite, i, sge(mr, buf), rmr, 1<<20))
		a.send(qa, inline(50+i, 0, nil))
		want[i], want[50+i], want[100+i] = qa.Num(), qa.Num(), qb.Num()
	}
	e.until("all completions", func() bool { return len(a.got) == 8 && len(b.got) == 4 })
	for _, w := range append(a.got, b.got...) {
		if want[w.WRID] != w.QPNum || w.Status == verbs.WCSuccess || (w.Status == verbs.WCRemAccessErr) != (w.WRID < 50) {
			t.Errorf("%+v, want QP %d", w, want[w.WRID])
		}
		delete(want, w.WRID)
	}
	if len(want) > 0 {
		t.Errorf("no completions of %v", want)
	}
}

// testSRQIgnoresRecvCaps: the receive sizes of a queue pair with an SRQ are ignored.
func testSRQIgnoresRecvCaps(t *testing.T, open Opener) {
	e := newEnv(t, open, 1)
	n := e.nodes[0]
	n.newQP(qpConf{srq: n.newSRQ(4), cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1 << 31, MaxRecvSGE: 1 << 31}})
	_, err := n.pd.CreateQP(&verbs.QPInitAttr{SendCQ: n.cq, RecvCQ: n.cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxRecvWR: 1 << 31}})
	e.errno(err, syscall.EINVAL)
}

// testSRQChainFails: a chain of receives stops at the first that fails, for what it is or for want of room; those before it stay.
func testSRQChainFails(t *testing.T, open Opener) {
	e := newEnv(t, open, 2)
	a, b := e.nodes[0], e.nodes[1]
	attr := &verbs.SRQInitAttr{SRQAttr: verbs.SRQAttr{MaxWR: 4, MaxSGE: 1}}
	srq, err := b.pd.CreateSRQ(attr)
	e.ok(err)
	b.onFree(srq.Destroy)
	qa, _ := e.connect(a, b, qpConf{}, qpConf{srq: srq})
	wr := make([]verbs.RecvWR, attr.MaxWR+2)
	for i := range wr {
		wr[i].WRID = uint64(i)
		if i > 0 {
			wr[i-1].Next = &wr[i]
		}
	}
	wr[1].SGList = make([]verbs.SGE, attr.MaxSGE+1)
	bad, err := srq.PostSRQRecv(&wr[0])
	e.errno(err, syscall.EINVAL)
	if bad != &wr[1] {
		t.Fatalf("reports %+v", bad)
	}
	wr[1].SGList = nil
	bad, err = srq.PostSRQRecv(&wr[1])
	e.errno(err, syscall.ENOMEM)
	if bad != &wr[attr.MaxWR] {
		t.Fatalf("reports %+v", bad)
	}
	for i := range uint64(attr.MaxWR) {
		a.send(qa, inline(0, 0, nil))
		b.want(i, verbs.WCSuccess)
	}
	a.send(qa, inline(0, 0, nil)) // nothing else was posted
	b.none()
	b.srqRecv(srq, 99, nil)
	b.want(99, verbs.WCSuccess)
}
