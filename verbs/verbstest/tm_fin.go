package verbstest

import (
	"bytes"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 2.4 and 1.3 on FINs: when they are sent, what they contain, and
// which receive they complete, by kind of connection.

// finBuffer posts receive 8 of the sender, for a FIN, and returns its buffer.
func (r *tagRig) finBuffer() []byte { r.t.Helper(); return r.forFIN(8) }

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

// testTagFIN: a plain RC queue pair sends eager and rendezvous messages. A FIN takes the oldest
// receive of its queue. It has the 32 bytes of the request's TMH, with its opcode changed, and RVH.
func testTagFIN(r *tagRig) {
	fins := [][]byte{r.forFIN(20), r.forFIN(21), r.forFIN(22)}
	for i, n := range []int{0, 5000} {
		r.add(1, 5, exact, r.bbuf)
		r.hit(1, 5)
		r.add(2, 6, exact, r.bbuf)
		m := r.rndv(6, 0xfedcba98, n)
		r.matched(2, 6, 0xfedcba98, r.abuf[rndvOffset:][:n], r.bbuf)
		w := r.a.want(20+uint64(i), verbs.WCSuccess)
		m[0] = byte(verbs.TMHFin)
		if got := received(w, fins[i]); !bytes.Equal(got, m[:32]) || w.Opcode != verbs.WCRecv || w.QPNum != r.qa.Num() {
			r.t.Errorf("FIN %x with %+v, want %x", got, w, m[:32])
		}
	}
	r.a.none()
}

// testTagRndv: a rendezvous has MATCH, then its data, then DATA_VALID, and a FIN at the sender, in
// either order. The send ends with the FIN: its buffer is not read after that. It does not end with
// the completion of a request that was unexpected. Devices read the longest one in parts.
func testTagRndv(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(1)
	fin := r.finBuffer()
	m := r.rawRndv(verbs.TMHRndv, 5, 7, 1000)
	r.raw(r.qa, m)
	r.sent()
	r.a.none()
	r.handled(m)
	for i, n := range []int{1, 31, 3000, 4096, 50_000, 600_000} {
		ctx, data := 100+uint32(i), r.abuf[rndvOffset:][:n]
		clear(r.bbuf[:n+1])
		r.add(1, 5, exact, r.bbuf[:n])
		r.rndv(5, ctx, n)
		r.match(1, 5, ctx)
		r.until("both ends", func() bool {
			if len(r.a.got)+len(r.b.got) > 0 && !bytes.Equal(r.bbuf[:n], data) {
				r.t.Fatalf("an end before the %d bytes", n)
			}
			return len(r.a.got) > 0 && len(r.b.got) > 0
		})
		r.wantFIN(8, 5, ctx, fin)
		r.completes(verbs.WC{WRID: 1, Opcode: verbs.WCTMRecv, Flags: flagData, ByteLen: uint32(n), QPNum: r.qb.Num()})
		clear(data) // the sender owns it again
		r.a.none()
		if !bytes.Equal(r.bbuf[:n], pattern(len(r.abuf), 3)[rndvOffset:][:n]) || r.bbuf[n] != 0 {
			r.t.Fatalf("%d bytes were read again, after the FIN, or too many", n)
		}
		fin = r.finBuffer()
		copy(data, pattern(len(r.abuf), 3)[rndvOffset:])
	}
	r.b.none()
}

// testTagFINForgotten: a FIN that a queue pair in RTR could not send yet is forgotten when the
// queue pair is reset: its next peer gets the FINs of its own requests only.
func testTagFINForgotten(r *tagRig) {
	r.qa, r.qb = r.a.newQP(qpConf{}), r.b.newQP(r.conf())
	r.a.raise(r.qa, r.b.dev, r.qb.Num(), qpConf{})
	r.ok(r.qb.Modify(initAttr(allAccess)))
	r.ok(r.qb.Modify(rtrAttr(r.a.dev, r.qa.Num())))
	r.add(1, 5, exact, r.bbuf)
	r.rndv(5, 3, 0) // without a read, which would wait for RTS
	r.halves(1, 5, 3, 0)
	r.ok(r.qb.Modify(stateAlone(verbs.QPSReset)))
	if !r.opts.Silent {
		r.inErr(r.qa)
	}
	r.settle()
	r.a.got = nil // its request may have completed or not
	r.qa = r.a.newQP(qpConf{})
	r.a.raise(r.qa, r.b.dev, r.qb.Num(), qpConf{})
	r.b.raise(r.qb, r.a.dev, r.qa.Num(), qpConf{})
	fin := r.finBuffer()
	r.add(1, 5, exact, r.bbuf)
	r.rndv(5, 4, 0)
	r.halves(1, 5, 4, 0)
	r.wantFIN(8, 5, 4, fin)
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

// testTagFINBuffer: each FIN to a TM-SRQ takes an untagged buffer, and waits for it: its send ends
// later. It comes on the connection that its request went by: from the receiver's tm to the
// sender's tx.
func testTagFINBuffer(t *testing.T, open Opener, opts TagOptions) {
	const sends = 3
	d := newDuplex(t, open, opts, 5000)
	for i, n := range d.nodes {
		for range sends {
			d.add(1 - i)
		}
		for k := range uint32(sends) {
			d.rndv(i, k, 0)
		}
		for range 2 * sends { // MATCH and DATA_VALID of each
			if w := d.nodes[1-i].want(5, verbs.WCSuccess); w.Flags&flagData != 0 && w.QPNum != d.tm[1-i].Num() {
				t.Errorf("the request came on queue pair %d, want %d", w.QPNum, d.tm[1-i].Num())
			}
		}
		for k := range uint32(sends) {
			n.none()
			d.untagged(i, 20)
			w := n.want(20, verbs.WCSuccess)
			d.isFIN(received(w, d.buf[i][2*d.size:]), 8, k)
			if w.QPNum != d.tx[i].Num() {
				t.Errorf("the FIN came on queue pair %d, want %d", w.QPNum, d.tx[i].Num())
			}
		}
		d.untagged(i, 21)
		n.none()
		d.nodes[1-i].none()
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
