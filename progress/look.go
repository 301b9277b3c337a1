package progress

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/progress/internal/wait"
)

// Look is what an engine has under way.
type Look struct {
	At     time.Time     // of its beginning
	Moved  uint64        // counts all that has moved: where two looks have the same, nothing has since the end of the first
	Still  time.Duration // nothing has moved for at least that long; 0: not known
	Broken error         // why new operations fail
	Lost   []Loss        // in order of loss, at most MostListed
	Losses int           // how many there are

	// Waiting is how many goroutines sleep for nothing but operations of these lists that have not
	// ended, and Flushing how many in Flush; Timed of both those whose context has a deadline. All
	// are 0 where something has moved meanwhile, or somebody has gone to sleep.
	Waiting, Flushing, Timed int

	// Open is about how many requests have ended, with an outcome that nobody has taken. It is 0
	// where the engine keeps memory for many more, as there have been then.
	Open int

	// Groups are at most MostListed of each kind, those that are awaited first, then the oldest.
	// Rest counts what is not in them, by kind.
	Groups []Group
	Rest   [UnfinishedKinds]int

	Peers   []PeerLook // of whom anything but Rank is not zero, at most mostPeers
	Partial bool       // lists are not whole

	Unacked []Unacked // where there are any
}

// Group is operations or messages that are alike.
type Group struct {
	Unfinished
	N       int
	Awaited int           // of them, those that a goroutine sleeps for
	Age     time.Duration // of the oldest, at least; 0: not known
	From    Members       // of receives from any source: those of a Group; nil: all ranks

	seq uint64 // of the oldest; 0: it has none
}

// Loss is a rank that is lost.
type Loss struct {
	Rank  int
	Cause error
}

// PeerLook is what a rank knows of another one.
type PeerLook struct {
	Rank      int
	Connected bool
	Queued    int    // sends to it that wait
	HeldUp    bool   // for its memory
	Wants     int    // receives of it that wait for others, as it has told
	HoldsUp   bool   // its sends wait for memory of this rank
	Charged   uint64 // bytes that its messages take here
	Window    uint64 // bytes that they may take

	Sent, Came       uint64 // credit that was used in all by messages to it, and by those that have come of it
	Allowed, Granted uint64 // credit in all at it, as far as it has told, and that which it has here
	Episode, Seen    uint32 // of what is held up: of sends to it, and as it has told of its own
	Asked, Heard     uint64 // WANTs that it was told, and those of it
}

// Unacked is the lost ranks that end receives from any source, as AckFailures was not told of them.
type Unacked struct {
	Context uint64 // of the Group; 0: AnySource
	Ranks   []int  // at most MostListed
}

const (
	// MostListed bounds the lists of a Look, so that it stays short whatever waits.
	MostListed = 100

	// mostPeers is so many that a job of some thousand ranks has them all.
	mostPeers = 1 << 12

	// mostGroups is how many groups are told apart while the engine is looked at. What comes then
	// and is in none of them only counts.
	mostGroups = 1 << 12

	// pieceMost is how many operations, messages or peers are looked at under one hold of the lock:
	// some 20 us (BenchmarkLook).
	pieceMost = 256

	// freeMost is how many operations without a use are counted, which are never many where
	// requests are left open: new ones take their memory.
	freeMost = 512
)

// Look looks at the engine in pieces, and lets go of the lock between them: each operation that is
// there all the time is in it once. It takes time in proportion to what is under way.
func (e *Engine) Look() *Look { return newLooker(e, piece.look).all() }

func newLooker(e *Engine, run func(piece) bool) *looker {
	return &looker{e: e, run: run, look: new(Look), groups: map[Unfinished]*Group{}, batch: make([]seen, 0, pieceMost)}
}

func (l *looker) all() *Look {
	e := l.e
	l.inPieces(l.begin)
	l.inPieces(l.posted())
	for _, t := range e.tables() {
		l.inPieces(l.table(t))
	}
	l.inPieces(l.unexpected)
	l.inPieces(l.queued())
	l.inPieces(l.lost)
	l.inPieces(l.unacked())
	l.inPieces(l.open)
	l.inPieces(l.waiters())
	l.inPieces(l.settle)
	l.end()
	return l.look
}

// looker is a look at an engine. Its pieces, and what they use, need the engine's lock.
type looker struct {
	e      *Engine
	run    func(piece) bool // constant: calls it; of a benchmark: with a clock
	look   *Look
	posts  uint64 // matching.Posted.NextSeq at the beginning
	walk   unexpected.Walk
	parks  uint64 // that there have been at the beginning
	marks  marks  // a copy
	batch  []seen // of the present piece
	groups map[Unfinished]*Group
	last   *Group // of the one that was counted last: the next is often alike
}

