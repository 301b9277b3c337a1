package progress

import (
	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/transport"
)

// Poster posts many operations of one engine, with one hold of the lock for many. Its methods are
// of one goroutine, which calls nothing else of the engine before Done.
type Poster struct {
	e *Engine
	n int // how many were posted with this hold
}

// postBatch is how many operations are posted before others may have the lock.
const postBatch = takeBatch

// Poster takes the lock, and lets go of it at Done.
func (e *Engine) Poster() Poster {
	e.mu.Lock()
	return Poster{e: e}
}

// Isend is Engine.Isend. Eager messages to one rank that follow each other are posted as a chain:
// so the request, with that mark, is in out at the end of Done, or before.
func (p *Poster) Isend(dst int, tag uint64, buf []byte, mark uint32, out *Request) {
	e := p.e
	if p.turn(); !p.add(dst, tag, buf, mark, out) {
		p.post()
		*out = e.isendLocked(dst, tag, buf).Mark(mark)
	}
}

// Irecv is Engine.Irecv.
func (p *Poster) Irecv(src int, tag, mask uint64, buf []byte) Request {
	p.turn()
	op := p.e.newOpLocked(noteRecv, src, tag, mask, buf)
	r := op.request()
	op.receive()
	return r
}

// turn lets others have the lock after each batch.
func (p *Poster) turn() {
	if p.n++; p.n > postBatch {
		p.yield()
	}
}

func (p *Poster) yield() {
	p.Done()
	p.e.mu.Lock()
	p.n = 1
}

// Done ends the use of the lock.
func (p *Poster) Done() {
	p.post()
	p.e.leaveLocked()
	p.e.mu.Unlock()
}

// chain is eager messages to one peer that a Poster gives to the transport by one call, which posts
// them as one chain of work requests. What concerns the peer is checked once. It is empty whenever
// the lock is free.
type chain struct {
	to   *peer  // of all of them
	cost uint64 // of the messages, credit
	n    int
	msgs [transport.MaxEagers]transport.Eager
	outs [transport.MaxEagers]chained
}

// chained is the caller's place for the request of a message.
type chained struct {
	out  *Request
	mark uint32
}

// add adds a send to the chain if it need not wait. What is there and goes elsewhere is posted.
func (p *Poster) add(dst int, tag uint64, buf []byte, mark uint32, out *Request) bool {
	e, c := p.e, &p.e.chain
	if len(buf) > e.cfg.EagerLimit {
		return false
	}
	if c.n != 0 && (c.to.rank != dst || c.n == len(c.msgs)) {
		p.post()
	}
	if c.n == 0 && !p.begin(dst) {
		return false
	}
	cost := c.cost + unexpected.EagerCost(len(buf))
	if !c.to.covers(cost) {
		return false
	}
	c.cost = cost
	// Field by field: a literal is made on the stack, and copied by loads wider than its stores.
	m, o := &c.msgs[c.n], &c.outs[c.n]
	m.Tag, m.Payload = tag, buf
	o.out, o.mark = out, mark
	c.n++
	return true
}

// begin makes the chain, which is empty, one to dst, and reports whether sends to dst need not
// wait. That stays so as long as the lock is held.
func (p *Poster) begin(dst int) bool {
	e := p.e
	if uint(dst) >= uint(len(e.peers)) || e.broken != nil {
		return false
	}
	to := e.peers[dst]
	e.chain.to = to
	return to != nil && to.lost == nil && to.out.Empty()
}

// post posts the chain. Messages that the transport does not take then are sent as single ones are.
func (p *Poster) post() {
	e, c := p.e, &p.e.chain
	if c.n == 0 {
		return
	}
	to, msgs := c.to, c.msgs[:c.n]
	sent := e.tr.SendEagers(to.rank, uint32(e.cfg.Rank), msgs)
	e.m.EagerSent += uint64(sent)
	for i := range msgs {
		m, o := &msgs[i], &c.outs[i]
		if i < sent {
			to.out.Charge(unexpected.EagerCost(len(m.Payload)))
			to.sentBytes.eager += uint64(len(m.Payload))
			if t := e.trace; t != nil {
				t.sent(trace.Sent, to, 0, m.Tag, len(m.Payload))
			}
			*o.out = e.sentLocked(to.rank, m.Tag, m.Payload).request().Mark(o.mark)
		} else {
			*o.out = e.isendLocked(to.rank, m.Tag, m.Payload).Mark(o.mark)
		}
		m.Payload, o.out = nil, nil
	}
	c.n, c.cost = 0, 0
}
