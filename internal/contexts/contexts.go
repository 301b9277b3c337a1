// Package contexts is how the ranks of a job agree on the contexts of their Comms: which are free
// on all of them, and when that of a Comm which all have closed is free again; and how they find
// out who is missing in a collective call on one.
//
// Concurrency: notices come under the engine's lock, calls of the program without it. Contexts has
// a lock of its own, which is taken inside of the engine's.
package contexts

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"sync"

	"github.com/tagmatch/tagmatch/progress"
)

// A context is 11 bits of the tags of Comms, below the bit that they have and those of raw messages
// have not.
const (
	Mask = 1<<63 | (max-1)<<shift // this much of a tag is the same in all messages of a Comm

	World   = 0       // that of the Comm of all ranks, which is never closed
	Library = max - 1 // that of the library itself

	max   = 1 << 11
	shift = 52
)

// Base is the part of a tag that names a context.
func Base(context int) uint64 { return 1<<63 | uint64(context)<<shift }

// Of is the context that a tag names.
func Of(tag uint64) int { return int(tag >> shift & (max - 1)) }

// Set is a set of contexts.
type Set [max / 64]uint64

func (s *Set) set(context int, on bool) {
	if bit := uint64(1) << (context % 64); on {
		s[context/64] |= bit
	} else {
		s[context/64] &^= bit
	}
}

// everything is all contexts.
func everything() (s Set) {
	for i := range s {
		s[i] = ^uint64(0)
	}
	return s
}

func (s *Set) and(o *Set) {
	for i := range s {
		s[i] &= o[i]
	}
}

// first is the first context of a set, or none.
func (s *Set) first() int {
	for i, w := range s {
		if w != 0 {
			return 64*i + bits.TrailingZeros64(w)
		}
	}
	return none
}

func (s *Set) has(context int) bool { return s[context/64]>>(context%64)&1 != 0 }

// Group is the ranks of a Comm in their order, by their ranks in the World. It does not change.
type Group interface {
	Size() int
	World(rank int) int
	Contains(world int) bool
}

// Comm is what makes a Comm: its context and its ranks.
type Comm struct {
	Context int
	ID      uint64 // the same at all its ranks, and no other Comm's
	Group   Group
	Source  int // of receives from any of its ranks

	// Revoked tells that a rank of the World has revoked the Comm, and returns the error of
	// operations on it. It is called once, under the engine's lock, and must not block.
	Revoked func(by int, reason string) error
	// Suspect has a rank of the World be lost here, soon, that is lost to by. It must not block.
	Suspect func(world, by int)
}

// Contexts is what a rank knows of the contexts of its Comms.
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
// rank. Nor does a lost rank send FLUSHED: CLOSED names those that its sender has lost, and the
// first rank waits until it has lost them too. One that it hears of may yet get that sender's
// messages. (A sender that is lost after that is one that has sent no CLOSED.) Where the first rank
// is lost the context is not used again, nor where a collective call has failed on some rank: its
// messages could meet those of a later Comm.
//
// All fields but the first are guarded by mu.
type Contexts struct {
	rank, size int // constant
	mu         sync.Mutex

	free    Set
	live    map[int]*liveContext   // not free, but for the World's and the library's
	begun   map[int]*begun         // by context: collective calls on its Comm
	closers map[int]map[int][]byte // by context whose first rank is this one: who has sent CLOSED, and named whom
	early   map[int]map[int]revoke // by context that was taken and not opened: who has sent what REVOKE
	parts   map[part][]byte        // what ranks have begun to say of ballots
	votes   map[earlyVote][]byte   // what was said of ballots early, as in early
	asking  []int                  // contexts of Comms whose ranks agree on another context here, see Offer

	elsewhere map[int]int // by rank: the last meeting that it spoke of and that was not opened here
	holder    int         // of them, the one that free is lent to, or none
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
	comm    *Comm // constant
	root    int   // rank in the World of the Comm's first rank
	stage   stage
	dropped bool             // see Drop
	waitFor map[int]struct{} // flushing: FLUSHED of these ranks; freeing: the loss of these ranks
	revoked *revocation      // nil: it is not revoked
	voting  *voting          // nil: there was no ballot
}

// Init makes all contexts free, for a rank of a World of size ranks.
func (cs *Contexts) Init(rank, size int) {
	cs.rank, cs.size, cs.holder = rank, size, none
	cs.live, cs.closers, cs.begun = map[int]*liveContext{}, map[int]map[int][]byte{}, map[int]*begun{}
	cs.early, cs.parts, cs.votes = map[int]map[int]revoke{}, map[part][]byte{}, map[earlyVote][]byte{}
	cs.elsewhere = map[int]int{}
	for i := range cs.free {
		cs.free[i] = ^uint64(0)
	}
	cs.free.set(World, false)
	cs.free.set(Library, false)
}

