package diagnose

import (
	"fmt"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// needMost bounds what the sets of ranks that collective calls wait for take together.
const needMost = 1 << 22

// wait is something that a member waits for. One of its sources can satisfy it, or, of a meeting,
// all of them must come.
type wait struct {
	recv *inspect.Receive // one of these three is set; none in Shutdown
	send *inspect.Send
	meet *inspect.Meeting

	sources []int  // members, of a receive or a send
	anyOf   bool   // all members are sources
	need    *need  // of a meeting
	others  bool   // strictly, any member may help: it may free memory of the receiver
	away    []int  // ranks that it could be satisfied by, or needs, and that have not answered
	free    string // why it may end without anybody's doing; empty where it cannot
	doubt   string // why that is not certain
}

// need is the members that have not joined a meeting.
type need struct {
	members []int
	away    []int // ranks that have not answered
}

// join names the meetings of a Comm that have one numbering.
type join struct {
	rank int
	comm string
	p2p  bool
}

// waitsFor is whom and what each member waits for.
func (j *job) waitsFor() [][]wait {
	j.indexMessages()
	j.indexFlights()
	j.indexJoins()
	b := waitBuilder{job: j, shared: map[sharedNeed]*need{}, source: make([]bool, len(j.members))}
	for _, m := range j.members {
		if m.Partial {
			b.partial = fmt.Sprintf("the lists of rank %d are not whole", m.Rank)
		}
	}
	all := make([][]wait, len(j.members))
	for i := range j.members {
		all[i] = b.of(i)
	}
	return all
}

type waitBuilder struct {
	*job
	shared  map[sharedNeed]*need
	listed  int    // members in needs
	source  []bool // scratch, by member
	partial string // of any member
}

// sharedNeed names the need of a meeting of all ranks.
type sharedNeed struct {
	comm   string
	number uint64
}

// of lists what member i waits for. In Shutdown it first waits for its sends.
func (b *waitBuilder) of(i int) (waits []wait) {
	m := &b.members[i]
	leaving := m.Phase == inspect.PhaseShutdown
	for k := range m.Receives {
		if r := &m.Receives[k]; r.Awaited > 0 {
			waits = append(waits, b.receive(i, r))
		}
	}
	for k := range m.Sends {
		if s := &m.Sends[k]; s.Awaited > 0 || leaving {
			waits = append(waits, b.send(i, s))
		}
	}
	for k := range m.Meetings {
		if e := &m.Meetings[k]; e.Waiting && waitsForAll(e) {
			waits = append(waits, b.meeting(i, e))
		}
	}
	if leaving && len(m.Sends) == 0 {
		waits = append(waits, b.shutdown(m))
	}
	return waits
}

// waitsForAll reports whether a collective call waits until all ranks have begun it. Those of
// package coll need not: they wait for messages, which are listed as receives. Shutdown is known by
// the phase.
func waitsForAll(e *inspect.Meeting) bool {
	return e.Name == "Dup" || e.Name == "Split" || e.Name == "Barrier"
}

func (b *waitBuilder) receive(i int, r *inspect.Receive) wait {
	m := &b.members[i]
	w := wait{recv: r}
	switch {
	case r.Where == inspect.WhereRead:
		w.free = fmt.Sprintf("rank %d reads a message", m.Rank)
		return w
	case r.Peer == inspect.Any && len(r.From) == 0:
		w.anyOf = true
		for _, a := range b.absent {
			w.from(m, a.Rank)
		}
	case r.Peer == inspect.Any:
		for _, src := range r.From {
			b.addSource(&w, m, src)
		}
	default:
		b.addSource(&w, m, r.Peer)
	}
	if _, failed := m.Failed[r.Peer]; failed {
		w.free = fmt.Sprintf("rank %d has lost rank %d: its receive ends", m.Rank, r.Peer)
	} else if s := b.supplies(i, r); s != "" {
		w.free = fmt.Sprintf("rank %d: %s", m.Rank, s)
	}
	b.underWay(i, &w)
	return w
}

// addSource adds a rank that could satisfy a wait.
func (b *waitBuilder) addSource(w *wait, m *member, rank int) {
	if at, ok := b.index[rank]; ok {
		w.sources = append(w.sources, at)
	} else if rank >= 0 && rank < b.size {
		w.from(m, rank)
	} else {
		w.free = fmt.Sprintf("rank %d names rank %d, which there is not", m.Rank, rank)
	}
}

// from adds a rank that has not answered, unless the member knows that it is lost.
func (w *wait) from(m *member, rank int) {
	if _, failed := m.Failed[rank]; !failed {
		w.away = append(w.away, rank)
	}
}

// underWay looks for messages to member i that may be under way, from who could satisfy the
// receive.
func (b *waitBuilder) underWay(i int, w *wait) {
	for _, src := range w.sources {
		if b.members[src].Partial {
			w.doubt = fmt.Sprintf("the lists of rank %d are not whole", b.members[src].Rank)
		}
		b.source[src] = true
	}
	for _, src := range b.flights[i] {
		if w.free == "" && (w.anyOf || b.source[src]) {
			w.free = fmt.Sprintf("a message of rank %d to rank %d may be under way", b.members[src].Rank, b.members[i].Rank)
		}
	}
	for _, src := range w.sources {
		b.source[src] = false
	}
	if w.anyOf {
		w.doubt = b.partial
	}
}

func (b *waitBuilder) send(i int, s *inspect.Send) wait {
	m := &b.members[i]
	w := wait{send: s}
	b.addSource(&w, m, s.Peer)
	if len(w.sources) == 0 || w.free != "" {
		return w
	}
	dst := &b.members[w.sources[0]]
	switch _, failed := m.Failed[s.Peer]; {
	case failed:
		w.free = fmt.Sprintf("rank %d has lost rank %d: its send ends", m.Rank, s.Peer)
	case s.Stage == inspect.StageRequested && b.lies(m.Rank, s):
	case s.Stage == inspect.StageHeld:
		w.others = true
		w.free = b.heldFor(m, dst)
		for _, a := range b.absent {
			if _, failed := dst.Failed[a.Rank]; !failed {
				w.doubt = notAll
			}
		}
	default:
		w.free = fmt.Sprintf("a send of rank %d to rank %d is under way", m.Rank, s.Peer)
	}
	return w
}

// heldFor says why what is held up to a rank may go on its way; empty where that rank must receive
// first.
func (b *waitBuilder) heldFor(m, dst *member) string {
	to, back := m.peer(dst.Rank), dst.peer(m.Rank)
	switch {
	case to.Episode%2 == 0 || to.Episode != back.Seen:
		return fmt.Sprintf("rank %d has not heard yet that sends of rank %d are held up", dst.Rank, m.Rank)
	case to.Allowed != back.Granted || to.Heard != back.Asked:
		return fmt.Sprintf("credit of rank %d for rank %d may be under way", dst.Rank, m.Rank)
	}
	if m.compared += len(dst.Receives) * len(m.Sends); m.compared > compareMost {
		return fmt.Sprintf("rank %d: %s", m.Rank, tooMany)
	}
	for k := range dst.Receives {
		r := &dst.Receives[k]
		for _, s := range m.Sends {
			if s.Peer == dst.Rank && comesFrom(r, m.Rank) && matches(r.Key, s.Key) {
				return fmt.Sprintf("rank %d has a receive for what rank %d sends", dst.Rank, m.Rank)
			}
		}
	}
	return b.frees(dst)
}

// frees says why a rank may free memory though its program does nothing: a message comes that a
// receive of it has waited for, or that it discards, or one is withdrawn; empty where that cannot
// be.
func (b *waitBuilder) frees(dst *member) string {
	at := b.index[dst.Rank]
	if len(b.flights[at]) != 0 {
		return fmt.Sprintf("messages to rank %d may be under way", dst.Rank)
	}
	for _, s := range b.incoming[at] {
		if s.Stage == inspect.StageRoom || s.Stage == inspect.StageWithdrawn {
			return fmt.Sprintf("a send of rank %d to rank %d is under way", s.src, dst.Rank)
		}
	}
	for k := range dst.Receives {
		r := &dst.Receives[k]
		if r.Where == inspect.WhereRead || b.supplies(at, r) != "" {
			return fmt.Sprintf("rank %d receives a message", dst.Rank)
		}
	}
	return ""
}

// indexJoins finds how many meetings of each Comm each member has begun, and which Comms belong to
// package coll.
func (j *job) indexJoins() {
	j.joins = map[join]uint64{}
	for i := range j.members {
		m := &j.members[i]
		m.inner = map[string]bool{}
		for k := range m.Meetings {
			e := &m.Meetings[k]
			at := join{m.Rank, e.Comm, waitsForAll(e)}
			j.joins[at] = max(j.joins[at], e.Number)
			if !at.p2p && e.Name != inspect.MeetingShutdown {
				m.inner[e.Comm] = true
			}
		}
	}
}

// meeting waits for the members of a Comm that have not begun the call.
func (b *waitBuilder) meeting(i int, e *inspect.Meeting) wait {
	m := &b.members[i]
	w := wait{meet: e}
	begun := func(rank int) bool { return b.joins[join{rank, e.Comm, true}] >= e.Number }
	if len(e.Members) == 0 {
		w.need = b.sharedNeed(sharedNeed{e.Comm, e.Number}, begun)
	} else {
		w.need = &need{}
		for _, r := range e.Members {
			b.addNeed(w.need, r, begun)
		}
	}
	b.finish(m, &w)
	return w
}

// shutdown waits for all ranks that have not come to it, or that wait for their sends there.
func (b *waitBuilder) shutdown(m *member) wait {
	w := wait{need: b.sharedNeed(sharedNeed{comm: inspect.MeetingShutdown}, func(rank int) bool {
		o := &b.members[b.index[rank]]
		return o.Phase == inspect.PhaseClosed || o.Phase == inspect.PhaseShutdown && len(o.Sends) == 0
	})}
	b.finish(m, &w)
	return w
}

// sharedNeed is the need of a meeting of all ranks, for all that wait in it.
func (b *waitBuilder) sharedNeed(key sharedNeed, begun func(rank int) bool) *need {
	n, known := b.shared[key]
	if !known && b.listed+len(b.members) <= needMost {
		n = &need{}
		for i := range b.members {
			b.addNeed(n, b.members[i].Rank, begun)
		}
		for _, a := range b.absent {
			b.addNeed(n, a.Rank, begun)
		}
		b.listed += len(b.members)
		b.shared[key] = n
	}
	return n
}

func (b *waitBuilder) addNeed(n *need, rank int, begun func(rank int) bool) {
	if at, ok := b.index[rank]; !ok {
		n.away = append(n.away, rank)
	} else if !begun(rank) {
		n.members = append(n.members, at)
	}
}

// finish looks whether a meeting can end without those that it needs.
func (b *waitBuilder) finish(m *member, w *wait) {
	switch n := w.need; {
	case n == nil:
		w.free = "there are too many collective calls to compare them"
	case len(n.members)+len(n.away) == 0:
		w.free = fmt.Sprintf("all ranks have come to what rank %d is in", m.Rank)
	case len(m.Failed) != 0:
		w.free = fmt.Sprintf("rank %d has lost a rank: its collective call ends", m.Rank)
	default:
		w.away = n.away
	}
}
