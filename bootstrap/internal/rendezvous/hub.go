package rendezvous

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tagmatch/tagmatch/internal/ranks"
)

// hub is the rendezvous without a network: which ranks have joined, which are in the fence, what
// was put. It starts no goroutine and does no I/O; it informs members through deliver.
type hub struct {
	size  int
	tree  tree
	jobID [jobIDSize]byte
	full  chan struct{} // closed when all ranks have joined
	// flushFor is how long flush waits for ranks that do not read; longer in tests.
	flushFor time.Duration
	empty    chan struct{} // closed when all ranks that have joined are gone again, never before full

	mu       sync.Mutex // guards the fields below
	seats    []seat
	joined   int // ranks that have joined, gone ones included
	gone     int // of joined: those that left or were lost
	fence    uint32
	arrived  int
	entries  []entry
	bytes    int64
	last     *releaseMsg // for those that ask for it; nil: nobody can
	end      message     // *failMsg or *abortMsg once the job has failed
	deaf     string      // why rank 0 could accept no connection last; "": it could
	deafAt   time.Time   // when that was
	refusals []string    // rejected ranks, newest last, for the error of ranks that wait in vain
	stranger string      // the last connection that did not greet as a rank does; "": none
	turned   func() int  // counts the connections that were turned away; nil: none can come
}

type seat struct {
	member  member // nil: not joined yet
	gone    bool
	lost    string // why it is gone without having left; empty: it is not
	inFence bool
	relayed bool // gets RELEASE from its parent
	owes    []owed
}

// member is the hub's connection to a rank. Its methods are called with the hub's lock held and
// must not block.
type member interface {
	deliver(m message)
	// where is the address that the rank connected from, for error texts; local is this host's end
	// of the connection, invalid when there is none.
	where() string
	local() netip.Addr
	// relay is where the rank passes on RELEASE; invalid: it does not.
	relay() netip.AddrPort
}

func newHub(size, fan int) *hub {
	h := &hub{size: size, tree: tree{size, fan}, fence: 1, seats: make([]seat, size), full: make(chan struct{}), empty: make(chan struct{}),
		flushFor: time.Second}
	copy(h.jobID[:], NewSecret("").Bytes)
	return h
}

// join adds a rank. The last one starts the job.
func (h *hub) join(rank int, m member) *rejectMsg {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seats[rank].member != nil {
		return h.refuseLocked(m.where(), h.takenLocked(rank))
	}
	if h.end != nil {
		return &rejectMsg{rejectEnded, cut("the job has failed already: "+bare(endError(h.end)), maxReason)}
	}
	h.seats[rank].member = m
	h.joined++
	if h.joined == h.size {
		h.startLocked()
	}
	return nil
}

// takenLocked says why a rank cannot join that has joined already. One that has left this job, or
// an aborted one, begins the next job at this address.
func (h *hub) takenLocked(rank int) *rejectMsg {
	s := &h.seats[rank]
	_, aborted := h.end.(*abortMsg)
	switch {
	case s.lost != "" && !aborted:
		return &rejectMsg{rejectRank, fmt.Sprintf("rank %d of this job %s, and a job takes no rank back: start all ranks again", rank, s.lost)}
	case s.gone:
		return &rejectMsg{rejectStarted, fmt.Sprintf("rank %d has left this job, which has not ended yet", rank)}
	}
	return &rejectMsg{rejectTaken, fmt.Sprintf("rank %d has joined already from %s: give each process its own RANK; a program that "+
		"a rank starts inherits that: %s", rank, s.member.where(), alone)}
}

// alone is what to do with a program that a rank starts.
const alone = "give it " + EnvBootstrap + "=singleton, or start it by `tagmatch run`"

// startLocked sends WELCOME to all ranks. Only now is known whether some rank is on another host,
// and so which address of rank 0's host the ranks there must use.
func (h *hub) startLocked() {
	var root netip.Addr
	for i := range h.seats {
		if ip := h.seats[i].member.local(); ip.IsValid() && !ip.IsLoopback() {
			root = ip
			break
		}
	}
	for r := range h.seats {
		w := &welcomeMsg{jobID: h.jobID, root: root}
		if p := h.tree.parent(r); p > 0 {
			w.parent = h.seats[p].member.relay()
			h.seats[r].relayed = w.parent.IsValid()
		}
		h.seats[r].member.deliver(w)
	}
	close(h.full)
}

// started reports that all ranks have joined.
func (h *hub) started() bool {
	select {
	case <-h.full:
		return true
	default:
		return false
	}
}

// refuse records a rejected connection.
func (h *hub) refuse(from string, r *rejectMsg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuseLocked(from, r)
}

func (h *hub) refuseLocked(from string, r *rejectMsg) *rejectMsg {
	const most = 4
	r.reason = cut(r.reason, maxReason)
	text := hostOf(from) + ": " + r.reason
	if h.refusals = append(slices.DeleteFunc(h.refusals, func(s string) bool { return s == text }), text); len(h.refusals) > most {
		h.refusals = h.refusals[1:]
	}
	return r
}

