package contexts

import (
	"maps"
	"slices"

	"github.com/tagmatch/tagmatch/progress"
)

// Ballots: how the ranks of a Comm that live decide something together, while others are lost. The
// ballots of a Comm have numbers, and each rank takes part in one after the other.
//
// The leader is the lowest rank of the Comm that is not lost. Each rank that takes part sends it a
// VOTE. The leader has the votes of all that are not lost, and decides: DECIDE to all. When it is
// lost, all vote again, for the next one. A vote tells the last decision that the rank knows, and
// the new leader takes that over. That is safe: a rank votes for a leader when it has lost all
// those before, and nothing is heard of a lost rank, so that no decision can come from them any
// more.
//
// A rank that lives may be lost to others, which decide without it. Where it hears of such a
// decision it is out: it takes part in no ballot of the Comm any more, and only tells that decision
// to ranks that still hear of it: they may be out too, and wait for it. Where ranks that live lose
// each other during a ballot of four or more, two leaders can decide otherwise, with members in
// common. To rule that out would take decisions by majorities. Nobody waits for ever then either.
//
// A vote tells who is lost to the rank. Those are made lost to the leader too (Comm.Suspect) before
// it decides, and by its decision to all. A leader asks (ASK) those who have not voted: who has
// closed the Comm answers that it gives up, which fails the ballot for all.

// Ballot is what a rank votes.
type Ballot struct {
	Value         int64
	Offers        bool // the other two are set
	Free, Closing Set  // as Offer has given them
}

// Decision is what a ballot comes to. It is the same at all ranks.
type Decision struct {
	number   uint32
	Lost     []int // ranks in the Comm that have no part in it, in order
	Value    int64 // the smallest of the others' values
	Context  int   // the first that is free on all, where all have made an offer; else none
	Full     bool  // no context will be free
	FailedBy int   // rank in the World that has given up, or none
	Differs  int   // rank in the World that gave another value than the first one, or none
}

// Number is the number of the ballot.
func (d *Decision) Number() uint32 { return d.number }

// None is no rank, and no context.
const None = none

// vote is what a rank has said of its ballot.
type vote struct {
	number uint32
	gaveUp bool
	ballot Ballot
	lost   []int // ranks in the Comm
	last   Decision
}

// voting is the ballots of a Comm at one rank.
type voting struct {
	mine   vote
	done   func() // called when mine is decided; nil: nobody waits
	queued *vote  // the next, where mine has been given up and is not decided

	self      int    // rank in the Comm
	leader    int    // to whom mine was sent, rank in the Comm
	asked     uint32 // the highest ballot that others take part in
	outBy     int    // rank in the World that goes on without this one, or none
	votes     map[int]vote
	suspected map[int]struct{} // ranks in the Comm
}

// votingOf gives the ballots of a Comm, from the first of them on.
func (cs *Contexts) votingOf(l *liveContext) *voting {
	if l.voting == nil {
		l.voting = &voting{leader: none, outBy: none, votes: map[int]vote{}, suspected: map[int]struct{}{}}
		l.voting.mine.last = Decision{Context: none, FailedBy: none, Differs: none}
		for l.comm.Group.World(l.voting.self) != cs.rank {
			l.voting.self++
		}
	}
	return l.voting
}

// Vote has this rank take part in the next ballot of c. The end of that ballot calls done, which
// must not block.
func (cs *Contexts) Vote(e progress.Callback, c *Comm, b Ballot, done func()) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	l := cs.live[c.Context]
	v := cs.votingOf(l)
	if v.outBy != none {
		done()
		return
	}
	next := vote{ballot: b}
	v.done = done
	if v.undecided() { // it was given up
		v.queued = &next
		return
	}
	for rank := range c.Group.Size() { // whose losses nobody may tell of
		e.Reach(c.Group.World(rank))
	}
	cs.begin(e, l, next)
}

