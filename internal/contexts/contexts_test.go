package contexts

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress"
)

var contextsSeed = flag.Uint64("contexts-seed", 0, "the only seed of TestContextsModel")

// order is a Group.
type order []int

func (o order) Size() int               { return len(o) }
func (o order) World(rank int) int      { return o[rank] }
func (o order) Contains(world int) bool { return slices.Contains(o, world) }

// contextsModel is some ranks' contexts, and what is on its way between them. A message of a
// context that arrives where that context is free, or belongs to a later Comm, is what must not be.
type contextsModel struct {
	t     *testing.T
	rng   *rand.Rand
	ranks []*modelRank
	made  int // Comms

	revoked map[int]bool // by id of a Comm: some rank has called Revoke

	halves []half
}

// modelRank is one rank; it is also what its contexts see of the engine.
type modelRank struct {
	m       *contextsModel
	rank    int
	cs      Contexts
	in      [][]modelItem // by source, in order
	reached []bool
	asked   []int // by Reach
	lost    []bool
	dead    bool
	owes    []byte             // the key of an answer that waits for room
	comms   map[int]*modelComm // by context; the last one
}

// modelComm is a Comm at one of its ranks.
type modelComm struct {
	id                   int
	comm                 *Comm
	opened, closed, idle bool
	dropped              bool // the call that was to make it has failed here
	revoked              bool // as this rank has heard
}

// modelItem is a notice, or else a message of a Comm.
type modelItem struct {
	notice      []byte
	context, id int
}

func (r *modelRank) Notice(dst int, body []byte) {
	r.m.send(r, dst, modelItem{notice: slices.Clone(body)})
}
func (r *modelRank) Answer(dst int, body []byte) bool {
	if key := body[:progress.AnswerKey]; r.owes != nil && bytes.Equal(key, r.owes) {
		return false
	}
	r.Notice(dst, body)
	return true
}
func (r *modelRank) MaxNotice() int        { return 240 }
func (r *modelRank) Reached(rank int) bool { return r.reached[rank] }
func (r *modelRank) Lost(rank int) bool    { return r.lost[rank] }
func (r *modelRank) Reach(rank int)        { r.asked = append(r.asked, rank) }
func (r *modelRank) Bar(uint64, error)     {}
func (r *modelRank) Reuse(uint64)          {}
func (r *modelRank) Forget(int)            {}

func newContextsModel(t *testing.T, seed uint64, n int) *contextsModel {
	m := &contextsModel{t: t, rng: rand.New(rand.NewPCG(seed, 1)), revoked: map[int]bool{}}
	for i := range n {
		r := &modelRank{m: m, rank: i, in: make([][]modelItem, n), reached: make([]bool, n), lost: make([]bool, n), comms: map[int]*modelComm{}}
		r.cs.Init(i, n)
		m.ranks = append(m.ranks, r)
	}
	return m
}

func (m *contextsModel) send(from *modelRank, to int, item modelItem) {
	if d := m.ranks[to]; !from.lost[to] && !d.dead && !d.lost[from.rank] {
		d.in[from.rank] = append(d.in[from.rank], item)
	}
}

// create makes a Comm of some ranks in one of a few contexts that is free on all of them. Each
// opens it when it comes to that.
func (m *contextsModel) create() {
	context := 1 + m.rng.IntN(3)
	members := m.rng.Perm(len(m.ranks))[:1+m.rng.IntN(len(m.ranks))]
	for _, r := range members {
		if free := m.ranks[r].cs.free; free[0]>>context&1 == 0 || m.ranks[r].dead {
			return
		}
	}
	m.made++
	for _, world := range members {
		r := m.ranks[world]
		r.cs.free.set(context, false)
		c := &modelComm{id: m.made}
		c.comm = &Comm{Context: context, ID: uint64(m.made) << 31, Group: order(members), Revoked: m.hears(r, c)}
		r.comms[context] = c
	}
}

// hears has a rank hear that a Comm is revoked: once, while it has it, and where somebody has.
func (m *contextsModel) hears(r *modelRank, c *modelComm) func(by int, reason string) error {
	return func(by int, reason string) error {
		require.True(m.t, m.revoked[c.id], "rank %d hears that Comm %d is revoked", r.rank, c.id)
		require.False(m.t, c.revoked)
		require.True(m.t, c.opened)
		require.Equal(m.t, fmt.Sprint(c.id, by), reason)
		require.Same(m.t, c, r.comms[c.comm.Context])
		c.revoked = true
		return nil
	}
}

