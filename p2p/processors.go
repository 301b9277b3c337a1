package p2p

import (
	"math/bits"
	"runtime"
)

// cpuSet has a bit for each processor, from the lowest of the first byte on; nil: not known.
type cpuSet []byte

func (s cpuSet) count() (n int) {
	for _, b := range s {
		n += bits.OnesCount8(b)
	}
	return n
}

func (s cpuSet) meets(o cpuSet) bool {
	for i := range min(len(s), len(o)) {
		if s[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// sharers counts the ranks that may run on the processors allowed to this rank, itself included,
// and those processors. A rank of this machine with unknown processors counts as one that may use
// all.
func sharers(me int, cards []card) (ranks, cpus int) {
	mine := cards[me].CPUs
	for r := range cards {
		theirs := cards[r].CPUs
		if cards[r].near(&cards[me]) && (mine.count() == 0 || theirs.count() == 0 || theirs.meets(mine)) {
			ranks++
		}
	}
	if n := mine.count(); n > 0 {
		return ranks, n
	}
	return ranks, runtime.NumCPU()
}
