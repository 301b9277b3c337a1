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
	front front[T]
	vals  values[T]
}

// NewUnexpected returns an empty queue. The seed keys its hash tables; take it
// from a random source where peers are not to know it.
func NewUnexpected[T any](seed uint64) *Unexpected[T] {
	q := new(Unexpected[T])
	q.slab.init()
	q.full.init(newHasher(seed))
	return q
}

// Len returns the number of messages.
func (q *Unexpected[T]) Len() int { return q.n }

// Add appends a message.
func (q *Unexpected[T]) Add(tag uint64, v T) Handle {
	if q.front.full() {
		return q.insert(tag, v)
	}
	if q.front.lap() {
		q.full.unused(frontLen)
	}
	q.n++
	q.stamp++
	return q.front.put(tag, exact, q.stamp-1, v)
}

// insert is Add where the front is full.
func (q *Unexpected[T]) insert(tag uint64, v T) Handle {
	if q.front.open() {
		return q.Add(tag, v)
	}
	q.settle()
	stamp := q.stamp
	i := q.add()
	q.enter(i, tag)
	q.vals.set(i, v)
	return makeHandle(i, stamp)
}

// settle moves the messages into slab and tables.
func (q *Unexpected[T]) settle() {
	if q.n != 0 && !q.front.left {
		q.front.leave(&q.slab, &q.vals, q.enterWhole)
	}
}

// enterWhole is enter for the front.
func (q *unexpected) enterWhole(i uint32, tag, _ uint64) { q.enter(i, tag) }

// Match removes and returns the oldest message whose tag t satisfies
// (t^tag)&mask == 0.
func (q *Unexpected[T]) Match(tag, mask uint64) (v T, ok bool) {
	if q.n != 0 { // this form is inlined
		v, ok = q.match(tag, mask)
	}
	return v, ok
}

// match is Match on a queue that is not empty.
func (q *Unexpected[T]) match(tag, mask uint64) (v T, ok bool) {
	if f := &q.front; !f.left {
		if (tag^f.at(f.head).tag)&mask != 0 {
			return q.matchFront(tag, mask)
		}
		q.n--
		return f.first(), true
	}
	if mask != exact {
		i := q.findWild(tag, mask)
		if i == 0 {
			return v, false
		}
		q.full.remove(q.links, i)
		return q.finish(i), true
	}
	// The word found by the lookup is used for the removal too: the tag is hashed once.
	p := q.full.lookup(q.links, tag)
	i := *p
	if i == 0 {
		return v, false
	}
	q.full.pop(q.links, p)
	return q.finish(i), true
}

// matchFront is match in the front, where the oldest message is none.
func (q *Unexpected[T]) matchFront(tag, mask uint64) (v T, ok bool) {
	f := &q.front
	if k := f.find(tag, mask); k != f.tail {
		v, ok = f.take(k), true
		q.n--
	}
	if f.due() {
		q.settle()
	}
	return v, ok
}

// Find returns what Match would, without removing it.
func (q *Unexpected[T]) Find(tag, mask uint64) (v T, h Handle, ok bool) {
	if q.n == 0 {
		return v, 0, false
	}
	if f := &q.front; !f.left {
		if k := f.find(tag, mask); k != f.tail {
			return f.at(k).v, f.handle(k), true
		}
		return v, 0, false
	}
	i := q.find(tag, mask)
	if i == 0 {
		return v, 0, false
	}
	return q.vals.get(i), q.handle(i), true
}

// Remove removes one message; false when the handle is stale.
func (q *Unexpected[T]) Remove(h Handle) (v T, ok bool) {
	if f := &q.front; !f.left {
		if k := f.byHandle(h); k != f.tail {
			q.n--
			return f.take(k), true
		}
		return v, false
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
	if q.n == 0 && len(q.built) == 0 { // unused indexes are dropped as messages come to the tables
		q.front.back()
	}
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
		q.settle()
		for i := range q.walk() {
			if !yield(q.handle(i), q.vals.get(i)) {
				return
			}
		}
	}
}

// enter puts entry i into all tables.
func (q *unexpected) enter(i uint32, tag uint64) {
	q.full.push(q.links, i, tag, 0)
	if len(q.built) != 0 {
		q.indexAdd(i, tag)
	}
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
