package loop

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// link is one device's end of a connection on a fabric.
type link struct {
	wire, peer *Wire
	out, in    *packetQueue
	mem        wire.RemoteMemory // see Options.Direct; nil without that
	delay      int               // polls in which nothing is delivered (Options.MaxDelay)
	refused    int               // Sends refused in a row (Options.MaxRefuse)
	downTold   bool              // LinkDown was called
	closed     bool              // Close was called
}

// packetQueue carries packets in one direction.
type packetQueue struct {
	ready atomic.Int32 // packets that were not received, and 1 for the end: 0: nothing to look at
	mu    struct {
		sync.Mutex
		slots    []packet // a ring
		head     uint32   // slots from here to tail are to be received
		tail     uint32
		end      error // nil: the queue is open
		killed   bool  // end counts at once, not after the packets
		wantRoom bool  // a Send has found no room since the last take
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

// put adds a packet. It returns false if there is no room.
func (q *packetQueue) put(h *wire.Header, head, body []byte) bool {
	q.mu.Lock()
	if q.mu.end != nil {
		q.mu.Unlock()
		return true // lost: the sender will see the end too
	}
	if q.mu.tail-q.mu.head == uint32(len(q.mu.slots)) {
		q.mu.wantRoom = true
		q.mu.Unlock()
		return false
	}
	p := &q.mu.slots[q.mu.tail&uint32(len(q.mu.slots)-1)]
	p.h = *h
	invariant.RequirePoison(p.buf, "a packet that was received before")
	p.buf = append(append(p.buf[:0], head...), body...)
	q.mu.tail++
	q.mu.Unlock()
	q.ready.Add(1)
	return true
}

// peek returns the next packet to receive, which stays valid until take, or nil and, if the queue
// has ended, why.
func (q *packetQueue) peek() (p *packet, end error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.killed || q.mu.head == q.mu.tail {
		return nil, q.mu.end
	}
	return &q.mu.slots[q.mu.head&uint32(len(q.mu.slots)-1)], nil
}

// take frees the packet of peek, which was received. It reports whether a Send has found no room
// before.
func (q *packetQueue) take() (wanted bool) {
	q.ready.Add(-1)
	q.mu.Lock()
	defer q.mu.Unlock()
	if invariant.Enabled { // finding the slot is not free
		invariant.PoisonStart(q.mu.slots[q.mu.head&uint32(len(q.mu.slots)-1)].buf)
	}
	q.mu.head++
	wanted, q.mu.wantRoom = q.mu.wantRoom, false
	return wanted
}

// finish ends the queue after the packets in it.
func (q *packetQueue) finish(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.end == nil {
		q.mu.end = err
		q.ready.Add(1)
	}
}

// kill ends the queue at once; the packets in it are lost.
func (q *packetQueue) kill(err error) {
	q.finish(err)
	q.mu.Lock()
	q.mu.killed = true
	q.mu.Unlock()
}

func (q *packetQueue) ended() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.end != nil
}

// deliver gives packets to the device, as far as the fabric's random delays allow.
func (l *link) deliver(budget int) int {
	if l.downTold || l.closed {
		return 0
	}
	opts := l.wire.f.rough()
	if l.delay > 0 {
		l.delay--
		l.wire.signal() // the delayed delivery needs another poll
		return 0
	}
	if opts.MaxBurst > 0 {
		budget = min(budget, 1+l.wire.rng.IntN(opts.MaxBurst))
	}
	if opts.MaxDelay > 0 {
		l.delay = l.wire.rng.IntN(opts.MaxDelay + 1)
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
		ok, more := l.wire.env.Receiver.Receive(l, &p.h, p.buf)
		if !ok {
			return n // posting a receive wakes the owner
		}
		if l.in.take() {
			l.peer.signal()
		}
		n++
		if !more {
			break
		}
	}
	if l.in.ready.Load() != 0 {
		l.wire.signal()
	}
	return n
}

func (l *link) Send(h *wire.Header, head, body []byte) bool {
	if l.wire.BeforeSend != nil {
		l.wire.BeforeSend()
	}
	opts := l.wire.f.rough()
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

func (l *link) Peer() *wire.Address { return l.peer.env.Self }

// HasRoom leaves it to Send, which may refuse by chance (Options.MaxRefuse).
func (l *link) HasRoom(int) bool { return true }

func (l *link) MaxPayload() int     { return l.wire.f.opts.MaxPayload }
func (l *link) MaxReadPayload() int { return l.MaxPayload() }

func (l *link) Memory() wire.RemoteMemory {
	if l.mem == nil || l.in.ended() {
		return nil
	}
	return l.mem
}

func (l *link) Close()  { l.end(errClosed) }
func (l *link) Accuse() { l.end(verbs.ErrAccused) }

// end closes the link; tell is what the peer hears.
func (l *link) end(tell error) {
	if l.closed {
		return
	}
	l.closed = true
	l.out.finish(tell)
	l.in.finish(errClosed)
	l.peer.signal()
}
