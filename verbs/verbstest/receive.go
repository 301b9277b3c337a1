package verbstest

import (
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
)

func (n *node) srqRecv(srq verbs.SRQ, wrid uint64, sg []verbs.SGE) {
	n.e.t.Helper()
	_, err := srq.PostSRQRecv(&verbs.RecvWR{WRID: wrid, SGList: sg})
	n.e.ok(err)
}

// limits are the granted limits of an SRQ.
func (n *node) limits(srq verbs.SRQ) verbs.SRQAttr {
	n.e.t.Helper()
	at, err := srq.Query()
	n.e.ok(err)
	return at
}

// testRingFull: an SRQ, and a queue pair's own receive queue, have room for exactly the granted
// number of receives, until one is consumed.
func testRingFull(e *env, a, b *node) {
	srq := b.newSRQ(4)
	onSRQ, _ := e.connect(a, b, qpConf{}, qpConf{srq: srq})
	onOwn, own := e.connect(a, b, qpConf{}, qpConf{cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 4, MaxRecvSGE: 1}})
	_, init := e.query(own)
	for _, c := range []struct {
		from verbs.QP
		room uint32
		post func(wr *verbs.RecvWR) (*verbs.RecvWR, error)
	}{{onSRQ, b.limits(srq).MaxWR, srq.PostSRQRecv}, {onOwn, init.Cap.MaxRecvWR, own.PostRecv}} {
		if c.room < 4 {
			e.t.Fatalf("room for %d receives, 4 were asked for", c.room)
		}
		for i := range uint64(c.room) {
			_, err := c.post(&verbs.RecvWR{WRID: i})
			e.ok(err)
		}
		for i := range uint64(2) {
			wr := &verbs.RecvWR{WRID: 99}
			refuse(e, c.post, wr, wr, syscall.ENOMEM)
			a.send(c.from, inline(0, 0, nil))
			b.want(i, verbs.WCSuccess)
			_, err := c.post(&verbs.RecvWR{WRID: 50})
			e.ok(err)
		}
	}
}

// testTooManySGEs: lists longer than granted are refused, those of that length are not.
func testTooManySGEs(e *env, a, b *node, qa, qb verbs.QP) {
	srq := b.newSRQ(4)
	_, ia := e.query(qa)
	_, ib := e.query(qb)
	recv := func(post func(wr *verbs.RecvWR) (*verbs.RecvWR, error), most uint32) {
		e.t.Helper()
		_, err := post(&verbs.RecvWR{SGList: make([]verbs.SGE, most)})
		e.ok(err)
		wr := &verbs.RecvWR{SGList: make([]verbs.SGE, most+1)}
		refuse(e, post, wr, wr, syscall.EINVAL)
	}
	recv(srq.PostSRQRecv, b.limits(srq).MaxSGE)
	recv(qb.PostRecv, ib.Cap.MaxRecvSGE)
	_, err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, SGList: make([]verbs.SGE, ia.Cap.MaxSendSGE)})
	e.ok(err)
	wr := &verbs.SendWR{Opcode: verbs.WRSend, SGList: make([]verbs.SGE, ia.Cap.MaxSendSGE+1)}
	refuse(e, qa.PostSend, wr, wr, syscall.EINVAL)
	b.want(0, verbs.WCSuccess)
}

// testSRQIgnoresRecvCaps: the receive sizes of a queue pair with an SRQ are ignored: it has no
// receive queue of its own.
func testSRQIgnoresRecvCaps(e *env, n *node) {
	qp := n.newQP(qpConf{srq: n.newSRQ(4), cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1 << 31, MaxRecvSGE: 1 << 31}})
	e.ok(qp.Modify(initAttr(allAccess)))
	_, err := qp.PostRecv(&verbs.RecvWR{})
	e.errno(err, syscall.EINVAL)
	_, err = n.pd.CreateQP(&verbs.QPInitAttr{SendCQ: n.cq, RecvCQ: n.cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxRecvWR: 1 << 31}})
	e.errno(err, syscall.EINVAL)
}

// testSRQChainFails: a chain of receives stops at the first that fails, because it is invalid or
// for want of room; those before it stay.
func testSRQChainFails(e *env, a, b *node) {
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
	refuse(e, srq.PostSRQRecv, &wr[0], &wr[1], syscall.EINVAL)
	wr[1].SGList = nil
	refuse(e, srq.PostSRQRecv, &wr[1], &wr[attr.MaxWR], syscall.ENOMEM)
	for i := range uint64(attr.MaxWR) {
		a.send(qa, inline(0, 0, nil))
		b.want(i, verbs.WCSuccess)
	}
	a.send(qa, inline(0, 0, nil)) // nothing else was posted
	b.none()
	b.srqRecv(srq, 99, nil)
	b.want(99, verbs.WCSuccess)
}

// limitRig is an SRQ with eight receives and a connection to it; take consumes one.
func limitRig(e *env, a, b *node) (srq verbs.SRQ, take func()) {
	e.t.Helper()
	srq = b.newSRQ(8)
	qa, _ := e.connect(a, b, qpConf{}, qpConf{srq: srq})
	for i := range uint64(8) {
		b.srqRecv(srq, i, nil)
	}
	next := uint64(0)
	return srq, func() {
		e.t.Helper()
		a.send(qa, inline(0, 0, nil))
		b.want(next, verbs.WCSuccess)
		next++
	}
}

