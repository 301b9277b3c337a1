package links

import "math/bits"

// Index maps what devices and engines call things by, queue pair numbers or ids of receives, to
// small numbers: a hash table with open addressing and deletion without tombstones, at most half
// full. No peer chooses the keys, so that nobody can make them collide on purpose.
type Index struct {
	slots []indexSlot // a power of two
	shift uint        // 64 minus the binary logarithm of len(slots)
	n     int         // keys
}

// indexSlot is a place of the table.
type indexSlot struct {
	key   uint64
	value int32 // plus one; 0: this place is free
}

// NewIndex makes a table. Nothing more is allocated for the first n keys.
func NewIndex(n int) Index {
	k := max(bits.Len(uint(n))+1, 3)
	return Index{slots: make([]indexSlot, 1<<k), shift: uint(64 - k)}
}

// home returns the place where the search for key begins.
func (x *Index) home(key uint64) int { return int(key * 0x9E3779B97F4A7C15 >> x.shift) }

func (x *Index) next(i int) int { return (i + 1) & (len(x.slots) - 1) }

// at returns the place of key, or the one where it would be added.
func (x *Index) at(key uint64) int {
	i := x.home(key)
	for x.slots[i].value != 0 && x.slots[i].key != key {
		i = x.next(i)
	}
	return i
}

// Find returns the value of key, or -1.
func (x *Index) Find(key uint64) int { return int(x.slots[x.at(key)].value) - 1 }

// Add enters a key that is not in the table.
func (x *Index) Add(key uint64, value uint32) {
	if x.n++; 2*x.n > len(x.slots) {
		x.grow()
	}
	x.slots[x.at(key)] = indexSlot{key, int32(value) + 1}
}

func (x *Index) grow() {
	old := x.slots
	x.slots, x.shift = make([]indexSlot, 2*len(old)), x.shift-1
	for _, s := range old {
		if s.value != 0 {
			x.slots[x.at(s.key)] = s
		}
	}
}

// Remove deletes a key, if it is there. It closes the gap: keys behind it move up unless that would
// put them before their home.
func (x *Index) Remove(key uint64) {
	gap := x.at(key)
	if x.slots[gap].value == 0 {
		return
	}
	x.n--
	for i := x.next(gap); x.slots[i].value != 0; i = x.next(i) {
		home := x.home(x.slots[i].key)
		if (i-home)&(len(x.slots)-1) >= (i-gap)&(len(x.slots)-1) {
			x.slots[gap] = x.slots[i]
			gap = i
		}
	}
	x.slots[gap] = indexSlot{}
}
