package p2p

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/tagmatch/tagmatch/progress"
)

// maxContexts is how many contexts there are. World.Comm has the first and the library the last.
const maxContexts = 1 << 11

// contextWords is a set of contexts.
type contextWords [maxContexts / 64]uint64

func (s *contextWords) set(context int, on bool) {
	if bit := uint64(1) << (context % 64); on {
		s[context/64] |= bit
	} else {
		s[context/64] &^= bit
	}
}

// contexts is what a rank knows of the contexts of its Comms.
//
// A context is free again when no message of it can come any more, to any rank. So a Comm that is
// closed goes through these stages on each of its ranks:
//
//	retiring  its operations here are ending (progress.Engine.Retire)
//	flushing  FLUSH went to each rank that messages may have been sent to. FLUSHED, the answer,
//	          says that they have all arrived there: a connection keeps the order
//	told      CLOSED went to the Comm's first rank, which waits for those of all ranks
//	free      FREE came from there
//
// A rank that is lost sends no CLOSED: the first rank names it in FREE, and a rank that hears FREE
// also waits until it has itself lost whoever is named there, since nothing is heard of a lost
// rank. Where the first rank is lost the context is not used again, nor where a collective call has
// failed on some rank: its messages could meet those of a later Comm.
//
// Notices come under the engine's lock, calls of the program without it; mu is taken inside of it.
type contexts struct {
	w  *World // constant
	mu sync.Mutex

	free    contextWords
	live    map[int]*liveContext     // not free, but for World.Comm's and the library's
	closers map[int]map[int]struct{} // by context whose first rank is this one: who has sent CLOSED
	asking  []int                    // contexts of Comms whose ranks agree on another context here, see agree
	holder  int                      // of them, the one that free is lent to, or none
}

const none = -1

type stage uint8

const (
	inUse stage = iota
	retiring
	flushing
	told
	freeing // FREE has come, and names ranks that are not lost here
	kept    // closed, and not to be used again
)

// liveContext is a context that is not free.
type liveContext struct {
	comm    *Comm
	root    int // rank in the World of the Comm's first rank
	stage   stage
	waitFor map[int]struct{} // flushing: FLUSHED of these ranks; freeing: the loss of these ranks
}

func (cs *contexts) init(w *World) {
	cs.w, cs.holder = w, none
	cs.live, cs.closers = map[int]*liveContext{}, map[int]map[int]struct{}{}
	for i := range cs.free {
		cs.free[i] = ^uint64(0)
	}
	cs.free.set(worldContext, false)
	cs.free.set(libraryContext, false)
}

// open makes a Comm of a context that agree has taken.
func (cs *contexts) open(context int, g *group) *Comm {
	c := new(Comm)
	c.init(cs.w, context, g) // calls the engine
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.live[context] = &liveContext{comm: c, root: g.world(0)}
	return c
}

// retire begins the end of a Comm's context, or keeps it from being used again.
func (cs *contexts) retire(c *Comm, keep bool) {
	cs.mu.Lock()
	l := cs.live[c.context()]
	if l.stage = retiring; keep {
		l.stage = kept
	}
	cs.mu.Unlock()
	cs.w.eng.Retire(c.base, errCommClosed)
}

// Notices.
const (
	noticeFlush   = iota + 1 // answer with FLUSHED
	noticeFlushed            // all that was sent before the FLUSH has arrived
	noticeClosed             // to the first rank: this rank is done with the context
	noticeFree               // from the first rank: all are, or are lost as listed
)

// A notice, little-endian:
//
//	0 kind, 1 byte
//	1 reserved
//	2 context, 2 bytes
//	4 of FREE: the ranks of the World that are lost, 4 bytes each
func notice(kind byte, context int, lost ...int) []byte {
	b := binary.LittleEndian.AppendUint16([]byte{kind, 0}, uint16(context))
	for _, r := range lost {
		b = binary.LittleEndian.AppendUint32(b, uint32(r))
	}
	return b
}

// Notice implements progress.Contexts.
func (cs *contexts) Notice(e progress.Callback, src int, body []byte) error {
	if len(body) < 4 || len(body)%4 != 0 {
		return fmt.Errorf("%d bytes", len(body))
	}
	kind, context := body[0], int(binary.LittleEndian.Uint16(body[2:]))
	if context <= worldContext || context >= libraryContext {
		return fmt.Errorf("context %d", context)
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	l := cs.live[context]
	switch {
	case kind == noticeFlush:
		e.Notice(src, notice(noticeFlushed, context))
	case kind == noticeFlushed && l != nil && l.stage == flushing:
		cs.flushed(e, context, src)
	case kind == noticeClosed:
		return cs.closedBy(e, context, src)
	case kind == noticeFree && l != nil && l.stage == told && l.root == src:
		return cs.freed(e, context, body[4:])
	default:
		return fmt.Errorf("kind %d of context %d, which is not at that stage", kind, context)
	}
	return nil
}

// Idle implements progress.Contexts: the operations of a retired context have ended.
func (cs *contexts) Idle(e progress.Callback, tag uint64) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	context := contextOf(tag)
	l := cs.live[context]
	if l.stage == kept {
		return
	}
	l.stage, l.waitFor = flushing, map[int]struct{}{}
	for rank := range l.comm.size {
		if world := l.comm.group.world(rank); e.Reached(world) && !e.Lost(world) {
			l.waitFor[world] = struct{}{}
			e.Notice(world, notice(noticeFlush, context))
		}
	}
	cs.flushed(e, context, none)
}

