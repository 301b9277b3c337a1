package progress

import (
	"context"

	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
)

// Probes look for a message that no receive has matched, neither here nor in the device. A probe
// that waits is a posted receive without a buffer, which only software has: so it has its place in
// the order of posting, later receives that overlap it stay out of the device (V6), senders without
// credit are sent a WANT for it, and a loss, a cancel or the end of the engine ends it. A message
// that finds it ends it with the message's status, and goes on to the next receive; one that finds
// a matched probe is taken out of the unexpected messages for it at once.

// opKind tells the probes among the posted receives.
type opKind uint8

const (
	kindReceive opKind = iota // any other operation too
	kindVector                // a receive into several buffers
	kindMessage               // a receive of a Message
	kindSend
	kindProbe
	kindMatchedProbe
)

func (k opKind) probe() bool { return k >= kindProbe }

// probe is a call that looks for a message. Its methods need the lock.
type probe struct {
	e         *Engine
	src       int
	tag, mask uint64
	m         *Message // of a matched one: what it fills in
}

// Probe waits until there is a message that matches, and says which is the oldest one. It stays
// where it is: another goroutine's receive may be faster than the caller's.
func (e *Engine) Probe(ctx context.Context, src int, tag, mask uint64) (Status, error) {
	if err := ctx.Err(); err != nil {
		return Status{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if m, ok := e.unexp.Find(tag, mask); ok {
		return messageStatus(m), nil
	}
	return probe{e, src, tag, mask, nil}.await(ctx)
}

// Iprobe is Probe that does not wait: it reports whether there is such a message. It makes progress
// if not.
func (e *Engine) Iprobe(src int, tag, mask uint64) (Status, bool, error) {
	e.mu.Lock()
	m, err := probe{e, src, tag, mask, nil}.look()
	if m == nil {
		e.wait.Vain()
		e.mu.Unlock()
		return Status{}, false, err
	}
	st := messageStatus(m)
	e.mu.Unlock()
	return st, true, nil
}

// Mprobe is Probe that takes the message out for the caller alone.
func (e *Engine) Mprobe(ctx context.Context, src int, tag, mask uint64) (*Message, error) {
	m := &Message{e: e}
	if err := m.probe(ctx, src, tag, mask); err != nil {
		return nil, err
	}
	return m, nil
}

// probe is Mprobe into m.
func (m *Message) probe(ctx context.Context, src int, tag, mask uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e := m.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if u, ok := e.unexp.Match(tag, mask); ok {
		m.hold(u)
		return nil
	}
	_, err := probe{e, src, tag, mask, m}.await(ctx)
	return err
}

// Improbe is Mprobe that does not wait, see Iprobe.
func (e *Engine) Improbe(src int, tag, mask uint64) (*Message, bool, error) {
	e.mu.Lock()
	if u, err := (probe{e, src, tag, mask, nil}).look(); u == nil {
		e.wait.Vain()
		e.mu.Unlock()
		return nil, false, err
	}
	u, _ := e.unexp.Match(tag, mask)
	m := &Message{e: e}
	m.hold(u)
	e.mu.Unlock()
	return m, true, nil
}

// messageStatus says what an unexpected message is.
func messageStatus(m *unexpected.Message) Status {
	n := len(m.Data)
	if m.Rndv {
		n = int(m.Len)
	}
	return Status{int(m.Src), m.Tag, int64(n)}
}

// look finds an unexpected message for a probe that does not wait, or returns nil. What a peer
// without credit holds up is sent for it.
func (p probe) look() (*unexpected.Message, error) {
	e := p.e
	m, ok := e.unexp.Find(p.tag, p.mask)
	if !ok {
		e.pollLocked()
		e.leaveLocked()
		m, ok = e.unexp.Find(p.tag, p.mask)
	}
	if ok {
		return m, nil
	}
	if err := e.checkRecvLocked(p.src, p.tag, p.mask); err != nil {
		return nil, err
	}
	p.ask()
	return nil, nil
}

// ask sends a WANT for a probe that does not wait, and has found nothing, to each peer that is held
// up and could satisfy it.
func (p probe) ask() {
	for _, r := range p.e.memory.HeldUp() {
		if p.e.sources.accepts(p.src, r.Rank) && r.Probe(p.tag, p.mask) {
			peer := p.e.peers[r.Rank]
			peer.inspected = true
			peer.tell()
		}
	}
}

// await posts a probe and waits for its message. The unexpected messages were searched before.
func (p probe) await(ctx context.Context) (Status, error) {
	if err := p.e.checkRecvLocked(p.src, p.tag, p.mask); err != nil {
		return Status{}, err
	}
	return p.e.finishLocked(ctx, p.post())
}

func (p probe) post() *Op {
	note := noteProbeCall
	if p.m != nil && p.m.alloc {
		note = noteAllocCall
	}
	op := p.e.newOpLocked(note, p.src, p.tag, p.mask, nil)
	p.e.off.probes++
	op.kind = kindProbe
	if p.m != nil {
		op.kind, op.message = kindMatchedProbe, p.m
	}
	op.post()
	return op
}

// probed ends the probes that a message finds before a receive; op is the first, which has left the
// posted-receive queue. It returns the receive that the message goes to, or the matched probe that
// takes it, which have left the list too, or neither.
func (op *Op) probed(st Status) (receive, taker *Op) {
	e := op.e
	for op != nil && op.kind == kindProbe {
		op.unposted()
		op.complete(st, nil)
		op, _ = e.posted.Match(st.Tag)
		e.inv.received(e, st.Tag, op)
	}
	if op == nil || op.kind != kindMatchedProbe {
		return op, nil
	}
	op.unposted()
	return nil, op
}

// take ends a matched probe, which has left the posted-receive queue, with the message that was
// just kept. That is the only one with its tag: the probe would not have waited beside another.
func (op *Op) take(tag uint64) {
	u, _ := op.e.unexp.Match(tag, ^uint64(0))
	m := op.message
	op.message = nil
	m.hold(u)
	op.complete(m.status, nil)
}
