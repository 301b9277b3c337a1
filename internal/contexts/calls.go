package contexts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tagmatch/tagmatch/progress"
)

// Collective calls. One that is under way ends some time after a member of its Comm is lost:
// whoever it waits for may have ended its own call for that, or make none any more.
//
// A rank knows, for each of its Comms, how many it has begun there. One whose call fails, other
// than by a loss, asks others how many they have (ASK), who answer whatever their programs do
// (BEGUN). It tells them what it has found (FOUND), as its World may be closed when their calls
// fail. So the errors of all of them can name the ranks that are missing.

// askAll is the most ranks of a Comm that are all asked. In larger ones a rank asks whom it waits
// for, then whom that one waits for, and so on: to some it may have no connection yet.
const askAll = 64

// begun is what a rank knows of the collective calls on a Comm.
type begun struct {
	number uint32 // how many this rank has begun
	kind   uint8  // of the last one
	waits  int    // rank in the World that the last one waits for, or waited when it failed; none

	comm *Comm  // of the call that is under way
	lost func() // a member is lost; nil: none is under way, or that was said

	revoked func() // the Comm is revoked; nil: none is under way

	asked map[int]*answer // by rank in the World, while this rank asks; nil: it does not
	left  int             // of asked, who have neither answered nor been lost
	done  func()          // called when none is left

	told map[int]foundBy // by who has told it; the last of each
}

// foundBy is a FOUND.
type foundBy struct {
	number uint32 // of the call of who has told it
	kind   uint8
	list   []byte
}

// answer is what another rank has begun.
type answer struct {
	Absence
	known bool
}

// Absence is why a rank is missing in a collective call.
type Absence uint8

const (
	Present Absence = iota // it is not missing
	Absent                 // it has not called
	Other                  // its call is of another kind
	Lost                   // it is lost
	Silent                 // it does not answer

	absences
)

// begunLocked gives what is known of a context. The caller holds mu.
func (cs *Contexts) begunLocked(context int) *begun {
	b := cs.begun[context]
	if b == nil {
		b = &begun{waits: none}
		cs.begun[context] = b
	}
	return b
}

// Begin records that this rank begins a collective call of that kind, until End. It reports whether
// no member of c is lost; if one is lost later, before End, lost is called once, and revoked if c
// is revoked before End, or was before. They must not block.
func (cs *Contexts) Begin(e progress.Callback, c *Comm, kind uint8, lost, revoked func()) (whole bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	b := cs.begunLocked(c.Context)
	b.number++
	b.kind, b.waits, b.revoked = kind, none, revoked
	if l := cs.live[c.Context]; l != nil && l.revoked != nil {
		revoked()
	}
	for rank := range c.Group.Size() {
		if e.Lost(c.Group.World(rank)) {
			return false
		}
	}
	b.comm, b.lost = c, lost
	b.reach(e)
	return true
}

// End records that the call is over: its lost and revoked are not called any more.
func (cs *Contexts) End(c *Comm) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	b := cs.begunLocked(c.Context)
	b.comm, b.lost, b.revoked = nil, nil, nil
}

// ReachAwaited connects to the ranks that calls wait for, after Engine.ReachAwaited.
func (cs *Contexts) ReachAwaited(e progress.Callback) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, b := range cs.begun {
		if b.lost != nil {
			b.reach(e)
		}
	}
}

func (b *begun) reach(e progress.Callback) {
	for rank := range b.comm.Group.Size() {
		e.Reach(b.comm.Group.World(rank))
	}
}

// Waits says which rank of the World the call waits for.
func (cs *Contexts) Waits(c *Comm, world int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.begunLocked(c.Context).waits = world
}

// Inquire asks about the call that this rank has begun last, and calls done, which must not block,
// when all have answered.
func (cs *Contexts) Inquire(e progress.Callback, c *Comm, done func()) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	b := cs.begunLocked(c.Context)
	b.asked, b.left, b.done = map[int]*answer{}, 0, done
	cs.ask(e, c.Context, b.waits)
	if c.Group.Size() <= askAll {
		for rank := range c.Group.Size() {
			cs.ask(e, c.Context, c.Group.World(rank))
		}
	}
	if b.left == 0 {
		done()
	}
}

// ask asks one rank, once.
func (cs *Contexts) ask(e progress.Callback, context, rank int) {
	b := cs.begun[context]
	if rank == none || rank == cs.rank || b.asked[rank] != nil {
		return
	}
	a := &answer{Absence: Silent}
	b.asked[rank] = a
	if e.Lost(rank) {
		a.Absence, a.known = Lost, true
		return
	}
	b.left++
	e.Notice(rank, notice(noticeAsk, context))
}