// noteStranger records a connection that did not greet as a rank does, apart from those of ranks.
func (h *hub) noteStranger(from, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stranger = hostOf(from) + ": " + why
}

// hostOf is from without the port: who tries again does it from another one.
func hostOf(from string) string {
	if host, _, err := net.SplitHostPort(from); err == nil {
		return host
	}
	return from
}

// countBy has error texts say how many connections were turned away.
func (h *hub) countBy(turned func() int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turned = turned
}

// absent lists the ranks that have not joined, and the connections rejected meanwhile, for error
// texts.
func (h *hub) absent() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.absentLocked()
}

func (h *hub) absentLocked() string {
	var missing []int
	for r := range h.seats {
		if h.seats[r].member == nil {
			missing = append(missing, r)
		}
	}
	s := fmt.Sprintf("still missing: %s of %d", ranks.List(missing), h.size)
	if why := h.deafLocked(); why != "" {
		s += "; rank 0 can accept no connections: " + why
	}
	turned := slices.Clone(h.refusals)
	if h.stranger != "" {
		turned = append(turned, h.stranger)
	}
	if len(turned) > 0 {
		s += "; turned away: " + strings.Join(turned, "; ")
	}
	if h.turned != nil {
		if n := h.turned(); n > len(turned) {
			s += fmt.Sprintf("; of strangers %d connections in all", n)
		}
	}
	return s
}

// handle handles a message of rank. It returns false if rank broke the protocol.
func (h *hub) handle(rank int, m message) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.joined < h.size {
		g, ok := m.(*giveUpMsg) // the only legal message before WELCOME
		if !ok || g.seq != giveUpForAll {
			return false
		}
		h.failLocked(rank, h.joinGivenUpLocked(g))
		return true
	}
	if h.seats[rank].gone {
		return true
	}
	switch m := m.(type) {
	case *fenceMsg:
		return h.fenceLocked(rank, m)
	case *giveUpMsg:
		if h.seats[rank].inFence && m.seq == h.fence {
			h.failLocked(rank, fmt.Sprintf("gave up waiting for all ranks (%s); %s", m.reason, h.awaitedLocked()))
		}
	case *abortMsg:
		if m.rank != -1 { // the launcher, which may tell several ranks
			m = &abortMsg{int32(rank), m.code, m.reason}
		}
		h.endLocked(m)
	case *peerGivenUpMsg:
		return h.peerGivenUpLocked(rank, m)
	case *wantMsg:
		h.wantLocked(rank, m)
	case *askMsg:
		h.askLocked(rank, m)
	case *replyMsg:
		return h.replyLocked(rank, m)
	case *byeMsg:
		if h.arrived > 0 {
			h.failLocked(rank, ReasonLeft)
		}
		h.leftLocked(rank)
		if !m.finished || h.end != nil {
			h.tellGoneLocked(rank, ReasonLeft)
		}
	default:
		return false
	}
	return true
}

// joinGivenUpLocked says why a rank stopped waiting for the others to join, with the names of the
// missing ranks.
func (h *hub) joinGivenUpLocked(m *giveUpMsg) string {
	return fmt.Sprintf("gave up waiting for all ranks to join (%s); %s", m.reason, h.absentLocked())
}

// leave lets a rank go that gives up alone, before all have joined: it gets its answer, and may
// come again before the end of this connection. Else it does nothing and returns false.
func (h *hub) leave(rank int, m message) bool {
	g, ok := m.(*giveUpMsg)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !ok || g.seq != giveUpAlone || h.joined == h.size {
		return false
	}
	s := &h.seats[rank]
	s.member.deliver(&failMsg{uint32(rank), cut(h.joinGivenUpLocked(g), maxReason)})
	h.refuseLocked(s.member.where(), &rejectMsg{rejectRank, fmt.Sprintf("rank %d had joined, then gave up (%s)", rank, g.reason)})
	s.member = nil
	h.joined--
	return true
}

func (h *hub) fenceLocked(rank int, m *fenceMsg) bool {
	s := &h.seats[rank]
	if h.end != nil {
		s.member.deliver(h.end)
		return true
	}
	if s.inFence || m.seq != h.fence {
		return false
	}
	if h.gone > 0 {
		gone := slices.IndexFunc(h.seats, func(s seat) bool { return s.gone })
		h.failLocked(gone, ReasonLeft)
		return true
	}
	s.inFence = true
	h.arrived++
	for _, e := range m.entries {
		e.rank = uint32(rank)
		h.entries = append(h.entries, e)
		h.bytes += int64(4 + entrySize + len(e.key) + len(e.value))
	}
	if h.bytes > maxFromRoot-4 {
		h.failLocked(rank, fmt.Sprintf("brought what all ranks have put before fence %d above %d bytes: put less between two fences", h.fence, maxFromRoot))
		return true
	}
	if h.arrived == h.size {
		h.releaseLocked()
	}
	return true
}

