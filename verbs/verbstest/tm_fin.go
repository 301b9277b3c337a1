package verbstest

import (
	"bytes"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 2.4 and 1.3 on FINs: when they are sent, what they contain, and
// which receive they complete, by kind of connection.

// forFIN posts a receive of the sender that a FIN fits into.
func (r *tagRig) forFIN(id uint64) []byte {
	r.t.Helper()
	mr, buf := r.a.mem(64)
	r.a.recv(r.qa, id, sge(mr, buf))
	return buf
}

// wantFIN polls the sender's receive id and checks the FIN in it (TMO 2.4).
func (r *tagRig) wantFIN(id, tag uint64, ctx uint32, buf []byte) {
	r.t.Helper()
	r.isFIN(received(r.a.want(id, verbs.WCSuccess), buf), tag, ctx)
}

func (e *env) isFIN(b []byte, tag uint64, ctx uint32) {
	e.t.Helper()
	if len(b) < verbs.TMHSize {
		e.t.Fatalf("a FIN of %d bytes", len(b))
	}
	if h := verbs.ParseTMH(b); h.Opcode != verbs.TMHFin || h.AppCtx != ctx || h.Tag != tag {
		e.t.Fatalf("FIN %+v, want tag %#x and context %d", h, tag, ctx)
	}
}

// testTagPlainPeer: a plain RC queue pair sends eager and rendezvous messages; each FIN takes the
// oldest receive of its own queue.
func testTagPlainPeer(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	fins := [][]byte{r.forFIN(20), r.forFIN(21), r.forFIN(22)}
	for i := range uint64(2) {
		r.add(1, 5, exact, r.bbuf)
		r.hit(1, 5)
		r.add(2, 6, exact, r.bbuf)
		r.rndv(6, uint32(i), 3000)
		r.matched(2, 6, uint32(i), r.abuf[rndvOffset:][:3000], r.bbuf)
		w := r.a.want(20+i, verbs.WCSuccess)
		if w.Opcode != verbs.WCRecv || w.QPNum != r.qa.Num() {
			t.Errorf("%+v, want RECV on queue pair %d", w, r.qa.Num())
		}
		r.isFIN(received(w, fins[i]), 6, uint32(i))
	}
	r.a.none()
}

// testTagFIN: the FIN has the 32 bytes of the request's TMH, with its opcode changed, and RVH.
func testTagFIN(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	fmr, fin := r.a.mem(64)
	for _, n := range []int{0, 5000} {
		r.a.recv(r.qa, 8, sge(fmr, fin))
		r.add(1, 5, exact, r.bbuf)
		m := r.rndv(5, 0xfedcba98, n)
		r.matched(1, 5, 0xfedcba98, r.abuf[rndvOffset:][:n], r.bbuf)
		w := r.a.want(8, verbs.WCSuccess)
		m[0] = byte(verbs.TMHFin)
		if got := received(w, fin); !bytes.Equal(got, m[:32]) || w.Opcode != verbs.WCRecv || w.QPNum != r.qa.Num() {
			t.Errorf("FIN %x with %+v, want %x", got, w, m[:32])
		}
	}
}

// testTagFINLengths: whoever sends it, a FIN may have its TMH alone, or more than its headers.
func testTagFINLengths(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	lengths := []int{16, 17, 31, 32, 33, 64, 200}
	r.untagged(len(lengths))
	r.add(1, 0, 0, r.bbuf)
	for k, n := range lengths {
		m := r.message(verbs.TMHFin, 5, 6, 200)[:n]
		r.raw(r.qa, false, m)
		w := r.b.want(untaggedID+uint64(k), verbs.WCSuccess)
		if w.Opcode != verbs.WCTMNoTag || !bytes.Equal(received(w, r.ubuf[k*r.room:]), m) {
			t.Fatalf("FIN of %d bytes: %+v", n, w)
		}
		r.sent()
	}
}

// testTagRndv: when the FIN arrives, the data is in the buffer, whether the receiver has polled its
// completion or not, for many sizes.
func testTagRndv(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	fmr, fin := r.a.mem(64)
	for i, n := range []int{1, 31, 4096, 100_000, 1 << 20, 3 << 20} {
		clear(r.bbuf)
		id, ctx := uint64(i), 1000+uint32(i)
		r.a.recv(r.qa, id, sge(fmr, fin))
		r.add(id, 5, exact, r.bbuf)
		r.rndv(5, ctx, n)
		r.wantFIN(id, 5, ctx, fin)
		if !bytes.Equal(r.bbuf[:n], r.abuf[rndvOffset:][:n]) {
			t.Fatalf("the FIN is here before the %d bytes", n)
		}
		r.matched(id, 5, ctx, r.abuf[rndvOffset:][:n], r.bbuf)
		if r.bbuf[n] != 0 {
			t.Fatal("more was written than was sent")
		}
	}
}

// testTagNoFIN: the device sends no FIN for a rendezvous that it leaves to software.
func testTagNoFIN(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(1)
	r.forFIN(8)
	r.unexpected(0, r.rndv(5, 1, 1000))
	r.count++
	r.a.none()
	for _, n := range []int{999, 0} {
		r.add(1, 5, exact, r.bbuf[:n])
		r.rndv(5, 2, 1000)
		r.b.want(1, verbs.WCTMRndvIncomplete)
		if opts.TwoIncomplete {
			r.b.want(1, verbs.WCSuccess)
		}
		r.a.none()
	}
	r.b.none()
}

// testTagFINContext: of several rendezvous at once, each FIN has the app_ctx of its own request.
func testTagFINContext(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	ctxs := []uint32{0, 1, 1 << 31, 0xffffffff, 0x01020304, 77}
	bufs := map[uint64][]byte{}
	for i := range ctxs {
		bufs[20+uint64(i)] = r.forFIN(20 + uint64(i))
		r.add(uint64(i), 100+uint64(i), exact, r.bbuf[i*2000:][:2000])
	}
	for i, ctx := range ctxs {
		r.rndv(100+uint64(i), ctx, 2000-300*i)
	}
	seen := map[uint64]bool{}
	for range ctxs {
		w := r.a.next()
		h := verbs.ParseTMH(received(w, bufs[w.WRID]))
		if i := h.Tag - 100; i >= uint64(len(ctxs)) || seen[i] || h.AppCtx != ctxs[i] || h.Opcode != verbs.TMHFin {
			t.Fatalf("FIN %+v, contexts are %v", h, ctxs)
		}
		seen[h.Tag-100] = true
	}
	r.a.none()
}

// duplex are two nodes with a tag-matching SRQ each and two connections, one for each way (TMO
// 1.3).
type duplex struct {
	*env
	srq    [2]verbs.SRQ
	tx, tm [2]verbs.QP
	mr     [2]verbs.MR
	buf    [2][]byte // source, destination, and room for a FIN
	size   int
	count  uint32
}

func newDuplex(t *testing.T, open Opener, opts TagOptions, size int) *duplex {
	t.Helper()
	d := &duplex{env: newEnv(t, open, 2), size: size, count: opts.InitialCount}
	for i, n := range d.nodes {
		n.cq, d.srq[i] = n.tagSRQ(15, 64)
		d.mr[i], d.buf[i] = n.mem(2*size + 64)
		d.tx[i] = n.newQP(qpConf{srq: d.srq[i], cap: verbs.QPCap{MaxSendWR: 16, MaxSendSGE: 1, MaxInlineData: 64}})
		d.tm[i] = n.newQP(qpConf{srq: d.srq[i], cap: verbs.QPCap{MaxRecvSGE: 1}})
	}
	for i, n := range d.nodes {
		n.raise(d.tx[i], d.nodes[1-i].dev, d.tm[1-i].Num(), qpConf{})
		n.raise(d.tm[i], d.nodes[1-i].dev, d.tx[1-i].Num(), qpConf{})
	}
	return d
}

// add puts receive 5 for tag 8 into the list of side i.
func (d *duplex) add(i int) {
	d.t.Helper()
	clear(d.buf[i][d.size : 2*d.size])
	_, err := d.srq[i].PostSRQOps(&verbs.OpsWR{Opcode: verbs.WRTagAdd, Flags: verbs.OpsTMSync | verbs.OpsSignaled, WRID: 6,
		UnexpectedCnt: d.count, Add: verbs.TagAdd{RecvWRID: 5, SGList: sge(d.mr[i], d.buf[i][d.size:2*d.size]), Tag: 8, Mask: exact}})
	d.ok(err)
	d.nodes[i].want(6, verbs.WCSuccess)
}

// untagged posts an untagged buffer to side i.
func (d *duplex) untagged(i int, id uint64) {
	d.t.Helper()
	d.nodes[i].srqRecv(d.srq[i], id, sge(d.mr[i], d.buf[i][2*d.size:]))
}

// rndv sends the whole source of side i.
func (d *duplex) rndv(i int, ctx uint32, flags verbs.SendFlags) {
	d.t.Helper()
	m := make([]byte, 32)
	verbs.TMH{Opcode: verbs.TMHRndv, Tag: 8, AppCtx: ctx}.Put(m)
	verbs.RVH{VA: d.mr[i].Addr(), RKey: d.mr[i].RKey(), Len: uint32(d.size)}.Put(m[16:])
	d.nodes[i].send(d.tx[i], inline(77, flags, m))
}

// testTagFINBuffer: a FIN to a TM-SRQ waits for an untagged buffer, and takes it.
func testTagFINBuffer(t *testing.T, open Opener, opts TagOptions) {
	d := newDuplex(t, open, opts, 5000)
	d.add(1)
	d.rndv(0, 9, 0)
	for range 2 { // MATCH and DATA_VALID
		d.nodes[1].want(5, verbs.WCSuccess)
	}
	d.nodes[0].none()
	d.untagged(0, 20)
	w := d.nodes[0].want(20, verbs.WCSuccess)
	d.isFIN(received(w, d.buf[0][2*d.size:]), 8, 9)
	d.untagged(0, 21)
	d.nodes[0].none()
	d.nodes[1].none()
}

// testTagFINPair: a FIN comes on the connection that its request went by: from the receiver's tm to
// the sender's tx.
func testTagFINPair(t *testing.T, open Opener, opts TagOptions) {
	d := newDuplex(t, open, opts, 5000)
	for i := range d.nodes {
		d.untagged(i, 20)
		d.add(1 - i)
		d.rndv(i, 9, 0)
		for range 2 {
			if w := d.nodes[1-i].want(5, verbs.WCSuccess); w.Flags&verbs.WCFlagTMDataValid != 0 && w.QPNum != d.tm[1-i].Num() {
				t.Errorf("the request came on queue pair %d, want %d", w.QPNum, d.tm[1-i].Num())
			}
		}
		if w := d.nodes[i].want(20, verbs.WCSuccess); w.QPNum != d.tx[i].Num() {
			t.Errorf("the FIN came on queue pair %d, want %d", w.QPNum, d.tx[i].Num())
		}
	}
}

// testTagBothSides: both sides send and receive at once, round after round.
func testTagBothSides(t *testing.T, open Opener, opts TagOptions) {
	d := newDuplex(t, open, opts, 70_000)
	for k := range uint32(20) {
		for i := range d.nodes {
			copy(d.buf[i][:d.size], pattern(d.size, i+int(k)))
			d.untagged(i, 20)
			d.add(i)
		}
		for i := range d.nodes {
			d.rndv(i, k, verbs.SendSignaled)
		}
		for i, n := range d.nodes {
			for ends := 0; ends < 3; {
				w := n.next()
				switch {
				case w.Status != verbs.WCSuccess:
					t.Fatalf("%+v", w)
				case w.WRID == 20:
					d.isFIN(received(w, d.buf[i][2*d.size:]), 8, k)
					ends++
				case w.WRID == 77, w.Flags&verbs.WCFlagTMDataValid != 0:
					ends++
				}
			}
			if !bytes.Equal(d.buf[i][d.size:2*d.size], pattern(d.size, 1-i+int(k))) {
				t.Fatalf("round %d: wrong data", k)
			}
		}
	}
}
