package launch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/internal/launch/link"
)

// endings is what has become of the ranks of a job with Options.KeepGoing.
type endings struct {
	code   int   // the first other than 0
	lost   []int // ranks that the others went on without
	failed []int // ranks that were not lost, and failed
}

// survive takes down, with Options.KeepGoing, that a rank has ended and that the others go on.
func (s *supervisor) survive(r *rank) bool {
	if !s.surviving() {
		return false
	}
	reason := r.reason
	switch {
	case r.wasLost():
		s.kept.lost = append(s.kept.lost, r.n)
		if r.code == 0 {
			reason = withoutShutdown
		}
	case r.code != 0:
		s.kept.failed = append(s.kept.failed, r.n)
	default:
		return true
	}
	s.kept.code = cmp.Or(s.kept.code, r.code)
	s.say(r.name()+" "+reason, r)
	return true
}

// outputLost takes down that what a rank has written could not be passed on.
func (s *supervisor) outputLost(r *rank, reason string) {
	text := r.name() + " has lost output: " + reason
	if !s.surviving() {
		s.fail(1, text)
		return
	}
	if !slices.Contains(slices.Concat(s.kept.lost, s.kept.failed), r.n) {
		s.kept.failed = append(s.kept.failed, r.n)
	}
	s.kept.code = cmp.Or(s.kept.code, 1)
	s.say(text, nil)
}

// surviving reports whether the end of a rank leaves the others running.
func (s *supervisor) surviving() bool { return s.opt.KeepGoing && !s.ending && s.code == 0 }

// wasLost reports whether a rank that is gone was lost to the others: a signal has ended it, or it
// had its World open. Of a rank on another host only the code is seen, which is above 128 where a
// shell tells of a signal, and where ssh tells of its connection.
func (r *rank) wasLost() bool {
	if r.host != "" {
		return r.code > 128
	}
	return r.killed || r.state == link.Joining || r.state == link.Joined
}

// conclude decides the code of a job whose ranks were left running until all had ended: 0 if those
// that were not lost have ended with it.
func (s *supervisor) conclude() {
	if !s.surviving() || len(s.kept.lost)+len(s.kept.failed) == 0 {
		return
	}
	well := len(s.ranks) - len(s.kept.lost) - len(s.kept.failed)
	switch {
	case well == 0:
		s.code = max(s.kept.code, 1) // 0 is of ranks that ended without Shutdown
	case len(s.kept.failed) > 0:
		s.code = s.kept.code
	}
	var parts []string
	for _, p := range []struct {
		ranks []int
		what  string
	}{{s.kept.lost, "lost"}, {s.kept.failed, "failed"}} {
		if len(p.ranks) > 0 {
			parts = append(parts, s.names(p.ranks)+" "+p.what)
		}
	}
	s.say(fmt.Sprintf("%s, %d of %d ended well", strings.Join(parts, ", "), well, len(s.ranks)), nil)
}
