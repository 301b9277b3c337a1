package p2p

import (
	"encoding/binary"
	"iter"
	"runtime"

	"github.com/tagmatch/tagmatch/internal/cpus"
)

// cpuSet are processors, as numbers by turns (unsigned varints): so many that are not of them, then
// so many that are. Empty: not known.
type cpuSet []byte

// Limits of a cpuSet.
const (
	maxCPUSet = 32      // bytes; a longer one is left out
	maxCPU    = 1 << 20 // number of a processor; from one that is higher on nothing is read
)

// processors are those allowed to this process, as far as the system tells.
func processors() cpuSet {
	list, _ := cpus.Allowed()
	return newCPUSet(list)
}

// newCPUSet makes a set of numbers in ascending order.
func newCPUSet(cpus []int) (s cpuSet) {
	for end := 0; len(cpus) > 0; {
		n := 1
		for n < len(cpus) && cpus[n] == cpus[0]+n {
			n++
		}
		s = binary.AppendUvarint(s, uint64(cpus[0]-end))
		s = binary.AppendUvarint(s, uint64(n))
		end = cpus[0] + n
		cpus = cpus[n:]
	}
	if len(s) > maxCPUSet {
		return nil
	}
	return s
}

// ranges gives the first of each range of processors, and the first behind it.
func (s cpuSet) ranges() iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for end := uint64(0); ; {
			skip, i := binary.Uvarint(s)
			n, j := binary.Uvarint(s[max(i, 0):])
			if i <= 0 || j <= 0 || max(skip, n) > maxCPU || end+skip+n > maxCPU {
				return
			}
			end += skip + n
			if !yield(int(end-n), int(end)) {
				return
			}
			s = s[i+j:]
		}
	}
}

func (s cpuSet) count() (n int) {
	for first, end := range s.ranges() {
		n += end - first
	}
	return n
}

func (s cpuSet) meets(o cpuSet) bool {
	for first, end := range s.ranges() {
		for f, e := range o.ranges() {
			if f < end && first < e {
				return true
			}
		}
	}
	return false
}

// sharers counts the ranks that may run on the processors allowed to this rank, itself included,
// and those processors. A rank of this machine with unknown processors counts as one that may use
// all.
func (cs cards) sharers(me int) (ranks, cpus int) {
	mine := cs.of(me)
	own := mine.cpus.count()
	for r := range cs {
		c := cs.of(r)
		if c.near(&mine) && (own == 0 || c.cpus.count() == 0 || c.cpus.meets(mine.cpus)) {
			ranks++
		}
	}
	if own > 0 {
		return ranks, own
	}
	return ranks, runtime.NumCPU()
}