// seen is one operation or message.
type seen struct {
	u       Unfinished
	seq     uint64
	awaited bool
	from    Members
}

// piece looks at a part and reports whether there is more.
type piece func() (more bool)

func (p piece) look() (more bool) { return p() }

// each looks at all parts, and holds the lock for one at a time. After each it calls then, unless
// that is nil, without the lock.
func (p piece) each(mu *wait.Lock, then func()) {
	for more := true; more; {
		mu.Lock()
		more = p()
		mu.Unlock()
		if then != nil {
			then()
		}
		mu.Yield()
	}
}

// inPieces counts what a piece has found without the lock.
func (l *looker) inPieces(p piece) {
	piece(func() bool { return l.run(p) }).each(&l.e.mu, func() {
		for i := range l.batch {
			l.count(&l.batch[i])
		}
		l.batch = l.batch[:0]
	})
}

func (l *looker) begin() (more bool) {
	e, k := l.e, l.look
	k.At, k.Moved, k.Broken = time.Now(), e.movedLocked(), e.broken
	e.markLocked(k.At)
	l.marks = slices.Clone(e.marks)
	l.posts, l.walk = e.posted.NextSeq(), e.unexp.Walk()
	l.parks, _ = e.wait.Counts()
	k.Still = l.age(k.Moved, func(m *mark) uint64 { return m.moved })
	return false
}

// age is how long ago, at least, a count has come to n.
func (l *looker) age(n uint64, count func(*mark) uint64) time.Duration {
	at, ok := l.marks.since(n, count)
	if !ok {
		return 0
	}
	return l.look.At.Sub(at)
}

// add keeps what is seen of an operation for count.
func (l *looker) add(op *Op, seq uint64) {
	s := seen{u: op.unfinished(), seq: seq, awaited: op.Awaited()}
	if s.u.Kind == UnfinishedSend {
		s.seq = op.mask + 1
	}
	if s.u.Peer == AnySource && op.peer < AnySource {
		s.from = l.e.sources.group(op.peer).members
	}
	l.batch = append(l.batch, s)
}

// posted looks at the receives and probes without a message, but for those that are cancelling.
func (l *looker) posted() piece {
	from := uint32(0)
	return func() bool {
		from = l.e.posted.Part(from, pieceMost, func(seq matching.Seq, op *Op) {
			if seq < l.posts {
				l.add(op, seq)
			}
		})
		return from != 0
	}
}

// table looks at operations that have a slot.
func (l *looker) table(t *slots) piece {
	from := 0
	return func() bool {
		to := min(from+pieceMost, len(t.entries))
		for i := range t.entries[from:to] {
			// What is offloaded is posted too, and the receive of what is abandoned has ended.
			if op := t.entries[from+i].op; op != nil && op.state != opOffloaded && op.state != opAbandoned {
				l.add(op, 0)
			}
		}
		from = to
		return from < len(t.entries)
	}
}

func (l *looker) unexpected() (more bool) {
	return l.walk.Part(pieceMost, func(m *unexpected.Message) {
		u := Unfinished{StageHere, UnfinishedMessage, int(m.Src), m.Tag, ^uint64(0), uint64(len(m.Data))}
		if m.Rndv {
			u.Stage, u.Bytes = StageAnnounced, m.Len
		}
		l.batch = append(l.batch, seen{u: u, seq: m.Seq})
	})
}

// queued looks at the peers, and at the sends that wait for each.
func (l *looker) queued() piece {
	rank, from := 0, uint64(0) // of Engine.made, and in its queue
	return func() bool {
		e := l.e
		for room := pieceMost; room > 0 && rank < len(e.made); room-- {
			p := e.made[rank]
			if from == 0 {
				l.peer(p)
			}
			if !p.out.Empty() {
				if from = p.out.Part(from, room, func(op *Op) { l.add(op, 0) }); from != 0 {
					return true
				}
				room = pieceMost - len(l.batch)
			}
			from = 0
			rank++
		}
		return rank < len(e.made)
	}
}

// peer takes down what is worth knowing of a peer.
func (l *looker) peer(p *peer) {
	charged, consumed, window := p.in.Usage()
	k := PeerLook{Rank: p.rank, Connected: p.met, Queued: p.out.Len(), HeldUp: p.out.HeldUp(), Wants: p.out.Wants(),
		HoldsUp: p.in.HeldUp(), Charged: charged - consumed, Window: window, Sent: p.out.Charged(), Came: charged,
		Allowed: p.out.Allowed(), Granted: p.in.Granted(), Episode: p.out.Episode(), Seen: p.in.Episode(), Asked: p.asked, Heard: p.heard}
	switch {
	case k == PeerLook{Rank: p.rank}:
	case len(l.look.Peers) == mostPeers:
		l.look.Partial = true
	default:
		l.look.Peers = append(l.look.Peers, k)
	}
}

