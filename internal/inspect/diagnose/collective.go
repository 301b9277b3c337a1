package diagnose

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// call is a collective call that some members wait in.
type call struct {
	*inspect.Meeting
	in      []int // members
	missing []int // members that have not begun it, of those that cannot go on
}

// callKey names a collective call. Calls of different names in one place have different keys.
type callKey struct {
	join
	number uint64
	name   string
}

// callsOf lists the collective calls that these members wait in, those of most members first.
func (d *diagnosis) callsOf(at []int) []*call {
	by := map[callKey]*call{}
	var calls []*call
	for _, i := range at {
		for k := range d.members[i].Meetings {
			e := &d.members[i].Meetings[k]
			if !e.Waiting || e.Name == inspect.MeetingShutdown {
				continue
			}
			key := callKey{join{comm: e.Comm, p2p: waitsForAll(e)}, e.Number, e.Name}
			c := by[key]
			if c == nil {
				c = &call{Meeting: e}
				by[key], calls = c, append(calls, c)
			}
			c.in = append(c.in, i)
		}
	}
	slices.SortStableFunc(calls, func(a, b *call) int { return cmp.Compare(len(b.in), len(a.in)) })
	return calls
}

// notJoined explains a knot by a collective call that members of it have not joined, and reports
// whether there is one.
func (d *diagnosis) notJoined(at []int) bool {
	inside := make(map[int]bool, len(at))
	for _, i := range at {
		inside[i] = true
	}
	for _, c := range d.callsOf(d.stuck()) {
		if !slices.ContainsFunc(c.in, func(i int) bool { return inside[i] }) {
			continue
		}
		missing := func(i int) {
			if d.joins[join{d.members[i].Rank, c.Comm, waitsForAll(c.Meeting)}] < c.Number && inside[i] {
				c.missing = append(c.missing, i)
			}
		}
		if len(c.Members) == 0 {
			for _, i := range at {
				missing(i)
			}
		}
		for _, r := range c.Members {
			if i, ok := d.index[r]; ok {
				missing(i)
			}
		}
		if len(c.missing) != 0 {
			c.in = d.surest(c.in)
			d.tellMissing(c)
			return true
		}
	}
	return false
}

// stuck is the members that cannot go on.
func (d *diagnosis) stuck() []int {
	var at []int
	for i := range d.members {
		if !d.lax.able[i] {
			at = append(at, i)
		}
	}
	return at
}

// tellMissing accuses who is in the minority: those that are not in the call, or those that are.
func (d *diagnosis) tellMissing(c *call) {
	first, second := c.missing, c.in
	if len(c.in) < len(c.missing) {
		first, second = c.in, c.missing
	}
	v := Verdict{Class: Collective, Culprit: true, Comm: c.Comm, Where: d.placeOf(first[0])}
	v.Age = d.waited(c.in[0])
	v.What = fmt.Sprintf("%s in %s%s, which %s. Rank %d %s.", capital(rankList(d.ranksOf(c.in), "waits", "wait")), meetingText(c.Meeting),
		suffix(d.place(c.in[0], c.Name)), rankList(d.ranksOf(c.missing), "has not called", "have not called"),
		d.members[c.missing[0]].Rank, d.doing(c.missing[0]))
	v.Do = "Let all ranks make the same collective calls in the same order."
	at := slices.Concat(first, second)
	d.add(v, at, at)
}

// placeOf is where a member is.
func (d *diagnosis) placeOf(i int) string {
	if e := waitingIn(&d.members[i]); e != nil {
		return d.place(i, e.Name)
	}
	if len(d.waits[i]) != 0 {
		return d.place(i, callOf(&d.waits[i][0]))
	}
	return d.members[i].place.At
}

// differing finds ranks that are in different collective calls where all must be in the same. They
// have gone wrong whether they wait for each other or not.
func (d *diagnosis) differing() {
	all := make([]int, len(d.members))
	for i := range all {
		all[i] = i
	}
	byPlace, told := map[callKey]*call{}, 0
	for _, c := range d.callsOf(all) {
		key := callKey{join{comm: c.Comm, p2p: waitsForAll(c.Meeting)}, c.Number, ""}
		most := byPlace[key]
		if most == nil {
			byPlace[key] = c
			continue
		}
		if told++; told > mostOfKind {
			return
		}
		d.tellDiffering(c, most)
	}
}

// tellDiffering accuses the fewer ones. What a call of a name is at a place does not change: so it
// is certain where both looks saw these.
func (d *diagnosis) tellDiffering(few, many *call) {
	v := Verdict{Class: Collective, Culprit: true, Comm: few.Comm, Where: d.place(few.in[0], few.Name)}
	v.What = fmt.Sprintf("%s in %s%s, and %s in %s%s.", capital(rankList(d.ranksOf(few.in), "is", "are")), meetingText(few.Meeting), suffix(v.Where),
		rankList(d.ranksOf(many.in), "is", "are"), meetingText(many.Meeting), suffix(d.place(many.in[0], many.Name)))
	v.Do = "Let all ranks make the same collective calls in the same order."
	at := slices.Concat(few.in, many.in)
	d.add(v, at, at)
	last := &d.verdicts[len(d.verdicts)-1]
	last.Doubt = ""
	for _, i := range at {
		last.Doubt = cmp.Or(last.Doubt, d.members[i].doubt)
	}
	last.Certain = last.Doubt == ""
}
