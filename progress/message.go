package progress

import (
	"cmp"
	"context"
	"errors"
	"math"

	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
)

// Message is a message that a matched probe has taken out of the unexpected ones: no other receive
// or probe sees it. The first of Recv, Irecv and Discard uses it up. An eager message stays in this
// rank's memory, and takes its sender's credit, until then; of another only the request is here.
type Message struct {
	e      *Engine // constant, as the status
	status Status

	// Guarded by the engine's lock.
	eager *unexpected.Message // nil for a rendezvous request, and once used
	read  readState           // of a request, which is in Engine.held until it is used or has failed
	err   error               // why the message cannot be received any more
	used  bool
	alloc bool // constant: of a RecvAlloc
}

// hold makes m the holder of a message that was just taken out of the queue.
func (m *Message) hold(u *unexpected.Message) {
	e := m.e
	m.status = messageStatus(u)
	if !u.Rndv {
		m.eager = u
		return
	}
	m.read = requested(u)
	e.peers[u.Src].drop(u)
	if e.broken != nil { // nobody can read it any more
		return
	}
	if e.held == nil {
		e.held = map[request]*Message{}
	}
	e.held[m.read.request()] = m
}

// fail keeps err for m, whose request cannot be read any more.
func (m *Message) fail(err error) {
	m.err = err
	delete(m.e.held, m.read.request())
}

// use uses m up, or says why it is of no use.
func (m *Message) use() error {
	switch {
	case m.used:
		return ErrInactive
	case m.err == nil:
		m.err = m.e.broken
	case m.err == errWithdrawn:
		m.err = cmp.Or(m.e.contexts.barredBy(m.status.Tag), errWithdrawn)
	}
	m.used = true
	if m.eager == nil && m.e.held[m.read.request()] == m {
		delete(m.e.held, m.read.request())
	}
	return m.err
}

// Status says what the message is.
func (m *Message) Status() Status { return m.status }

// Bytes lends the bytes of an eager message where they lie, until Recv, Irecv or Discard; nil for a
// message that is still with its sender, or used up.
func (m *Message) Bytes() []byte {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	if m.eager == nil || m.used {
		return nil
	}
	if m.eager.Data == nil {
		return []byte{}
	}
	return m.eager.Data
}

// Recv receives the message into buf, as Engine.Recv does. A context that has ended already leaves
// m as it is. One that ends while the message is read gives it back: it is unexpected again, at its
// place, unless another receive waits that it matches.
func (m *Message) Recv(ctx context.Context, buf []byte) (Status, error) {
	if err := ctx.Err(); err != nil {
		return Status{}, err
	}
	return m.recv(ctx, ^uint64(0), buf)
}

// recv is Recv also where ctx has ended, with the mask of the probe that took the message.
func (m *Message) recv(ctx context.Context, mask uint64, buf []byte) (Status, error) {
	e := m.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := m.use(); err != nil {
		if m.alloc && err == errWithdrawn {
			e.m.Returned++
		}
		e.m.failed(err)
		return Status{}, err
	}
	if m.eager != nil {
		return m.copyOut(buf)
	}
	op := e.newOpLocked(noteRecvCall, m.status.Source, m.status.Tag, mask, buf)
	op.kind, op.read = kindMessage, m.read
	op.startRead()
	return e.finishLocked(ctx, op)
}

// Irecv is Recv that does not wait.
func (m *Message) Irecv(buf []byte) Request {
	e := m.e
	e.mu.Lock()
	defer e.mu.Unlock()
	op := e.newOpLocked(noteRecv, m.status.Source, m.status.Tag, ^uint64(0), buf)
	r := op.request()
	if err := m.use(); err != nil {
		op.complete(Status{}, err)
	} else if m.eager != nil {
		op.complete(m.copyOut(buf))
	} else {
		op.kind, op.read = kindMessage, m.read
		op.startRead()
		e.leaveLocked()
	}
	return r
}

// Discard receives the message without its bytes: its sender's operation completes. It does nothing
// where m is used up.
func (m *Message) Discard() {
	e := m.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if m.use() != nil {
		return
	}
	if u := m.eager; u != nil {
		m.eager = nil
		p := e.peers[u.Src]
		p.tookEager(u)
		p.drop(u)
		return
	}
	p := e.peers[m.read.src]
	p.cameRndv(m.read.total)
	if t := e.trace; t != nil {
		t.taken(m.read.seq)
	}
	p.fin(m.read.appCtx)
}

// copyOut receives an eager message.
func (m *Message) copyOut(buf []byte) (Status, error) {
	u := m.eager
	m.eager = nil
	return m.e.peers[u.Src].take(u, buf)
}

// RecvAlloc is Recv into a new slice of the message's length, of at most limit bytes; 0 is no
// limit. What is longer, or than any slice can be, is ErrTruncated, with the first limit bytes, or
// none. Where the message is withdrawn meanwhile it probes again, behind what is posted then.
func (e *Engine) RecvAlloc(ctx context.Context, src int, tag, mask uint64, limit int64) ([]byte, Status, error) {
	for {
		m := &Message{e: e, alloc: true}
		if err := m.probe(ctx, src, tag, mask); err != nil {
			return nil, Status{}, err
		}
		buf := alloc(m.status.Len, limit)
		st, err := m.recv(ctx, mask, buf)
		switch {
		case err == nil || errors.Is(err, ErrTruncated):
			return buf, st, err
		case err == errWithdrawn: // the next one that matches
		default:
			return nil, st, err
		}
	}
}

// longestSlice bounds what alloc asks for: what is beyond the address space of a process panics.
const longestSlice = 1<<46 - 1

func alloc(n, limit int64) []byte {
	if limit != 0 {
		n = min(n, limit)
	}
	if n > min(longestSlice, math.MaxInt) {
		n = 0
	}
	return make([]byte, n)
}