// step lets a rank do something, or something arrive.
func (m *contextsModel) step(losses bool) {
	r := m.ranks[m.rng.IntN(len(m.ranks))]
	if r.dead {
		return
	}
	context := 1 + m.rng.IntN(3)
	c := r.comms[context]
	other := m.ranks[m.rng.IntN(len(m.ranks))]
	switch k := m.rng.IntN(1000); {
	case k < 100:
		m.create()
	case k < 500:
		m.deliver(r, other.rank)
	case k > 900 && len(m.halves) > 0 && k < 910:
		m.hearLosses()
	case losses && k > 997:
		m.lose(r, other, m.rng.IntN(3) == 0)
	case k > 980 && other.dead:
		m.gone(r, other.rank)
	case c == nil:
	case c.opened && !c.dropped && k < 520:
		m.revoked[c.id] = true
		r.cs.Revoke(r, c.comm, fmt.Sprint(c.id, r.rank))
	case !c.opened && k < 550:
		c.opened, c.closed, c.dropped = true, true, true
		r.cs.Drop(r, c.comm)
	case !c.opened:
		c.opened = true
		r.cs.Open(r, c.comm)
	case k < 800 && !c.dropped:
		if to := c.comm.Group.World(m.rng.IntN(c.comm.Group.Size())); !c.idle { // what was begun before Close too
			r.reached[to] = true
			m.send(r, to, modelItem{context: context, id: c.id})
		}
	case !c.closed:
		c.closed = true
		r.cs.Close(r, c.comm, false)
	case !c.idle:
		c.idle = true
		r.cs.Idle(r, Base(context))
	}
}

// deliver has the next item of a rank arrive.
func (m *contextsModel) deliver(r *modelRank, src int) {
	if len(r.in[src]) == 0 {
		return
	}
	item := r.in[src][0]
	r.in[src] = r.in[src][1:]
	if item.notice != nil {
		require.NoError(m.t, r.cs.Notice(r, src, item.notice))
		return
	}
	c := r.comms[item.context]
	require.NotNil(m.t, c)
	require.Equal(m.t, c.id, item.id, "rank %d gets a message of Comm %d in context %d, which is that of Comm %d now", r.rank, item.id, item.context, c.id)
	require.Zero(m.t, r.cs.free[0]>>item.context&1, "rank %d gets a message in context %d, which is free", r.rank, item.context)
}

// lose has two ranks lose each other, or b die, of which the others hear sooner or later.
func (m *contextsModel) lose(a, b *modelRank, dies bool) {
	switch {
	case a == b:
	case dies:
		b.dead = true
		m.gone(a, b.rank)
	default:
		m.gone(a, b.rank)
		m.halves = append(m.halves, half{b, a.rank})
	}
}

// half is a rank that another one has lost and that has not lost that one yet.
type half struct {
	r  *modelRank
	of int
}

// hearLosses has ranks lose those that have lost them.
func (m *contextsModel) hearLosses() {
	for _, h := range m.halves {
		if !h.r.dead {
			m.gone(h.r, h.of)
		}
	}
	m.halves = nil
}

func (m *contextsModel) gone(r *modelRank, rank int) {
	if !r.lost[rank] {
		r.lost[rank] = true
		r.in[rank] = nil
		r.cs.Gone(r, rank)
	}
}

// finish has all ranks close what they have, and everything arrive. All contexts are free then
// where nobody was lost.
func (m *contextsModel) finish(losses bool) {
	m.hearLosses()
	for _, r := range m.ranks {
		if r.dead {
			for _, other := range m.ranks {
				if !other.dead {
					m.gone(other, r.rank)
				}
			}
			continue
		}
		for _, c := range r.comms {
			if !c.opened {
				c.opened = true
				r.cs.Open(r, c.comm)
			}
		}
	}
	m.deliverAll()
	m.allHaveHeard()
	for _, r := range m.ranks {
		if r.dead {
			continue
		}
		for context, c := range r.comms {
			if !c.closed {
				c.closed = true
				r.cs.Close(r, c.comm, false)
			}
			if !c.idle {
				c.idle = true
				r.cs.Idle(r, Base(context))
			}
		}
	}
	m.deliverAll()
	for _, r := range m.ranks {
		for context, c := range r.comms {
			if r.dead || losses && m.apart(c.comm) {
				continue
			}
			require.NotZero(m.t, r.cs.free[0]>>context&1, "rank %d: context %d is not free at the end: %+v", r.rank, context, r.cs.live[context])
			if !losses {
				require.Empty(m.t, r.cs.live)
				require.Empty(m.t, r.cs.closers)
			}
		}
	}
}

