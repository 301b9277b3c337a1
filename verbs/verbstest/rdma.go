package verbstest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
)

func rdma(op verbs.SendOpcode, wrid uint64, local []verbs.SGE, mr verbs.MR, off int) verbs.SendWR {
	return verbs.SendWR{WRID: wrid, Opcode: op, Flags: verbs.SendSignaled, SGList: local, RemoteAddr: mr.Addr() + uint64(off), RKey: mr.RKey()}
}

func testWrite(e *env, a, b *node, qa, _ verbs.QP) {
	amr, abuf := a.mem(200_000)
	bmr, bbuf := b.mem(200_100)
	for i, size := range []int{1, 1000, 200_000} {
		copy(abuf, pattern(size, i))
		clear(bbuf)
		a.send(qa, rdma(verbs.WRRDMAWrite, 1, sge(amr, abuf[:size]), bmr, 50))
		if w := a.want(1, verbs.WCSuccess); w.Opcode != verbs.WCRDMAWrite {
			e.t.Fatalf("%+v", w)
		}
		if !bytes.Equal(bbuf[50:50+size], abuf[:size]) || bbuf[49] != 0 || bbuf[50+size] != 0 {
			e.t.Fatalf("%d bytes written wrong", size)
		}
	}
	wr := rdma(verbs.WRRDMAWrite, 2, []verbs.SGE{{Data: []byte("inline")}}, bmr, 7)
	wr.Flags |= verbs.SendInline
	a.send(qa, wr)
	a.want(2, verbs.WCSuccess)
	if string(bbuf[7:13]) != "inline" {
		e.t.Error("inline write went wrong")
	}
	b.none()
}

func testWriteImm(e *env, a, b *node, qa, qb verbs.QP) {
	amr, abuf := a.mem(50_000)
	bmr, bbuf := b.mem(50_000)
	copy(abuf, pattern(len(abuf), 1))
	for _, size := range []int{0, 10, 50_000} {
		wr := rdma(verbs.WRRDMAWriteWithImm, 1, sge(amr, abuf[:size]), bmr, 0)
		wr.Imm = 42
		a.send(qa, wr)
		a.none() // needs a receive
		b.recv(qb, 2, nil)
		w := b.want(2, verbs.WCSuccess)
		if w.Opcode != verbs.WCRecvRDMAWithImm || w.Imm != 42 || w.Flags&verbs.WCFlagWithImm == 0 || int(w.ByteLen) != size {
			e.t.Fatalf("%+v", w)
		}
		if !bytes.Equal(bbuf[:size], abuf[:size]) {
			e.t.Fatal("wrong data")
		}
		a.want(1, verbs.WCSuccess)
	}
}

// long is the size of a long READ: over a wire that loses packets each one costs a timeout.
func (e *env) long(size int) int {
	if e.opts.Lossy {
		return size / 8
	}
	return size
}

func testReadSizes(e *env, a, b *node, qa, _ verbs.QP) {
	most := e.long(8 << 20)
	amr, abuf := a.mem(most)
	bmr, bbuf := b.mem(most + 3)
	copy(bbuf, pattern(len(bbuf), 5))
	for _, size := range []int{0, 1, 100, 4096, 65_537, 256 << 10, e.long(1<<20 + 1), most} {
		clear(abuf)
		a.send(qa, rdma(verbs.WRRDMARead, 1, sge(amr, abuf[:size]), bmr, 3))
		if w := a.want(1, verbs.WCSuccess); w.Opcode != verbs.WCRDMARead || int(w.ByteLen) != size {
			e.t.Fatalf("%+v", w)
		}
		if !bytes.Equal(abuf[:size], bbuf[3:3+size]) {
			e.t.Fatalf("%d bytes read wrong", size)
		}
	}
	b.none()
}