// GiveUp ends this rank's part in the ballot under way, if that is not decided: then it fails for
// all, and done is not called.
func (cs *Contexts) GiveUp(e progress.Callback, c *Comm) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	l := cs.live[c.Context]
	v := l.voting
	if v.done == nil {
		return false
	}
	v.done = nil
	if v.queued != nil {
		v.queued = nil
		return true
	}
	v.mine.gaveUp = true
	v.leader = none
	cs.advance(e, l)
	return true
}

// Decided is the last decision of c's ballots.
func (cs *Contexts) Decided(c *Comm) Decision {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.live[c.Context].voting.mine.last
}

// LeftOutBy is a rank of the World that goes on without this one, of which no ballot of c has a
// decision then, or none.
func (cs *Contexts) LeftOutBy(c *Comm) int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.live[c.Context].voting.outBy
}

// leave ends this rank's part in the ballots, as one is decided without it.
func (cs *Contexts) leave(e progress.Callback, l *liveContext, d Decision, by int) {
	v := l.voting
	done := v.done
	v.outBy, v.done, v.queued = by, nil, nil
	v.mine = vote{number: d.number, last: d}
	for rank := range l.comm.Group.Size() {
		if rank != v.self {
			cs.say(e, l, rank, kindDecide)
		}
	}
	if done != nil {
		done()
	}
}

func (v *voting) undecided() bool { return v.mine.number != v.mine.last.number }

// begin begins the next ballot.
func (cs *Contexts) begin(e progress.Callback, l *liveContext, next vote) {
	v := l.voting
	next.number, next.last = v.mine.number+1, v.mine.last
	v.mine, v.leader = next, none
	cs.advance(e, l)
}

// advance does what is to be done next in the ballots of a Comm, if there are any.
func (cs *Contexts) advance(e progress.Callback, l *liveContext) {
	v := l.voting
	if v == nil || v.outBy != none {
		return
	}
	if l.stage != inUse && !v.undecided() && v.asked > v.mine.number {
		cs.begin(e, l, vote{gaveUp: true})
		return
	}
	leader := 0
	for e.Lost(l.comm.Group.World(leader)) {
		leader++
	}
	if v.mine.number == 0 {
		return
	}
	if leader != v.leader {
		v.leader = leader
		if leader != v.self {
			cs.say(e, l, leader, kindVote)
			return
		}
		cs.lookAround(e, l)
	}
	if leader == v.self && v.undecided() {
		cs.lead(e, l)
	}
}

// lookAround has a new leader ask those who have not voted, and tell its decision to those who have
// not got it from the leader before.
func (cs *Contexts) lookAround(e progress.Callback, l *liveContext) {
	v := l.voting
	for rank := range l.comm.Group.Size() {
		if rank == v.self || e.Lost(l.comm.Group.World(rank)) {
			continue
		}
		cs.tellOld(e, l, rank)
		if v.undecided() && v.votes[rank].number < v.mine.number {
			cs.say(e, l, rank, kindAsk)
		}
	}
}

// tellOld tells this rank's last decision to one that has voted without knowing of it.
func (cs *Contexts) tellOld(e progress.Callback, l *liveContext, rank int) {
	last := l.voting.mine.last.number
	if o := l.voting.votes[rank]; o.number == last && o.last.number < last {
		cs.say(e, l, rank, kindDecide)
	}
}

// lead has the leader decide, or wait for votes.
func (cs *Contexts) lead(e progress.Callback, l *liveContext) {
	v, g := l.voting, l.comm.Group
	missing := false
	votes := map[int]vote{v.self: v.mine}
	for rank := range g.Size() {
		o, ok := v.votes[rank]
		switch {
		case rank == v.self || e.Lost(g.World(rank)):
		case ok && o.last.number == v.mine.number:
			cs.decide(e, l, o.last)
			return
		case !ok || o.number != v.mine.number:
			missing = true
		default:
			votes[rank] = o
			missing = missing || slices.ContainsFunc(o.lost, func(r int) bool { return r != v.self && !e.Lost(g.World(r)) })
		}
	}
	if !missing {
		d := tally(votes, g)
		d.number, d.Lost = v.mine.number, cs.lostOf(e, l)
		cs.decide(e, l, d)
	}
}

