package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// silentMost is for how many ranks that are missing from a look, without a reason, there are
// entries of their own.
const silentMost = 1024

// job is two looks at the ranks of one job.
type job struct {
	size    int
	members []member    // ranks that have answered, by rank
	index   map[int]int // of members, by rank
	absent  []inspect.Absent
	away    map[int]int    // index of absent, by rank
	twice   map[int]string // why a rank was absent from the first look
	told    map[int]bool   // ranks of whose loss there is a verdict
	unknown bool           // there are ranks of which nothing is known, not even an entry in absent
	joins   map[join]uint64

	incoming [][]incoming    // by destination: sends that have not ended
	supplied map[exact]bool  // there is a send or message like that
	requests map[request]int // announced messages that no receive has matched
	flights  [][]int         // by destination: members whose messages may be under way
}

// member is a rank that has answered.
type member struct {
	*inspect.State
	before *inspect.State  // nil: only the second look has it
	peers  []*inspect.Peer // by rank
	place  inspect.Place   // of what is outside of the library, where it is in no call that waits
	late   bool            // it is in no call that waits
	doubt  string          // why it may go on by itself, whatever the others do

	inner    map[string]bool // Comms whose messages are those of package coll
	compared int             // see compareMost
}

// newJob takes the states of one job, that of the first, and leaves out what cannot be of it.
func newJob(now, before inspect.Look) *job {
	j := &job{index: map[int]int{}, away: map[int]int{}, twice: map[int]string{}, told: map[int]bool{}}
	states := pick(now.States)
	if len(states) == 0 {
		return j
	}
	first := states[0]
	j.size = first.Size
	earlier := map[int]*inspect.State{}
	for _, s := range pick(before.States) {
		if s.Job == first.Job && s.Size == first.Size {
			earlier[s.Rank] = s
		}
	}
	for _, s := range states {
		if _, double := j.index[s.Rank]; double || s.Job != first.Job || s.Size != first.Size {
			continue
		}
		j.index[s.Rank] = len(j.members)
		j.members = append(j.members, member{State: s, before: earlier[s.Rank], peers: sortedPeers(s.Peers)})
	}
	j.addAbsent(now.Absent)
	for _, a := range before.Absent {
		j.twice[a.Rank] = a.Why
	}
	for i := range j.members {
		j.members[i].look()
	}
	return j
}

// pick is the states that this build understands, by rank.
func pick(states []inspect.State) []*inspect.State {
	var picked []*inspect.State
	for i := range states {
		s := &states[i]
		if s.Version == inspect.Version && s.Size > 0 && s.Rank >= 0 && s.Rank < s.Size {
			picked = append(picked, s)
		}
	}
	slices.SortStableFunc(picked, func(a, b *inspect.State) int { return cmp.Compare(a.Rank, b.Rank) })
	return picked
}

// addAbsent takes the ranks that have not answered, with those of which nothing is said.
func (j *job) addAbsent(absent []inspect.Absent) {
	add := func(a inspect.Absent) {
		_, answered := j.index[a.Rank]
		if _, known := j.away[a.Rank]; !answered && !known && a.Rank >= 0 && a.Rank < j.size {
			j.away[a.Rank] = len(j.absent)
			j.absent = append(j.absent, a)
		}
	}
	for _, a := range absent {
		add(a)
	}
	for r, most := 0, len(j.absent)+silentMost; len(j.absent)+len(j.members) < j.size; r++ {
		if len(j.absent) == most {
			j.unknown = true
			break
		}
		add(inspect.Absent{Rank: r, Why: inspect.WhySilent})
	}
	slices.SortFunc(j.absent, func(a, b inspect.Absent) int { return cmp.Compare(a.Rank, b.Rank) })
	for i, a := range j.absent {
		j.away[a.Rank] = i
	}
}

// sortedPeers is the peers of a state, by rank.
func sortedPeers(peers []inspect.Peer) []*inspect.Peer {
	sorted := make([]*inspect.Peer, len(peers))
	for i := range peers {
		sorted[i] = &peers[i]
	}
	by := func(a, b *inspect.Peer) int { return cmp.Compare(a.Rank, b.Rank) }
	if !slices.IsSortedFunc(sorted, by) {
		slices.SortStableFunc(sorted, by)
	}
	return sorted
}