func (h *hub) releaseLocked() {
	m := &releaseMsg{seq: h.fence, entries: h.entries}
	m.encoded = encode(make([]byte, 0, h.bytes+4), m)
	again, _ := decode(kindRelease, m.encoded) // values are parts of this: what the ranks have sent goes
	m.entries = again.(*releaseMsg).entries
	h.fence++
	h.arrived, h.entries, h.bytes = 0, nil, 0
	for r := range h.seats {
		s := &h.seats[r]
		s.inFence = false
		if s.relayed {
			h.last = m.bare()
		} else {
			s.member.deliver(m)
		}
	}
}

// wantLocked serves a rank that cannot get RELEASE from its parent.
func (h *hub) wantLocked(rank int, m *wantMsg) {
	s := &h.seats[rank]
	s.relayed = false
	if h.last != nil && h.last.seq == m.have+1 {
		s.member.deliver(h.last)
	}
}

// awaited says which ranks have joined, and not come to the first fence.
func (h *hub) awaited() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return "for all ranks that have joined to get ready; " + h.awaitedLocked()
}

// awaitedLocked lists the ranks that are not in the fence.
func (h *hub) awaitedLocked() string {
	var missing []int
	for r := range h.seats {
		if !h.seats[r].inFence {
			missing = append(missing, r)
		}
	}
	return "still missing: " + ranks.List(missing)
}

// lost gives up a rank whose connection has ended without a BYE. Before the job has started the
// rank may be restarted and join again.
func (h *hub) lost(rank int, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.seats[rank]
	if s.gone {
		return
	}
	if h.joined < h.size {
		h.refuseLocked(s.member.where(), &rejectMsg{rejectRank, fmt.Sprintf("rank %d had joined, then its connection ended (%s)", rank, reason)})
		s.member = nil
		h.joined--
		return
	}
	s.lost = reason
	h.failLocked(rank, reason)
	h.leftLocked(rank)
	h.tellGoneLocked(rank, reason)
}

// ReasonLeft is the Reason of the Loss of a rank that has called Close, and of the RankError of a
// Fence to which it does not come any more.
const ReasonLeft = "left the job"

// peerGivenUpLocked reports to a rank that another one gave it up. Nobody else is informed, and a
// rank that is gone needs no report.
func (h *hub) peerGivenUpLocked(rank int, m *peerGivenUpMsg) bool {
	if int64(m.rank) >= int64(h.size) {
		return false
	}
	if other := &h.seats[m.rank]; !other.gone {
		other.member.deliver(&peerGivenUpMsg{uint32(rank), m.reason})
	}
	return true
}

// leftLocked counts a rank that is gone.
func (h *hub) leftLocked(rank int) {
	h.seats[rank].gone = true
	if h.gone++; h.gone == h.size {
		close(h.empty)
	}
}

// tellGoneLocked reports the loss of rank to the others, any of which may be waiting for it.
func (h *hub) tellGoneLocked(rank int, reason string) {
	m := &goneMsg{uint32(rank), cut(reason, maxReason)}
	for r := range h.seats {
		if s := &h.seats[r]; s.member != nil && !s.gone {
			s.member.deliver(m)
		}
	}
}

// fail ends the job because of rank 0, which serves it.
func (h *hub) fail(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failLocked(0, reason)
}

func (h *hub) failLocked(rank int, reason string) {
	h.endLocked(&failMsg{uint32(rank), cut(reason, maxReason)})
}

// endLocked ends the job for all ranks. The first reason stays. Rank 0 hears of it last: it may
// close the store at once, and what is not queued then does not reach the others.
func (h *hub) endLocked(m message) {
	if h.end != nil {
		return
	}
	h.end = m
	for r := range slices.Backward(h.seats) {
		if s := &h.seats[r]; s.member != nil && !s.gone {
			s.member.deliver(m)
		}
	}
}

// endError is the error of calls after m.
func endError(m message) error {
	switch m := m.(type) {
	case *failMsg:
		return &RankError{int(m.rank), m.reason}
	case *abortMsg:
		return m.err()
	}
	return nil
}

// flushMark in a member's queue is closed when all messages before it were written. It is not sent.
type flushMark chan struct{}

func (flushMark) kind() kind    { return 0 }
func (flushMark) fields(*codec) {}

// flush waits, at most for flushFor, until all delivered messages were written.
func (h *hub) flush() {
	var marks []flushMark
	h.mu.Lock()
	for r := range h.seats {
		if m, ok := h.seats[r].member.(*remote); ok && !h.seats[r].gone {
			mark := make(flushMark)
			marks = append(marks, mark)
			m.deliver(mark)
		}
	}
	h.mu.Unlock()
	t := time.NewTimer(h.flushFor)
	defer t.Stop()
	for _, mark := range marks {
		select {
		case <-mark:
		case <-t.C:
			return
		}
	}
}
