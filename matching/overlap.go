package matching

// overlapBudget is how many receives Overlapping looks at before it gives the
// safe answer.
const overlapBudget = 1024

// Overlapping tells whether a receive posted before the given stamp overlaps
// (tag, mask) and satisfies pred; a nil pred takes every receive.
//
// The answer may be conservative: true although there is none, when more than
// 1024 receives would have to be looked at. False is always right. With a nil
// pred, masks in use that lie within mask cost one probe each, whatever the
// depth; a mask in use with bits outside mask (an exact receive against a
// wildcard) has to be scanned for. So whoever asks often about a subset of the
// receives does well to keep that subset in a queue of its own.
//
// pred must not change the queue.
func (q *Posted[T]) Overlapping(tag, mask uint64, before Stamp, pred func(T) bool) bool {
	if q.n == 0 {
		return false
	}
	if l := &q.lone; l.on {
		return l.stamp < before && Overlap(tag, mask, l.tag, l.mask) && (pred == nil || pred(l.v))
	}
	o := overlap[T]{q, before, pred, overlapBudget}
	scan := q.exact.keys != 0
	if scan && mask == exact {
		scan = false
		if o.sameKey(q.exact.lookup(q.links, tag)) {
			return true
		}
	}
	for _, c := range q.active {
		if c.mask&^mask != 0 {
			scan = true
		} else if o.sameKey(c.lookup(q.links, tag&c.mask)) {
			return true
		}
	}
	return scan && o.scan(tag, mask)
}

// overlap is one question to Overlapping.
type overlap[T any] struct {
	q      *Posted[T]
	before Stamp
	pred   func(T) bool
	budget int
}

// sameKey looks at the receives of one key of a class whose mask lies within
// the one asked about: they overlap, and no others of the class do.
func (o *overlap[T]) sameKey(p *uint32) bool {
	for i := *p; i != 0 && o.q.node(i).stamp < o.before; i = o.q.links.at(i).next {
		if o.hit(i) {
			return true
		}
	}
	return false
}

// scan looks at all receives in posting order, for those of other classes.
func (o *overlap[T]) scan(tag, mask uint64) bool {
	q := o.q
	for i := q.nodes[0][0].next; i != 0 && q.node(i).stamp < o.before; i = q.node(i).next {
		l := q.links.at(i)
		if Overlap(tag, mask, l.key, q.classes[l.owner].mask) {
			if o.hit(i) {
				return true
			}
		} else if o.budget--; o.budget < 0 {
			return true
		}
	}
	return false
}

// hit tells whether an overlapping receive decides the question.
func (o *overlap[T]) hit(i uint32) bool {
	o.budget--
	return o.budget < 0 || o.pred == nil || o.pred(o.q.vals.get(i))
}