// peer is what the member knows of a rank; nothing where it has not met it.
func (m *member) peer(rank int) *inspect.Peer {
	if rank >= 0 && rank < len(m.peers) && m.peers[rank].Rank == rank {
		return m.peers[rank] // it knows all ranks
	}
	i, found := slices.BinarySearchFunc(m.peers, rank, func(p *inspect.Peer, r int) int { return cmp.Compare(p.Rank, r) })
	if !found {
		return &noPeer
	}
	return m.peers[i]
}

var noPeer = inspect.Peer{Rank: -1}

// look fills in what the member's states say of itself.
func (m *member) look() {
	m.doubt = m.doubtNow()
	if m.doubt == "" {
		m.doubt = m.doubtBefore()
	}
	m.late, m.place = lateAt(m.State)
}

// doubtNow is why the member may go on by itself by its present state; empty where it cannot.
func (m *member) doubtNow() string {
	switch {
	case m.Broken != "":
		return fmt.Sprintf("the engine of rank %d has stopped: its calls end", m.Rank)
	case m.Phase == inspect.PhaseClosed:
		return fmt.Sprintf("rank %d has closed its World", m.Rank)
	case m.Partial:
		return fmt.Sprintf("the lists of rank %d are not whole", m.Rank)
	case m.Timed != 0:
		return fmt.Sprintf("a call on rank %d has a deadline", m.Rank)
	}
	return moving(m.State)
}

// doubtBefore is why the two looks do not make a verdict certain.
func (m *member) doubtBefore() string {
	b := m.before
	switch {
	case b == nil:
		return fmt.Sprintf("rank %d was looked at only once", m.Rank)
	case b.Moved != m.Moved || b.PID != m.PID || !b.Started.Equal(m.Started) || b.Phase != m.Phase:
		return fmt.Sprintf("rank %d has moved between the two looks", m.Rank)
	}
	return moving(b)
}

// moving says which goroutine of a rank may go on whatever messages come.
func moving(s *inspect.State) string {
	for _, p := range s.Outside {
		if !parked(p.State) {
			return fmt.Sprintf("rank %d has a goroutine outside of the library (%s)%s", s.Rank, p.State, suffix(p.At))
		}
	}
	n := 0
	for _, c := range s.Calls {
		n += c.N
	}
	if n != s.Waiting || n <= 0 {
		return fmt.Sprintf("on rank %d a call of the library is about to go on", s.Rank)
	}
	return ""
}

// parked reports whether only another goroutine of the program can wake one in such a state. A
// channel does not say so: a timer or a signal may send to it.
func parked(state string) bool {
	return strings.HasPrefix(state, "sync.") || strings.HasPrefix(state, "semacquire") ||
		strings.HasSuffix(state, "(nil chan)") || state == "select (no cases)"
}

// lateAt reports whether a rank is in no call that waits, and where its goroutines are then: the
// one that runs rather than those that sleep.
func lateAt(s *inspect.State) (late bool, p inspect.Place) {
	if s.Phase == inspect.PhaseClosed || awaits(s) {
		return false, p
	}
	best := -1
	for _, o := range s.Outside {
		if n := busy(o); n > best {
			best, p = n, o
		}
	}
	if best < 2 && len(s.Calls) != 0 { // it polls, or a call is about to go on
		p = s.Calls[0].Place
	}
	return true, p
}

// busy orders goroutines by how likely they are what a rank is late for.
func busy(p inspect.Place) int {
	n := 0
	switch p.State {
	case "running", "runnable":
		n = 3
	case "sleep", "syscall", "IO wait":
		n = 2
	case "chan receive", "select", "chan send":
		n = 1
	}
	if p.At == "" {
		return n / 3 // the program's own come first
	}
	return n
}

// awaits reports whether a call of the rank waits for something that is listed.
func awaits(s *inspect.State) bool {
	return s.Phase == inspect.PhaseShutdown ||
		slices.ContainsFunc(s.Receives, func(r inspect.Receive) bool { return r.Awaited > 0 }) ||
		slices.ContainsFunc(s.Sends, func(d inspect.Send) bool { return d.Awaited > 0 }) ||
		slices.ContainsFunc(s.Meetings, func(m inspect.Meeting) bool { return m.Waiting })
}

// suffix is a place as a suffix; empty where it is not known.
func suffix(place string) string {
	if place == "" {
		return ""
	}
	return " at " + place
}
