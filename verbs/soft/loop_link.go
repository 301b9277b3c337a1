package soft

import (
	"sync"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// loopLink is one device's end of a connection on a fabric.
type loopLink struct {
	wire, peer *loopWire
	out, in    *packetQueue
	mem        remoteMemory
	hold       int // polls to keep still
	refused    int // sends refused in a row
	downTold   bool
	closed     bool
}

// packetQueue carries packets in one direction. Slots from head to next have been received and may
// still be lent.
type packetQueue struct {
	ready atomic.Int32 // nonzero: packets or an end to look at
	mu    struct {
		sync.Mutex
		slots    []packet
		head     uint32
		next     uint32
		tail     uint32
		end      error // after the packets, or at once when killed
		killed   bool
		wantRoom bool
	}
}

type packet struct {
	h   header
	buf []byte
}

func newPacketQueue(n int) *packetQueue {
	q := &packetQueue{}
	q.mu.slots = make([]packet, ringSize(n))
	return q
}

// put adds a packet; false when there is no room.
func (q *packetQueue) put(h *header, head, body []byte) bool {
	q.mu.Lock()
	if q.mu.end != nil {
		q.mu.Unlock()
		return true // into the void: the end is on its way to the sender too
	}
	if q.mu.tail-q.mu.head == uint32(len(q.mu.slots)) {
		q.mu.wantRoom = true
		q.mu.Unlock()
		return false
	}
	p := &q.mu.slots[q.mu.tail&uint32(len(q.mu.slots)-1)]
	p.h = *h
	if invariant.Enabled {
		invariant.RequirePoison(p.buf, "a packet that was received before")
	}
	p.buf = append(append(p.buf[:0], head...), body...)
	q.mu.tail++
	q.mu.Unlock()
	q.ready.Add(1)
	return true
}

// peek returns the next packet to receive. It stays as it is until release.
func (q *packetQueue) peek() (p *packet, end error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.killed || q.mu.next == q.mu.tail {
		return nil, q.mu.end
	}
	return &q.mu.slots[q.mu.next&uint32(len(q.mu.slots)-1)], nil
}

// take marks the packet of peek as received.
func (q *packetQueue) take() {
	q.mu.Lock()
	q.mu.next++
	q.mu.Unlock()
	q.ready.Add(-1)
}

// release frees received packets. It reports whether the sender had found no room.
func (q *packetQueue) release() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.head == q.mu.next {
		return false
	}
	if invariant.Enabled {
		q.poison()
	}
	q.mu.head = q.mu.next
	want := q.mu.wantRoom
	q.mu.wantRoom = false
	return want
}

// poison overwrites packets that are received and no longer lent.
func (q *packetQueue) poison() {
	for i := q.mu.head; i != q.mu.next; i++ {
		invariant.PoisonStart(q.mu.slots[i&uint32(len(q.mu.slots)-1)].buf)
	}
}

// finish ends the queue after what is in it.
func (q *packetQueue) finish(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.end == nil {
		q.mu.end = err
		q.ready.Add(1)
	}
}

// kill ends the queue at once.
func (q *packetQueue) kill(err error) {
	q.finish(err)
	q.mu.Lock()
	q.mu.killed = true
	q.mu.Unlock()
}

func (q *packetQueue) dead() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.end != nil
}

// deliver hands packets to the device, as the fabric's dice allow.
func (l *loopLink) deliver(budget int) int {
	if l.downTold || l.closed {
		return 0
	}
	opts := &l.wire.f.opts
	if l.hold > 0 {
		l.hold--
		l.wire.signal() // an armed owner must not sleep over a delivery that was put off
		return 0
	}
	if opts.MaxBurst > 0 {
		budget = min(budget, 1+l.wire.rng.IntN(opts.MaxBurst))
	}
	if opts.MaxDelay > 0 {
		l.hold = l.wire.rng.IntN(opts.MaxDelay + 1)
	}
	n := 0
	for n < budget && !l.closed {
		p, end := l.in.peek()
		if p == nil {
			if end != nil && !l.closed {
				l.downTold = true
				l.wire.env.rx.linkDown(l, end)
			}
			break
		}
		if uint64(len(p.buf)) != uint64(p.h.length) {
			p.h.length = uint32(len(p.buf))
		}
		if ok, _ := l.wire.env.rx.receive(l, &p.h, p.buf); !ok {
			return n // waits for a receive; posting one wakes
		}
		l.in.take()
		n++
	}
	if l.in.ready.Load() != 0 {
		l.wire.signal()
	}
	return n
}

func (l *loopLink) send(h *header, head, body []byte) bool {
	opts := &l.wire.f.opts
	if opts.MaxRefuse > 0 {
		if l.refused < l.wire.rng.IntN(opts.MaxRefuse+1) {
			l.refused++
			l.wire.signal()
			return false
		}
		l.refused = 0
	}
	if !l.out.put(h, head, body) {
		return false
	}
	l.peer.signal()
	return true
}

func (l *loopLink) maxPayload() int     { return l.wire.f.opts.MaxPayload }
func (l *loopLink) maxReadPayload() int { return l.maxPayload() }

func (l *loopLink) memory() remoteMemory {
	if l.mem == nil || l.in.dead() {
		return nil
	}
	return l.mem
}

func (l *loopLink) close() {
	if l.closed {
		return
	}
	l.closed = true
	l.out.finish(errLoopClosed)
	l.in.finish(errLoopClosed)
	l.peer.signal()
}

// loopMemory reads a device's registered memory in the same process.
type loopMemory struct{ table *regionTable }

func (m *loopMemory) read(dst []byte, addr uint64, rkey uint32) verbs.WCStatus {
	n := uint64(len(dst))
	r := m.table.find(rkey)
	if r == nil || !regionAllows(m.table.dir.at(rkey), rkey, addr, n, verbs.AccessRemoteRead) {
		return verbs.WCRemAccessErr
	}
	src, ok := m.table.resolve(r.pd, rkey, addr, n, verbs.AccessRemoteRead)
	if !ok {
		return verbs.WCRemAccessErr
	}
	copy(dst, src)
	return verbs.WCSuccess
}
