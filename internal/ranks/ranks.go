// Package ranks formats lists of ranks.
//
// Concurrency: it has functions only.
package ranks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// most is the most ranks and ranges that a List names.
const most = 16

// List names ranks, each once, in ascending order, and three or more in a row as a range: "rank 3",
// "ranks 1, 4", "ranks 1-7, 9". Long lists are cut.
func List(ranks []int) string {
	ranks = slices.Compact(slices.Sorted(slices.Values(ranks)))
	if len(ranks) == 1 {
		return "rank " + strconv.Itoa(ranks[0])
	}
	var parts []string
	named := 0
	for named < len(ranks) && len(parts) < most {
		n := row(ranks[named:])
		if n < 3 {
			n = 1
			parts = append(parts, strconv.Itoa(ranks[named]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", ranks[named], ranks[named+n-1]))
		}
		named += n
	}
	s := "ranks " + strings.Join(parts, ", ")
	if more := len(ranks) - named; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// row is how many of ranks, from the first on, follow each other without a gap.
func row(ranks []int) int {
	n := 1
	for n < len(ranks) && ranks[n] == ranks[0]+n {
		n++
	}
	return n
}
