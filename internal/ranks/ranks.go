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

// most is the most ranks that a List names.
const most = 16

// List names ranks in ascending order: "rank 3", "ranks 1, 4"; long lists are cut.
func List(ranks []int) string {
	ranks = slices.Sorted(slices.Values(ranks))
	var b strings.Builder
	b.WriteString("rank")
	if len(ranks) != 1 {
		b.WriteString("s")
	}
	for i, r := range ranks {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(ranks)-most)
			break
		}
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(" " + strconv.Itoa(r))
	}
	return b.String()
}
