package matching

const (
	// frontLen is how many elements a queue holds beside slab and tables. It is
	// a power of two, and leaves room in the first chunk.
	frontLen = 64

	// frontDebt is how many elements beyond scanFree of a search may be
	// examined in all, before the queue goes to its tables.
	frontDebt = 1024
)

// front is the elements of a short queue, in order: a ring that is searched from its oldest element
// on. A queue begins here when it is empty, and goes to slab and tables as a whole when it gets too
// long, searches examine too many elements, or a caller wants to walk it. Receives that are posted
// and matched in the same order, the usual case, so cost a few stores and compares. The element in
// place k is entry k+1 of the slab, which is reserved for it: so its handle stays the same.
type front[T any] struct {
	slots *[frontLen]frontElem[T]
	head  uint32 // the oldest element; positions modulo 2^32
	tail  uint32 // where the next is put
	room  uint32 // frontLen; 0: nothing can be put here, as there are no slots, or left is set
	holes uint32 // removed elements between head and tail
	debt  int
	left  bool // the queue is in its tables
}

type frontElem[T any] struct {
	tag   uint64
	mask  uint64
	stamp Stamp // 0: it was removed
	v     T
}

// at returns the element at a position.
func (f *front[T]) at(k uint32) *frontElem[T] { return &f.slots[k%frontLen] }

// full reports that no element can be put here.
func (f *front[T]) full() bool { return f.tail-f.head >= f.room }

// put appends an element.
func (f *front[T]) put(tag, mask uint64, stamp Stamp, v T) Handle {
	// Field by field: a composite literal would be built on the stack and copied in wider words,
	// which stalls store forwarding.
	e := &f.slots[f.tail%frontLen]
	e.tag, e.mask, e.stamp, e.v = tag, mask, stamp, v
	f.tail++
	return makeHandle((f.tail-1)%frontLen+1, stamp)
}

// lap reports that the ring begins anew: time to look at what is not used meanwhile.
func (f *front[T]) lap() bool { return f.tail%frontLen == 0 }

// open makes the slots, with the first element of the queue.
func (f *front[T]) open() bool {
	if f.slots != nil {
		return false
	}
	f.slots, f.room = new([frontLen]frontElem[T]), frontLen
	return true
}

// find returns the position of the oldest element that matches, or tail.
func (f *front[T]) find(tag, mask uint64) uint32 {
	k := f.head
	for ; k != f.tail; k++ {
		if e := f.at(k); (e.tag^tag)&e.mask&mask == 0 && e.stamp != 0 {
			break
		}
	}
	if looked := int(k - f.head); looked > scanFree {
		f.debt += looked - scanFree
	}
	return k
}

// since yields the elements with at least this stamp, oldest first.
func (f *front[T]) since(stamp Stamp, yield func(T) bool) {
	k := f.tail
	for k != f.head && (f.at(k-1).stamp == 0 || f.at(k-1).stamp >= stamp) {
		k--
	}
	for ; k != f.tail; k++ {
		if e := f.at(k); e.stamp != 0 && !yield(e.v) {
			return
		}
	}
}

// byHandle returns the position of an element, or tail if the handle is stale.
func (f *front[T]) byHandle(h Handle) uint32 {
	i := uint32(h & indexMask)
	if i == 0 || i > frontLen || f.head == f.tail {
		return f.tail
	}
	k := f.head + (i-1-f.head)%frontLen
	if k-f.head >= f.tail-f.head || f.at(k).stamp == 0 || f.handle(k) != h {
		return f.tail
	}
	return k
}

func (f *front[T]) handle(k uint32) Handle { return makeHandle(k%frontLen+1, f.at(k).stamp) }

// take removes the element at a position and returns its value.
func (f *front[T]) take(k uint32) (v T) {
	if k == f.head {
		return f.first()
	}
	f.holes++
	e := f.at(k)
	v, e.v, e.stamp = e.v, v, 0
	return v
}

// first removes the oldest element and returns its value. It is small enough to be inlined.
func (f *front[T]) first() (v T) {
	e := f.at(f.head)
	v, e.v = e.v, v
	if f.head++; f.holes != 0 {
		f.skip()
	}
	return v
}

// skip goes on to the oldest element that is left.
func (f *front[T]) skip() {
	for f.head != f.tail && f.at(f.head).stamp == 0 {
		f.head++
		f.holes--
	}
}

// due reports that searches here have cost more than the tables would.
func (f *front[T]) due() bool { return f.debt > frontDebt }

// leave empties the ring into the tables by enter.
func (f *front[T]) leave(s *slab, vals *values[T], enter func(i uint32, tag, mask uint64)) {
	for k := f.head; k != f.tail; k++ {
		e := f.at(k)
		if e.stamp == 0 {
			continue
		}
		i := k%frontLen + 1
		s.enlist(i, s.node(i), e.stamp)
		enter(i, e.tag, e.mask)
		vals.set(i, e.v)
	}
	clear(f.slots[:])
	f.left, f.room, f.holes = true, 0, 0
}

// back has the queue, which is empty, begin here again.
func (f *front[T]) back() { f.head, f.tail, f.room, f.debt, f.left = 0, 0, frontLen, 0, false }
