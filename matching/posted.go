package matching

import "iter"

// exact is the mask of a receive that wants one tag.
const exact = ^uint64(0)

// Overlap reports whether some tag matches both receives.
func Overlap(tagA, maskA, tagB, maskB uint64) bool {
	return (tagA^tagB)&maskA&maskB == 0
}

// class is the receives that share a mask, in a table keyed by tag&mask.
type class struct {
	table
	mask  uint64
	owner uint32 // its place in posted.classes
	pos   int    // its place in posted.active
}

// posted is all of Posted that does not depend on the caller's type.
type posted struct {
	slab
	exact   class
	active  []*class // those with entries, exact aside
	idle    []*class // those without; an empty table serves any mask
	classes []*class // by owner; 0 is exact
}

// Posted holds receives in the order they were posted. It is not safe for
// concurrent use.
type Posted[T any] struct {
	posted
	ring    ring[T]
	vals    values[T]
	back    *returned[T] // nil where no receive is back in its place; n counts these too
	returns uint32       // calls of Return
	total   int          // with those in the ring
}

// NewPosted returns an empty queue. The seed keys its hash tables; take it
// from a random source where peers are not to know it.
func NewPosted[T any](seed uint64) *Posted[T] {
	q := new(Posted[T])
	q.slab.init()
	q.ring.init(store[T]{&q.slab, &q.vals, q.enter, q.unused})
	q.exact.init(newHasher(seed))
	q.exact.mask = exact
	q.classes = []*class{&q.exact}
	return q
}

// Len returns the number of entries.
func (q *Posted[T]) Len() int { return q.total }

// NextSeq returns the sequence number that the next Post will get.
func (q *Posted[T]) NextSeq() Seq { return q.seq }

// Post appends a receive that matches each tag t with (t^tag)&mask == 0.
func (q *Posted[T]) Post(tag, mask uint64, v T) Handle {
	if q.ring.full() {
		return q.post(tag, mask, v)
	}
	q.total++
	q.seq++
	return q.ring.put(tag, mask, q.seq-1, v)
}

// post is Post where the ring is full.
func (q *Posted[T]) post(tag, mask uint64, v T) Handle {
	for q.ring.full() {
		if !q.ring.makeRoom() {
			q.total++
			return q.ring.to.add(tag, mask, v)
		}
	}
	return q.Post(tag, mask, v)
}

// SkipTo gives the next receive a sequence number, above those of all that were posted here: for
// receives that have the sequence numbers of another queue.
func (q *Posted[T]) SkipTo(seq Seq) { q.seq = seq }

// Match removes and returns the oldest receive that matches the tag.
func (q *Posted[T]) Match(tag uint64) (v T, ok bool) {
	if q.total != 0 { // this form is inlined
		v, ok = q.match(tag, ^Seq(0))
	}
	return v, ok
}

// MatchBefore is Match among the receives with a sequence number below limit. A device
// whose latest entries are not live yet matches with it.
func (q *Posted[T]) MatchBefore(tag uint64, limit Seq) (v T, ok bool) {
	if q.total != 0 { // this form is inlined
		v, ok = q.match(tag, limit)
	}
	return v, ok
}

// match is MatchBefore on a queue that is not empty. It examines only the oldest match: if that is
// not below the limit, no match is.
func (q *Posted[T]) match(tag uint64, limit Seq) (v T, ok bool) {
	if q.n != 0 {
		if q.back != nil {
			if b := q.firstBack(tag); b != nil {
				return q.matchBack(b, limit)
			}
		}
		c, p := q.search(tag)
		if i := *p; i != 0 {
			return q.matchEntry(c, p, limit)
		}
		if q.ring.empty() {
			return v, false
		}
	}
	r := &q.ring
	e := r.at(r.head)
	if (tag^e.tag)&e.mask != 0 || e.seq >= limit {
		return q.matchBehind(tag, limit)
	}
	q.total--
	return r.first(e), true
}

// matchBack is match where the oldest one is back in its place.
func (q *Posted[T]) matchBack(b *back[T], limit Seq) (v T, ok bool) {
	if b.seq >= limit {
		return v, false
	}
	return q.leave(b), true
}

// matchEntry is match where the tables have one.
func (q *Posted[T]) matchEntry(c *class, p *uint32, limit Seq) (v T, ok bool) {
	i := *p
	if q.node(i).seq >= limit {
		return v, false
	}
	c.pop(q.links, p)
	return q.finish(c, i), true
}

// matchBehind is match in the ring, where the oldest receive is none.
func (q *Posted[T]) matchBehind(tag uint64, limit Seq) (v T, ok bool) {
	r := &q.ring
	if k := r.find(tag, exact); k != r.tail && r.at(k).seq < limit {
		q.total--
		v, ok = r.take(k), true
	}
	r.settleIfDue()
	return v, ok
}

// Find returns what Match would, without removing it.
func (q *Posted[T]) Find(tag uint64) (v T, h Handle, ok bool) {
	if q.back != nil {
		if b := q.firstBack(tag); b != nil {
			return b.v, b.h, true
		}
	}
	return q.findOther(tag)
}

