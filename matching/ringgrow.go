package matching

// store is what a ring's elements move to: slab, values and, by enter, tables.
type store[T any] struct {
	slab  *slab
	vals  *values[T]
	enter func(i uint32, tag, mask uint64)

	// unused is told at the end of a lap how many elements may not have come to the tables.
	unused func(n int)
}

// add takes an entry for an element, and returns its handle.
func (s *store[T]) add(tag, mask uint64, v T) Handle {
	seq := s.slab.seq
	i := s.slab.add()
	s.enter(i, tag, mask)
	s.vals.set(i, v)
	return makeHandle(i, seq)
}

// init begins with an empty ring, whose elements will move to s.
func (r *ring[T]) init(s store[T]) { r.to, r.span = s, longRing-1 }

// mostReserved is how many elements may have moved to the tables and be there: with more, the
// positions that must be passed would cost too much.
func (r *ring[T]) mostReserved() int { return int(r.span / 16) }

// makeRoom makes room in a ring that is full or at putLimit, and returns true; or it empties the
// ring, and the next element goes to the tables.
func (r *ring[T]) makeRoom() bool {
	size := len(r.slots)
	switch {
	case size == 0:
		r.resize(shortRing)
		r.hints = new([hintCount]hint)
		r.restart()
	case r.bypassed:
		return r.comeBack()
	case r.to.slab.reservedInUse > r.mostReserved():
		r.leave()
		return false
	case r.tail-r.head < uint64(size):
		r.pass()
	case r.len() <= size/2:
		r.move(r.head + uint64(size/4))
	case uint64(size) <= r.span:
		r.resize(2 * size)
	default:
		r.leave()
		return false
	}
	return true
}

// restart begins with position 0 in an empty ring: so the same entries are used again, and no more
// are made than are needed.
func (r *ring[T]) restart() {
	r.head, r.tail, r.start, r.debt = 0, 0, 0, 0
	clear(r.hints[:])
	r.findPutLimit()
}

// resize makes the slots, or more of them.
func (r *ring[T]) resize(size int) {
	slots, mask := make([]ringElem[T], size), uint64(size-1)
	for k := r.head; k != r.tail; k++ {
		slots[k&mask] = *r.at(k)
	}
	r.slots, r.mask = slots, mask
}

// pass goes on at putLimit: the end of a lap, or positions whose entries may be in use.
func (r *ring[T]) pass() {
	s := r.to.slab
	if n := r.tail - r.start; n >= uint64(len(r.slots)) {
		r.to.unused(int(n))
		if r.empty() && r.tail > r.span/4 && s.reservedInUse < len(r.slots)/2 { // half of the first lap is free
			r.restart()
			return
		}
		r.start, r.debt = r.tail, 0
	}
	for r.tail-r.head < uint64(len(r.slots)) && s.used(r.entry(r.tail)) {
		if r.empty() {
			r.head++
		} else {
			r.at(r.tail).seq = r.at(r.tail-1).seq | removed
			r.holes++
		}
		r.tail++
	}
	r.findPutLimit()
}

// findPutLimit finds where the lap ends, or the next position before that whose entry is in use.
func (r *ring[T]) findPutLimit() {
	s := r.to.slab
	if r.tail-r.start >= uint64(len(r.slots)) { // all entries of the lap are in use
		r.start = r.tail
	}
	r.putLimit = r.start + uint64(len(r.slots))
	if s.reservedInUse == 0 {
		return
	}
	for k := r.tail; k < r.putLimit; k++ {
		if s.used(r.entry(k)) {
			r.putLimit = k
		}
	}
}

// leave moves all elements to the tables, where the next ones go too: so many that what the ring
// has cost is a small part of what they do.
func (r *ring[T]) leave() {
	r.move(r.tail)
	r.bypassed, r.putLimit, r.bypassLeft = true, r.tail, int(r.span/2)
}

// comeBack ends that, if it is time and the entries of few are in the tables.
func (r *ring[T]) comeBack() bool {
	if r.bypassLeft--; r.to.slab.n != 0 && (r.bypassLeft > 0 || r.to.slab.reservedInUse > r.mostReserved()/2) {
		return false
	}
	r.bypassed = false
	r.restart()
	return true
}

// move moves the elements before a position to the tables.
func (r *ring[T]) move(end uint64) {
	var none T
	for r.head != r.tail && r.head < end {
		e, i := r.at(r.head), r.entry(r.head)
		r.to.slab.useReserved(i, e.seq)
		r.to.enter(i, e.tag, e.mask)
		r.to.vals.set(i, e.v)
		e.v = none
		r.putLimit = min(r.putLimit, r.head+r.span+1)
		r.head++
		r.skip()
	}
}

// settle moves all elements to the tables, with the handles and sequence numbers that they have.
func (r *ring[T]) settle() {
	if !r.empty() {
		r.leave()
	}
}

// settleIfDue does that where searches here have cost more than the tables would.
func (r *ring[T]) settleIfDue() {
	if r.due() {
		r.settle()
	}
}
