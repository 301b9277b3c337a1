package progress

import (
	"math/bits"
	"slices"

	"github.com/tagmatch/tagmatch/matching"
)

// message is one that arrived before its receive: an eager one with its bytes, or a rendezvous
// request. It takes 96 bytes, see recordCost.
type message struct {
	tag  uint64
	seq  uint64 // in the order of arrival
	data []byte // eager; from bufferPool
	src  int32

	appCtx     uint32 // rendezvous, from here on
	va         uint64
	length     uint64
	handle     matching.Handle
	next, prev *message // among those of its peer; next also in the free list
	rkey       uint32

	rndv    bool
	charged bool // to its sender, and not given back yet
}

// cost is what a message is charged with.
func (m *message) cost() uint64 {
	if m.rndv {
		return recordCost
	}
	return eagerCost(len(m.data))
}

// reading is what a receive needs to read a rendezvous message.
func (m *message) reading() readState {
	return readState{src: int(m.src), appCtx: m.appCtx, rkey: m.rkey, va: m.va, total: m.length, seq: m.seq}
}

// keepLocked stores an eager message whose credit was checked.
func (e *Engine) keepLocked(src int, tag uint64, payload []byte) {
	m := e.buffers.message()
	m.src, m.tag, m.seq, m.rndv = int32(src), tag, e.arrivalLocked(), false
	m.data = e.buffers.get(len(payload))
	copy(m.data, payload)
	e.unexp.Add(tag, m)
	e.unexpectedLocked(uint64(len(payload)))
	e.costsLocked(m)
}

// costsLocked accounts for a message that was charged to its sender and is kept.
func (e *Engine) costsLocked(m *message) {
	m.charged = true
	e.m.UnexpectedBytes += int64(m.cost())
	e.m.UnexpectedPeak = max(e.m.UnexpectedPeak, e.m.UnexpectedBytes)
	e.peers[m.src].kept()
}

// dropRecordLocked gives back what a message costs, and its record.
func (e *Engine) dropRecordLocked(m *message) {
	cost, charged, p := m.cost(), m.charged, &e.peers[m.src]
	m.charged, m.data = false, nil
	e.buffers.freeMessage(m)
	if charged {
		e.m.UnexpectedBytes -= int64(cost)
		p.consumed(cost)
	}
}

// dropLocked frees an eager message that has left the queue, and gives its credit back.
func (e *Engine) dropLocked(m *message) {
	e.buffers.put(m.data)
	e.dropRecordLocked(m)
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
	e.costsLocked(m)
}

// requestRecordLocked makes the record of a rendezvous request, known to its peer and in no queue
// yet. It costs nothing: that of a message which is given back was given back before.
func (e *Engine) requestRecordLocked(r readState, tag uint64) *message {
	m := e.buffers.message()
	m.src, m.tag, m.seq, m.rndv = int32(r.src), tag, r.seq, true
	m.appCtx, m.va, m.rkey, m.length, m.handle = r.appCtx, r.va, r.rkey, r.total, 0
	p := &e.peers[r.src]
	if m.next = p.rndvs; m.next != nil {
		m.next.prev = m
	}
	p.rndvs = m
	if p.named != nil {
		p.named[m.appCtx] = m
	}
	return m
}

// requestNamed finds an unexpected request of the peer. The index that it makes is a part of
// recordCost.
func (p *peer) requestNamed(id uint32) *message {
	if p.named == nil && p.rndvs != nil {
		p.named = map[uint32]*message{}
		for m := p.rndvs; m != nil; m = m.next {
			if p.named[m.appCtx] == nil { // the newest of a name, as when they came in
				p.named[m.appCtx] = m
			}
		}
	}
	return p.named[id]
}

// arrivedLocked takes the oldest message that a receive matches out of its queue.
func (e *Engine) arrivedLocked(tag, mask uint64) (m *message, ok bool) {
	e.mu.AssertHeld("the unexpected messages")
	if len(e.returned) == 0 {
		m, ok = e.unexp.Match(tag, mask)
	} else {
		m, ok = e.arrivedOrReturnedLocked(tag, mask)
	}
	e.checkMessageLocked(tag, mask, m)
	return m, ok
}

// arrivedOrReturnedLocked is arrivedLocked where receives have given requests back: those are in a
// list of their own, since the queue has no way back to an old place.
func (e *Engine) arrivedOrReturnedLocked(tag, mask uint64) (*message, bool) {
	i := slices.IndexFunc(e.returned, func(m *message) bool { return (m.tag^tag)&mask == 0 })
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
	p := &e.peers[m.src]
	if m.prev == nil {
		p.rndvs = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	}
	m.next, m.prev = nil, nil
	if p.rndvs == nil {
		p.named = nil
	} else if p.named[m.appCtx] == m {
		delete(p.named, m.appCtx)
	}
	e.dropRecordLocked(m)
}

// Buffers come in classes four to a power of two, so that at most a fifth of one is waste.
const (
	minBuffer  = 64
	numClasses = 4 * 24
)

// bufferPool keeps the memory of unexpected messages for the next ones. What it keeps and what is
// in use together stay within the limit of what may be in use, so that messages of another size
// than those before do not take memory twice.
type bufferPool struct {
	classes [numClasses][][]byte
	kept    int64 // bytes in classes
	keep    int64 // most
	used    int64 // bytes in messages
	limit   int64
	free    *message
	records int64 // in free, and in use
}

func (b *bufferPool) init(limit int64) {
	b.limit = max(limit, 1<<20)
	b.keep = b.limit / 4
}

// class returns the class of the buffers for n bytes and their size.
func class(n int) (c, size int) {
	if n <= minBuffer {
		return 0, minBuffer * min(n, 1)
	}
	shift := bits.Len(uint(n-1)) - 3 // leaves three bits, the first set: 4 to 7
	quarter := (n - 1) >> shift
	if c, size = (shift-4)*4+quarter-3, (quarter+1)<<shift; size == 3584 || size == 7168 {
		return c + 1, size + size/7 // Go's allocator has nothing between
	}
	return c, size
}

func (b *bufferPool) get(n int) []byte {
	if n == 0 {
		return nil
	}
	c, size := class(n)
	b.used += int64(size)
	if c >= numClasses {
		return make([]byte, n, size)
	}
	if k := len(b.classes[c]); k != 0 {
		buf := b.classes[c][k-1]
		b.classes[c][k-1] = nil
		b.classes[c] = b.classes[c][:k-1]
		b.kept -= int64(size)
		checkPoisoned(buf)
		return buf[:n]
	}
	if b.kept > 0 && b.used+b.kept > b.limit {
		for i, c := range b.classes {
			clear(c)
			b.classes[i] = c[:0] // its array is for those to come
		}
		b.kept = 0
	}
	return make([]byte, n, size)
}

func (b *bufferPool) put(buf []byte) {
	poisonBuffer(buf)
	b.used -= int64(cap(buf))
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
		b.records++
		return new(message)
	}
	b.free, m.next = m.next, nil
	m.checkUnused()
	return m
}

func (b *bufferPool) freeMessage(m *message) {
	m.poison()
	if b.records > b.limit/recordCost { // those beyond the limit go, or a flood that goes on would make garbage all the time
		b.records--
		return
	}
	m.next = b.free
	b.free = m
}
