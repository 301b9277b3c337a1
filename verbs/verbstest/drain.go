package verbstest

import (
	"bytes"
	"encoding/binary"

	"github.com/tagmatch/tagmatch/verbs"
)

// handlerFunc is a Handler.
type handlerFunc func(wc *verbs.WC) bool

func (f handlerFunc) Complete(wc *verbs.WC) bool { return f(wc) }

// Collector is a Handler that keeps completions, with copies of their Data.
type Collector struct{ WCs []verbs.WC }

func (c *Collector) Complete(wc *verbs.WC) bool {
	c.WCs = append(c.WCs, *wc)
	c.WCs[len(c.WCs)-1].Data = bytes.Clone(wc.Data)
	return false
}

// Poll drains completions into wcs, as a Collector keeps them, and returns how many.
func Poll(cq verbs.CQ, wcs []verbs.WC) (int, error) {
	return cq.Drain(&Collector{wcs[:0]}, len(wcs))
}

// drain has h handle at most so many completions of a node's completion queue.
func (n *node) drain(most int, h handlerFunc) (k int) {
	n.e.t.Helper()
	k, err := n.cq.Drain(h, most)
	n.e.ok(err)
	if k > most {
		n.e.t.Fatalf("Drain handed over %d completions, %d were asked for", k, most)
	}
	return k
}

// turns polls a and calls turn, in turns, until cond holds.
func (e *env) turns(what string, a *node, turn func(), cond func() bool) {
	e.t.Helper()
	for i := 0; !cond(); i++ {
		if i == 1<<22 {
			e.t.Fatalf("waited in vain for %s", what)
		}
		a.pollCQ(a.cq)
		turn()
	}
}

// numbered is an inline message that says its number.
func numbered(i uint64) verbs.SendWR {
	return inline(i, verbs.SendSignaled, binary.LittleEndian.AppendUint64(nil, i))
}

// testDrainOrder: messages and the completions of sends to the other side are handed over in order,
// each once, with its bytes, whatever the number that Drain is to hand over, and also where a Drain
// of another CQ has found them.
func testDrainOrder(e *env, a, b *node) {
	const messages = 200
	srq := b.newSRQ(16)
	mr, buf := b.mem(16 * 64)
	slot := func(i uint64) []byte { return buf[i*64 : i*64+64] }
	for i := range uint64(16) {
		b.srqRecv(srq, i, sge(mr, slot(i)))
	}
	qa, _ := e.connect(a, b, qpConf{}, qpConf{srq: srq})
	sent, got := uint64(0), uint64(0)
	take := func(wc *verbs.WC) bool {
		data := received(*wc, slot(wc.WRID))
		if want := binary.LittleEndian.AppendUint64(nil, got); wc.Status != verbs.WCSuccess || !bytes.Equal(data, want) {
			e.t.Fatalf("message %d: %v, %x", got, wc.Status, data)
		}
		if got++; got%3 == 0 && wc.Data != nil {
			return true // posted again by the device
		}
		b.srqRecv(srq, wc.WRID, sge(mr, slot(wc.WRID)))
		return false
	}
	e.turns("all messages", a, func() {
		for ; sent < messages && sent < got+32; sent++ {
			a.send(qa, numbered(sent))
		}
		if got%7 == 6 {
			b.pollOther()
		}
		b.drain(1+int(got%5), take)
	}, func() bool { return got == messages })
}