// Conclude ends what Inquire began, tells those who have made a call, and returns the ranks of the
// World that are missing.
func (cs *Contexts) Conclude(e progress.Callback, c *Comm) map[Absence][]int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	b := cs.begunLocked(c.Context)
	found, why := notice(noticeFound, c.Context, int(b.number), int(b.kind)), map[int]Absence{}
	for _, rank := range slices.Sorted(maps.Keys(b.asked)) {
		if a := b.asked[rank].Absence; a != Present {
			why[rank] = a
			if len(found)+4 <= e.MaxNotice() {
				found = binary.LittleEndian.AppendUint32(found, uint32(rank)|uint32(a)<<absenceShift)
			}
		}
	}
	for rank, a := range b.asked {
		if a.Absence <= Other && !e.Lost(rank) {
			e.Notice(rank, found)
		}
	}
	cs.heed(b, why)
	b.asked, b.done = nil, nil
	missing := map[Absence][]int{}
	for rank, a := range why {
		missing[a] = append(missing[a], rank)
	}
	return missing
}

// absenceShift is where an Absence is above the rank in a FOUND.
const absenceShift = 24

// heed adds what others have found who have made the same call, and may be lost by now. What a rank
// has answered since is newer, and which ranks are lost this rank hears by itself.
func (cs *Contexts) heed(b *begun, why map[int]Absence) {
	for _, t := range b.told {
		if t.number != b.number || t.kind != b.kind {
			continue
		}
		for word := range named(t.list) {
			rank, a := word&(1<<absenceShift-1), Absence(word>>absenceShift)
			mine := b.asked[rank]
			if rank == cs.rank || a == Silent || a == Lost || mine != nil && mine.Absence == Present {
				continue
			}
			if old := why[rank]; old == Present || old == Silent || old == Lost {
				why[rank] = a
			}
		}
	}
	for rank, t := range b.told {
		if t.number != b.number {
			continue
		}
		if delete(why, rank); t.kind != b.kind {
			why[rank] = Other
		}
	}
}

var errAnswer = errors.New("an answer about collective calls that is none")

// concerns reports whether src may speak of collective calls on a context. Who has failed in one
// never lets the context become free, so that it lives here, or its Comm is just being made.
func (cs *Contexts) concerns(context, src int) bool {
	if l := cs.live[context]; l != nil {
		return l.comm.Group.Contains(src)
	}
	return cs.making(context)
}

// making reports whether a context, which is that of no Comm here, may be that of one soon.
func (cs *Contexts) making(context int) bool { return !cs.free.has(context) || cs.holder != none }

// inquiry takes the notices of collective calls. The caller holds mu.
func (cs *Contexts) inquiry(e progress.Callback, kind byte, context, src int, body []byte) error {
	if !cs.concerns(context, src) {
		return fmt.Errorf("collective calls on context %d, which is not one of rank %d", context, src)
	}
	switch {
	case kind == noticeAsk:
		b := cs.begunLocked(context)
		return reply(e, src, notice(noticeBegun, context, int(b.number), int(b.kind), b.waits))
	case kind == noticeBegun && len(body) == 12:
		return cs.answered(e, context, src, body)
	case kind == noticeFound && len(body) >= 8:
		return cs.found(context, src, body)
	}
	return errAnswer
}

// answered takes a BEGUN, which may come too late.
func (cs *Contexts) answered(e progress.Callback, context, src int, body []byte) error {
	number, kind := binary.LittleEndian.Uint32(body), binary.LittleEndian.Uint32(body[4:])
	waits := int(int32(binary.LittleEndian.Uint32(body[8:])))
	if kind > 255 || waits < none || waits >= cs.size {
		return errAnswer
	}
	if l := cs.live[context]; l != nil && waits != none && !l.comm.Group.Contains(waits) {
		return errAnswer // who is not of the Comm must not be asked
	}
	b := cs.begun[context]
	if b == nil || b.asked[src] == nil || b.asked[src].known {
		return nil
	}
	a := b.asked[src]
	a.known = true
	switch {
	case int32(number-b.number) < 0:
		a.Absence = Absent
	case number == b.number && uint8(kind) != b.kind:
		a.Absence = Other
	default:
		a.Absence = Present
	}
	if number == b.number {
		cs.ask(e, context, waits)
	}
	b.answers()
	return nil
}

// answers counts one more answer.
func (b *begun) answers() {
	if b.left--; b.left == 0 {
		b.done()
	}
}

// found takes a FOUND, which may come before this rank has begun the call.
func (cs *Contexts) found(context, src int, body []byte) error {
	t := foundBy{binary.LittleEndian.Uint32(body), body[4], slices.Clone(body[8:])}
	for word := range named(t.list) {
		if rank, a := word&(1<<absenceShift-1), word>>absenceShift; rank >= cs.size || a == int(Present) || a >= int(absences) {
			return errAnswer
		}
	}
	b := cs.begunLocked(context)
	if b.told == nil {
		b.told = map[int]foundBy{}
	}
	b.told[src] = t
	return nil
}

// goneFrom tells the calls under way of a lost member, and settles what the lost rank was asked.
func (cs *Contexts) goneFrom(rank int) {
	for _, b := range cs.begun {
		if b.lost != nil && b.comm.Group.Contains(rank) {
			b.lost()
			b.lost = nil
		}
		if a := b.asked[rank]; a != nil && !a.known {
			a.Absence, a.known = Lost, true
			b.answers()
		}
	}
}