// testSuccessImplies: when the last of several requests has succeeded so have the others, although
// they are unsignalled: the data of reads, which take longest, is here, and that of sends and
// writes is there.
func testSuccessImplies(e *env, a, b *node, qa, qb verbs.QP) {
	const small = 1000
	large := e.long(2 << 20)
	amr, abuf := a.mem(large)
	smr, sbuf := a.mem(small)
	bmr, bbuf := b.mem(large)
	dmr, dbuf := b.mem(2 * small)
	copy(bbuf, pattern(large, 2))
	for round, last := range []verbs.SendOpcode{verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead} {
		clear(abuf)
		copy(sbuf, pattern(small, round))
		b.recv(qb, 7, sge(dmr, dbuf[small:]))
		if last == verbs.WRSend {
			b.recv(qb, 8, nil)
		}
		for _, wr := range []verbs.SendWR{
			rdma(verbs.WRRDMARead, 1, sge(amr, abuf), bmr, 0),
			rdma(verbs.WRRDMAWrite, 2, sge(smr, sbuf), dmr, 0),
			{WRID: 3, Opcode: verbs.WRSend, SGList: sge(smr, sbuf)},
		} {
			wr.Flags = 0
			a.send(qa, wr)
		}
		a.send(qa, rdma(last, 4, nil, bmr, 0))
		a.want(4, verbs.WCSuccess)
		if !bytes.Equal(abuf, bbuf) || !bytes.Equal(sbuf, dbuf[:small]) {
			e.t.Fatalf("a %v has succeeded before the read and the write that precede it", last)
		}
		if w := b.want(7, verbs.WCSuccess); !bytes.Equal(received(w, dbuf[small:]), sbuf) {
			e.t.Fatalf("a %v has succeeded before the send that precedes it", last)
		}
		if last == verbs.WRSend {
			b.want(8, verbs.WCSuccess)
		}
		e.settle()
		if len(a.got) > 0 {
			e.t.Fatalf("%+v", a.got[0])
		}
	}
}

// testReadOrder: completions come in posting order, whatever mix of reads and sends.
func testReadOrder(e *env, a, b *node, qa, qb verbs.QP) {
	amr, abuf := a.mem(40 * 10_000)
	bmr, bbuf := b.mem(40 * 10_000)
	copy(bbuf, pattern(len(bbuf), 9))
	for i := range 40 {
		at, size := i*10_000, (i*i*7)%10_000
		if i%3 == 0 {
			b.recv(qb, uint64(i), nil)
			a.send(qa, inline(uint64(i), verbs.SendSignaled, nil))
		} else {
			a.send(qa, rdma(verbs.WRRDMARead, uint64(i), sge(amr, abuf[at:at+size]), bmr, at))
		}
	}
	for i := range 40 {
		a.want(uint64(i), verbs.WCSuccess)
		if at, size := i*10_000, (i*i*7)%10_000; i%3 != 0 && !bytes.Equal(abuf[at:at+size], bbuf[at:at+size]) {
			e.t.Fatalf("read %d: wrong data", i)
		}
	}
}

// testReadAfterWrite: a read sees the data of earlier writes on the same QP.
func testReadAfterWrite(e *env, a, b *node, qa, _ verbs.QP) {
	amr, abuf := a.mem(2 * 30_000)
	bmr, _ := b.mem(30_000)
	for i := range 10 {
		copy(abuf, pattern(30_000, i))
		wr := rdma(verbs.WRRDMAWrite, 1, sge(amr, abuf[:30_000]), bmr, 0)
		wr.Flags = 0
		a.send(qa, wr)
		a.send(qa, rdma(verbs.WRRDMARead, 2, sge(amr, abuf[30_000:]), bmr, 0))
		a.want(2, verbs.WCSuccess)
		if !bytes.Equal(abuf[:30_000], abuf[30_000:]) {
			e.t.Fatal("the read passed the write")
		}
	}
}

// testReadNotBlocking: a send posted behind a long read does not wait for it. A read may be faster,
// but not always; a device that works by itself may answer in the order of arrival, as rxe does.
func testReadNotBlocking(e *env, a, b *node, qa, qb verbs.QP) {
	amr, abuf := a.mem(e.long(8 << 20))
	bmr, _ := b.mem(len(abuf))
	for range 20 {
		b.recv(qb, 1, nil)
		a.send(qa, rdma(verbs.WRRDMARead, 1, sge(amr, abuf), bmr, 0))
		a.send(qa, inline(2, verbs.SendSignaled, nil))
		b.want(1, verbs.WCSuccess)
		passed := len(a.got) == 0
		a.want(1, verbs.WCSuccess)
		a.want(2, verbs.WCSuccess)
		if passed || e.opts.ByItself {
			return
		}
	}
	e.t.Error("the send waited for the read")
}

