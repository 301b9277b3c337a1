package matching

import "math/bits"

const (
	minBuckets = 16 // at least 2: see bucket
	// moveStep is how many buckets each change of a table moves while it is
	// being resized: enough to end well before the next resize is due.
	moveStep = 4
	// unusedMoves is how often a call of unused does that at most.
	unusedMoves = 4096

	// spread is how many buckets a key is given at least. Half full is where
	// a probe mostly ends with the first key; more costs cache misses.
	spread = 2
)

// link is an entry's place in one table. Entries with the same key form a
// queue in the order they came; only the first one is chained in the bucket,
// so a long queue of one key costs nothing to the others.
type link struct {
	key   uint64
	prev  uint32 // the one before; of the first, the last
	next  uint32 // 0 in the last
	chain uint32 // of the first: the next key's first in the bucket
	owner uint32 // the class whose table this is (Posted)
}

type links []*[chunkSize]link

func (ls links) at(i uint32) *link { return &ls[i>>chunkBits][i&chunkMask] }

// table finds the first entry with a key. It is a chained hash table whose
// chains run through links, which are passed in: chaining needs no more from
// the hash than that two keys rarely collide, and deletes without tombstones.
// It grows and shrinks a few buckets at a time, so that no single call pays
// for a deep queue (beyond getting the new array of buckets).
type table struct {
	hash     hasher
	cur      []uint32 // bucket: first entry of the first key, 0 none
	shift    uint8    // 64 - log2(len(cur))
	oldShift uint8
	old      []uint32 // the array being emptied into cur, nil without a resize
	moved    uint64   // buckets of old that have been emptied
	keys     int
	low      int // below this many keys the array is too large
	slack    int // keys removed since the array had its right size
}

func (t *table) init(h hasher) {
	t.hash = h
	t.reset()
}

// reset returns an empty table to its smallest size.
func (t *table) reset() {
	t.old = nil
	t.setArray(minBuckets)
}

func (t *table) setArray(size int) {
	t.cur = make([]uint32, size)
	t.shift = uint8(64 - bits.TrailingZeros(uint(size)))
	t.low, t.slack = 0, 0
	if size > minBuckets {
		t.low = size / (8 * spread)
	}
}

// bucket returns the head of the chain for a hash. It is kept apart from the
// hashing so that both are inlined.
func (t *table) bucket(h uint64) *uint32 {
	if t.old != nil {
		return t.bucketMoving(h)
	}
	return &t.cur[h>>(t.shift&63)] // &63 spares the test for wide shifts
}

// bucketMoving is bucket during a resize: a key is in the old array until its
// bucket there has been emptied.
func (t *table) bucketMoving(h uint64) *uint32 {
	if i := h >> (t.oldShift & 63); i >= t.moved {
		return &t.old[i]
	}
	return &t.cur[h>>(t.shift&63)]
}

// lookup returns the word that holds the first entry with the key. Without one it holds 0, and is
// where a new key goes. The word is valid until the next change.
func (t *table) lookup(ls links, key uint64) *uint32 {
	p := t.bucket(t.hash.sum(key))
	if *p == 0 {
		return p
	}
	return ls.probe(p, key)
}

// probe walks a chain to the key.
func (ls links) probe(p *uint32, key uint64) *uint32 {
	for *p != 0 {
		l := ls.at(*p)
		if l.key == key {
			break
		}
		p = &l.chain
	}
	return p
}

// push appends entry i to the queue of its key.
func (t *table) push(ls links, i uint32, key uint64, owner uint32) {
	p := t.lookup(ls, key)
	l := ls.at(i)
	l.key, l.prev, l.next, l.chain, l.owner = key, i, 0, 0, owner
	if *p != 0 {
		first := ls.at(*p)
		l.prev = first.prev
		ls.at(first.prev).next = i
		first.prev = i
		return
	}
	*p = i
	t.keys++
	if spread*t.keys > len(t.cur) || t.old != nil {
		t.grow(ls)
	}
}

// pop removes the first entry of a key; p comes from lookup.
func (t *table) pop(ls links, p *uint32) {
	l := ls.at(*p)
	if l.next != 0 {
		second := ls.at(l.next)
		second.prev, second.chain = l.prev, l.chain
		*p = l.next
		return
	}
	*p = l.chain
	t.keys--
	if t.keys < t.low || t.old != nil {
		t.shrink(ls)
		return
	}
	t.slack = 0
}

// remove removes entry i, wherever in the queue of its key.
func (t *table) remove(ls links, i uint32) {
	l := ls.at(i)
	before := ls.at(l.prev)
	if before.next != 0 && l.next != 0 { // neither first nor last
		before.next = l.next
		ls.at(l.next).prev = l.prev
		return
	}
	p := t.lookup(ls, l.key)
	if *p == i {
		t.pop(ls, p)
		return
	}
	before.next = 0
	ls.at(*p).prev = l.prev
}

// grow starts or continues a resize after a key was added. A resize ends within len(old)/moveStep
// changes, before the next can be due.
func (t *table) grow(ls links) {
	if t.old == nil {
		t.resize(2 * len(t.cur))
	}
	t.move(ls)
}

// shrink starts or continues a resize after a key was removed. It starts only after as many
// removals at a low level as would pay for it, so that a queue which fills and drains keeps its
// array.
func (t *table) shrink(ls links) {
	if t.old == nil {
		if t.slack++; t.slack <= len(t.cur)/4 {
			return
		}
		t.resize(len(t.cur) / 2)
	}
	t.move(ls)
}

// unused is told that the queue has done without the table for n elements: the array shrinks as it
// would have if they had come and gone here.
func (t *table) unused(ls links, n int) {
	if t.old == nil {
		if t.keys >= t.low {
			return
		}
		if t.slack += n / 8; t.slack <= len(t.cur)/4 { // it may be used again
			return
		}
		t.resize(len(t.cur) / 2)
	}
	for k := 0; k < min(n, unusedMoves) && t.old != nil; k++ {
		t.move(ls)
	}
}

func (t *table) resize(size int) {
	t.old, t.oldShift, t.moved = t.cur, t.shift, 0
	t.setArray(size)
}

// move empties the next few buckets of the old array.
func (t *table) move(ls links) {
	end := min(t.moved+moveStep, uint64(len(t.old)))
	for ; t.moved < end; t.moved++ {
		for i := t.old[t.moved]; i != 0; {
			l := ls.at(i)
			b := &t.cur[t.hash.sum(l.key)>>(t.shift&63)]
			next := l.chain
			l.chain, *b = *b, i
			i = next
		}
	}
	if end == uint64(len(t.old)) || t.keys == 0 {
		t.old = nil
	}
}