// testDrainAgain: a receive that the handler gives back takes the next message too: one is enough
// for any number of messages that were lent, and none of them finds the queue empty.
func testDrainAgain(e *env, a, b *node) {
	srq := b.newSRQ(4)
	mr, buf := b.mem(64)
	b.srqRecv(srq, 7, sge(mr, buf))
	qa, _ := e.connect(a, b, qpConf{rnr: 7, rnrSet: true}, qpConf{srq: srq})
	const messages = 20
	for i := range uint64(messages) {
		a.send(qa, numbered(i))
	}
	got := uint64(0)
	e.turns("all messages", a, func() {
		b.drain(8, func(wc *verbs.WC) bool {
			if n := binary.LittleEndian.Uint64(received(*wc, buf)); wc.WRID != 7 || n != got {
				e.t.Fatalf("message %d came by receive %d as number %d", n, wc.WRID, got)
			}
			got++
			if wc.Data != nil {
				return true
			}
			b.srqRecv(srq, 7, sge(mr, buf))
			return false
		})
	}, func() bool { return got == messages })
	if n := b.limits(srq); n.MaxWR < 4 {
		e.t.Fatalf("the queue has room for %d receives now", n.MaxWR)
	}
	for i := range uint64(b.limits(srq).MaxWR - 1) { // the one that was given back takes a place
		b.srqRecv(srq, 100+i, nil)
	}
	if _, err := srq.PostSRQRecv(&verbs.RecvWR{}); err == nil {
		e.t.Fatal("the receive that was given back takes no place in the queue")
	}
}

// testDrainStop: a Drain that its handler stops hands over nothing more, and the next ones what has
// come meanwhile.
func testDrainStop(e *env, a, b *node) {
	const messages = 50
	srq := b.newSRQ(messages)
	for i := range uint64(messages) {
		b.srqRecv(srq, i, nil)
	}
	qa, _ := e.connect(a, b, qpConf{}, qpConf{srq: srq})
	b.cq.Stop() // no Drain is under way
	for i := range uint64(messages) {
		a.send(qa, inline(i, 0, nil))
	}
	got, most := 0, 0
	take := func(wc *verbs.WC) bool {
		if wc.Status != verbs.WCSuccess || wc.WRID != uint64(got) {
			e.t.Fatalf("message %d: receive %d, %v", got, wc.WRID, wc.Status)
		}
		got++
		return false
	}
	e.turns("all messages", a, func() {
		most = max(most, b.drain(8, func(wc *verbs.WC) bool {
			b.cq.Stop()
			return take(wc)
		}))
	}, func() bool { return got == messages })
	if most > 1 {
		e.t.Fatalf("Drain went on after Stop: %d completions", most)
	}
}

// testDrainPosts: the handler answers each message from inside, and moves the queue pair to ERR at
// the last one: what comes behind that is not received, and what it posts then is flushed.
func testDrainPosts(e *env, a, b *node) {
	const messages = 50
	srq := b.newSRQ(16)
	for i := range uint64(16) {
		b.srqRecv(srq, i, nil)
	}
	asrq := a.newSRQ(64)
	for i := range uint64(64) {
		a.srqRecv(asrq, 1000+i, nil)
	}
	qa, qb := e.connect(a, b, qpConf{srq: asrq}, qpConf{srq: srq})
	for i := range uint64(messages + 10) {
		a.send(qa, inline(i, 0, nil))
	}
	got, flushed, answers := 0, 0, 0
	turn := func() {
		b.drain(8, func(wc *verbs.WC) bool {
			switch {
			case wc.Opcode == verbs.WCRecv && wc.Status == verbs.WCSuccess:
				if got++; got > messages {
					e.t.Fatal("a queue pair receives in ERR")
				}
				if got < messages {
					b.send(qb, inline(0, 0, nil))
					b.srqRecv(srq, wc.WRID, nil)
					return false
				}
				e.ok(qb.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
				b.send(qb, inline(77, verbs.SendSignaled, nil))
			case wc.WRID == 77 && wc.Status == verbs.WCWRFlushErr:
				flushed++
			}
			return false
		})
		for ; len(a.got) > 0; a.got = a.got[1:] {
			if w := a.got[0]; w.WRID >= 1000 && w.Status == verbs.WCSuccess {
				answers++
			}
		}
	}
	e.turns("the flushed request", a, turn, func() bool { return flushed == 1 })
	for range 300 {
		a.pollCQ(a.cq)
		turn()
	}
	if got != messages || answers >= messages || flushed != 1 {
		e.t.Fatalf("%d messages, %d answers, %d flushed", got, answers, flushed)
	}
}
