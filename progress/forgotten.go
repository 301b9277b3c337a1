package progress

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
)

const (
	firstMost     = 1 << 10 // operations of a pool that are known one by one
	forgottenMost = 8       // kinds of forgotten requests that are named
)

// warnForgotten tells, once when the engine ends, of requests that have ended and that the program
// has never completed. Those of the first operations are named. underWay is how many operations
// have not ended.
func (s *pools) warnForgotten(log *slog.Logger, rank, underWay int) {
	counts, named := map[string]int{}, 0
	for _, p := range [2]*opPool{&s.ops, &s.sent} {
		for _, op := range p.forgotten() {
			counts[op.forgottenText()]++
			named++
		}
	}
	others := 0
	if max(s.ops.made, s.sent.made) > firstMost {
		others = max(0, s.open(underWay, math.MaxInt)-named)
	}
	if n := named + others; n != 0 {
		log.Warn("requests have ended and were never completed by Wait, Test or a Queue", "rank", rank,
			"requests", n, "which", forgottenList(counts, others))
	}
}

// forgotten is those of the first operations that have ended and are not in the pool.
func (p *opPool) forgotten() []*Op {
	out := map[*Op]bool{}
	for _, op := range p.first {
		out[op] = op.Ended()
	}
	for op := range p.inside {
		delete(out, op)
	}
	return slices.DeleteFunc(slices.Clone(p.first), func(op *Op) bool { return !out[op] })
}

// forgottenText is what is known of a request that has ended. Of a send that has ended at once that
// is not the rank that it went to.
func (op *Op) forgottenText() string {
	st, tagText := op.status, op.e.cfg.tagText
	switch {
	case st.Source == nullSource:
		return "call without a peer"
	case op.pool == &op.e.pools.sent:
		return fmt.Sprintf("send, %s, %d bytes", tagText(st.Tag, ^uint64(0)), st.Len)
	case op.kind == kindSend && op.err == nil:
		return fmt.Sprintf("send to %d, %s, %d bytes", op.peer, tagText(op.tag, ^uint64(0)), st.Len)
	case op.kind == kindSend:
		return fmt.Sprintf("send to %d, %s, failed", op.peer, tagText(op.tag, ^uint64(0)))
	case op.err == nil:
		return fmt.Sprintf("recv from %d, %s, %d bytes", st.Source, tagText(st.Tag, ^uint64(0)), st.Len)
	}
	return fmt.Sprintf("recv from %s, %s, failed", rankName(op.peer), tagText(op.tag&op.mask, op.mask))
}

// forgottenList lists what there is most of, and counts the others.
func forgottenList(counts map[string]int, others int) string {
	var list []string
	for _, text := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	}) {
		switch n := counts[text]; {
		case len(list) == forgottenMost:
			others += n
		case n > 1:
			list = append(list, fmt.Sprintf("%s (%d times)", text, n))
		default:
			list = append(list, text)
		}
	}
	if others != 0 {
		list = append(list, fmt.Sprintf("and %d more", others))
	}
	return strings.Join(list, "; ")
}
