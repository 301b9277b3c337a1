package matching

import "iter"

// unexpected is all of Unexpected that does not depend on the caller's type.
type unexpected struct {
	slab
	full table // by the whole tag, of every message
	indexes
}

// Unexpected holds messages in the order they arrived. It is not safe for
// concurrent use.
type Unexpected[T any] struct {
	unexpected
	ring  ring[T]
	vals  values[T]
	total int // with those in the ring
}

// NewUnexpected returns an empty queue. The seed keys its hash tables; take it
// from a random source where peers are not to know it.
func NewUnexpected[T any](seed uint64) *Unexpected[T] {
	q := new(Unexpected[T])
	q.slab.init()
	q.ring.init(store[T]{&q.slab, &q.vals, q.enter, q.unused})
	q.full.init(newHasher(seed))
	return q
}

// Len returns the number of messages.
func (q *Unexpected[T]) Len() int { return q.total }

// Add appends a message.
func (q *Unexpected[T]) Add(tag uint64, v T) Handle {
	if q.ring.full() {
		return q.insert(tag, v)
	}
	q.total++
	q.seq++
	return q.ring.put(tag, exact, q.seq-1, v)
}

// insert is Add where the ring is full.
func (q *Unexpected[T]) insert(tag uint64, v T) Handle {
	for q.ring.full() {
		if !q.ring.makeRoom() {
			q.total++
			return q.ring.to.add(tag, exact, v)
		}
	}
	return q.Add(tag, v)
}

// Match removes and returns the oldest message whose tag t satisfies
// (t^tag)&mask == 0.
func (q *Unexpected[T]) Match(tag, mask uint64) (v T, ok bool) {
	if q.total != 0 { // this form is inlined
		v, ok = q.match(tag, mask)
	}
	return v, ok
}

// match is Match on a queue that is not empty.
func (q *Unexpected[T]) match(tag, mask uint64) (v T, ok bool) {
	if q.n != 0 {
		if i := q.takeEntry(tag, mask); i != 0 {
			return q.finish(i), true
		}
		if q.ring.empty() {
			return v, false
		}
	}
	r := &q.ring
	e := r.at(r.head)
	if (tag^e.tag)&mask != 0 {
		return q.matchBehind(tag, mask)
	}
	q.total--
	return r.first(e), true
}

// matchBehind is match in the ring, where the oldest message is none.
func (q *Unexpected[T]) matchBehind(tag, mask uint64) (v T, ok bool) {
	r := &q.ring
	if k := r.find(tag, mask); k != r.tail {
		q.total--
		v, ok = r.take(k), true
	}
	r.settleIfDue()
	return v, ok
}

// takeEntry removes the oldest match from the table by full tag, and returns its entry, 0 if there
// is none.
func (q *unexpected) takeEntry(tag, mask uint64) uint32 {
	if mask != exact {
		i := q.findWild(tag, mask)
		if i != 0 {
			q.full.remove(q.links, i)
		}
		return i
	}
	// The word found by the lookup is used for the removal too: the tag is hashed once.
	p := q.full.lookup(q.links, tag)
	i := *p
	if i != 0 {
		q.full.pop(q.links, p)
	}
	return i
}

// Find returns what Match would, without removing it.
func (q *Unexpected[T]) Find(tag, mask uint64) (v T, h Handle, ok bool) {
	if q.n != 0 {
		if i := q.find(tag, mask); i != 0 {
			return q.vals.get(i), q.handle(i), true
		}
	}
	return q.ring.lookUp(tag, mask)
}

// Remove removes one message; false when the handle is stale.
func (q *Unexpected[T]) Remove(h Handle) (v T, ok bool) {
	if k := q.ring.byHandle(h); k != q.ring.tail {
		q.total--
		return q.ring.take(k), true
	}
	i := q.resolve(h)
	if i == 0 {
		return v, false
	}
	q.full.remove(q.links, i)
	return q.finish(i), true
}

// finish frees a message that was removed from the table by full tag: its indexes, value and entry.
func (q *Unexpected[T]) finish(i uint32) T {
	if len(q.built) != 0 {
		q.indexRemove(i)
	}
	v := q.vals.take(i)
	q.release(i)
	q.total--
	if q.surplus {
		q.trim()
	}
	return v
}

// trim frees chunks that are not worth keeping.
func (q *Unexpected[T]) trim() {
	for c, ok := q.drop(); ok; c, ok = q.drop() {
		q.vals[c] = nil
		q.indexDrop(c)
	}
}

// All walks the messages in arrival order. The body may change the queue in
// any way; messages that it adds are not visited.
func (q *Unexpected[T]) All() iter.Seq2[Handle, T] {
	return func(yield func(Handle, T) bool) {
		q.ring.settle()
		for i := range q.walk() {
			if !yield(q.handle(i), q.vals.get(i)) {
				return
			}
		}
	}
}

// enter puts entry i into all tables.
func (q *unexpected) enter(i uint32, tag, _ uint64) {
	q.full.push(q.links, i, tag, 0)
	if len(q.built) != 0 {
		q.age(1)
		q.indexAdd(i, tag)
	}
}

// unused is told that n messages have not come to the tables.
func (q *unexpected) unused(n int) {
	q.age(n)
	q.full.unused(q.links, n)
}

// find returns the oldest message that matches, 0 when there is none.
func (q *unexpected) find(tag, mask uint64) uint32 {
	if mask == exact {
		return *q.full.lookup(q.links, tag)
	}
	return q.findWild(tag, mask)
}

// findWild is find for any other mask: from the head of the list, from an index,
// or by a scan that is charged to the mask, and that may end in an index.
func (q *unexpected) findWild(tag, mask uint64) uint32 {
	if mask == 0 {
		return q.nodes[0][0].next
	}
	tag &= mask
	if q.n > scanFree {
		if x := q.index(mask); x != nil {
			x.idle = 0
			return *x.lookup(x.links, tag)
		}
	}
	i, seen := q.scan(tag, mask)
	// The index is for the next receive; this one has its result.
	if seen > scanFree && q.charge(mask, seen-scanFree, q.n) {
		q.build(mask)
	}
	return i
}

// scan searches the messages in arrival order and counts those examined.
func (q *unexpected) scan(tag, mask uint64) (found uint32, seen int) {
	i := q.nodes[0][0].next
	for i != 0 {
		seen++
		if q.links.at(i).key&mask == tag {
			break
		}
		i = q.node(i).next
	}
	return i, seen
}

// build makes an index of all messages by mask, in arrival order, so that the
// first of each key is the oldest.
func (q *unexpected) build(mask uint64) {
	x := &index{mask: mask}
	x.init(q.full.hash)
	for i := q.nodes[0][0].next; i != 0; i = q.node(i).next {
		x.add(i, q.links.at(i).key)
	}
	q.install(x)
}
