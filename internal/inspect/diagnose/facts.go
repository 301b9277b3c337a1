package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// leakLeast is from how many requests on that have ended and that nobody has completed a program
// does not only collect them for later.
const leakLeast = 10_000

// placesMost is how many places of late ranks are told.
const placesMost = 3

// lateRanks tells of ranks that the others wait for and that are in no call that waits. What it
// says is seen, not concluded: they may be computing, and come. It says nothing while others go on,
// unless both looks saw the same.
func (d *diagnosis) lateRanks(late []int) {
	inCall := func(i int) bool { return len(d.members[i].Calls) != 0 }
	if outside := slices.DeleteFunc(slices.Clone(late), inCall); len(outside) != 0 {
		late = outside // the calls of the others are about to go on
	}
	if len(late) == 0 {
		return
	}
	doubt := d.lateDoubt(late)
	if doubt != "" && slices.Contains(d.lax.able, true) {
		return
	}
	v := Verdict{Class: Late, Culprit: true, Where: d.members[late[0]].place.At}
	v.What = capital(strings.Join(d.latePlaces(late), "; ")) + "."
	if i, found := d.graph.waiter(late[0]); found {
		v.What += fmt.Sprintf(" Rank %d %s.", d.members[i].Rank, d.doing(i))
	}
	v.Do = "Look at what it does there" + orLeave(late) + "."
	if doubt == "" {
		for _, i := range d.graph.waiters(late) {
			v.Age = max(v.Age, d.waited(i))
		}
	}
	d.add(v, late, late)
	last := &d.verdicts[len(d.verdicts)-1]
	last.Doubt, last.Certain = doubt, doubt == ""
}

// waited is for how long a member that waits has done so, at least: since anything has moved there,
// it has not begun a call that waits.
func (d *diagnosis) waited(i int) inspect.Age {
	m := &d.members[i]
	age := m.Still
	for _, c := range m.Calls {
		age = max(age, c.Age)
	}
	return age
}

func orLeave(late []int) string {
	if len(late) > 1 {
		return ", or divide the work more evenly"
	}
	return ", and why it does not come to the call that the others wait in"
}

// latePlaces says where late ranks are, those at one place together.
func (d *diagnosis) latePlaces(late []int) (parts []string) {
	by := map[[2]string][]int{}
	var places [][2]string
	for _, i := range late {
		does, where := latePlace(&d.members[i])
		p := [2]string{does, where}
		if len(by[p]) == 0 {
			places = append(places, p)
		}
		by[p] = append(by[p], d.members[i].Rank)
	}
	for n, p := range places {
		if n == placesMost {
			return append(parts, fmt.Sprintf("and %d more places", len(places)-n))
		}
		parts = append(parts, rankList(by[p], p[0]+"s", p[0])+p[1])
	}
	return parts
}

// latePlace says what a rank does that is in no call that waits, as "compute", and where.
func latePlace(m *member) (does, where string) {
	p := m.place
	if len(m.Calls) != 0 {
		return "poll", suffix(p.At) + ", in no call that waits"
	}
	does, where = "stay", suffix(p.At)
	switch p.State {
	case "running", "runnable":
		does = "compute"
	case "sleep":
		does = "sleep"
	case "":
	default:
		where += " (" + p.State + ")"
	}
	return does, where + ", in no call of the library"
}

// lateDoubt is why what is said of late ranks may have been so for a moment only.
func (d *diagnosis) lateDoubt(late []int) string {
	waiters := d.graph.waiters(late)
	for _, i := range slices.Concat(late, waiters) {
		switch m := &d.members[i]; {
		case m.before == nil || m.before.Moved != m.Moved || m.before.PID != m.PID || m.Broken != "":
			return cmp.Or(m.doubtBefore(), m.doubt)
		case m.late:
			if before, _ := lateAt(m.before); !before {
				return fmt.Sprintf("rank %d was in a call before", m.Rank)
			}
		}
	}
	return ""
}

// losses tells of ranks that others have lost, or that have closed their World while others wait
// for them. Away is the nodes of those, and of ranks that do not answer.
func (d *diagnosis) losses(away []int) {
	waited := map[int][]int{}
	for _, v := range away {
		if v < len(d.members) {
			d.tellClosed(v)
			waited[d.members[v].Rank] = []int{v}
		}
	}
	lost, unacked := map[int]string{}, map[int][]int{}
	for i := range d.members {
		m := &d.members[i]
		for r, why := range m.Failed {
			if r >= 0 && r < d.size {
				lost[r] = cmp.Or(lost[r], why, "it is not known why")
			}
		}
		told := map[int]bool{}
		for _, comm := range slices.Sorted(maps.Keys(m.Unacked)) {
			for _, r := range m.Unacked[comm] {
				if _, failed := m.Failed[r]; failed && !told[r] {
					told[r] = true
					unacked[r] = append(unacked[r], i)
				}
			}
		}
	}
	for n, r := range slices.Sorted(maps.Keys(lost)) {
		if n == mostOfKind {
			return
		}
		if len(unacked[r]) != 0 && waited[r] == nil {
			d.tellLost(r, lost[r], unacked[r])
		}
	}
}

