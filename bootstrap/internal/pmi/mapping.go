package pmi

import (
	"strconv"
	"strings"
)

// block is ranks in a row: of the nodes from first on, each has this many.
type block struct{ first, nodes, ranks int }

// maxBlocks bounds a mapping, and maxSize the ranks of a job.
const (
	maxBlocks = 1 << 16
	maxSize   = 1 << 20
)

// parseMapping reads a PMI_process_mapping such as "(vector,(0,2,4),(2,1,3))"; nil: it is none.
func parseMapping(s string) []block {
	s, ok := strings.CutPrefix(strings.ReplaceAll(s, " ", ""), "(vector,")
	if !ok || !strings.HasSuffix(s, "))") {
		return nil
	}
	var list []block
	for part := range strings.SplitSeq(strings.TrimSuffix(s, ")"), "),") {
		var n [3]int
		numbers := strings.Split(strings.Trim(part, "()"), ",")
		if len(numbers) != len(n) || len(list) == maxBlocks {
			return nil
		}
		for i := range n {
			v, err := strconv.Atoi(numbers[i])
			if err != nil || v < 0 || v > maxSize || i > 0 && v == 0 {
				return nil
			}
			n[i] = v
		}
		list = append(list, block{n[0], n[1], n[2]})
	}
	return list
}

// localOf returns a rank's number among those of its node, and how many these are, by a mapping;
// -1 where that does not tell. A mapping that ends early begins again.
func localOf(mapping string, rank, size int) (local, n int) {
	blocks := parseMapping(mapping)
	if blocks == nil || size > maxSize || rank >= size {
		return -1, -1
	}
	nodes := make([]int, 0, size)
	for len(nodes) < size {
		for _, b := range blocks {
			for i := 0; i < b.nodes*b.ranks && len(nodes) < size; i++ {
				nodes = append(nodes, b.first+i/b.ranks)
			}
		}
	}
	for r, node := range nodes {
		if node == nodes[rank] {
			if r < rank {
				local++
			}
			n++
		}
	}
	return local, n
}
