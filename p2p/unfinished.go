package p2p

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/progress"
)

// unfinishedMost is how many lines of each kind the error of a failed Shutdown lists.
const unfinishedMost = 8

// unfinished lists the unfinished operations, as a suffix of an error, and logs all that is known.
func (w *World) unfinished() string {
	if w.cfg.Logger != nil {
		var b strings.Builder
		if err := w.eng.Dump(&b); err == nil {
			w.cfg.Logger.Info("shutdown failed", "rank", w.rank, "state", b.String())
		}
	}
	if list := listUnfinished(w.eng.Look()); len(list) != 0 {
		return "; unfinished here: " + strings.Join(list, "; ")
	}
	return ""
}

// unfinishedKinds are the words for a kind, and for several that are not listed.
var unfinishedKinds = [...]struct{ one, more string }{
	progress.UnfinishedSend:    {"send to", "sends"},
	progress.UnfinishedRecv:    {"recv from", "receives"},
	progress.UnfinishedAlloc:   {"RecvAlloc from", "calls of RecvAlloc"},
	progress.UnfinishedProbe:   {"probe from", "probes"},
	progress.UnfinishedMessage: {"message from", "messages"},
}

// listUnfinished describes what is unfinished, of each kind first what there is most of.
func listUnfinished(look *progress.Look) (lines []string) {
	counts := map[progress.Unfinished]int{}
	for _, g := range look.Groups {
		counts[g.Known()] += g.N
	}
	var listed [progress.UnfinishedKinds]int
	rest := look.Rest
	all := slices.SortedFunc(maps.Keys(counts), func(a, b progress.Unfinished) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(counts[b], counts[a]), a.Compare(&b))
	})
	for _, u := range all {
		if listed[u.Kind]++; listed[u.Kind] > unfinishedMost {
			rest[u.Kind] += counts[u]
			continue
		}
		lines = append(lines, describe(u, counts[u]))
	}
	for kind, n := range rest {
		if n != 0 {
			lines = append(lines, fmt.Sprintf("and %d more %s", n, unfinishedKinds[kind].more))
		}
	}
	return lines
}

func describe(u progress.Unfinished, n int) string {
	peer := "any"
	if u.Peer >= 0 {
		peer = fmt.Sprint(u.Peer)
	}
	s := fmt.Sprintf("%s %s, %s, ", unfinishedKinds[u.Kind].one, peer, describeTag(u.Tag, u.Mask))
	if u.Kind != progress.UnfinishedProbe && u.Kind != progress.UnfinishedAlloc { // these have no buffer
		s += fmt.Sprintf("%d bytes, ", u.Bytes)
	}
	s += u.Stage.String()
	if n > 1 {
		s += fmt.Sprintf(" (%d times)", n)
	}
	return s
}

// describeTag says what the program gave: a raw tag and mask, or a tag and its Comm.
func describeTag(tag, mask uint64) string {
	if tag&namespace == 0 {
		if mask == uint64(MaskExact)|namespace {
			return fmt.Sprintf("raw tag %#x", tag)
		}
		return fmt.Sprintf("raw tag %#x mask %#x", tag, mask&^namespace)
	}
	s := fmt.Sprintf("tag %#x", tag&tagMask)
	if mask&tagMask == 0 {
		s = "any tag"
	}
	switch context := contexts.Of(tag); context {
	case contexts.World:
		return s
	case contexts.Library:
		return s + " of a Barrier, Dup or Split"
	default:
		return fmt.Sprintf("%s of Comm %d", s, context)
	}
}
