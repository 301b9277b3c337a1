package timeline

import (
	"slices"
	"time"
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
		list[i] = r.Wall
		if shared := r.Mono + wall[r.Host]; r.Mono != 0 && within(shared-r.Wall, sameHost) {
			list[i] = shared
		}
		list[i] += t.Clocks[find(t.Clocks, r.Host)].Offset
	}
	return list
}

// sameHost is by how much the wall clock of a host may have been set while ranks started. What
// differs by more is another machine of the same name, which has been up for another time.
const sameHost = int64(time.Minute)

func within(d, bound int64) bool { return d >= -bound && d <= bound }

// align corrects the clocks of hosts by the messages between them: none was received before it was
// sent. Those from the first host to another one, and back, bound by how much their clocks differ:
// the fastest ones closest. They may go by way of other hosts.
//
// Clocks that run at different rates contradict each other: by them messages go round in less than
// no time. Then each message counts as longer by twice what makes them agree, and bounds widen so.
func (t *Timeline) align() {
	fastest := t.fastest()
	all, excess, ok := fastest.agreed()
	if ok && excess != 0 {
		all, _, ok = fastest.paths(2 * excess)
	}
	if !ok {
		return
	}
	for i := range t.Clocks[1:] {
		if there, back := all[0][i+1], all[i+1][0]; there.hops != 0 && back.hops != 0 {
			c := &t.Clocks[i+1]
			c.Offset, c.Within = (back.took-there.took)/2, (there.took+back.took)/2
		}
	}
}

// way is the least time that messages from one host to another have taken by their clocks, by so
// many hops. Without hops there were none.
type way struct{ took, hops int64 }

// ways has a way from each host to each.
type ways [][]way

// agreed is the shortest paths where each message counts as longer by what makes the clocks agree.
// Times that make no sense at all are not ok.
func (w ways) agreed() (all ways, excess int64, ok bool) {
	for range 100 { // two or three are enough
		all, round, ok := w.paths(excess)
		if ok {
			return all, excess, true
		}
		excess += (round.hops - 1 - round.took) / round.hops
	}
	return nil, 0, false
}

// paths is the shortest paths where each message counts as so much longer. It is not ok where one
// goes round in less than no time, which is found before any other is by way of that: sums of it
// have no bound.
func (w ways) paths(excess int64) (all ways, round way, ok bool) {
	for _, row := range w {
		row = slices.Clone(row)
		for to := range row {
			row[to].took += excess
		}
		all = append(all, row)
	}
	for via := range all {
		if round := all[via][via]; round.hops != 0 && round.took < 0 {
			return nil, round, false
		}
		for from := range all {
			for to, second := range all[via] {
				first, best := all[from][via], &all[from][to]
				sum := way{first.took + second.took, first.hops + second.hops}
				if first.hops != 0 && second.hops != 0 && (best.hops == 0 || sum.took < best.took) {
					*best = sum
				}
			}
		}
	}
	return all, round, true
}

// fastest is the ways of one hop.
func (t *Timeline) fastest() ways {
	list := make(ways, len(t.Clocks))
	for i := range list {
		list[i] = make([]way, len(t.Clocks))
	}
	host := map[int]int{}
	for _, r := range t.Ranks {
		host[r.Rank] = find(t.Clocks, r.Host)
	}
	for _, m := range t.Messages {
		from, sender := host[m.From]
		to, receiver := host[m.To]
		if at := m.come(); sender && receiver && from != to && m.Sent != 0 && at != 0 {
			if w := &list[from][to]; w.hops == 0 || at-m.Sent < w.took {
				*w = way{at - m.Sent, 1}
			}
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
