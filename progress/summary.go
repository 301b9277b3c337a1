package progress

import (
	"fmt"
	"slices"
	"strings"
)

// summaryMost is how many ranks a summary names.
const summaryMost = 8

// tally counts messages.
type tally struct {
	n     int
	bytes uint64
	tag   string // of one of them
}

// Summary says in one line, for people, what is unfinished: how many sends to whom, how many
// receives from whom, each with a tag as tagName tells it, and what was never received. It is empty
// where nothing is. Dump lists the operations.
func (e *Engine) Summary(tagName func(tag, mask uint64) string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	const exact = ^uint64(0)
	sends, recvs := map[int]tally{}, map[int]tally{}
	count := func(m map[int]tally, peer int, op *Op, mask uint64) {
		t := m[peer]
		if t.n++; t.n == 1 {
			t.tag = tagName(op.tag, mask)
		}
		t.bytes += uint64(op.room())
		m[peer] = t
	}
	for i := range e.peers {
		if q := e.peers[i].out.queue; q != nil {
			for _, op := range q.All() {
				count(sends, op.peer, op, exact)
			}
		}
	}
	for i := range e.sends.entries {
		if op := e.sends.entries[i].op; op != nil {
			count(sends, op.peer, op, exact)
		}
	}
	for _, op := range e.posted.All() {
		count(recvs, max(op.peer, AnySource), op, op.mask)
	}
	for i := range e.reads.entries {
		if op := e.reads.entries[i].op; op != nil && op.state == opReading {
			count(recvs, op.read.src, op, exact)
		}
	}
	parts := slices.Concat(tell("sends to", sends), tell("receives from", recvs))
	if n := e.unexp.Len(); n != 0 {
		parts = append(parts, fmt.Sprintf("messages that no receive has matched: %d", n))
	}
	return strings.Join(parts, "; ")
}

// tell is one part for each of the ranks with the most messages, and one for the rest.
func tell(what string, by map[int]tally) []string {
	var list []int
	for r := range by {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b int) int {
		if by[a].n != by[b].n {
			return by[b].n - by[a].n
		}
		return a - b
	})
	var parts []string
	var rest tally
	for i, r := range list {
		if i >= summaryMost {
			rest.n += by[r].n
			rest.bytes += by[r].bytes
			continue
		}
		name := "rank " + rankName(r)
		if r == AnySource {
			name = "any rank"
		}
		also := ""
		if by[r].n > 1 {
			also = "one with "
		}
		parts = append(parts, fmt.Sprintf("%s %s: %d, %d bytes in all, %s%s", what, name, by[r].n, by[r].bytes, also, by[r].tag))
	}
	if rest.n > 0 {
		parts = append(parts, fmt.Sprintf("%s %d more ranks: %d, %d bytes in all", what, len(list)-summaryMost, rest.n, rest.bytes))
	}
	return parts
}
