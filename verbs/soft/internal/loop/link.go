package loop

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// link is one device's end of a connection on a fabric.
type link struct {
	wire, peer *Wire
	out, in    *packetQueue
	mem        wire.RemoteMemory
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
	h   wire.Header
	buf []byte
}

func newPacketQueue(n int) *packetQueue {
	q := &packetQueue{}
	q.mu.slots = make([]packet, 1<<bits.Len(uint(n-1)))
	return q
}

// put adds a packet; false when there is no room.
func (q *packetQueue) put(h *wire.Header, head, body []byte) bool {
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
func (l *link) deliver(budget int) int {
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
				l.wire.env.Receiver.LinkDown(l, end)
			}
			break
		}
		if uint64(len(p.buf)) != uint64(p.h.Length) {
			p.h.Length = uint32(len(p.buf))
		}
		if ok, _ := l.wire.env.Receiver.Receive(l, &p.h, p.buf); !ok {
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

func (l *link) Send(h *wire.Header, head, body []byte) bool {
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

func (l *link) MaxPayload() int     { return l.wire.f.opts.MaxPayload }
func (l *link) MaxReadPayload() int { return l.MaxPayload() }

func (l *link) Memory() wire.RemoteMemory {
	if l.mem == nil || l.in.dead() {
		return nil
	}
	return l.mem
}

func (l *link) Close() {
	if l.closed {
		return
	}
	l.closed = true
	l.out.finish(errClosed)
	l.in.finish(errClosed)
	l.peer.signal()
}
