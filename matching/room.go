package matching

// store is what a ring's elements move to: slab, values and, by enter, tables.
type store[T any] struct {
	slab  *slab
	vals  *values[T]
	enter func(i uint32, tag, mask uint64)

	// unused is told that so many elements have not come to the tables.
	unused func(n int)
}

// makeRoom is called when the ring is full, or at its stop. False: the next element goes to the
// tables, and the ring is empty. Else something was done about it.
func (r *ring[T]) makeRoom(s *store[T]) bool {
	size := len(r.slots)
	switch {
	case size == 0:
		r.resize(shortRing)
		r.begin(s)
	case r.out:
		return r.comeBack(s)
	case r.tail-r.head < uint64(size):
		r.pass(s)
	case r.len() <= size/2:
		r.move(s, r.head+uint64(size/4))
	case uint64(size) <= r.span:
		r.resize(growRing * size)
	default:
		r.leave(s)
		return false
	}
	return true
}

// begin begins a lap, in which as many elements are put here as there are places.
func (r *ring[T]) begin(s *store[T]) {
	r.start, r.debt = r.tail, 0
	r.findStop(s.slab)
}

// resize makes the slots, or more of them.
func (r *ring[T]) resize(size int) {
	slots, mask := make([]ringElem[T], size), uint64(size-1)
	for k := r.head; k != r.tail; k++ {
		slots[k&mask] = *r.at(k)
	}
	r.slots, r.mask = slots, mask
	if size > shortRing && r.hints == nil {
		r.hints = new([hintCount]hint)
	}
}

// pass goes on at a stop: the end of a lap, or a position whose entry may be lent.
func (r *ring[T]) pass(s *store[T]) {
	if r.tail-r.start >= uint64(len(r.slots)) {
		s.unused(int(r.tail - r.start))
		r.start, r.debt = r.tail, 0
	}
	if s.slab.used(r.entry(r.tail)) {
		r.at(r.tail).stamp = 0
		if r.empty() {
			r.head++
		} else {
			r.holes++
		}
		r.tail++
	}
	r.findStop(s.slab)
}

// findStop finds the next position whose entry is lent, in this lap.
func (r *ring[T]) findStop(s *slab) {
	end := r.start + uint64(len(r.slots))
	for r.stop = r.tail; r.stop < end; r.stop++ {
		if r.lent == 0 {
			r.stop = end
			return
		}
		if s.used(r.entry(r.stop)) {
			return
		}
	}
}

// leave moves all elements to the tables, where the next ones go too: so many that what the ring
// has cost is a small part of what they do.
func (r *ring[T]) leave(s *store[T]) {
	r.move(s, r.tail)
	r.out, r.stop, r.away = true, r.tail, int(r.span/2)
}

// comeBack ends that, if it is time and most entries are not lent. Positions begin anew, so that
// the same entries are lent again.
func (r *ring[T]) comeBack(s *store[T]) bool {
	if r.away--; s.slab.n != 0 && (r.away > 0 || r.lent > int(r.span/16)) {
		return false
	}
	r.out, r.head, r.tail = false, 0, 0
	if r.hints != nil {
		clear(r.hints[:])
	}
	r.begin(s)
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