func (m *contextsModel) deliverAll() {
	for range 1000 {
		for _, r := range m.ranks {
			for src := range m.ranks {
				if !r.dead {
					m.deliver(r, src)
				}
			}
		}
	}
}

// allHaveHeard requires that of the ranks of a Comm that live, and have not all closed it, all have
// heard that it is revoked, or none.
func (m *contextsModel) allHaveHeard() {
	for _, r := range m.ranks {
		for context, c := range r.comms {
			if r.dead || !c.revoked || m.torn() {
				continue
			}
			for _, world := range c.comm.Group.(order) {
				o := m.ranks[world]
				if k := o.comms[context]; !o.dead && k.id == c.id && !o.cs.free.has(context) {
					require.True(m.t, k.revoked, "Comm %d %v: rank %d has heard that it is revoked, and rank %d not", c.id, c.comm.Group, r.rank, world)
				}
			}
		}
	}
}

// apart reports whether the first rank of a Comm is lost, or two ranks that live have lost each
// other: then its context may be kept from being used again.
func (m *contextsModel) apart(c *Comm) bool { return m.ranks[c.Group.World(0)].dead || m.torn() }

// torn reports whether two ranks that live have lost each other.
func (m *contextsModel) torn() bool {
	for _, r := range m.ranks {
		if !r.dead && slices.ContainsFunc(m.ranks, func(o *modelRank) bool { return r.lost[o.rank] && !o.dead }) {
			return true
		}
	}
	return false
}

// TestContextsModel plays the end of contexts in random order: Comms are made of free contexts,
// used, revoked and closed, ranks die, and pairs of ranks lose each other.
func TestContextsModel(t *testing.T) {
	first, seeds := uint64(1), uint64(1000)
	if *contextsSeed != 0 {
		first, seeds = *contextsSeed, 1
	}
	made := 0
	for seed := first; seed < first+seeds; seed++ {
		ok := t.Run(fmt.Sprintf("-contexts-seed=%d", seed), func(t *testing.T) {
			m := newContextsModel(t, seed, 2+int(seed%4))
			losses := seed%3 == 0
			for range 1500 {
				m.step(losses)
			}
			m.finish(losses)
			made += m.made
		})
		if !ok {
			return
		}
	}
	if *contextsSeed == 0 {
		require.Greater(t, made, 15*int(seeds), "Comms that were made") // contexts are used again and again
	}
}

// A call on a Comm hears once that a member is lost, and of nobody else; one that begins after that
// is told so. It connects to the members where nobody else tells of them.
func TestLossesOfCalls(t *testing.T) {
	r := newContextsModel(t, 1, 5).ranks[0]
	c, heard := &Comm{Context: World, Group: order{3, 0, 2}}, 0
	begin := func(c *Comm) bool { return r.cs.Begin(r, c, 0, func() { heard++ }, func() {}) }
	require.True(t, begin(c))
	require.Equal(t, []int{3, 0, 2}, r.asked)
	r.cs.ReachAwaited(r)
	require.Equal(t, []int{3, 0, 2, 3, 0, 2}, r.asked)
	r.m.gone(r, 1)
	require.Zero(t, heard)
	r.m.gone(r, 2)
	r.m.gone(r, 3)
	require.Equal(t, 1, heard)
	r.cs.End(c)
	require.False(t, begin(c))
	r.cs.End(c)
	other := &Comm{Context: 7, Group: order{4, 0}}
	require.True(t, begin(other))
	r.cs.End(other)
	r.m.gone(r, 4)
	r.cs.ReachAwaited(r)
	require.Equal(t, 1, heard)
	require.Len(t, r.asked, 8)
}

