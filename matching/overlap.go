package matching

// overlapBudget is how many receives Overlapping examines before it returns the safe answer.
const overlapBudget = 1024

// Overlapping reports whether a receive posted before the given sequence number overlaps
// (tag, mask).
//
// The answer may be conservative: true although there is none, when more than 1024 receives in the
// tables would have to be looked at. False is always right. Masks in use that lie within mask cost
// one probe each, whatever the depth; a mask in use with bits outside mask (an exact receive
// against a wildcard) has to be scanned for. So whoever asks often about a subset of the receives
// does well to keep that subset in a queue of its own.
func (q *Posted[T]) Overlapping(tag, mask uint64, before Seq) bool {
	if q.n != 0 && (q.overlapping(tag, mask, before) || q.back != nil && q.back.overlapping(tag, mask, before)) {
		return true
	}
	r := &q.ring
	k := r.find(tag, mask)
	found := k != r.tail && r.at(k).seq < before
	r.settleIfDue()
	return found
}

// overlapping is Overlapping among the receives in the tables.
func (q *posted) overlapping(tag, mask uint64, before Seq) bool {
	scan := q.exact.keys != 0
	if scan && mask == exact {
		scan = false
		if q.postedBefore(q.exact.lookup(q.links, tag), before) {
			return true
		}
	}
	for _, c := range q.active {
		if c.mask&^mask != 0 {
			scan = true
		} else if q.postedBefore(c.lookup(q.links, tag&c.mask), before) {
			return true
		}
	}
	return scan && q.scanOverlap(tag, mask, before)
}

// postedBefore examines the oldest receive of one key, in a class whose mask lies within the given
// one: it overlaps, and no receives of other keys of the class do.
func (q *posted) postedBefore(key *uint32, before Seq) bool {
	return *key != 0 && q.node(*key).seq < before
}

// scanOverlap examines receives in posting order, for the other classes.
func (q *posted) scanOverlap(tag, mask uint64, before Seq) bool {
	budget := overlapBudget
	for i := q.nodes[0][0].next; i != 0 && q.node(i).seq < before; i = q.node(i).next {
		l := q.links.at(i)
		if budget--; budget < 0 || Overlap(tag, mask, l.key, q.classes[l.owner].mask) {
			return true
		}
	}
	return false
}
