package tmsrq

import "math/bits"

// index maps ids of receives to slots of the tag list: a hash table with open addressing and
// deletion without tombstones, at most half full, so that nothing is allocated after newIndex. Ids
// are chosen by the engine, not by a peer, so that nobody can make them collide on purpose.
type index struct {
	slots []indexSlot // a power of two
	shift uint        // 64 minus the binary logarithm of len(slots)
}

// indexSlot is a place of the table.
type indexSlot struct {
	id   uint64
	slot int32 // of the tag list, plus one; 0: this place is free
}

// newIndex makes a table for at most n ids.
func newIndex(n int) index {
	k := max(bits.Len(uint(n))+1, 3)
	return index{slots: make([]indexSlot, 1<<k), shift: uint(64 - k)}
}

// home returns the place where the search for id begins.
func (x *index) home(id uint64) int { return int(id * 0x9E3779B97F4A7C15 >> x.shift) }

func (x *index) next(i int) int { return (i + 1) & (len(x.slots) - 1) }

// at returns the place of id, or the one where it would be added.
func (x *index) at(id uint64) int {
	i := x.home(id)
	for x.slots[i].slot != 0 && x.slots[i].id != id {
		i = x.next(i)
	}
	return i
}

// find returns the slot of the tag list that id has, or -1.
func (x *index) find(id uint64) int { return int(x.slots[x.at(id)].slot) - 1 }

// add enters an id that is not in the table.
func (x *index) add(id uint64, slot uint32) { x.slots[x.at(id)] = indexSlot{id, int32(slot) + 1} }

// remove deletes an id, if it is there. It closes the gap: ids behind it move up unless that would
// put them before their home.
func (x *index) remove(id uint64) {
	gap := x.at(id)
	if x.slots[gap].slot == 0 {
		return
	}
	for i := x.next(gap); x.slots[i].slot != 0; i = x.next(i) {
		home := x.home(x.slots[i].id)
		if (i-home)&(len(x.slots)-1) >= (i-gap)&(len(x.slots)-1) {
			x.slots[gap] = x.slots[i]
			gap = i
		}
	}
	x.slots[gap] = indexSlot{}
}