// Open says that a Comm has a context that Take has given.
func (cs *Contexts) Open(e progress.Callback, c *Comm) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.open(e, &liveContext{comm: c, root: c.Group.World(0)})
}

// open begins the life of a Comm. Others may have revoked it already.
func (cs *Contexts) open(e progress.Callback, l *liveContext) {
	cs.live[l.comm.Context] = l
	cs.heedEarly(e, l)
	cs.heedVotes(e, l.comm.Context)
}

// Close says that a Comm is closed here, before Engine.Retire is called for its context, which keep
// keeps from being used again.
func (cs *Contexts) Close(e progress.Callback, c *Comm, keep bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	l := cs.live[c.Context]
	if l.stage = retiring; keep {
		l.stage = kept
	}
	cs.advance(e, l)
}

// Drop says that the Comm of a context that Take has given is closed here at once, as the call that
// was to make it has failed. Other ranks may have it. Where one has not even taken the context, all
// others fail likewise, and it does not become free.
func (cs *Contexts) Drop(e progress.Callback, c *Comm) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.open(e, &liveContext{comm: c, root: c.Group.World(0), stage: retiring, dropped: true})
}

// Notices.
const (
	noticeFlush   = iota + 1 // answer with FLUSHED
	noticeFlushed            // all that was sent before the FLUSH has arrived
	noticeClosed             // to the first rank: this rank is done with the context, and has lost these
	noticeFree               // from the first rank: all are, or are lost as listed
	noticeAsk                // answer with BEGUN
	noticeBegun              // how many collective calls were begun, the kind of the last one, whom it waits for
	noticeFound              // the number of a collective call, and who is missing: rank, and Absence above it
	noticeRevoke             // the Comm is revoked, see revoke
	noticeBallot             // what a rank says of a ballot, or a part of it, see say
)

// A notice, little-endian:
//
//	0 kind, 1 byte
//	1 of a BALLOT: whether more of it follows; else reserved
//	2 context, 2 bytes
//	4 words of 4 bytes: of CLOSED and FREE the ranks of the World that are lost, of BEGUN and
//	  FOUND what is said there
func notice(kind byte, context int, words ...int) []byte {
	b := binary.LittleEndian.AppendUint16([]byte{kind, 0}, uint16(context))
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, uint32(w))
	}
	return b
}

// Notice implements progress.Contexts.
func (cs *Contexts) Notice(e progress.Callback, src int, body []byte) error {
	if len(body) < 4 || len(body)%4 != 0 {
		return fmt.Errorf("%d bytes", len(body))
	}
	kind, context := body[0], int(binary.LittleEndian.Uint16(body[2:]))
	calls := kind >= noticeAsk && kind <= noticeFound
	if context <= World && !calls && kind < noticeRevoke || context >= Library && (kind != noticeBallot || context != Library) {
		return fmt.Errorf("context %d", context)
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch {
	case calls:
		return cs.inquiry(e, kind, context, src, body[4:])
	case kind == noticeRevoke:
		return cs.revokedBy(e, context, src, body[4:])
	case kind == noticeBallot:
		return cs.ballotPart(e, context, src, body[1], body[4:])
	}
	l := cs.live[context]
	switch {
	case kind == noticeFlush:
		return reply(e, src, notice(noticeFlushed, context))
	case kind == noticeFlushed && l != nil && l.stage == flushing:
		cs.flushed(e, context, src)
	case kind == noticeClosed:
		return cs.closedBy(e, context, src, body[4:])
	case kind == noticeFree && l != nil && l.stage == told && l.root == src:
		return cs.freed(e, context, body[4:])
	default:
		return fmt.Errorf("kind %d of context %d, which is not at that stage", kind, context)
	}
	return nil
}

// reply answers a FLUSH or ASK.
func reply(e progress.Callback, src int, body []byte) error {
	if !e.Answer(src, body) {
		return fmt.Errorf("kind %d is due for what was asked before", body[0])
	}
	return nil
}

// Idle implements progress.Contexts: the operations of a retired context have ended.
func (cs *Contexts) Idle(e progress.Callback, tag uint64) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	context := Of(tag)
	l := cs.live[context]
	if l.stage == kept {
		return
	}
	l.stage, l.waitFor = flushing, map[int]struct{}{}
	for rank := range l.comm.Group.Size() {
		if world := l.comm.Group.World(rank); e.Reached(world) && !e.Lost(world) {
			l.waitFor[world] = struct{}{}
			e.Notice(world, notice(noticeFlush, context))
		}
	}
	cs.flushed(e, context, none)
}