// testReadDeregistered: a region that is deregistered before or during a read fails it.
func testReadDeregistered(e *env, a, b *node) {
	for _, polls := range []int{0, 2} {
		qa, qb := e.connect(a, b, qpConf{}, qpConf{})
		amr, abuf := a.mem(e.long(8 << 20))
		bmr := b.reg(make([]byte, len(abuf)), allAccess)
		if polls == 0 {
			wr := rdma(verbs.WRRDMARead, 1, sge(amr, abuf), bmr, 0)
			e.ok(bmr.Dereg())
			a.send(qa, wr)
		} else {
			a.send(qa, rdma(verbs.WRRDMARead, 1, sge(amr, abuf), bmr, 0))
			for range polls {
				e.poll()
			}
			e.ok(bmr.Dereg())
			if _, async := b.dev.(letter); async || e.opts.ByItself {
				e.until("the end of the read", func() bool { return len(a.got) > 0 })
				if a.got[0].Status == verbs.WCSuccess {
					continue // the device was faster
				}
			}
		}
		w := a.next()
		unheard := polls > 0 && e.opts.DeafReads && w.Status == verbs.WCRetryExcErr
		if w.WRID != 1 || !unheard && !e.refused(w.Status, verbs.WCRemAccessErr) {
			e.t.Fatalf("after %d polls: %+v", polls, w)
		}
		b.wantFailure(verbs.EventQPAccessErr, qb)
		e.inErr(qa, qb)
	}
}

// testReadFaults: with ReadFaults a refused read fails alone, signalled or not, whenever its region
// is deregistered; requests before and behind it are executed, and both QPs stay in RTS. A device
// without support does not grant that.
func testReadFaults(e *env, a, b *node) {
	const size = 1 << 20
	if !a.dev.Attr().ReadFaults {
		attr := verbs.QPInitAttr{SendCQ: a.cq, RecvCQ: a.cq, Type: verbs.QPTRC, ReadFaults: true}
		qp, err := a.pd.CreateQP(&attr)
		require.NoError(e.t, err)
		require.False(e.t, attr.ReadFaults)
		require.NoError(e.t, qp.Destroy())
		return
	}
	qa, qb := e.connect(a, b, qpConf{faults: true}, qpConf{faults: true})
	for polls := range 6 {
		a.got = nil
		amr, abuf := a.mem(size)
		kept, keptBuf := b.mem(64)
		gone := b.reg(make([]byte, size), allAccess)
		copy(keptBuf, "kept")
		bmr, bbuf := b.mem(64)
		b.recv(qb, 9, sge(bmr, bbuf))
		lmr, lbuf := a.mem(64)
		wr := rdma(verbs.WRRDMARead, 1, sge(amr, abuf), gone, 0)
		quiet := rdma(verbs.WRRDMARead, 2, sge(amr, abuf), gone, 0)
		quiet.Flags = 0
		if polls == 0 {
			e.ok(gone.Dereg())
		}
		a.send(qa, wr)
		a.send(qa, quiet)
		a.send(qa, rdma(verbs.WRRDMARead, 3, sge(lmr, lbuf), kept, 0))
		a.send(qa, verbs.SendWR{WRID: 4, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(lmr, lbuf[:5])})
		if polls > 0 {
			for range polls - 1 {
				e.poll()
			}
			e.ok(gone.Dereg())
		}
		b.want(9, verbs.WCSuccess)
		e.until("the reads and the send", func() bool { return len(a.got) > 0 && a.got[len(a.got)-1].WRID == 4 })
		wantFaults(e.t, a.got, polls == 0)
		if string(lbuf[:4]) != "kept" || state(qa) != verbs.QPSRTS || state(qb) != verbs.QPSRTS {
			e.t.Errorf("after a refused read: %q, %v, %v", lbuf[:4], state(qa), state(qb))
		}
	}
}

// testReadIntoDeregistered: the same for the region that a read writes to, which is not written
// after Dereg.
func testReadIntoDeregistered(e *env, a, b *node) {
	kinds := []bool{false}
	if a.dev.Attr().ReadFaults {
		kinds = append(kinds, true)
	}
	for _, alone := range kinds {
		faults := 0
		for polls := range 8 {
			if e.readIntoDeregistered(polls, alone) {
				faults++
			}
		}
		if faults == 0 {
			e.t.Errorf("with ReadFaults %v: no read failed", alone)
		}
	}
}

