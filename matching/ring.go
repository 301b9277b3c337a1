package matching

const (
	// shortRing and longRing are how many elements a ring has room for at first, and at most:
	// powers of two.
	shortRing = 64
	longRing  = 1 << 14

	// A lap's searches may examine all elements once, ringDebt for each place, at most mostDebt,
	// and ringCredit for each element that is put here, beyond scanFree of each search. Beyond that
	// the tables cost less.
	ringDebt   = 4
	mostDebt   = 1024
	ringCredit = 4

	hintCount = 64
)

// ring is the newest elements of a queue, in order, beside slab and tables: all that are there are
// older. It is searched from its oldest element on, or from where the last search for the same tag
// has ended. So receives that are posted and matched in the same order, or in runs of one tag, the
// usual cases, cost a few stores and compares, however many there are.
//
// Elements move to slab and tables: the oldest where removed ones behind them take the room, and
// all where there are too many, searches examine too many, or a caller wants to walk the queue. The
// element at position k is entry k modulo span+1, plus 1, of the slab, which is reserved for it: so
// its handle stays the same. A position whose entry is in use by the tables is not used.
type ring[T any] struct {
	slots      []ringElem[T] // their number is a power of two, at most span+1
	mask       uint64        // len(slots)-1
	head       uint64        // position of the oldest
	tail       uint64        // where the next is put
	putLimit   uint64        // where makeRoom is asked first: the end of the lap, or an entry in use
	start      uint64        // where the lap has begun
	holes      uint64        // removed elements between head and tail
	span       uint64        // constant: longRing-1, or less in tests
	debt       int           // elements examined in this lap, beyond scanFree of each search
	bypassed   bool          // all elements go to the tables
	bypassLeft int           // how many elements more go to the tables at least
	hints      *[hintCount]hint
	to         store[T] // constant: what elements move to
}

type ringElem[T any] struct {
	tag  uint64
	mask uint64
	seq  Seq // with removed
	v    T
}

// removed marks the sequence number of an element that was removed, and of a position that was
// passed.
const removed Seq = 1 << 63

func (e *ringElem[T]) gone() bool { return e.seq&removed != 0 }

// hint says that no element before a position matches.
type hint struct{ tag, mask, pos uint64 }

// at returns the element at a position.
func (r *ring[T]) at(k uint64) *ringElem[T] { return &r.slots[k&r.mask] }

func (r *ring[T]) empty() bool { return r.head == r.tail }

// len is the number of elements.
func (r *ring[T]) len() int { return int(r.tail - r.head - r.holes) }

// full reports whether no element can be put here without more ado.
func (r *ring[T]) full() bool { return r.tail-r.head >= uint64(len(r.slots)) || r.tail == r.putLimit }

// put appends an element.
func (r *ring[T]) put(tag, mask uint64, seq Seq, v T) Handle {
	// Field by field: a composite literal would be built on the stack and copied in wider words,
	// which stalls store forwarding.
	e := r.at(r.tail)
	e.tag, e.mask, e.seq, e.v = tag, mask, seq, v
	r.tail++
	return makeHandle(r.entry(r.tail-1), seq)
}

// entry is what is reserved for the element at a position.
func (r *ring[T]) entry(k uint64) uint32 { return uint32(k&r.span) + 1 }

// find returns the position of the oldest element that matches, or tail.
func (r *ring[T]) find(tag, mask uint64) uint64 {
	if r.empty() {
		return r.tail
	}
	k, h := r.head, r.hint(tag, mask)
	if h.tag == tag && h.mask == mask && h.pos-k <= r.tail-k {
		k = h.pos
	}
	from := k
	for ; k != r.tail; k++ {
		if e := r.at(k); (e.tag^tag)&e.mask&mask == 0 && !e.gone() {
			break
		}
	}
	if looked := int(k - from); looked > scanFree {
		r.debt += looked - scanFree
	}
	h.tag, h.mask, h.pos = tag, mask, k
	return k
}

// lookUp is find for those who take nothing.
func (r *ring[T]) lookUp(tag, mask uint64) (v T, h Handle, ok bool) {
	if k := r.find(tag, mask); k != r.tail {
		v, h, ok = r.at(k).v, r.handle(k), true
	}
	r.settleIfDue()
	return v, h, ok
}

// hint returns where the hint for a search is.
func (r *ring[T]) hint(tag, mask uint64) *hint {
	return &r.hints[(tag^mask)*0x9e3779b97f4a7c15>>58%hintCount]
}

// since yields the elements with at least this sequence number, oldest first.
func (r *ring[T]) since(seq Seq, yield func(T) bool) {
	k := r.tail
	for k != r.head && r.at(k-1).seq&^removed >= seq {
		k--
	}
	for ; k != r.tail; k++ {
		if e := r.at(k); !e.gone() && !yield(e.v) {
			return
		}
	}
}

// byHandle returns the position of an element, or tail if the handle is not of one here.
func (r *ring[T]) byHandle(h Handle) uint64 {
	i := uint64(h & indexMask)
	if i-1 > r.span {
		return r.tail
	}
	k := r.head + (i-1-r.head)&r.span
	if k-r.head >= r.tail-r.head || r.at(k).gone() || r.handle(k) != h {
		return r.tail
	}
	return k
}

// position returns the position of the element that entry i is reserved for, or tail if there is
// none.
func (r *ring[T]) position(i uint32) uint64 {
	k := r.head + (uint64(i)-1-r.head)&r.span
	if uint64(i)-1 > r.span || k-r.head >= r.tail-r.head || r.at(k).gone() {
		return r.tail
	}
	return k
}

func (r *ring[T]) handle(k uint64) Handle { return makeHandle(r.entry(k), r.at(k).seq) }

// take removes the element at a position and returns its value.
func (r *ring[T]) take(k uint64) (v T) {
	if k == r.head {
		return r.first(r.at(k))
	}
	r.holes++
	e := r.at(k)
	v, e.v, e.seq = e.v, v, e.seq|removed
	return v
}

// first removes the oldest element, which is e, and returns its value. It is small enough to be
// inlined.
func (r *ring[T]) first(e *ringElem[T]) (v T) {
	v, e.v = e.v, v
	if r.head++; r.holes != 0 {
		r.skip()
	}
	return v
}

// skip goes on to the oldest element that is left.
func (r *ring[T]) skip() {
	for r.head != r.tail && r.at(r.head).gone() {
		r.head++
		r.holes--
	}
}

// due reports whether searches here have cost more than the tables would.
func (r *ring[T]) due() bool {
	return r.debt > r.len()+min(ringDebt*len(r.slots), mostDebt)+ringCredit*int(r.tail-r.start)
}
