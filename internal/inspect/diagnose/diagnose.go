package diagnose

import (
	"slices"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// mostOfKind is how many verdicts of one kind are told. Where there are more faults the first ones
// are enough to begin with.
const mostOfKind = 32

// Diagnose says what is wrong with a job, from two looks at its ranks, the second of which began
// when the first one was over; before may be empty, and nothing is certain then. The job is that of
// the lowest rank in now, and what cannot be of it is left out. Causes come before what follows
// from them.
func Diagnose(now, before inspect.Look) []Verdict {
	j := newJob(now, before)
	if len(j.members) == 0 {
		return j.stopped(nil, nil)
	}
	if list := j.joining(); list != nil {
		return j.located(append(j.stopped(nil, nil), list...))
	}
	waits := j.waitsFor()
	d := &diagnosis{job: j, waits: waits, strict: j.solve(waits, true), lax: j.solve(waits, false)}
	d.graph = j.newGraph(waits, d.lax, d.strict)
	for _, m := range j.members {
		if m.Phase == inspect.PhaseShutdown {
			d.leaving++
		}
	}
	return j.located(d.all())
}

// diagnosis is what verdicts are made from.
type diagnosis struct {
	*job
	waits       [][]wait
	strict, lax *solution
	graph       *graph
	leaving     int // members in Shutdown

	verdicts []Verdict
}

func (d *diagnosis) all() []Verdict {
	var knots [][]int
	var late, away []int
	for _, root := range d.graph.roots() {
		switch first := root[0]; {
		case first >= len(d.members):
			away = append(away, first)
		case d.members[first].Phase == inspect.PhaseClosed:
			away = append(away, first)
		case d.members[first].late:
			late = append(late, first)
		default:
			knots = append(knots, root)
		}
	}
	d.losses(away)
	d.verdicts = append(d.verdicts, d.stopped(d.graph, away)...)
	d.differing()
	for n, knot := range knots {
		if n == mostOfKind {
			break
		}
		d.knot(knot)
	}
	d.lateRanks(late)
	d.heldUp()
	d.leaks()
	return d.verdicts
}

// add adds a verdict about members, with who waits for them. It is certain where sure, some of
// them, wait for good.
func (d *diagnosis) add(v Verdict, at, sure []int) {
	for _, i := range at {
		v.Ranks = append(v.Ranks, d.members[i].Rank)
	}
	v.Doubt = d.doubt(sure)
	v.Certain = v.Doubt == ""
	v.Waiting = d.ranksOf(d.graph.waiters(at))
	d.verdicts = append(d.verdicts, v)
}

// doubt is why one of these members may go on; empty where none can.
func (d *diagnosis) doubt(at []int) string {
	for _, i := range at {
		if d.strict.able[i] {
			return d.strict.why[i]
		}
	}
	return ""
}

// surest is those of members that wait for good, or all where none is known to.
func (d *diagnosis) surest(at []int) []int {
	able := func(i int) bool { return d.strict.able[i] }
	if sure := slices.DeleteFunc(slices.Clone(at), able); len(sure) != 0 {
		return sure
	}
	return at
}

func (d *diagnosis) ranksOf(at []int) []int {
	var ranks []int
	for _, i := range at {
		ranks = append(ranks, d.members[i].Rank)
	}
	return ranks
}

// knot explains ranks of which each waits for another one of them, and nobody else.
func (d *diagnosis) knot(at []int) {
	if d.mismatches(at) || d.notJoined(at) || d.heldIn(at) {
		return
	}
	d.cycle(at)
}

// heldIn reports whether a rank of a knot waits for memory of another one: then that is the fault,
// which heldUp tells of.
func (d *diagnosis) heldIn(at []int) bool {
	return slices.ContainsFunc(at, func(i int) bool {
		return slices.ContainsFunc(d.waits[i], func(w wait) bool { return w.send != nil && w.send.Stage == inspect.StageHeld })
	})
}
