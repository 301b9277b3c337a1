package tmsrq

import "math/bits"

// index finds the entry of a receive's id: open addressing, at most half full, deletion without
// tombstones, so that nothing is ever allocated after its making. Ids are the engine's, not a
// peer's.
type index struct {
	slots []indexSlot
	shift uint
}

type indexSlot struct {
	id   uint64
	slot int32 // plus one; 0: free
}

func newIndex(n int) index {
	k := max(bits.Len(uint(n))+1, 3)
	return index{slots: make([]indexSlot, 1<<k), shift: uint(64 - k)}
}

func (x *index) home(id uint64) int { return int(id * 0x9E3779B97F4A7C15 >> x.shift) }

func (x *index) next(i int) int { return (i + 1) & (len(x.slots) - 1) }

// at is where id is, or where it would go.
func (x *index) at(id uint64) int {
	i := x.home(id)
	for x.slots[i].slot != 0 && x.slots[i].id != id {
		i = x.next(i)
	}
	return i
}

// find returns the slot of id, or -1.
func (x *index) find(id uint64) int { return int(x.slots[x.at(id)].slot) - 1 }

func (x *index) add(id uint64, slot uint32) { x.slots[x.at(id)] = indexSlot{id, int32(slot) + 1} }

// remove closes the gap that it makes: what is behind moves up as far as its home allows.
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