// testSRQNumbers: with two SRQs, of each type that the device has, each event has the number of its
// SRQ.
func testSRQNumbers(e *env, n *node) {
	srqs := []verbs.SRQ{n.newSRQ(4), n.newSRQ(4)}
	if n.matchesTags() {
		var tagged verbs.SRQ
		n.cq, tagged = n.tagSRQ(1, 1)
		srqs = append(srqs, tagged)
	}
	mr, buf := n.mem(8)
	seen := map[uint32]bool{}
	for i, srq := range srqs {
		if seen[srq.Num()] {
			e.t.Errorf("two SRQs have number %d", srq.Num())
		}
		seen[srq.Num()] = true
		from, _ := e.connect(n, n, qpConf{}, qpConf{srq: srq})
		n.srqRecv(srq, uint64(i), sge(mr, buf))
		e.ok(srq.Modify(verbs.SRQAttr{Limit: 1}, verbs.SRQLimit))
		n.send(from, inline(0, 0, []byte{byte(verbs.TMHNoTag)}))
		n.want(uint64(i), verbs.WCSuccess)
		if ev := n.wantEvent(verbs.EventSRQLimitReached); ev.QP != srq.Num() {
			e.t.Errorf("%+v, want SRQ %d", ev, srq.Num())
		}
	}
}

// testSRQLimit: the event comes with the receive that leaves fewer than the limit posted, not
// before.
func testSRQLimit(e *env, a, b *node) {
	srq, take := limitRig(e, a, b)
	take()
	e.ok(srq.Modify(verbs.SRQAttr{Limit: 6}, verbs.SRQLimit))
	if at := b.limits(srq); at.Limit != 6 {
		e.t.Errorf("the limit is %d, was set to 6", at.Limit)
	}
	take()
	e.settle()
	if len(b.evs) != 0 {
		e.t.Fatalf("event at 6 of 6: %+v", b.evs)
	}
	take()
	if ev := b.wantEvent(verbs.EventSRQLimitReached); ev.QP != srq.Num() {
		e.t.Errorf("%+v", ev)
	}
}

// testSRQLimitOnce: after its event the limit is off until it is armed again.
func testSRQLimitOnce(e *env, a, b *node) {
	srq, take := limitRig(e, a, b)
	for limit := uint32(8); limit > 4; limit -= 2 {
		e.ok(srq.Modify(verbs.SRQAttr{Limit: limit}, verbs.SRQLimit))
		take()
		b.wantEvent(verbs.EventSRQLimitReached)
		take()
		e.settle()
		if at := b.limits(srq); at.Limit != 0 || len(b.evs) != 0 {
			e.t.Errorf("the limit stays armed after its event: %+v, %+v", at, b.evs)
		}
	}
}

// testSRQResize: a resized queue has the new size; one that cannot be resized keeps the old.
func testSRQResize(e *env, n *node) {
	srq := n.newSRQ(4)
	at := n.limits(srq)
	if at.MaxWR < 4 || at.MaxSGE < 2 || at.Limit != 0 {
		e.t.Fatalf("%+v, 4 receives of 2 entries were asked for", at)
	}
	room := at.MaxWR
	if err := srq.Modify(verbs.SRQAttr{MaxWR: 2 * room}, verbs.SRQMaxWR); err != nil {
		e.errno(err, syscall.EINVAL)
	} else {
		room *= 2
	}
	for i := range uint64(room) {
		n.srqRecv(srq, i, nil)
	}
	if got := n.limits(srq).MaxWR; got < room {
		e.t.Errorf("room for %d, want %d", got, room)
	}
}

// testSRQOrder: many QPs of several devices on one SRQ. Order holds for each QP; receives are taken
// oldest first. Where a device works at several QPs at once, those that they have taken complete in
// any order.
func testSRQOrder(e *env, a, b, c *node) {
	srq := c.newSRQ(1024)
	const qps, each = 14, 30
	src := map[uint32]int{}
	var out []verbs.QP
	var from []*node
	for i := range qps {
		n := []*node{a, b}[i%2]
		qa, qb := e.connect(n, c, qpConf{}, qpConf{srq: srq})
		src[qb.Num()] = i
		out, from = append(out, qa), append(from, n)
	}
	mr, buf := c.mem(2 * qps * each)
	for i := range qps * each {
		c.srqRecv(srq, uint64(i), sge(mr, buf[2*i:2*i+2]))
	}
	next := make([]int, len(out))
	taken := make([]uint64, len(out)) // the newest receive of each queue pair
	done := map[uint64]bool{}
	ahead := uint64(0) // receives that are taken, and not complete
	if e.opts.ByItself {
		ahead = qps - 1
	}
	for k := range each {
		for i, q := range out {
			from[i].send(q, inline(0, 0, []byte{byte(i), byte(k)}))
		}
		e.poll()
	}
	for seen := range uint64(qps * each) {
		w := c.next()
		i := src[w.QPNum]
		oldest := w.WRID <= seen+ahead && (next[i] == 0 || w.WRID > taken[i])
		if w.Status != verbs.WCSuccess || !oldest || done[w.WRID] {
			e.t.Fatalf("QP %d: completion %d is of receive %d, with %v", i, seen, w.WRID, w.Status)
		}
		if m := received(w, buf[2*w.WRID:]); m[0] != byte(i) || m[1] != byte(next[i]) {
			e.t.Fatalf("QP %d: got %v, want message %d", i, m, next[i])
		}
		next[i]++
		taken[i], done[w.WRID] = w.WRID, true
	}
}