// tally is what votes come to.
func tally(votes map[int]vote, g Group) Decision {
	d := Decision{Context: none, FailedBy: none, Differs: none}
	free, closing, all := everything(), everything(), true
	var first *int64
	for rank := range g.Size() {
		v, ok := votes[rank]
		if !ok {
			continue
		}
		if first == nil {
			first, d.Value = &v.ballot.Value, v.ballot.Value
		}
		if v.ballot.Value != *first && d.Differs == none {
			d.Differs = g.World(rank)
		}
		d.Value = min(d.Value, v.ballot.Value)
		if v.gaveUp && d.FailedBy == none {
			d.FailedBy = g.World(rank)
		}
		all = all && v.ballot.Offers
		free.and(&v.ballot.Free)
		closing.and(&v.ballot.Closing)
	}
	if all {
		d.Context = free.first()
		d.Full = closing == Set{}
	}
	return d
}

// lostOf is the ranks of a Comm that are lost.
func (cs *Contexts) lostOf(e progress.Callback, l *liveContext) (lost []int) {
	for rank := range l.comm.Group.Size() {
		if e.Lost(l.comm.Group.World(rank)) {
			lost = append(lost, rank)
		}
	}
	return lost
}

// decide takes a decision on the ballot under way, and as the leader tells it.
func (cs *Contexts) decide(e progress.Callback, l *liveContext, d Decision) {
	v := l.voting
	v.mine.last = d
	if v.leader == v.self {
		for rank := range l.comm.Group.Size() {
			if rank != v.self && !slices.Contains(d.Lost, rank) {
				cs.say(e, l, rank, kindDecide)
			}
		}
		maps.DeleteFunc(v.votes, func(_ int, o vote) bool { return o.number <= d.number }) // they are long
	}
	cs.suspect(e, l, d.Lost, l.comm.Group.World(v.leader))
	done, next, gaveUp := v.done, v.queued, v.mine.gaveUp && d.FailedBy == none
	switch {
	case gaveUp: // the others go on
		cs.begin(e, l, vote{gaveUp: true})
	case next != nil:
		v.queued = nil
		cs.begin(e, l, *next)
	case done != nil:
		v.done = nil
		done()
		fallthrough
	default:
		cs.advance(e, l)
	}
}

// suspect has ranks of a Comm be lost here that are lost to another one.
func (cs *Contexts) suspect(e progress.Callback, l *liveContext, lost []int, by int) {
	for _, rank := range lost {
		world := l.comm.Group.World(rank)
		_, ok := l.voting.suspected[rank]
		if !ok && rank != l.voting.self && !e.Lost(world) {
			l.voting.suspected[rank] = struct{}{}
			l.comm.Suspect(world, by)
		}
	}
}

// heard takes what a rank of the Comm has said.
func (cs *Contexts) heard(e progress.Callback, l *liveContext, rank, kind int, said vote) {
	v := cs.votingOf(l)
	if v.outBy == none && said.last.number > v.mine.last.number && slices.Contains(said.last.Lost, v.self) {
		cs.leave(e, l, said.last, l.comm.Group.World(rank))
	}
	cs.suspect(e, l, said.lost, l.comm.Group.World(rank))
	if slices.Contains(said.last.Lost, rank) { // it is out: nobody may wait for it
		cs.suspect(e, l, []int{rank}, l.comm.Group.World(rank))
	}
	switch {
	case v.outBy != none && kind != kindDecide:
		cs.say(e, l, rank, kindDecide)
	case v.outBy != none:
	case kind == kindDecide:
		if v.undecided() && said.last.number == v.mine.number && rank == v.leader {
			cs.decide(e, l, said.last)
		}
		return
	case kind == kindVote:
		v.votes[rank] = said
		cs.tellOld(e, l, rank)
	default:
		if rank == v.leader && v.mine.number >= said.number { // it had not begun when the vote came
			cs.say(e, l, rank, kindVote)
		}
	}
	if said.number > v.asked {
		v.asked = said.number
	}
	cs.advance(e, l)
}
