package links

import "math/bits"

// table maps queue pair numbers to ranks: open addressing, at most half full. It is filled once and
// read for each completion.
type table struct {
	slots []tableSlot
	shift uint
}

type tableSlot struct {
	qpn  uint32
	rank int32 // plus one; 0: free
}

func newTable(n int) table {
	k := max(bits.Len(uint(n))+1, 3)
	return table{slots: make([]tableSlot, 1<<k), shift: uint(32 - k)}
}

func (t *table) at(qpn uint32) uint32 { return qpn * 0x9E3779B1 >> t.shift }

// add enters a queue pair; newTable was given their number.
func (t *table) add(qpn uint32, rank int) {
	i := t.at(qpn)
	for t.slots[i].rank != 0 {
		i = (i + 1) & uint32(len(t.slots)-1)
	}
	t.slots[i] = tableSlot{qpn, int32(rank) + 1}
}

// find returns the rank, or -1.
func (t *table) find(qpn uint32) int {
	i := t.at(qpn) & uint32(len(t.slots)-1)
	for {
		s := t.slots[i]
		if s.qpn == qpn || s.rank == 0 {
			return int(s.rank) - 1
		}
		i = (i + 1) & uint32(len(t.slots)-1)
	}
}