// Gone implements progress.Contexts.
func (cs *Contexts) Gone(e progress.Callback, rank int) {
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
	for _, l := range cs.live {
		if l.revoked != nil {
			cs.spread(e, l)
		}
		cs.advance(e, l)
	}
	cs.goneFrom(rank)
}

// flushed records that a rank has answered FLUSH, or is lost; after the last of them the root is
// told that this rank has closed the Comm.
func (cs *Contexts) flushed(e progress.Callback, context, rank int) {
	l := cs.live[context]
	delete(l.waitFor, rank)
	if len(l.waitFor) != 0 {
		return
	}
	l.stage = told
	var lost []int
	for rank := range l.comm.Group.Size() {
		if world := l.comm.Group.World(rank); e.Lost(world) {
			lost = append(lost, world)
		}
	}
	closed := notice(noticeClosed, context, lost...)
	switch {
	case l.root == cs.rank:
		_ = cs.closedBy(e, context, cs.rank, closed[4:]) // the first that this rank says of it
	case len(closed) <= e.MaxNotice(): // else the context is not used again
		e.Notice(l.root, closed)
	}
}

// closedBy records, at the first rank of a Comm, that a rank has closed it and has lost those
// listed. This rank may not know of the Comm yet: others have made it, and closed it, earlier.
func (cs *Contexts) closedBy(e progress.Callback, context, rank int, lost []byte) error {
	by := cs.closers[context]
	if by == nil {
		by = map[int][]byte{}
		cs.closers[context] = by
	}
	if _, ok := by[rank]; ok {
		return fmt.Errorf("context %d is closed twice", context)
	}
	if err := cs.checkRanks(lost); err != nil {
		return err
	}
	by[rank] = slices.Clone(lost)
	cs.allClosed(e, context)
	return nil
}

// checkRanks checks the ranks that a notice names.
func (cs *Contexts) checkRanks(list []byte) error {
	for rank := range named(list) {
		if rank >= cs.size {
			return fmt.Errorf("rank %d of %d", rank, cs.size)
		}
	}
	return nil
}

// named gives the ranks that a notice names.
func named(list []byte) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; len(list) != 0 && yield(int(binary.LittleEndian.Uint32(list))); list = list[4:] {
		}
	}
}

// allClosed has the first rank of a Comm tell the others that its context is free, once each rank
// has closed it or is lost.
func (cs *Contexts) allClosed(e progress.Callback, context int) {
	l, by := cs.live[context], cs.closers[context]
	if l == nil || l.stage != told || l.root != cs.rank {
		return
	}
	var lost []int
	for rank := range l.comm.Group.Size() {
		world := l.comm.Group.World(rank)
		list, closed := by[world]
		switch {
		case e.Lost(world) && (!closed || len(list) != 0): // its messages may still arrive somewhere
			lost = append(lost, world)
		case !closed || !lostAll(e, list):
			return
		}
	}
	delete(cs.closers, context)
	free := notice(noticeFree, context, lost...)
	if len(free) > e.MaxNotice() {
		return // the ranks that are left go on without this context
	}
	for rank := range l.comm.Group.Size() {
		if world := l.comm.Group.World(rank); world != cs.rank && !e.Lost(world) {
			e.Notice(world, free)
		}
	}
	_ = cs.freed(e, context, free[4:])
}

// lostAll reports whether all ranks that a notice names are lost here too.
func lostAll(e progress.Callback, list []byte) bool {
	for rank := range named(list) {
		if !e.Lost(rank) {
			return false
		}
	}
	return true
}

// freed makes the context of a Comm free that all ranks have closed, except some that are lost,
// once those are lost here too.
func (cs *Contexts) freed(e progress.Callback, context int, lost []byte) error {
	if err := cs.checkRanks(lost); err != nil {
		return err
	}
	l := cs.live[context]
	l.stage = freeing
	for rank := range named(lost) {
		if !e.Lost(rank) {
			l.waitFor[rank] = struct{}{}
		}
	}
	cs.settle(e, context, none)
	return nil
}

// settle makes a context free, unless ranks that are gone for others are still heard of here; rank
// is one that is lost now.
func (cs *Contexts) settle(e progress.Callback, context, rank int) {
	l := cs.live[context]
	delete(l.waitFor, rank)
	if len(l.waitFor) != 0 {
		return
	}
	delete(cs.live, context)
	delete(cs.begun, context)
	cs.free.set(context, true)
	e.Reuse(Base(context))
	e.Forget(l.comm.Source)
}
