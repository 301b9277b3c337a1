package diagnose

import (
	"fmt"
	"slices"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// solution says which members can go on. It is the least such set: one that nothing lets go on
// waits for good, over however many others.
type solution struct {
	*job
	waits  [][]wait
	strict bool // what is not known may be

	able []bool
	why  []string // of those that are able: what lets the first of them go on

	waiters [][]int // by member: those with a wait that it can satisfy
	ofAny   []int   // those with a wait that any member can satisfy
	needs   map[*need]*needed
	needers [][]*needed // by member: meetings that it has not joined
	queue   []int
}

const notAll = "not all ranks have answered"

// needed is a meeting while its missing members are counted.
type needed struct {
	left    int
	waiters []int
}

// solve finds who can go on. A strict solution takes it that a rank may do what nothing that was
// seen excludes: who is not able by it waits for good. The other one is what the last look alone
// suggests.
func (j *job) solve(waits [][]wait, strict bool) *solution {
	n := len(j.members)
	s := &solution{job: j, waits: waits, strict: strict, able: make([]bool, n), why: make([]string, n),
		waiters: make([][]int, n), needers: make([][]*needed, n), needs: map[*need]*needed{}}
	for i := range j.members {
		s.begin(i)
	}
	for len(s.queue) != 0 {
		i := s.queue[len(s.queue)-1]
		s.queue = s.queue[:len(s.queue)-1]
		s.follow(i)
	}
	return s
}

// begin looks whether a member can go on whatever the others do, and else registers its waits.
func (s *solution) begin(i int) {
	m := &s.members[i]
	switch {
	case s.strict && m.doubt != "":
		s.set(i, m.doubt)
	case m.Broken != "":
		s.set(i, m.doubt)
	case len(s.waits[i]) == 0 && (s.strict || !m.late && m.Phase != inspect.PhaseClosed):
		s.set(i, fmt.Sprintf("rank %d waits for something that is not listed", m.Rank))
	}
	for k := range s.waits[i] {
		w := &s.waits[i][k]
		switch {
		case w.free != "":
			s.set(i, w.free)
		case s.strict && w.doubt != "":
			s.set(i, w.doubt)
		case s.strict && s.mayLose(w):
			s.set(i, notAll)
		default:
			s.register(i, w)
		}
	}
}

// mayLose reports whether a wait may end because of a rank that has not answered: by what that
// does, or by its loss. A loss ends every collective call that the rank belongs to.
func (s *solution) mayLose(w *wait) bool {
	if w.need == nil {
		return len(w.away) != 0 || (w.anyOf || w.others) && s.unknown
	}
	return s.unknown || slices.ContainsFunc(w.away, func(r int) bool {
		at, listed := s.away[r]
		return !listed || s.absent[at].Why != inspect.WhyStopped && s.absent[at].Why != inspect.WhyDisk
	})
}

// register has member i hear when what it waits for may happen.
func (s *solution) register(i int, w *wait) {
	if w.need != nil {
		s.registerNeed(i, w.need)
		return
	}
	if w.anyOf || s.strict && w.others {
		s.ofAny = append(s.ofAny, i)
	}
	for _, src := range w.sources {
		s.waiters[src] = append(s.waiters[src], i)
	}
}

func (s *solution) registerNeed(i int, n *need) {
	d := s.needs[n]
	if d == nil {
		d = &needed{left: len(n.members)}
		if !s.strict {
			d.left += len(n.away)
		}
		s.needs[n] = d
		for _, at := range n.members {
			s.needers[at] = append(s.needers[at], d)
		}
	}
	if d.left == 0 {
		s.set(i, notAll)
	}
	d.waiters = append(d.waiters, i)
}

func (s *solution) set(i int, why string) {
	if !s.able[i] {
		s.able[i], s.why[i] = true, why
		s.queue = append(s.queue, i)
	}
}

// follow has all go on that a member which is able lets go on.
func (s *solution) follow(i int) {
	for _, w := range s.waiters[i] {
		s.set(w, s.why[i])
	}
	for _, w := range s.ofAny {
		s.set(w, s.why[i])
	}
	s.ofAny = nil
	for _, d := range s.needers[i] {
		if d.left--; d.left == 0 {
			for _, w := range d.waiters {
				s.set(w, s.why[i])
			}
		}
	}
}
