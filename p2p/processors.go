package p2p

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// sharers counts the ranks that may run on the processors allowed to this rank, itself included,
// and those processors. A rank of this machine with unknown processors counts as one that may use
// all.
func sharers(me int, cards []card) (ranks, cpus int) {
	mine, err := parseCPUs(cards[me].CPUs)
	known := err == nil
	var ours [maxCPU + 1]bool
	for _, cpu := range mine {
		ours[cpu] = true
	}
	for r := range cards {
		if !cards[r].near(&cards[me]) {
			continue
		}
		theirs, err := parseCPUs(cards[r].CPUs)
		if !known || err != nil || slices.ContainsFunc(theirs, func(cpu int) bool { return ours[cpu] }) {
			ranks++
		}
	}
	if !known {
		return ranks, runtime.NumCPU()
	}
	return ranks, len(mine)
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
