package progress

import (
	"iter"

	"github.com/tagmatch/tagmatch/matching"
)

// sendQueue is the sends to one peer that wait, in order: a ring, as only the first of thousands is
// touched then. The first one that asks for a tag makes an index, which stays until the queue is
// empty. The place of a send in the ring is its Op.handle; positions count modulo 2^32.
type sendQueue struct {
	ring       []queued // its length is a power of two
	head, tail uint32   // the first send, and where the next is put
	n          int
	index      *matching.Unexpected[*Op]
	indexed    bool // index has all of them
}

// queued is a place in the ring.
type queued struct {
	op *Op             // nil: it was removed
	h  matching.Handle // in the index
}

const (
	leastQueue = 64      // places of the smallest ring
	keepQueue  = 1 << 12 // places of the largest ring that an empty queue keeps, with its index
)

func (q *sendQueue) len() int { return q.n }

func (q *sendQueue) at(k uint32) *queued { return &q.ring[k&uint32(len(q.ring)-1)] }

// first is the send that has waited longest, in a queue that is not empty.
func (q *sendQueue) first() *Op { return q.at(q.head).op }

// push appends a send.
func (q *sendQueue) push(op *Op) {
	if q.tail-q.head == uint32(len(q.ring)) {
		q.makeRoom()
	}
	op.handle = matching.Handle(q.tail)
	w := q.at(q.tail)
	w.op = op
	q.tail++
	q.n++
	if q.indexed {
		w.h = q.index.Add(op.tag, op)
	}
}

// makeRoom moves the sends together. The ring gets twice as large only where they fill half of it:
// the first may wait for long while later ones are cancelled.
func (q *sendQueue) makeRoom() {
	size := max(leastQueue, len(q.ring))
	if 2*q.n > len(q.ring) {
		size = max(leastQueue, 2*len(q.ring))
	}
	ring, n := make([]queued, size), uint32(0)
	for k := q.head; k != q.tail; k++ {
		if w := q.at(k); w.op != nil {
			w.op.handle = matching.Handle(n)
			ring[n] = *w
			n++
		}
	}
	q.ring, q.head, q.tail = ring, 0, n
}

// remove takes a send out, wherever it is.
func (q *sendQueue) remove(op *Op) {
	w := q.at(uint32(op.handle))
	w.op = nil
	q.n--
	if q.indexed {
		q.index.Remove(w.h)
	}
	for q.head != q.tail && q.at(q.head).op == nil {
		q.head++
	}
	if q.n == 0 {
		q.indexed = false
		if len(q.ring) > keepQueue {
			q.ring, q.index = nil, nil
		}
	}
}

// has reports whether a send matches. The seed is that of the index, if there is none yet.
func (q *sendQueue) has(tag, mask, seed uint64) bool {
	if q.n == 0 {
		return false
	}
	if !q.indexed {
		if q.index == nil {
			q.index = matching.NewUnexpected[*Op](seed)
		}
		for op := range q.all() {
			q.at(uint32(op.handle)).h = q.index.Add(op.tag, op)
		}
		q.indexed = true
	}
	_, _, ok := q.index.Find(tag, mask)
	return ok
}

// all gives the sends in order. The body must not change the queue.
func (q *sendQueue) all() iter.Seq[*Op] {
	return func(yield func(*Op) bool) {
		for k := q.head; k != q.tail; k++ {
			if op := q.at(k).op; op != nil && !yield(op) {
				return
			}
		}
	}
}
