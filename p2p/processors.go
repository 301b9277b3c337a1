package p2p

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// maxCPU is the highest number of a processor in the kernel's usual set, a unix.CPUSet.
const maxCPU = 1023

// sharers counts the ranks that may run on the processors allowed to this rank, itself included,
// and those processors. A rank of this machine with unknown processors counts as one that may use
// all.
func sharers(me int, cards []card) (ranks, cpus int) {
	mine, known := parseCPUs(cards[me].CPUs)
	var ours [maxCPU + 1]bool
	for _, cpu := range mine {
		ours[cpu] = true
	}
	for r := range cards {
		if !cards[r].near(&cards[me]) {
			continue
		}
		theirs, ok := parseCPUs(cards[r].CPUs)
		if !known || !ok || slices.ContainsFunc(theirs, func(cpu int) bool { return ours[cpu] }) {
			ranks++
		}
	}
	if !known {
		return ranks, runtime.NumCPU()
	}
	return ranks, len(mine)
}

// parseCPUs reads a list of processors such as 0,2-3, of 0 to maxCPU.
func parseCPUs(s string) (cpus []int, ok bool) {
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		first, err1 := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || first < 0 || last < first || last > maxCPU {
			return nil, false
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, true
}

// cpuRanges writes ascending numbers as parseCPUs reads them: 0,2-3.
func cpuRanges(cpus []int) string {
	var parts []string
	for i := 0; i < len(cpus); {
		j := i + 1
		for j < len(cpus) && cpus[j] == cpus[j-1]+1 {
			j++
		}
		if j == i+1 {
			parts = append(parts, fmt.Sprint(cpus[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", cpus[i], cpus[j-1]))
		}
		i = j
	}
	return strings.Join(parts, ",")
}
