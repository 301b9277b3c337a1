package diagnose

import (
	"fmt"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// joining tells of ranks that are in Init: they wait for others, and nothing else is known of them.
// Rank 0 knows best for whom.
func (j *job) joining() (list []Verdict) {
	v := Verdict{Class: NotJoined, Doubt: "the others may still come"}
	first := -1
	for i := range j.members {
		if m := &j.members[i]; m.Phase == inspect.PhaseJoining {
			v.Ranks = append(v.Ranks, m.Rank)
			if first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return nil
	}
	m := &j.members[first]
	if len(m.Calls) != 0 {
		v.Where = m.Calls[0].At
	}
	v.Age = m.Still
	v.What = fmt.Sprintf("%s in Init%s. Rank %d waits %s.", capital(rankList(v.Ranks, "is", "are")), suffix(v.Where), m.Rank, m.Joins)
	v.Do = "See why the others have not come: whether they were started, what they say, and whom rank 0 has turned away."
	return []Verdict{v}
}