func (l *looker) lost() (more bool) {
	lost := l.e.sources.lost
	l.look.Losses = len(lost)
	l.look.Lost = slices.Clone(lost[:min(len(lost), MostListed)])
	return false
}

// unacked looks at what receives from any source know of those that are lost, a Group at a time.
func (l *looker) unacked() piece {
	i := 0
	return func() bool {
		s := &l.e.sources
		if i >= len(s.groups) || len(s.lost) == 0 {
			return false
		}
		g := &s.groups[i]
		i++
		if g.members == nil || g.losses.unacked == 0 {
			return true
		}
		u := Unacked{Context: g.context}
		for _, lost := range s.lost[:min(len(s.lost), MostListed)] {
			if g.unacked(lost.Rank) {
				u.Ranks = append(u.Ranks, lost.Rank)
			}
		}
		l.look.Unacked = append(l.look.Unacked, u)
		return true
	}
}

// waiters counts the goroutines that sleep.
func (l *looker) waiters() piece {
	skip := 0
	return func() bool {
		more := l.e.wait.Parked(skip, pieceMost, l.waiter)
		skip += pieceMost
		return more
	}
}

// Aside is the context of a goroutine that makes progress until something else has come, such as an
// answer of the launcher: a Look does not count it.
type Aside struct{ context.Context }

// waiter counts a goroutine that sleeps until op ends, or ctx.
func (l *looker) waiter(op wait.Operation, ctx context.Context) {
	if _, aside := ctx.(Aside); aside || ctx.Err() != nil {
		return // it waits for something else, or is about to go on
	}
	state := opPosted // of a call that waits for several
	if own, one := op.(*Op); one {
		state = own.state
	}
	switch state {
	case opRoom: // what lets it go on is not listed
		return
	case opFlushing:
		l.look.Flushing++
	default:
		l.look.Waiting++
	}
	if _, timed := ctx.Deadline(); timed {
		l.look.Timed++
	}
}

// settle follows the other pieces: what they say together is of one moment only where nothing has
// moved since the first.
func (l *looker) settle() (more bool) {
	k, began := l.look, l.look.Moved
	k.Moved = l.e.movedLocked()
	if parks, _ := l.e.wait.Counts(); k.Moved != began || parks != l.parks {
		k.Waiting, k.Flushing, k.Timed = 0, 0, 0
	}
	return false
}

func (l *looker) open() (more bool) {
	l.look.Open = l.e.pools.open(l.e.entered.underWay(), freeMost)
	return false
}

// count adds s to those that are alike.
func (l *looker) count(s *seen) {
	g := l.last
	if g == nil || g.Unfinished != s.u {
		g = l.groups[s.u]
	}
	if g == nil {
		if len(l.groups) == mostGroups {
			l.look.Rest[s.u.Kind]++
			return
		}
		g = &Group{Unfinished: s.u, From: s.from, seq: s.seq}
		l.groups[s.u] = g
	}
	l.last = g
	g.N++
	g.seq = min(g.seq, s.seq)
	if s.awaited {
		g.Awaited++
	}
}

// end lists the groups.
func (l *looker) end() {
	k := l.look
	all := slices.SortedFunc(maps.Values(l.groups), func(a, b *Group) int {
		return cmp.Or(min(b.Awaited, 1)-min(a.Awaited, 1), cmp.Compare(a.seq, b.seq), b.N-a.N, a.Compare(&b.Unfinished))
	})
	var listed [UnfinishedKinds]int
	for _, g := range all {
		if listed[g.Kind]++; listed[g.Kind] > MostListed {
			k.Rest[g.Kind] += g.N
			continue
		}
		g.Age = l.ageOf(g)
		k.Groups = append(k.Groups, *g)
	}
	k.Partial = k.Partial || k.Rest != [UnfinishedKinds]int{} || k.Losses > len(k.Lost)
}

// ageOf is the age of the oldest of a group. What is being received has no place in an order.
func (l *looker) ageOf(g *Group) time.Duration {
	switch {
	case g.seq == 0:
		return 0
	case g.Kind == UnfinishedSend:
		return l.age(g.seq, func(m *mark) uint64 { return m.begun })
	case g.Kind == UnfinishedMessage:
		return l.age(g.seq, func(m *mark) uint64 { return m.arrived })
	}
	return l.age(g.seq+1, func(m *mark) uint64 { return m.posted })
}
