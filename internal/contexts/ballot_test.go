package contexts

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

var largest = flag.Bool("largest", false, "TestBallotsExhaustively plays its largest case too")

func TestMain(m *testing.M) {
	testlevel.MuchGarbage()
	os.Exit(m.Run())
}

// ballots is some ranks that take part in ballots of one Comm.
type ballots struct {
	m        *contextsModel
	comms    []*Comm
	suspects [][]int // by rank: who is to be lost there
	called   []int   // how many ballots each rank has begun
	waits    []bool  // for the last of them
	decided  []map[uint32]Decision
	context  int
	deaths   int // that may still happen, as those below
	giveUps  int
	closes   int
	splits   int  // losses of ranks that live: who is lost to a rank loses that in its turn
	torn     bool // they may decide otherwise then, though they have lost nobody of each other
}

// newBallots makes a Comm whose order is not that of the World.
func newBallots(t *testing.T, n, deaths int) *ballots {
	b := newMeeting(t, n, deaths)
	b.context = 5
	for _, r := range b.m.ranks {
		b.comms[r.rank].Context = 5
		r.cs.free.set(5, false)
		r.cs.Open(r, b.comms[r.rank])
	}
	return b
}

// newMeeting has ranks that open the Comm with their first ballot.
func newMeeting(t *testing.T, n, deaths int) *ballots {
	b := &ballots{context: Meeting(9), m: newContextsModel(t, 1, n), suspects: make([][]int, n), called: make([]int, n), waits: make([]bool, n), deaths: deaths}
	var members order
	for i := range n {
		members = append(members, (i+1)%n)
	}
	for _, r := range b.m.ranks {
		c := &Comm{Context: b.context, ID: 9, Group: members, Suspect: func(world, _ int) { b.suspects[r.rank] = append(b.suspects[r.rank], world) }}
		b.decided = append(b.decided, map[uint32]Decision{})
		b.comms = append(b.comms, c)
	}
	return b
}

// live is the Comm at a rank, which may have none yet.
func (b *ballots) live(r *modelRank) *liveContext {
	if l := r.cs.live[b.context]; l != nil {
		return l
	}
	return &liveContext{}
}

// choices is what may happen next: functions that do it.
func (b *ballots) choices(most int) (list []func()) {
	for _, r := range b.m.ranks {
		if r.dead {
			continue
		}
		open := b.live(r).stage == inUse
		if b.called[r.rank] < most && !b.waits[r.rank] && open {
			list = append(list, func() { b.call(r) })
		}
		if b.waits[r.rank] && b.giveUps > 0 {
			list = append(list, func() { b.giveUp(r) })
		}
		if b.closes > 0 && !b.waits[r.rank] && open {
			list = append(list, func() {
				b.closes--
				r.cs.Close(r, b.comms[r.rank], true)
			})
		}
		if b.deaths > 0 {
			list = append(list, func() { r.dead, b.deaths = true, b.deaths-1 })
		}
		for _, src := range b.m.ranks {
			if b.splits > 0 && src != r && !src.dead && !r.lost[src.rank] {
				list = append(list, func() {
					b.splits--
					b.m.gone(r, src.rank)
				})
			}
			if len(r.in[src.rank]) != 0 {
				list = append(list, func() { b.m.deliver(r, src.rank) })
			}
			if (src.dead || src.lost[r.rank]) && !r.lost[src.rank] {
				list = append(list, func() { b.m.gone(r, src.rank) })
			}
		}
		for _, world := range b.suspects[r.rank] {
			if !r.lost[world] {
				list = append(list, func() { b.m.gone(r, world) })
			}
		}
	}
	return list
}

func (b *ballots) call(r *modelRank) {
	b.called[r.rank]++
	b.waits[r.rank] = true
	r.cs.Meet(r, b.comms[r.rank])
	r.cs.Vote(r, b.comms[r.rank], Ballot{Value: int64(10 - r.rank)}, func() {
		b.waits[r.rank] = false
		if v := b.live(r).voting; v.outBy == none {
			b.decided[r.rank][v.mine.last.number] = v.mine.last
		}
	})
}

func (b *ballots) giveUp(r *modelRank) {
	b.giveUps--
	b.waits[r.rank] = false
	require.True(b.m.t, r.cs.GiveUp(r, b.comms[r.rank]))
	require.False(b.m.t, r.cs.GiveUp(r, b.comms[r.rank]))
}

// key is all that decides what can happen.
func (b *ballots) key() string {
	var s strings.Builder
	for _, r := range b.m.ranks {
		fmt.Fprint(&s, r.dead, r.lost, b.called[r.rank], b.waits[r.rank], b.decided[r.rank], b.suspects[r.rank], r.in)
		if v := b.live(r).voting; v != nil {
			fmt.Fprint(&s, v.mine.number, v.outBy, v.leader, v.asked, len(v.suspected))
			for i := range b.m.ranks {
				fmt.Fprint(&s, v.votes[i].number, v.votes[i].lost, v.votes[i].last)
			}
		}
	}
	return s.String()
}