// Gone implements progress.Contexts.
func (cs *contexts) Gone(e progress.Callback, rank int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for context, l := range cs.live {
		switch l.stage {
		case flushing:
			cs.flushed(e, context, rank)
		case freeing:
			cs.settle(e, context, rank)
		}
	}
	for context := range cs.closers {
		cs.allClosed(e, context)
	}
}

// flushed is called when a rank has answered FLUSH, or is lost.
func (cs *contexts) flushed(e progress.Callback, context, rank int) {
	l := cs.live[context]
	delete(l.waitFor, rank)
	if len(l.waitFor) != 0 {
		return
	}
	l.stage = told
	if l.root != cs.w.rank {
		e.Notice(l.root, notice(noticeClosed, context))
		return
	}
	_ = cs.closedBy(e, context, cs.w.rank) // the first that this rank says of it
}

// closedBy is called at the first rank of a Comm when a rank has closed it, perhaps before this
// rank knows of the Comm: others may have made it, and closed it, earlier.
func (cs *contexts) closedBy(e progress.Callback, context, rank int) error {
	by := cs.closers[context]
	if by == nil {
		by = map[int]struct{}{}
		cs.closers[context] = by
	}
	if _, ok := by[rank]; ok {
		return fmt.Errorf("context %d is closed twice", context)
	}
	by[rank] = struct{}{}
	cs.allClosed(e, context)
	return nil
}

// allClosed is called at the first rank of a Comm when one more rank has closed it, or is lost.
func (cs *contexts) allClosed(e progress.Callback, context int) {
	l, by := cs.live[context], cs.closers[context]
	if l == nil || l.stage != told || l.root != cs.w.rank {
		return
	}
	var lost []int
	for rank := range l.comm.size {
		world := l.comm.group.world(rank)
		if _, ok := by[world]; ok {
			continue
		}
		if !e.Lost(world) {
			return
		}
		lost = append(lost, world)
	}
	delete(cs.closers, context)
	free := notice(noticeFree, context, lost...)
	if len(free) > e.MaxNotice() {
		return // the ranks that are left go on without this context
	}
	for rank := range l.comm.size {
		if world := l.comm.group.world(rank); world != cs.w.rank && !e.Lost(world) {
			e.Notice(world, free)
		}
	}
	_ = cs.freed(e, context, free[4:])
}

// freed is called when all ranks have closed a Comm, except some that are lost.
func (cs *contexts) freed(e progress.Callback, context int, lost []byte) error {
	l := cs.live[context]
	l.stage = freeing
	for ; len(lost) != 0; lost = lost[4:] {
		rank := int(binary.LittleEndian.Uint32(lost))
		if rank >= cs.w.size {
			return fmt.Errorf("rank %d of %d", rank, cs.w.size)
		}
		if !e.Lost(rank) {
			l.waitFor[rank] = struct{}{}
		}
	}
	cs.settle(e, context, none)
	return nil
}

// settle makes a context free, unless ranks that are gone for others are still heard of here; rank
// is one that is lost now.
func (cs *contexts) settle(e progress.Callback, context, rank int) {
	l := cs.live[context]
	delete(l.waitFor, rank)
	if len(l.waitFor) != 0 {
		return
	}
	delete(cs.live, context)
	cs.free.set(context, true)
	e.Reuse(l.comm.base)
	e.Forget(int(l.comm.any))
}

// offer is what a rank can say in one round of agree: which contexts are free here, and which will
// be without anything that the program does, if the other members of a Comm can say the same. The
// set of free contexts is lent to one Comm at a time, the one with the lowest context of those that
// agree here; ok tells whether that is this one.
func (cs *contexts) offer(c *Comm, lost []int) (free, closing contextWords, ok bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.holder != none || slices.Min(cs.asking) != c.context() {
		return free, closing, false
	}
	cs.holder = c.context()
	closing = cs.free
	for context, l := range cs.live {
		if l.stage != inUse && l.stage != kept && l.comm.group.within(c.group) && !slices.ContainsFunc(lost, l.comm.contains) {
			closing.set(context, true)
		}
	}
	return cs.free, closing, true
}

// ask has a Comm wait for its turn in offer, until done.
func (cs *contexts) ask(c *Comm) (done func()) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.asking = append(cs.asking, c.context())
	return func() {
		cs.mu.Lock()
		defer cs.mu.Unlock()
		cs.asking = slices.DeleteFunc(cs.asking, func(context int) bool { return context == c.context() })
	}
}

// take ends what offer began: the first of these contexts, if there is one, is not free any more.
func (cs *contexts) take(from contextWords) (context int, ok bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.holder = none
	for i, w := range from {
		if w != 0 {
			context = 64*i + bits.TrailingZeros64(w)
			cs.free.set(context, false)
			return context, true
		}
	}
	return 0, false
}

func contextOf(tag uint64) int { return int(tag >> contextShift & (maxContexts - 1)) }

func (c *Comm) context() int { return contextOf(c.base) }

func (c *Comm) contains(world int) bool { return c.RankOf(world) != ProcNull }