// readIntoDeregistered deregisters the region that a read writes to after a number of polls, with
// another read behind it, and reports whether the read failed: alone, with ReadFaults, else with
// its QP.
func (e *env) readIntoDeregistered(polls int, alone bool) (failed bool) {
	e.t.Helper()
	const size = 1 << 20
	a, b := e.nodes[0], e.nodes[1]
	qa, qb := e.connect(a, b, qpConf{faults: alone}, qpConf{faults: alone})
	amr, abuf := a.mem(size)
	lmr, lbuf := a.mem(64)
	bmr, bbuf := b.mem(size)
	copy(bbuf, pattern(size, 1))
	a.send(qa, rdma(verbs.WRRDMARead, 1, sge(amr, abuf), bmr, 0))
	a.send(qa, rdma(verbs.WRRDMARead, 2, sge(lmr, lbuf), bmr, 0))
	for range polls {
		e.poll()
	}
	e.ok(amr.Dereg())
	left := bytes.Clone(abuf)
	first := a.next()
	failed = first.Status == verbs.WCLocProtErr
	if first.WRID != 1 || !failed && first.Status != verbs.WCSuccess {
		e.t.Fatalf("%+v", first)
	}
	if failed && !alone {
		a.want(2, verbs.WCWRFlushErr)
		e.inErr(qa)
	} else {
		a.want(2, verbs.WCSuccess)
		if !bytes.Equal(lbuf, bbuf[:64]) || state(qa) != verbs.QPSRTS || state(qb) != verbs.QPSRTS {
			e.t.Errorf("after a read into what was deregistered: %v, %v", state(qa), state(qb))
		}
	}
	e.settle()
	if !bytes.Equal(left, abuf) || len(a.got) > 0 {
		e.t.Errorf("written after Dereg, or completions %+v", a.got)
	}
	return failed
}

// wantFaults checks the completions of testReadFaults. A read that was faster than the Dereg has
// succeeded.
func wantFaults(t *testing.T, got []verbs.WC, all bool) {
	t.Helper()
	if all && (len(got) != 4 || got[0].Status == verbs.WCSuccess || got[1].Status == verbs.WCSuccess) {
		t.Errorf("completions of reads of what was deregistered before: %+v", got)
	}
	last := uint64(0)
	for i := range got {
		wc := &got[i]
		fault := wc.Status == verbs.WCRemAccessErr && wc.WRID <= 2 && wc.Opcode == verbs.WCRDMARead
		if wc.WRID <= last || !fault && wc.Status != verbs.WCSuccess {
			t.Errorf("completion %+v after %d", *wc, last)
		}
		last = wc.WRID
	}
}

// testQPAccess: a queue pair allows its peer what its flags allow, no more, whatever the region
// allows.
func testQPAccess(e *env, a, b *node) {
	amr, abuf := a.mem(8)
	for op, right := range map[verbs.SendOpcode]verbs.AccessFlags{
		verbs.WRRDMARead: verbs.AccessRemoteRead, verbs.WRRDMAWrite: verbs.AccessRemoteWrite,
	} {
		bmr, bbuf := b.mem(8)
		copy(abuf, "original")
		wr := rdma(op, 1, sge(amr, abuf), bmr, 0)
		if op != verbs.WRRDMARead || !e.opts.OpenReads {
			qa, qb := e.connect(a, b, qpConf{}, qpConf{access: allAccess &^ right})
			a.send(qa, wr)
			a.want(1, verbs.WCRemAccessErr)
			e.inErr(qb)
			if string(abuf) != "original" || !bytes.Equal(bbuf, make([]byte, 8)) {
				e.t.Errorf("%v has moved data", op)
			}
		}
		qa, _ := e.connect(a, b, qpConf{}, qpConf{access: verbs.AccessLocalWrite | right})
		a.send(qa, wr)
		a.want(1, verbs.WCSuccess)
		if written := !bytes.Equal(bbuf, make([]byte, 8)); written != (op != verbs.WRRDMARead) {
			e.t.Errorf("%v had the right, and left %x", op, bbuf)
		}
	}
}

// testFence: a fenced send waits for earlier reads.
func testFence(e *env, a, b *node, qa, qb verbs.QP) {
	amr, abuf := a.mem(e.long(4 << 20))
	bmr, bbuf := b.mem(len(abuf))
	copy(bbuf, pattern(len(bbuf), 2))
	for range 2 {
		clear(abuf)
		b.recv(qb, 1, nil)
		a.send(qa, rdma(verbs.WRRDMARead, 1, sge(amr, abuf), bmr, 0))
		a.send(qa, inline(2, verbs.SendSignaled|verbs.SendFence, nil))
		b.want(1, verbs.WCSuccess)
		if !bytes.Equal(abuf, bbuf) {
			e.t.Fatal("the fenced send passed the read")
		}
		a.want(1, verbs.WCSuccess)
		a.want(2, verbs.WCSuccess)
	}
}
