package timeline

import (
	"math"
	"slices"
)

// Clock is what the times of a host were corrected by, so that they compare with those of the first
// rank's host.
type Clock struct {
	Host   string
	Offset int64 // ns, added to the host's wall clock
	Within int64 // ns, by how much Offset may be wrong; Unknown: there is none
}

// Unknown is Clock.Within of a host whose wall clock stands as it is: no messages to it and back
// were recorded.
const Unknown = -1

// clocksOf has one clock for each host. That of the first rank's host is right.
func clocksOf(ranks []Rank) (list []Clock) {
	for i := range ranks {
		if find(list, ranks[i].Host) < 0 {
			list = append(list, Clock{Host: ranks[i].Host, Within: Unknown})
		}
	}
	list[0].Within = 0
	return list
}

func find(list []Clock, host string) int {
	return slices.IndexFunc(list, func(c Clock) bool { return c.Host == host })
}

// starts is when each rank's recording began, in ns by the corrected wall clock of its host. Ranks
// of one host are compared by the clock that they share, if there is one.
func (t *Timeline) starts() []int64 {
	list := make([]int64, len(t.Ranks))
	wall := map[string]int64{} // of a host's shared clock
	for i := range t.Ranks {
		r := &t.Ranks[i]
		if _, known := wall[r.Host]; !known {
			wall[r.Host] = r.Wall - r.Mono
		}
		if list[i] = r.Wall; r.Mono != 0 {
			list[i] = r.Mono + wall[r.Host]
		}
		list[i] += t.Clocks[find(t.Clocks, r.Host)].Offset
	}
	return list
}

// align corrects the clocks of hosts by the messages between them: none was received before it was
// sent. Those from the first host to another one, and back, bound by how much their clocks differ:
// the fastest ones closest. They may go by way of other hosts.
func (t *Timeline) align() {
	took := t.fastest()
	for via := range took {
		for from := range took {
			for to := range took {
				took[from][to] = min(took[from][to], took[from][via]+took[via][to])
			}
		}
	}
	for i := range t.Clocks[1:] {
		if there, back := took[0][i+1], took[i+1][0]; max(there, back) < never/2 {
			c := &t.Clocks[i+1]
			c.Offset = (back - there) / 2
			c.Within = max(there+back, -there-back) / 2 // below 0 where one clock runs faster than another
		}
	}
}

// never is longer than what two clocks differ by.
const never = math.MaxInt64 / 4

// fastest is the least time that a message from one host to another has taken by their clocks, or
// never.
func (t *Timeline) fastest() [][]int64 {
	list := make([][]int64, len(t.Clocks))
	for i := range list {
		list[i] = slices.Repeat([]int64{never}, len(t.Clocks))
	}
	host := map[int]int{}
	for _, r := range t.Ranks {
		host[r.Rank] = find(t.Clocks, r.Host)
	}
	for _, m := range t.Messages {
		from, sender := host[m.From]
		to, receiver := host[m.To]
		if at := m.come(); sender && receiver && from != to && m.Sent != 0 && at != 0 {
			list[from][to] = min(list[from][to], at-m.Sent)
		}
	}
	return list
}

// come is the first time at the receiver; 0: none is known.
func (m *Message) come() (at int64) {
	for _, s := range []int64{m.Arrived, m.Matched, m.Received} {
		if s != 0 && (at == 0 || s < at) {
			at = s
		}
	}
	return at
}
