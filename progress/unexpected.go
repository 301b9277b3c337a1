package progress

import (
	"math/bits"
	"slices"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/matching"
)

// message is one that arrived before its receive: an eager one with its bytes, or a rendezvous request.
type message struct {
	src  int
	tag  uint64
	seq  uint64 // in the order of arrival
	rndv bool

	data []byte // eager; from bufferPool

	appCtx     uint32 // rendezvous, from here on
	va         uint64
	rkey       uint32
	length     uint64
	asked      bool // readState.asked
	handle     matching.Handle
	next, prev *message // among those of its peer; next also in the free list
}

// reading is what a receive needs to read a rendezvous message.
func (m *message) reading() readState {
	return readState{src: m.src, appCtx: m.appCtx, rkey: m.rkey, va: m.va, total: m.length, seq: m.seq, asked: m.asked}
}

// keepLocked stores an eager message whose credit was checked.
func (e *Engine) keepLocked(src int, tag uint64, payload []byte) {
	m := e.buffers.message()
	m.src, m.tag, m.seq, m.rndv = src, tag, e.arrivalLocked(), false
	m.data = e.buffers.get(len(payload))
	copy(m.data, payload)
	e.unexp.Add(tag, m)
	e.unexpectedLocked(uint64(len(payload)))
	e.m.UnexpectedBytes += int64(len(payload))
	e.m.UnexpectedPeak = max(e.m.UnexpectedPeak, e.m.UnexpectedBytes)
}

// dropLocked frees an eager message that has left the queue, and gives its credit back.
func (e *Engine) dropLocked(m *message) {
	n := len(m.data)
	e.m.UnexpectedBytes -= int64(n)
	e.buffers.put(m.data)
	m.data = nil
	e.consumeCreditLocked(&e.peers[m.src], eagerCost(n))
	e.buffers.freeMessage(m)
}

// arrivalLocked numbers messages.
func (e *Engine) arrivalLocked() uint64 {
	e.arrivals++
	return e.arrivals
}

// keepRndvLocked stores a rendezvous request.
func (e *Engine) keepRndvLocked(r readState, tag uint64) {
	m := e.requestRecordLocked(r, tag)
	m.handle = e.unexp.Add(tag, m)
	e.unexpectedLocked(r.total)
}

// requestRecordLocked makes the record of a rendezvous request, known to its peer and in no queue yet.
func (e *Engine) requestRecordLocked(r readState, tag uint64) *message {
	m := e.buffers.message()
	m.src, m.tag, m.seq, m.rndv = r.src, tag, r.seq, true
	m.appCtx, m.va, m.rkey, m.length, m.handle, m.asked = r.appCtx, r.va, r.rkey, r.total, 0, false
	p := &e.peers[r.src]
	if m.next = p.rndvs; m.next != nil {
		m.next.prev = m
	}
	p.rndvs = m
	return m
}

// arrivedLocked takes the oldest message that a receive matches out of its queue. Requests that a receive has given back
// are in a list of their own, since the queue has no way back to an old place.
func (e *Engine) arrivedLocked(tag, mask uint64) (got *message, ok bool) {
	e.mu.AssertHeld("the unexpected messages")
	if invariant.Enabled {
		defer func() { e.checkMessageLocked(tag, mask, got) }()
	}
	if len(e.returned) == 0 {
		return e.unexp.Match(tag, mask)
	}
	i := slices.IndexFunc(e.returned, func(m *message) bool { return (m.tag^tag)&mask == 0 && !e.promisedLocked(m) })
	if i < 0 {
		return e.unexp.Match(tag, mask)
	}
	m := e.returned[i]
	if u, h, ok := e.unexp.Find(tag, mask); ok && u.seq < m.seq {
		return e.unexp.Remove(h)
	}
	e.returned = slices.Delete(e.returned, i, i+1)
	return m, true
}

// unlinkRndvLocked takes a rendezvous request out of the queue that it is in.
func (e *Engine) unlinkRndvLocked(m *message) {
	if m.handle != 0 {
		e.unexp.Remove(m.handle)
	} else if i := slices.Index(e.returned, m); i >= 0 {
		e.returned = slices.Delete(e.returned, i, i+1)
	}
}

// dropRndvLocked frees a rendezvous request that has left the queue.
func (e *Engine) dropRndvLocked(m *message) {
	if m.prev == nil {
		e.peers[m.src].rndvs = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	}
	m.next, m.prev = nil, nil
	e.buffers.freeMessage(m)
}

// Buffers come in classes four to a power of two, so that at most a fifth of one is waste.
const (
	minBuffer  = 64
	numClasses = 4 * 24
)

// bufferPool keeps the memory of unexpected messages for the next ones.
type bufferPool struct {
	classes [numClasses][][]byte
	kept    int64 // bytes in classes
	keep    int64 // most
	free    *message
	records int // in free
}

// keepRecords is how many message records are kept.
const keepRecords = 1 << 14

func (b *bufferPool) init(limit int64) {
	b.keep = max(limit/4, 1<<20)
}

// class returns the class of the buffers for n bytes and their size.
func class(n int) (c, size int) {
	if n <= minBuffer {
		return 0, minBuffer
	}
	shift := bits.Len(uint(n-1)) - 3 // leaves three bits, the first set: 4 to 7
	quarter := (n - 1) >> shift
	return (shift-4)*4 + quarter - 3, (quarter + 1) << shift
}

func (b *bufferPool) get(n int) []byte {
	if n == 0 {
		return nil
	}
	c, size := class(n)
	if c >= numClasses {
		return make([]byte, n)
	}
	if k := len(b.classes[c]); k != 0 {
		buf := b.classes[c][k-1]
		b.classes[c][k-1] = nil
		b.classes[c] = b.classes[c][:k-1]
		b.kept -= int64(size)
		checkPoisoned(buf)
		return buf[:n]
	}
	return make([]byte, n, size)
}

func (b *bufferPool) put(buf []byte) {
	if invariant.Enabled {
		invariant.Poison(buf[:cap(buf)])
	}
	if cap(buf) == 0 || b.kept+int64(cap(buf)) > b.keep {
		return
	}
	c, size := class(cap(buf))
	if c >= numClasses || size != cap(buf) {
		return
	}
	b.classes[c] = append(b.classes[c], buf[:0])
	b.kept += int64(size)
}

func (b *bufferPool) message() *message {
	m := b.free
	if m == nil {
		return new(message)
	}
	b.free, m.next = m.next, nil
	b.records--
	m.checkUnused()
	return m
}

func (b *bufferPool) freeMessage(m *message) {
	m.poison()
	if b.records >= keepRecords {
		return
	}
	m.next = b.free
	b.free = m
	b.records++
}
