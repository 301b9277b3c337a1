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
	kindProbe
	kindMatchedProbe
)

func (k opKind) probe() bool { return k >= kindProbe }

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
	return e.probeLocked(ctx, src, tag, mask, nil)
}

// Iprobe is Probe that does not wait: it reports whether there is such a message. It makes progress
// if not.
func (e *Engine) Iprobe(src int, tag, mask uint64) (Status, bool, error) {
	e.mu.Lock()
	m, err := e.lookLocked(src, tag, mask)
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
	if err := e.mprobe(ctx, src, tag, mask, m); err != nil {
		return nil, err
	}
	return m, nil
}

// mprobe is Mprobe into m.
func (e *Engine) mprobe(ctx context.Context, src int, tag, mask uint64, m *Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if u, ok := e.unexp.Match(tag, mask); ok {
		m.hold(u)
		return nil
	}
	_, err := e.probeLocked(ctx, src, tag, mask, m)
	return err
}

// Improbe is Mprobe that does not wait, see Iprobe.
func (e *Engine) Improbe(src int, tag, mask uint64) (*Message, bool, error) {
	e.mu.Lock()
	if u, err := e.lookLocked(src, tag, mask); u == nil {
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

// lookLocked finds an unexpected message for a probe that does not wait, or returns nil. What a
// peer without credit holds up is sent for it.
func (e *Engine) lookLocked(src int, tag, mask uint64) (*unexpected.Message, error) {
	m, ok := e.unexp.Find(tag, mask)
	if !ok {
		e.pollLocked()
		e.leaveLocked()
		m, ok = e.unexp.Find(tag, mask)
	}
	if ok {
		return m, nil
	}
	if err := e.checkRecvLocked(src, tag, mask); err != nil {
		return nil, err
	}
	e.askLocked(src, tag, mask)
	return nil, nil
}

// probeLocked posts a probe, a matched one where there is a Message to fill in, and waits for it.
// The unexpected messages were searched before.
func (e *Engine) probeLocked(ctx context.Context, src int, tag, mask uint64, m *Message) (Status, error) {
	if err := e.checkRecvLocked(src, tag, mask); err != nil {
		return Status{}, err
	}
	return e.finishLocked(ctx, e.postProbeLocked(src, tag, mask, m))
}

func (e *Engine) postProbeLocked(src int, tag, mask uint64, m *Message) *Op {
	note := noteProbeCall
	if m != nil && m.alloc {
		note = noteAllocCall
	}
	op := e.newOpLocked(note, src, tag, mask, nil)
	e.off.probes++
	op.kind = kindProbe
	if m != nil {
		op.kind, op.message = kindMatchedProbe, m
	}
	op.post()
	return op
}

// probedLocked ends the probes that a message finds before a receive; op is the first, which has
// left the posted-receive queue. It returns the receive that the message goes to, or the matched
// probe that takes it, which have left the list too, or neither.
func (e *Engine) probedLocked(op *Op, st Status) (receive, taker *Op) {
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
