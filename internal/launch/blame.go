package launch

import (
	"cmp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/launch/link"
	"github.com/tagmatch/tagmatch/internal/ranks"
)

// settleTime is how long the launcher waits after a failure before it ends the other ranks: a dying
// process closes its connections before its exit is visible, and a rank that detects that may exit
// first.
const settleTime = 100 * time.Millisecond

// gone handles a rank's end. The first one that fails may only have detected another's end.
func (s *supervisor) gone(r *rank) {
	if s.survive(r) {
		return
	}
	if s.failed == nil && r.code != 0 && s.code == 0 {
		s.failed = r
		s.settle.Reset(s.settleFor())
	}
	switch {
	case s.failed == nil:
	case s.asked != nil:
		s.judge()
	case s.left == 0:
		s.settled()
	}
}

// settled ends the remaining ranks. Ranks that have exited by now are read to the end before the
// verdict: their reports may still be in flight. So are those that are about to, see leaveTime.
func (s *supervisor) settled() {
	s.settle.Stop()
	for _, r := range s.ranks {
		r.leaving = r.order == 0 && r.state == link.Closed
		if r.order != 0 || r.leaving {
			s.asked = append(s.asked, r)
		}
	}
	s.leave.Reset(min(leaveTime, s.opt.Grace/2))
	s.end(syscall.SIGTERM)
	s.judge()
}

// hurry ends the ranks that have closed their World and go on, and reports whether there were any.
func (s *supervisor) hurry() (some bool) {
	for _, r := range s.ranks {
		if r.running && r.leaving {
			r.end(syscall.SIGTERM)
			some = true
		}
	}
	if s.asked != nil {
		s.judge()
	}
	return some
}

// judge names the rank that brought the job down, once the reports of all exited ranks are
// complete.
func (s *supervisor) judge() {
	var failed []*rank
	for _, r := range s.asked {
		switch {
		case r.told:
		case r.running:
			return
		case r.code != 0:
			failed = append(failed, r)
		}
	}
	culprit := blame(failed)
	text := culprit.name() + " " + culprit.reason
	if !culprit.killed { // a signal by another one does not count
		text = s.deserters(culprit) + text
	}
	s.failed, s.asked = nil, nil
	s.note(culprit.code, text, culprit)
}

// blame returns the failed rank that brought the job down. One that reported the loss of another
// one of them only reacted. Of the others one that was killed by a signal cannot have reacted; of
// two alike the one that ended first is blamed, although the order of ends says little about
// causes.
func blame(failed []*rank) *rank {
	noticed := func(r *rank) bool {
		return slices.ContainsFunc(failed, func(o *rank) bool { return o != r && slices.Contains(r.lost, o.n) })
	}
	return slices.MinFunc(failed, func(a, b *rank) int {
		return cmp.Or(compare(noticed(a), noticed(b)), compare(b.killed, a.killed), a.order-b.order)
	})
}

// compare orders false before true.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// deserters names the ranks that left the job before culprit failed, which most likely reacted to
// that.
func (s *supervisor) deserters(culprit *rank) string {
	by := map[string][]int{}
	for _, r := range s.ranks {
		ended := slices.Contains(s.asked, r) && !r.told
		if ended && r.code != 0 {
			continue // it failed as the culprit did
		}
		if how := r.deserted(culprit, ended); how != "" {
			by[how] = append(by[how], r.n)
		}
	}
	var parts []string
	for how, list := range by {
		parts = append(parts, s.names(list)+" "+how+"; ")
	}
	slices.Sort(parts)
	return strings.Join(parts, "")
}

// names names ranks, and the host of a single one where that is another.
func (s *supervisor) names(list []int) string {
	if len(list) == 1 {
		return s.ranks[list[0]].name()
	}
	return ranks.List(list)
}

const withoutShutdown = "ended with code 0, but without Shutdown"

// deserted describes how a rank that did not fail left the others, "" if it did not. ended: by
// itself.
func (r *rank) deserted(culprit *rank, ended bool) string {
	switch {
	case culprit.state == link.Outside || r.state == link.Finished:
		return "" // it waited for nobody, or all had finished
	case r.state == link.Closed:
		return "left the job without a complete Shutdown"
	case ended && r.state == link.Joined:
		return withoutShutdown
	case ended:
		return "ended with code 0 without having joined the job"
	case r.state == link.Outside && culprit.state == link.Joining:
		return "did not join the job"
	}
	return ""
}