// check requires that those who live decide the same, but where they have lost each other, and, at
// the end, that they decide what all have called. It calls package require where that fails alone:
// each call looks at the stack.
func (b *ballots) check(end bool) {
	for _, r := range b.m.ranks {
		if r.dead || r.cs.live[b.context] == nil {
			continue
		}
		v := r.cs.votingOf(b.live(r))
		for number, d := range b.decided[r.rank] {
			if slices.Contains(d.Lost, v.self) {
				require.NotContains(b.m.t, d.Lost, v.self)
			}
			least := int64(1 << 40)
			for rank, world := range b.comms[0].Group.(order) {
				if slices.Contains(d.Lost, rank) {
					continue
				}
				least = min(least, int64(10-world))
				other, decided := b.decided[world][number]
				if o := b.m.ranks[world]; decided && !o.dead && !b.torn && !b.apart(r, o) && !b.apart(o, r) && !reflect.DeepEqual(other, d) {
					require.Equal(b.m.t, other, d, "rank %d decides otherwise than rank %d", r.rank, world)
				}
			}
			if d.FailedBy == none && d.Value != least {
				require.Equal(b.m.t, least, d.Value)
			}
		}
		if end && b.waits[r.rank] {
			require.True(b.m.t, b.waitsForCall(r, v.mine.number), "rank %d waits for ever:\n%s", r.rank, b.key())
		}
	}
}

// apart reports whether a rank is lost to r, or will be.
func (b *ballots) apart(r, o *modelRank) bool {
	return r.lost[o.rank] || slices.Contains(b.suspects[r.rank], o.rank)
}

// waitsForCall reports whether a rank that is not lost to r has still to come to that ballot.
func (b *ballots) waitsForCall(r *modelRank, number uint32) bool {
	return slices.ContainsFunc(b.m.ranks, func(o *modelRank) bool {
		l := b.live(o)
		switch {
		case r.lost[o.rank] || l.stage != inUse:
			return false
		case l.voting == nil:
			return true
		}
		return l.voting.outBy == none && l.voting.mine.number < number
	})
}

// All orders in which three or four ranks call, hear and die: those that live decide the same.
func TestBallotsExhaustively(t *testing.T) {
	small := []ballotsSize{{2, 1, 0, newBallots}, {3, 1, 0, newBallots}, {3, 1, 0, newMeeting}, {2, 0, 1, newBallots}, {3, 0, 1, newBallots}}
	if testlevel.CI() {
		small = append(small, ballotsSize{3, 2, 0, newMeeting}, ballotsSize{3, 2, 0, newBallots}, ballotsSize{3, 1, 1, newBallots})
	}
	if *largest {
		small = append(small, ballotsSize{4, 1, 0, newBallots})
	}
	for _, size := range small {
		t.Run(fmt.Sprint(size.n, size.deaths, size.splits), size.explore)
	}
}

// ballotsSize is ballots of so many ranks, and what may happen.
type ballotsSize struct {
	n, deaths, splits int
	make              func(t *testing.T, n, deaths int) *ballots
}

// explore plays all orders. What has happened is the places, in choices, of what was chosen.
func (size ballotsSize) explore(t *testing.T) {
	seen := map[uint64]struct{}{}
	next := [][]uint8{nil}
	for len(next) != 0 {
		path := next[len(next)-1]
		next = next[:len(next)-1]
		b := size.make(t, size.n, size.deaths)
		b.splits = size.splits
		for _, i := range path {
			b.choices(1)[i]()
		}
		for { // it goes on with the first choice; the others are for later
			key := hash(b.key())
			if _, ok := seen[key]; ok {
				break
			}
			seen[key] = struct{}{}
			list := b.choices(1)
			b.check(len(list) == 0 || len(list) == b.onlyDeaths())
			if len(list) == 0 {
				break
			}
			for i := range list[1:] {
				next = append(next, append(slices.Clone(path), uint8(i+1)))
			}
			list[0]()
			path = append(path, 0)
		}
	}
	t.Logf("%d states", len(seen))
}

// onlyDeaths is how many choices there are where nothing else can happen than that ranks die, give
// up or close the Comm.
func (b *ballots) onlyDeaths() int {
	n := 0
	for _, r := range b.m.ranks {
		switch {
		case r.dead:
		default:
			n += bit(b.deaths > 0)
			for _, src := range b.m.ranks {
				n += bit(b.splits > 0 && src != r && !src.dead && !r.lost[src.rank])
			}
			if b.waits[r.rank] && b.giveUps > 0 {
				n++
			}
			if !b.waits[r.rank] && b.closes > 0 && b.live(r).stage == inUse {
				n++
			}
		}
	}
	return n
}