// A rank closes a Comm after it has lost another one, to which a message of it is still on the way:
// the context is not free there before that can come no more.
func TestClosedAfterOneSidedLoss(t *testing.T) {
	const context = 1
	m := newContextsModel(t, 1, 3)
	c := &Comm{Context: context, Group: order{2, 1, 0}}
	for _, r := range m.ranks {
		r.comms[context] = &modelComm{id: 1, comm: c, opened: true, closed: true, idle: true}
		r.cs.free.set(context, false)
		r.cs.Open(r, c)
	}
	sender, receiver, first := m.ranks[0], m.ranks[1], m.ranks[2]
	sender.reached[1] = true
	m.send(sender, 1, modelItem{context: context, id: 1})
	m.gone(sender, 1)
	for _, r := range m.ranks {
		r.cs.Close(r, c, false)
		r.cs.Idle(r, Base(context))
	}
	others := func() {
		for range 10 {
			m.deliver(receiver, 2)
			m.deliver(first, 0)
			m.deliver(first, 1)
		}
	}
	others()
	require.Contains(t, receiver.cs.live, context, "the first rank hears of both")
	m.gone(first, 0)
	others()
	require.Contains(t, receiver.cs.live, context, "the sender is lost to the first rank, not to the receiver")
	m.deliver(receiver, 0)
	m.gone(receiver, 0)
	for _, r := range []*modelRank{receiver, first} {
		require.NotContains(t, r.cs.live, context)
	}
}

func TestNoticeErrors(t *testing.T) {
	for text, body := range map[string][]byte{
		"3 bytes": {1, 0, 0}, "6 bytes": make([]byte, 6), "context 0": notice(noticeFlush, 0),
		"context 2047": notice(noticeFlush, 2047),
		"kind 2 of context 5, which is not at that stage":  notice(noticeFlushed, 5),
		"kind 4 of context 5, which is not at that stage":  notice(noticeFree, 5),
		"kind 10 of context 1, which is not at that stage": notice(10, 1),
	} {
		r := newContextsModel(t, 1, 2).ranks[0]
		require.EqualError(t, r.cs.Notice(r, 1, body), text)
	}
	r := newContextsModel(t, 1, 2).ranks[0]
	require.NoError(t, r.cs.Notice(r, 1, notice(noticeClosed, 5)))
	require.EqualError(t, r.cs.Notice(r, 1, notice(noticeClosed, 5)), "context 5 is closed twice")
	c := &Comm{Context: 7, Group: order{0, 1}}
	r.cs.live[7] = &liveContext{comm: c, root: 1, stage: told, waitFor: map[int]struct{}{}}
	require.EqualError(t, r.cs.Notice(r, 1, notice(noticeFree, 7, 2)), "rank 2 of 2")
}

// Of collective calls only members of a Comm may speak, as long as its context is not free, so that
// what others say is not kept without bound. And nobody asks again before he was answered.
func TestNoticesOfCallsAreBounded(t *testing.T) {
	r := newContextsModel(t, 1, 3).ranks[0]
	r.cs.Open(r, &Comm{Context: 7, Group: order{0, 1}})
	r.cs.free.set(7, false)
	ask := func(context int) []byte { return notice(noticeAsk, context) }
	found := func(context int) []byte { return notice(noticeFound, context, 1, 0, 2|int(Absent)<<absenceShift) }
	for _, about := range []func(context int) []byte{ask, found} {
		for range 2 {
			require.NoError(t, r.cs.Notice(r, 1, about(World)))
			require.NoError(t, r.cs.Notice(r, 1, about(7)))
		}
		require.EqualError(t, r.cs.Notice(r, 2, about(7)), "collective calls on context 7, which is not one of rank 2")
		require.EqualError(t, r.cs.Notice(r, 1, about(8)), "collective calls on context 8, which is not one of rank 1")
	}
	require.Len(t, r.cs.begun, 2)
	require.NoError(t, r.cs.Notice(r, 1, notice(noticeBegun, 7, 1, 0, 0)))
	require.ErrorIs(t, r.cs.Notice(r, 1, notice(noticeBegun, 7, 1, 0, 2)), errAnswer, "rank 2 is not of that Comm")
	r.cs.free.set(9, false) // Take has given it, and other ranks have their Comm already
	require.NoError(t, r.cs.Notice(r, 2, found(9)))

	r.owes = notice(noticeBegun, 7)
	require.EqualError(t, r.cs.Notice(r, 1, ask(7)), "kind 6 is due for what was asked before")
	require.NoError(t, r.cs.Notice(r, 1, ask(World)))
	r.owes = notice(noticeFlushed, 7)
	require.EqualError(t, r.cs.Notice(r, 1, notice(noticeFlush, 7)), "kind 2 is due for what was asked before")
}
