package matching

// store is what a ring's elements move to: slab, values and, by enter, tables.
type store[T any] struct {
	slab  *slab
	vals  *values[T]
	enter func(i uint32, tag, mask uint64)

	// unused is told at the end of a lap how many elements may not have come to the tables.
	unused func(n int)
}

// mostLent is how many elements may have moved to the tables and be there: with more, the positions
// that must be passed would cost too much.
func (r *ring[T]) mostLent() int { return int(r.span / 16) }

// makeRoom is called when the ring is full, or at its stop. False: the next element goes to the
// tables, and the ring is empty. Else something was done about it.
func (r *ring[T]) makeRoom(s *store[T]) bool {
	size := len(r.slots)
	switch {
	case size == 0:
		r.resize(shortRing)
		r.hints = new([hintCount]hint)
		r.restart(s.slab)
	case r.out:
		return r.comeBack(s.slab)
	case r.lent > r.mostLent():
		r.leave(s)
		return false
	case r.tail-r.head < uint64(size):
		r.pass(s)
	case r.len() <= size/2:
		r.move(s, r.head+uint64(size/4))
	case uint64(size) <= r.span:
		r.resize(2 * size)
	default:
		r.leave(s)
		return false
	}
	return true
}

// restart begins with position 0 in an empty ring: so the same entries are lent again, and no more
// are made than are needed.
func (r *ring[T]) restart(s *slab) {
	r.head, r.tail, r.start, r.debt = 0, 0, 0, 0
	clear(r.hints[:])
	r.findStop(s)
}

// resize makes the slots, or more of them.
func (r *ring[T]) resize(size int) {
	slots, mask := make([]ringElem[T], size), uint64(size-1)
	for k := r.head; k != r.tail; k++ {
		slots[k&mask] = *r.at(k)
	}
	r.slots, r.mask = slots, mask
}

// pass goes on at a stop: the end of a lap, or positions whose entries may be lent.
func (r *ring[T]) pass(s *store[T]) {
	if n := r.tail - r.start; n >= uint64(len(r.slots)) {
		s.unused(int(n))
		if r.empty() && r.tail > r.span/4 && r.lent < len(r.slots)/2 { // half of the first lap is free
			r.restart(s.slab)
			return
		}
		r.start, r.debt = r.tail, 0
	}
	for r.tail-r.head < uint64(len(r.slots)) && s.slab.used(r.entry(r.tail)) {
		if r.empty() {
			r.head++
		} else {
			r.at(r.tail).stamp = r.at(r.tail-1).stamp | removed
			r.holes++
		}
		r.tail++
	}
	r.findStop(s.slab)
}

// findStop finds where the lap ends, or the next position before that whose entry is lent.
func (r *ring[T]) findStop(s *slab) {
	if r.tail-r.start >= uint64(len(r.slots)) { // all positions of the lap were lent
		r.start = r.tail
	}
	r.stop = r.start + uint64(len(r.slots))
	if r.lent == 0 {
		return
	}
	for k := r.tail; k < r.stop; k++ {
		if s.used(r.entry(k)) {
			r.stop = k
		}
	}
}

// leave moves all elements to the tables, where the next ones go too: so many that what the ring
// has cost is a small part of what they do.
func (r *ring[T]) leave(s *store[T]) {
	r.move(s, r.tail)
	r.out, r.stop, r.away = true, r.tail, int(r.span/2)
}

// comeBack ends that, if it is time and the entries of few are in the tables.
func (r *ring[T]) comeBack(s *slab) bool {
	if r.away--; s.n != 0 && (r.away > 0 || r.lent > r.mostLent()/2) {
		return false
	}
	r.out = false
	r.restart(s)
	return true
}

// move moves the elements before a position to the tables.
func (r *ring[T]) move(s *store[T], end uint64) {
	var none T
	for r.head != r.tail && r.head < end {
		e, i := r.at(r.head), r.entry(r.head)
		s.slab.enlist(i, s.slab.reserved(i), e.stamp)
		s.enter(i, e.tag, e.mask)
		s.vals.set(i, e.v)
		e.v = none
		r.lent++
		r.stop = min(r.stop, r.head+r.span+1)
		r.head++
		r.skip()
	}
}