func (d *diagnosis) tellClosed(i int) {
	v := Verdict{Class: Lost, Culprit: true}
	v.What = fmt.Sprintf("Rank %d has closed its World, and others wait for it.", d.members[i].Rank)
	v.Do = "Let it call Shutdown, which waits for the others, or let these not wait for it."
	d.add(v, []int{i}, []int{i})
}

// tellLost tells of a loss that some ranks have not acknowledged. It is certain: who is lost does
// not come back.
func (d *diagnosis) tellLost(rank int, why string, unacked []int) {
	d.told[rank] = true
	v := Verdict{Class: Lost, Culprit: true, Ranks: []int{rank}, Certain: true}
	who := d.ranksOf(unacked)
	v.What = fmt.Sprintf("Rank %d is lost (%s). %s acknowledged it: there every receive from any source ends with an error.",
		rank, why, capital(rankList(who, "has not", "have not")))
	v.Do = "Call AckFailures of the World or Comm to go on without it, or Shrink; or end after the first *PeerError."
	if at, listed := d.away[rank]; listed {
		v.Waiting = d.ranksOf(d.graph.waiters([]int{len(d.members) + at}))
	}
	for _, i := range unacked {
		if v.Where = d.placeOf(i); v.Where != "" {
			v.What += fmt.Sprintf(" Rank %d %s.", d.members[i].Rank, d.doing(i))
			break
		}
	}
	d.verdicts = append(d.verdicts, v)
}

// stopped tells of ranks that do not answer: those that are stopped, and those that others wait
// for, whose nodes are among away.
func (j *job) stopped(g *graph, away []int) []Verdict {
	waited := map[int]bool{}
	for _, v := range away {
		waited[v-len(j.members)] = true
	}
	var verdicts []Verdict
	for n, a := range j.absent {
		halted := a.Why == inspect.WhyStopped || a.Why == inspect.WhyDisk
		if !waited[n] && !halted || len(verdicts) == mostOfKind || j.told[a.Rank] {
			continue
		}
		v := j.noAnswer(a)
		if g != nil {
			for _, i := range g.waiters([]int{len(j.members) + n}) {
				v.Waiting = append(v.Waiting, j.members[i].Rank)
			}
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

func (j *job) noAnswer(a inspect.Absent) Verdict {
	v := Verdict{Class: NoAnswer, Culprit: true, Ranks: []int{a.Rank}, Certain: j.twice[a.Rank] == a.Why}
	if !v.Certain {
		v.Doubt = fmt.Sprintf("rank %d was looked at only once", a.Rank)
	}
	process := fmt.Sprintf("The process of rank %d", a.Rank)
	if a.PID != 0 {
		process += fmt.Sprintf(" (pid %d%s)", a.PID, on(a.Host))
	}
	switch a.Why {
	case inspect.WhyGone:
		v.Class, v.Certain, v.Doubt = Lost, true, ""
		v.What = process + " has ended without Shutdown, and others wait for it."
		v.Do = "See why it ended: its last output, its exit code, or the system's log (out of memory)."
	case inspect.WhyStopped:
		v.What = process + " is stopped, by a signal or a debugger. Nobody gives it up for that."
		v.Do = fmt.Sprintf("Continue it: kill -CONT %s.", pidText(a.PID))
	case inspect.WhyDisk:
		v.What = process + " is in uninterruptible sleep: mostly in a file system that does not answer."
		v.Do = fmt.Sprintf("See what it waits for: /proc/%s/stack and wchan, and the host's mounts.", pidText(a.PID))
	default:
		v.What = process + " has not answered, and others wait for it."
		v.Do = "See whether it runs, whether its host does, and whether TAGMATCH_INSPECT=off is set for it."
	}
	return v
}

func on(host string) string {
	if host == "" {
		return ""
	}
	return " on " + host
}

func pidText(pid int) string {
	if pid == 0 {
		return "PID"
	}
	return fmt.Sprint(pid)
}

// leaks tells of requests that have ended and that nobody completes: more and more, or in Shutdown,
// where nobody will.
func (d *diagnosis) leaks() {
	told := 0
	for i := range d.members {
		m := &d.members[i]
		leaving := m.Phase == inspect.PhaseShutdown
		grown := m.before != nil && m.Leaked > m.before.Leaked
		if m.Leaked <= leakLeast || !grown && !leaving || told == mostOfKind {
			continue
		}
		told++
		v := Verdict{Class: Leak, Culprit: true, Ranks: []int{m.Rank}, Certain: leaving && m.doubt == "", Where: d.placeOf(i)}
		v.What = fmt.Sprintf("Rank %d has %d requests that have ended and that nobody has completed", m.Rank, m.Leaked)
		if grown {
			v.What += fmt.Sprintf(", %d more than at the first look", m.Leaked-m.before.Leaked)
		}
		v.What += "."
		switch {
		case !leaving:
			v.Doubt = "the program may complete them later"
		case !v.Certain:
			v.Doubt = m.doubt
		}
		v.Do = "Complete every request of Isend, Irecv and the like: by Wait, Test or a Queue, or give it up by Free."
		d.verdicts = append(d.verdicts, v)
	}
}
