package diagnose

import (
	"slices"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// A model of a job: programs of a few steps, on ranks that send each other packets in order. It has
// of the library what a diagnosis could be wrong about: messages and credit that are under way,
// credit that is missing, requests, receives from any source, collective calls that wait for all
// and such that do not, losses, calls that were entered and have not begun, and calls that have
// ended and not returned. Everything is a value, so that a world is cloned and compared as text.

type stepKind uint8

const (
	doCompute stepKind = iota // a while outside of the library
	doSpin                    // for ever
	doSend                    // and wait
	doRecv                    // and wait, until a deadline if timed
	doIsend
	doIrecv
	doWaitAll
	doBarrier
	doScan // a call of package coll: each rank waits for the one before it
	doJoin // wait for the rank's other threads
	doShutdown
	doExit // without Shutdown
)

// step is one of a program. The Comm is that of the World, or another one of all ranks.
type step struct {
	kind   stepKind
	peer   int // or inspect.Any
	tag    int // or anyTag
	other  bool
	large  bool
	timed  bool
	parked bool // doCompute: waits for a channel
}

const anyTag = -1

// window is how many messages a peer may send that nobody has received.
const window = 2

type threadStage uint8

const (
	outside threadStage = iota
	entered             // in a call that has not begun
	waiting
	ended // in a call that is about to return
)

type thread struct {
	at      int // step
	stage   threadStage
	own     []int // operations of its call
	pending []int // and those that WaitAll waits for
	steps   []step
}

func (t *thread) step() *step {
	if t.at >= len(t.steps) {
		return nil
	}
	return &t.steps[t.at]
}

type op struct {
	recv   bool
	step   step
	thread int
	scan   bool
	state  opState
}

type opState uint8

const (
	opQueued opState = iota
	opRequested
	opPosted
	opReading
	opEnded
)

// packet is what one rank has sent to another one.
type packet struct {
	kind packetKind
	src  int
	op   int // of the sender; of fin: of the one that gets it; of held: the episode
	tag  int
	comm int
	big  bool
}

type packetKind uint8

const (
	pktMessage packetKind = iota
	pktFin
	pktHeld
	pktWant
)

// link is what a rank knows of another one, and what it has for it under way.
type link struct {
	connected      bool
	sent, came     uint64
	allowed        uint64
	granted, given uint64 // given: of granted, what has reached the peer
	consumed       uint64
	episode, seen  uint32 // odd: my sends are held up; the peer's are, as it has told
	grown          bool   // the peer's window was widened
	asked, heard   uint64
	wants          []packet // that no message has used up
	wire           []packet
	lost           bool // known to be
}

func (l *link) held() bool { return l.episode%2 == 1 }

func (l *link) holds() bool { return l.seen%2 == 1 }

type node struct {
	threads    []thread
	ops        []op
	posted     []int
	unexpected []packet
	queue      [][]int // by destination: sends that wait
	links      []link
	moved      uint64
	barriers   uint64
	scans      uint64
	shut       bool // in Shutdown
	closed     bool
	gone       bool
}

type model struct {
	nodes []node
	slow  [kinds]bool // what happens seldom while anything else can happen
}

func newModel(programs [][][]step) *model {
	w := &model{}
	n := len(programs)
	for _, threads := range programs {
		nd := node{queue: make([][]int, n), links: make([]link, n)}
		for _, steps := range threads {
			nd.threads = append(nd.threads, thread{steps: steps})
		}
		for p := range nd.links {
			nd.links[p] = link{granted: window}
		}
		w.nodes = append(w.nodes, nd)
	}
	return w
}

func (w *model) clone() *model {
	c := &model{nodes: slices.Clone(w.nodes), slow: w.slow}
	for i := range c.nodes {
		n := &c.nodes[i]
		n.threads, n.ops, n.posted = slices.Clone(n.threads), slices.Clone(n.ops), slices.Clone(n.posted)
		n.unexpected, n.queue, n.links = slices.Clone(n.unexpected), slices.Clone(n.queue), slices.Clone(n.links)
		for t := range n.threads {
			th := &n.threads[t]
			th.own, th.pending = slices.Clone(th.own), slices.Clone(th.pending)
		}
		for p := range n.links {
			n.queue[p] = slices.Clone(n.queue[p])
			n.links[p].wants, n.links[p].wire = slices.Clone(n.links[p].wants), slices.Clone(n.links[p].wire)
		}
	}
	return c
}

// key tells a world from others that can go on in other ways. All numbers are small.
func (w *model) key() string {
	b := make([]byte, 0, 512)
	add := func(numbers ...int) {
		b = append(b, byte(len(numbers)))
		for _, n := range numbers {
			b = append(b, byte(n))
		}
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		for _, t := range n.threads {
			add(t.at, int(t.stage))
			add(t.own...)
			add(t.pending...)
		}
		for _, o := range n.ops {
			add(int(o.state), o.thread)
		}
		add(n.posted...)
		b = appendPackets(b, n.unexpected)
		for p := range n.links {
			l := &n.links[p]
			add(n.queue[p]...)
			add(int(l.sent), int(l.came), int(l.allowed), int(l.granted), int(l.given), int(l.consumed), int(l.asked), int(l.heard))
			add(int(l.episode), int(l.seen), bit(l.connected), bit(l.grown), bit(l.lost))
			b = appendPackets(appendPackets(b, l.wants), l.wire)
		}
		add(int(n.barriers), int(n.scans), bit(n.shut), bit(n.closed), bit(n.gone))
	}
	return string(b)
}

func appendPackets(b []byte, packets []packet) []byte {
	b = append(b, byte(len(packets)))
	for _, p := range packets {
		b = append(b, byte(p.kind), byte(p.src), byte(p.op), byte(p.tag), byte(p.comm), byte(bit(p.big)))
	}
	return b
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// move is something that can happen.
type move struct {
	kind moveKind
	a, b int
}

type moveKind uint8

const (
	mvThread  moveKind = iota // thread b of rank a goes on
	mvTimeout                 // its deadline passes
	mvPacket                  // of a to b
	mvGrant                   // of a to b
	mvConnect                 // a to b
	mvDrain                   // a sends what a WANT of b permits
	mvLearn                   // a of the loss of b

	kinds
)

func (w *model) moves() (all []move) {
	for r := range w.nodes {
		n := &w.nodes[r]
		if n.gone {
			continue
		}
		for t := range n.threads {
			if w.runs(r, t) {
				all = append(all, move{mvThread, r, t})
			}
			if s := n.threads[t].step(); s != nil && s.timed && n.threads[t].stage == waiting {
				all = append(all, move{mvTimeout, r, t})
			}
		}
		for p := range w.nodes {
			l := &n.links[p]
			from := &w.nodes[p].links[r]
			if len(from.wire) != 0 && !l.lost {
				all = append(all, move{mvPacket, p, r})
			}
			if from.given < from.granted && from.connected && !w.nodes[p].gone {
				all = append(all, move{mvGrant, p, r})
			}
			if !l.connected && p != r && !w.nodes[p].gone && (len(n.queue[p]) != 0) {
				all = append(all, move{mvConnect, r, p})
			}
			if l.held() && w.permitted(r, p) {
				all = append(all, move{mvDrain, r, p})
			}
			if w.nodes[p].gone && !l.lost && len(from.wire) == 0 {
				all = append(all, move{mvLearn, r, p})
			}
		}
	}
	return all
}

// runs reports whether a thread can go on.
func (w *model) runs(r, t int) bool {
	n := &w.nodes[r]
	th := &n.threads[t]
	s := th.step()
	if s == nil {
		return false
	}
	switch {
	case s.kind == doSpin:
		return false
	case s.kind == doJoin:
		for o := range n.threads {
			if o != t && n.threads[o].step() != nil {
				return false
			}
		}
		return true
	case th.stage != waiting:
		return true
	}
	return w.over(r, t)
}

// over reports whether what a thread waits for has happened.
func (w *model) over(r, t int) bool {
	n := &w.nodes[r]
	switch th := &n.threads[t]; th.step().kind {
	case doBarrier:
		return w.all(r, func(o *node) bool { return o.barriers >= n.barriers })
	case doShutdown:
		return w.flushed(r) && w.all(r, func(o *node) bool { return o.closed || o.shut && w.flushedNode(o) })
	default:
		return !slices.ContainsFunc(th.waits(), func(o int) bool { return n.ops[o].state != opEnded })
	}
}

// waits is the operations that the thread's call waits for.
func (t *thread) waits() []int {
	if t.step().kind == doWaitAll {
		return t.pending
	}
	return t.own
}

// all reports whether something holds for all ranks, or the rank has lost one.
func (w *model) all(r int, holds func(*node) bool) bool {
	for p := range w.nodes {
		if w.nodes[r].links[p].lost {
			return true
		}
	}
	for p := range w.nodes {
		if !holds(&w.nodes[p]) {
			return false
		}
	}
	return true
}

func (w *model) flushed(r int) bool { return w.flushedNode(&w.nodes[r]) }

func (w *model) flushedNode(n *node) bool {
	return !slices.ContainsFunc(n.ops, func(o op) bool { return !o.recv && o.state != opEnded })
}

func (w *model) do(m move) {
	switch m.kind {
	case mvThread:
		w.advance(m.a, m.b)
	case mvTimeout:
		n := &w.nodes[m.a]
		for _, o := range n.threads[m.b].own {
			if n.ops[o].state == opPosted {
				w.end(m.a, o)
			}
		}
	case mvPacket:
		wire := &w.nodes[m.a].links[m.b].wire
		p := (*wire)[0]
		*wire = (*wire)[1:]
		w.arrive(m.b, p)
	case mvGrant:
		l := &w.nodes[m.a].links[m.b]
		l.given = l.granted
		w.nodes[m.b].links[m.a].allowed = l.given
		w.drain(m.b, m.a)
	case mvConnect:
		a, b := &w.nodes[m.a].links[m.b], &w.nodes[m.b].links[m.a]
		a.connected, b.connected = true, true
		a.allowed, b.allowed = max(a.allowed, window), max(b.allowed, window)
		a.given, b.given = max(a.given, window), max(b.given, window)
		w.drain(m.a, m.b)
		w.drain(m.b, m.a)
	case mvDrain:
		w.drain(m.a, m.b)
	case mvLearn:
		w.lose(m.a, m.b)
	}
}

// key of the messages of a step.
func (s *step) comm(scan bool) int {
	switch {
	case scan:
		return 2
	case s.other:
		return 1
	}
	return 0
}

var commNames = [...]string{inspect.CommWorld, "Comm 1", "Comm 2"}
