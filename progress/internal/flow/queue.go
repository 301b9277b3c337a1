package flow

import (
	"iter"
	"sort"

	"github.com/tagmatch/tagmatch/matching"
)

// queue is the sends to one peer that wait, in order: a ring, as only the first of thousands is
// touched then. The first question for a tag makes an index, which stays until the queue is empty.
// Positions in the ring count modulo 2^32.
type queue[T any] struct {
	ring       []place[T] // its length is a power of two
	head, tail uint32     // the first send, and where the next is put
	n          int
	last       uint64 // number of the newest
	seed       uint64 // of the index
	index      *matching.Unexpected[*T]
	indexed    bool // index has all of them
}

// place is a place in the ring.
type place[T any] struct {
	send   *T     // nil: it was removed
	number uint64 // ascending
	tag    uint64
	h      matching.Handle // in the index
}

const (
	leastQueue = 64      // places of the smallest ring
	keepQueue  = 1 << 12 // places of the largest ring that an empty queue keeps, with its index
)

func (q *queue[T]) at(k uint32) *place[T] { return &q.ring[k&uint32(len(q.ring)-1)] }

// push appends a send, and returns its number.
func (q *queue[T]) push(tag uint64, send *T) uint64 {
	if q.tail-q.head == uint32(len(q.ring)) {
		q.makeRoom()
	}
	q.last++
	p := q.at(q.tail)
	p.send, p.number, p.tag = send, q.last, tag
	q.tail++
	q.n++
	if q.indexed {
		p.h = q.index.Add(tag, send)
	}
	return q.last
}

// makeRoom moves the sends together. The ring gets twice as large only where they fill half of it:
// the first may wait for long while later ones are cancelled.
func (q *queue[T]) makeRoom() {
	size := max(leastQueue, len(q.ring))
	if 2*q.n > len(q.ring) {
		size = max(leastQueue, 2*len(q.ring))
	}
	ring, n := make([]place[T], size), uint32(0)
	for k := q.head; k != q.tail; k++ {
		if p := q.at(k); p.send != nil {
			ring[n] = *p
			n++
		}
	}
	q.ring, q.head, q.tail = ring, 0, n
}

// find is the place of the send with this number, which waits: mostly the first.
func (q *queue[T]) find(number uint64) *place[T] {
	if p := q.at(q.head); p.number == number {
		return p
	}
	k := sort.Search(int(q.tail-q.head), func(i int) bool { return q.at(q.head+uint32(i)).number >= number })
	return q.at(q.head + uint32(k))
}

// remove takes a send out, wherever it is.
func (q *queue[T]) remove(number uint64) {
	p := q.find(number)
	p.send = nil
	q.n--
	if q.indexed {
		q.index.Remove(p.h)
	}
	for q.head != q.tail && q.at(q.head).send == nil {
		q.head++
	}
	if q.n == 0 {
		q.indexed = false
		if len(q.ring) > keepQueue {
			q.ring, q.index = nil, nil
		}
	}
}

// has reports whether a send matches.
func (q *queue[T]) has(tag, mask uint64) bool {
	if q.n == 0 {
		return false
	}
	if !q.indexed {
		q.makeIndex()
	}
	_, _, ok := q.index.Find(tag, mask)
	return ok
}

func (q *queue[T]) makeIndex() {
	if q.index == nil {
		q.index = matching.NewUnexpected[*T](q.seed)
	}
	for k := q.head; k != q.tail; k++ {
		if p := q.at(k); p.send != nil {
			p.h = q.index.Add(p.tag, p.send)
		}
	}
	q.indexed = true
}

// all gives the sends in order. The body must not change the queue.
func (q *queue[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for k := q.head; k != q.tail; k++ {
			if send := q.at(k).send; send != nil && !yield(send) {
				return
			}
		}
	}
}

// part gives up to most sends whose numbers are at least from, in order, and the number that the
// next part begins with; 0: there is none.
func (q *queue[T]) part(from uint64, most int, visit func(*T)) (next uint64) {
	k := q.head + uint32(sort.Search(int(q.tail-q.head), func(i int) bool { return q.at(q.head+uint32(i)).number >= from }))
	for ; k != q.tail; k++ {
		p := q.at(k)
		if most--; most < 0 {
			return p.number
		}
		if p.send != nil {
			visit(p.send)
		}
	}
	return 0
}