// findOther is Find among those that are not back in their places.
func (q *Posted[T]) findOther(tag uint64) (v T, h Handle, ok bool) {
	if q.n != 0 {
		if _, p := q.search(tag); *p != 0 {
			return q.vals.get(*p), q.handle(*p), true
		}
	}
	return q.ring.lookUp(tag, exact)
}

// Remove removes one receive; false when the handle is stale.
func (q *Posted[T]) Remove(h Handle) (v T, ok bool) {
	if k := q.ring.byHandle(h); k != q.ring.tail {
		q.total--
		return q.ring.take(k), true
	}
	if b := q.isBack(h); b != nil {
		return q.leave(b), true
	}
	i := q.resolve(h)
	if i == 0 {
		return v, false
	}
	// A handle identifies the entry and not its mask: the link has the class.
	c := q.classes[q.links.at(i).owner]
	c.remove(q.links, i)
	return q.finish(c, i), true
}

// finish frees an entry that was removed from the table of its class.
func (q *Posted[T]) finish(c *class, i uint32) T {
	// A class without entries would still cost each match a probe.
	if c.keys == 0 && c != &q.exact {
		q.retire(c)
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
func (q *Posted[T]) trim() {
	for c, ok := q.drop(); ok; c, ok = q.drop() {
		q.vals[c] = nil
	}
}

// Seq returns the sequence number of a receive; false when the handle is stale.
func (q *Posted[T]) Seq(h Handle) (Seq, bool) {
	if k := q.ring.byHandle(h); k != q.ring.tail {
		return q.ring.at(k).seq, true
	}
	if b := q.isBack(h); b != nil {
		return b.seq, true
	}
	i := q.resolve(h)
	return q.node(i).seq, i != 0 // node 0 has sequence number 0
}

// All walks the receives in posting order. The body may change the queue in
// any way; receives that it posts are not visited.
func (q *Posted[T]) All() iter.Seq2[Handle, T] {
	return func(yield func(Handle, T) bool) {
		q.ring.settle()
		if q.back != nil {
			q.allBeside(yield)
			return
		}
		for i := range q.walk() {
			if !yield(q.handle(i), q.vals.get(i)) {
				return
			}
		}
	}
}

// Since walks the receives with at least this sequence number in posting order, but for those that
// are back in their places. It looks at no others, and the body must not change the queue.
func (q *Posted[T]) Since(seq Seq) iter.Seq[T] {
	return func(yield func(T) bool) {
		i := uint32(0)
		for p := q.node(0).prev; p != 0 && q.node(p).seq >= seq; p = q.node(p).prev {
			i = p
		}
		for ; i != 0; i = q.node(i).next {
			if !yield(q.vals.get(i)) {
				return
			}
		}
		q.ring.since(seq, yield)
	}
}

// search returns the class of the oldest match in the tables and the word that holds it, which is 0
// if there is none.
func (q *posted) search(tag uint64) (*class, *uint32) {
	p := q.exact.lookup(q.links, tag)
	if len(q.active) == 0 { // no wildcard there: the fast path
		return &q.exact, p
	}
	return q.searchWild(tag, p)
}

// searchWild returns the class of the oldest match and the word that holds it, which is 0 if there
// is none. The exact class was searched before; p is the result.
func (q *posted) searchWild(tag uint64, p *uint32) (*class, *uint32) {
	c, oldest := &q.exact, ^Seq(0)
	if *p != 0 {
		oldest = q.node(*p).seq
	}
	for _, w := range q.active {
		key := tag & w.mask
		wp := w.bucket(w.hash.sum(key)) // inlined: mostly nothing is there
		if *wp == 0 {
			continue
		}
		if wp = q.links.probe(wp, key); *wp == 0 {
			continue
		}
		if s := q.node(*wp).seq; s < oldest {
			c, p, oldest = w, wp, s
		}
	}
	return c, p
}

// enter puts entry i into the table of its class.
func (q *posted) enter(i uint32, tag, mask uint64) {
	if mask == exact {
		q.exact.push(q.links, i, tag, 0)
		return
	}
	c := q.class(mask)
	c.push(q.links, i, tag&mask, c.owner)
}

// unused is told that n receives have not come to the tables.
func (q *posted) unused(n int) { q.exact.unused(q.links, n) }

// class returns the class of a mask. The search is linear, as that of a match.
func (q *posted) class(mask uint64) *class {
	for _, c := range q.active {
		if c.mask == mask {
			return c
		}
	}
	return q.employ(mask)
}

// employ assigns an idle class, or a new one, to the mask.
func (q *posted) employ(mask uint64) *class {
	var c *class
	if k := len(q.idle); k != 0 {
		c, q.idle = q.idle[k-1], q.idle[:k-1]
	} else {
		c = &class{owner: uint32(len(q.classes))}
		c.init(q.exact.hash)
		q.classes = append(q.classes, c)
	}
	c.mask, c.pos = mask, len(q.active)
	q.active = append(q.active, c)
	return c
}

// keepBuckets is the largest array of buckets that an idle class keeps.
const keepBuckets = 4096

// retire removes a class without entries from the search.
func (q *posted) retire(c *class) {
	k := len(q.active) - 1
	last := q.active[k]
	q.active[c.pos], last.pos = last, c.pos
	q.active = q.active[:k]
	if len(c.cur) > keepBuckets {
		c.reset()
	}
	q.idle = append(q.idle, c)
}