func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// Several ballots of more ranks, in random order. Some give up, or close the Comm.
func TestBallotsRandomly(t *testing.T) {
	seeds := uint64(1000)
	if testlevel.CI() {
		seeds = 10_000
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 2))
		n := 2 + rng.IntN(7)
		make := newBallots
		if seed%4 >= 2 {
			make = newMeeting
		}
		b := make(t, n, rng.IntN(n))
		if seed%2 == 1 {
			b.giveUps, b.closes = rng.IntN(3), rng.IntN(2)*bit(seed%4 == 1)
		}
		if seed%8 >= 4 {
			b.splits, b.torn = rng.IntN(3), n > 3
		}
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			b.m.t = t
			for {
				list := b.choices(4)
				if len(list) == 0 || len(list) == b.onlyDeaths() {
					break
				}
				list[rng.IntN(len(list))]()
				b.check(false)
			}
			b.check(true)
		})
		if !ok {
			return
		}
	}
}

// A rank that one other has lost, and that lives, is lost to all before they decide.
func TestBallotOfOneSidedLoss(t *testing.T) {
	b := newBallots(t, 4, 0)
	b.m.gone(b.m.ranks[3], 0)
	for _, r := range b.m.ranks[1:] {
		b.call(r)
	}
	b.call(b.m.ranks[0])
	b.m.deliverAll()
	require.True(t, b.waits[1])
	require.Equal(t, []int{0}, b.suspects[1])
	b.m.gone(b.m.ranks[1], 0)
	b.m.deliverAll()
	require.Equal(t, []int{0}, b.suspects[2])
	for _, rank := range []int{1, 2, 3} {
		require.Equal(t, []int{3}, b.decided[rank][1].Lost)
		require.EqualValues(t, 7, b.decided[rank][1].Value)
	}
}

// A rank that lives is lost to the leader, which decides without it and dies. The next leader has
// that decision, and tells it: the rank is out, of later ballots too.
func TestBallotLeftOut(t *testing.T) {
	b := newBallots(t, 3, 0)
	leader, next, out := b.m.ranks[1], b.m.ranks[2], b.m.ranks[0]
	b.m.gone(leader, 0)
	for _, r := range b.m.ranks {
		b.call(r)
	}
	b.m.deliver(leader, 2)
	b.m.deliver(next, 1) // ASK
	b.m.deliver(next, 1) // DECIDE
	require.Equal(t, []int{2}, b.decided[2][1].Lost)
	leader.dead = true
	b.m.gone(out, 1)
	b.m.deliverAll()
	require.False(t, b.waits[0])
	require.Empty(t, b.decided[0])
	require.Equal(t, 2, out.cs.LeftOutBy(b.comms[0]))
	require.Equal(t, none, next.cs.LeftOutBy(b.comms[2]))
	b.call(out)
	require.False(t, b.waits[0])
	require.False(t, out.cs.GiveUp(out, b.comms[0]))
}

// Votes that come before their leader has come to the meeting are not kept: it asks for them. Who
// waits in another meeting is known, until this rank comes to that too.
func TestMeetingAsksForVotes(t *testing.T) {
	b := newMeeting(t, 3, 0)
	other := &Comm{Context: Meeting(77), ID: 77, Group: order{0, 1}}
	for _, rank := range []int{0, 2} { // the leader is 1
		b.call(b.m.ranks[rank])
	}
	r := b.m.ranks[1]
	b.m.deliverAll()
	require.Equal(t, 2, r.cs.Elsewhere(&Comm{Group: order{2}}))
	require.Equal(t, none, r.cs.Elsewhere(&Comm{Group: order{1}}))
	r.cs.Meet(r, other)
	require.Equal(t, 0, r.cs.Elsewhere(&Comm{Group: order{0}}))
	b.call(r)
	require.Equal(t, none, r.cs.Elsewhere(&Comm{Group: order{0, 1, 2}}))
	b.m.deliverAll()
	require.Equal(t, []bool{false, false, false}, b.waits)
	b.check(true)
}

// What is no vote is an error, and so is what is too long or of a rank from outside.
func TestBallotNotices(t *testing.T) {
	b := newBallots(t, 3, 0)
	r := b.m.ranks[0]
	say := func(more byte, words ...int) error {
		body := notice(noticeBallot, 5, words...)
		body[1] = more
		return r.cs.Notice(r, 1, body)
	}
	require.ErrorIs(t, say(0), errBallot)
	require.NoError(t, say(0, 8, 0), "of another Comm")
	require.ErrorIs(t, say(0, 9, 0, kindVote), errBallot)
	var err error
	for range 100 {
		if err = say(1, make([]int, 50)...); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "of a ballot")
	whole := binary.LittleEndian.AppendUint64(nil, 9)
	outside := newContextsModel(t, 1, 4).ranks[0]
	outside.cs.Open(outside, &Comm{Context: 5, ID: 9, Group: order{0, 1, 2}})
	require.EqualError(t, outside.cs.ballotSaid(outside, 5, 3, whole), "ballots of context 5, which is not one of rank 3")
}
