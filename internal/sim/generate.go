package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// NewPlan draws a plan. Most are small: what few ranks and steps can show, they show soonest. Each
// plan turns only some of the knobs, so that what one of them does is not always drowned by the
// others.
func NewPlan(seed uint64) *Plan {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 7)), p: &Plan{Seed: seed}}
	g.params()
	g.temper()
	g.steps()
	g.probes(rand.New(rand.NewPCG(seed, 8)))
	g.comms(rand.New(rand.NewPCG(seed, 9)))
	g.meet(rand.New(rand.NewPCG(seed, 10)))
	return g.p
}

type generator struct {
	rng *rand.Rand
	p   *Plan

	// What this plan is like.
	numbers  uint64  // tags to choose from
	raw      float64 // how many tags are the program's
	sends    float64 // how many come before their receives
	large    float64 // of the messages
	short    float64 // of the buffers
	acts     float64 // how many steps are posts
	ahead    float64 // how many of the others are the device's
	cancels  float64
	faults   float64
	thrashes bool    // messages keep coming just before their receives
	cuts     bool    // connections fail in the middle of a message
	favorite int     // rank that most messages go to, -1: none
	calls    float64 // of the posts
	flushes  float64
	aborts   bool
	owed     []Step // the other halves of messages
}

func (g *generator) chance(p float64) bool { return g.rng.Float64() < p }

// knob is 0 in most plans, else 1 to most.
func (g *generator) knob(most int) int {
	if g.chance(0.7) {
		return 0
	}
	return 1 + g.rng.IntN(most)
}

func pick[T any](g *generator, list ...T) T { return list[g.rng.IntN(len(list))] }

func (g *generator) params() {
	q := &g.p.Params
	q.Ranks = pick(g, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5)
	if g.chance(0.04) {
		q.Ranks = 5 + g.rng.IntN(maxRanks-4)
	}
	q.Transport = "tmsrq"
	if g.chance(0.15) {
		q.Transport = "rc"
	}
	q.Mux = g.chance(0.15)
	q.MaxEager = pick(g, -1, 64, 64, 256, 256, 1<<10)
	if g.chance(0.03) {
		q.MaxEager = 8 << 10 // rare: large buffers make a world slow
	}
	q.OffloadMin = pick(g, -1, -1, -1, 40, 300)
	q.UnexpectedLimit = pick[int64](g, 1, 1<<10, 4<<10, 64<<10, 64<<20) // from no credit to enough
	// tmsrq uses at least 48.
	q.SRQDepth = pick(g, 1, 4, 16)
	q.SendDepth = pick(g, 4, 8, 16)
	q.MaxInline = pick(g, 0, 0, 64)
	q.Refuse = g.knob(4)
	q.CloseMid = g.chance(0.05)
	q.Fabric = softtest.FabricOptions{MaxDelay: g.knob(5), MaxBurst: g.knob(3), MaxRefuse: g.knob(3), MaxPayload: pick(g, 512, 1<<10, 4<<10),
		Queue: pick(g, 1, 4, 16, 64), Step: time.Microsecond, Stepped: g.chance(0.7), Direct: g.chance(0.5)}
	if g.thrashes = g.chance(0.015); g.thrashes {
		q.Transport, q.Mux, q.MaxEager, q.OffloadMin, q.UnexpectedLimit = "tmsrq", false, 64, -1, 64<<20
		q.Fabric.MaxDelay, q.Fabric.MaxBurst, q.Fabric.MaxRefuse, q.Fabric.Queue, q.Fabric.Stepped = 0, 0, 0, 64, true
	}
	if g.cuts = !g.thrashes && g.chance(0.02); g.cuts {
		q.Transport, q.MaxEager, q.OffloadMin = "tmsrq", 1<<10, -1
		q.Fabric.MaxPayload, q.Fabric.Queue, q.Fabric.Stepped = 512, pick(g, 1, 1, 4), true
	}
	if q.Transport == "tmsrq" {
		q.Tags = pick(g, 0, 1, 1, 2, 2, 7, 7, 7, 127)
		if g.thrashes {
			q.Tags = 7
		} else if g.cuts {
			q.Tags = pick(g, 2, 7)
		} else if g.chance(0.01) {
			q.Tags = 1023
		}
		q.RefuseOps = g.knob(4)
		g.device(&q.TM)
	}
	q.Vectors = !g.thrashes && !g.cuts && g.p.Seed%5 == 0 // not drawn: the other plans stay as they are
	if g.chance(0.1) {
		q.MaxRead = pick(g, 100, 500, 1<<10)
	}
	if g.chance(0.1) {
		q.SendLimit = pick[int64](g, 100, 1<<10, 4<<10)
	}
}

func (g *generator) device(c *softtest.TM) {
	c.MTU = pick(g, 0, 0, 64, 256)
	c.QuirkSyncReq, c.RecvUnexpected, c.LiveGoDormant = g.chance(0.2), g.chance(0.2), g.chance(0.2)
	c.RNRWhenEmpty, c.TwoIncomplete = g.chance(0.2), g.chance(0.2)
	c.DelayOps, c.DelayData, c.DelayFIN = g.knob(8), g.knob(8), g.knob(8)
	c.RNREvery = g.knob(6)
	if g.chance(0.3) {
		c.InitialCount = uint16(65536 - 1 - g.rng.IntN(12))
	}
	if g.chance(0.3) {
		c.DropSync = pick(g, 1, 1, 2, 5)
	}
	if g.chance(0.2) {
		c.MaxOps = pick(g, 2, 3, 5)
	}
	if g.thrashes {
		g.p.Params.Refuse, g.p.Params.RefuseOps = 0, 0
		c.RNREvery, c.DelayOps, c.MaxOps = 0, 0, 0
	} else if g.chance(0.05) {
		c.KillQPAt = 1 + g.rng.IntN(20)
	}
	if g.cuts && g.chance(0.4) {
		c.KillQPPart = 1 + g.rng.IntN(2)
	} else if g.cuts && g.chance(0.5) {
		c.KillQPAt, c.DelayOps, c.DelayData = 0, 0, 50+g.rng.IntN(100) // a loss is detected late
	}
}

func (g *generator) temper() {
	g.numbers = pick[uint64](g, 1, 2, 3, 8)
	g.raw = pick(g, 0, 0, 0.3, 1)
	g.sends = pick(g, 0.3, 0.5, 0.5, 0.7)
	g.large = pick(g, 0, 0.1, 0.4)
	g.short = pick(g, 0, 0, 0.2)
	g.acts = pick(g, 0.2, 0.4, 0.4, 0.7)
	g.ahead = pick(g, 0.3, 0.5, 0.8)
	g.cancels = pick(g, 0, 0.1, 0.1, 0.4)
	if g.chance(0.15) {
		g.faults = 0.06
	}
	if g.chance(0.4) {
		g.calls, g.flushes = pick(g, 0.1, 0.3, 0.6), pick(g, 0, 0.02, 0.1)
	}
	g.aborts = g.chance(0.02)
	g.favorite = -1
	if g.chance(0.4) {
		g.favorite = g.rng.IntN(g.p.Params.Ranks)
	}
}

// maxPosts keeps what one rank sees small enough for internal/matchmodel.
const maxPosts = 150

func (g *generator) steps() {
	posts := 4 + g.rng.IntN(3*g.p.Params.Ranks+6)
	switch {
	case g.thrashes:
		g.thrash()
	case g.cuts:
		g.cut()
	case g.chance(0.02):
		g.flood()
	case g.chance(0.01):
		g.crowd()
	case g.calls > 0 && g.chance(0.03):
		g.requeue()
	case g.calls > 0 && g.chance(0.15):
		for range 1 + g.rng.IntN(3) {
			g.expire()
		}
	case g.chance(0.05):
		posts = min(4*posts, maxPosts)
	}
	for posts > 0 {
		if g.chance(g.acts) {
			g.post()
			posts--
			continue
		}
		g.schedule()
	}
}

// schedule lets somebody work, or something fail.
func (g *generator) schedule() {
	s := Step{Rank: g.rank(), N: 1}
	if g.chance(0.2) {
		s.N = 1 + g.rng.IntN(12)
	}
	switch {
	case g.chance(g.faults):
		s.Do, s.Peer, s.N = pick(g, OpBreak, OpBreak, OpKill, OpAck), g.rank(), 0
	case g.calls > 0 && g.chance(0.1):
		s.Do, s.N = OpExpire, 0
	case g.chance(g.flushes):
		s.Do, s.N = OpFlush, 0
	case g.aborts && g.chance(0.05):
		s.Do, s.N = OpAbort, 0
	case g.chance(g.cancels):
		s.Do, s.N = OpCancel, g.rng.IntN(8)
	case g.chance(g.ahead):
		s.Do = OpStep
	default:
		s.Do = OpPoll
	}
	g.add(s)
}

func (g *generator) add(s Step) { g.p.Steps = append(g.p.Steps, s) }

func (g *generator) rank() int { return g.rng.IntN(g.p.Params.Ranks) }

// post adds a message's send or receive, and keeps the other half for later.
func (g *generator) post() {
	if n := len(g.owed); n > 0 && g.chance(0.5) {
		i := g.rng.IntN(n)
		g.add(g.owed[i])
		g.owed = slices.Delete(g.owed, i, i+1)
		return
	}
	from, to, tag, raw := g.rank(), g.rank(), g.rng.Uint64N(g.numbers), g.chance(g.raw)
	if g.favorite >= 0 && g.chance(0.7) {
		to = g.favorite
	}
	send := Step{Do: OpSend, Rank: from, Peer: to, Tag: tag, Raw: raw, Size: g.size()}
	if g.chance(0.15) {
		send.Do = OpSsend
	}
	recv := Step{Do: OpRecv, Rank: to, Peer: from, Tag: tag, Raw: raw, Size: pick(g, 1<<10, 2<<10, 2<<10, 2<<10, 20<<10)}
	if g.chance(g.short) {
		recv.Size = g.size()
	}
	recv.Mask = pick(g, MaskExact, MaskExact, MaskExact, MaskSource, MaskNumber, MaskParity, MaskAny)
	send.Call, recv.Call = g.chance(g.calls), g.chance(g.calls)
	if !g.chance(g.sends) {
		send, recv = recv, send
	}
	g.add(send)
	if g.chance(0.8) {
		g.owed = append(g.owed, recv)
	}
}

// size of a message: none, few bytes, around the eager limit, or more.
func (g *generator) size() int {
	eager := max(g.p.Params.MaxEager, 0)
	if g.chance(g.large) {
		return eager + 1 + g.rng.IntN(pick(g, 1<<10, 1<<10, 1<<10, 12<<10))
	}
	return pick(g, 0, g.rng.IntN(16), g.rng.IntN(100), max(eager-g.rng.IntN(3), 0), g.rng.IntN(eager+1))
}

// flood sends a rank more than it has buffers for, while only its device works.
func (g *generator) flood() {
	to := g.rank()
	from, one := g.rank(), g.chance(0.5)
	for range 30 + g.rng.IntN(60) {
		if !one {
			from = g.rank()
		}
		g.add(Step{Do: OpSend, Rank: from, Peer: to, Tag: g.rng.Uint64N(g.numbers), Size: g.size()})
		g.add(Step{Do: OpStep, Rank: from, N: 1})
		g.add(Step{Do: OpPoll, Rank: from, N: 1})
		g.add(Step{Do: OpStep, Rank: to, N: 1 + g.rng.IntN(3)})
	}
}

// crowd lets many messages wait at a rank, and receives of one mask look through all of them in
// vain, until there is an index of that mask. Then it is used, while messages come and go.
func (g *generator) crowd() {
	q := &g.p.Params
	q.UnexpectedLimit, q.SendLimit = 64<<20, 0
	from := g.rank()
	to := g.favorite
	if to < 0 {
		to = g.rank()
	}
	mask := pick(g, MaskNumber, MaskParity)
	tag := func() uint64 { return 2 * g.rng.Uint64N(4) }
	send := func(tag uint64) {
		g.add(Step{Do: OpSend, Rank: from, Peer: to, Tag: tag, Size: g.rng.IntN(16)})
		g.add(Step{Do: OpPoll, Rank: from, N: 2})
		g.add(Step{Do: OpStep, Rank: from, N: 2})
		g.add(Step{Do: OpStep, Rank: to, N: 2})
		g.add(Step{Do: OpPoll, Rank: to, N: 2})
	}
	recv := func(tag uint64, mask Mask) {
		g.add(Step{Do: OpRecv, Rank: to, Peer: from, Tag: tag, Mask: mask, Size: 16})
	}
	for range 40 + g.rng.IntN(20) {
		send(tag())
	}
	for range 16 {
		recv(1, mask)
	}
	for range 20 {
		switch {
		case g.chance(0.3):
			send(tag())
		case g.chance(0.3):
			recv(tag(), MaskExact)
		default:
			recv(tag(), mask)
		}
	}
}

// cut ends a connection while a message of several packets, whose receive is in the device, comes
// over it, or just after.
func (g *generator) cut() {
	from, to, tag := g.rank(), g.rank(), g.rng.Uint64N(g.numbers)
	for range 1 + g.rng.IntN(3) {
		mask := pick(g, MaskExact, MaskExact, MaskSource, MaskAny)
		g.add(Step{Do: OpRecv, Rank: to, Peer: from, Tag: tag, Mask: mask, Size: 2 << 10})
	}
	g.add(Step{Do: OpPoll, Rank: to, N: 1 + g.rng.IntN(2)})
	g.add(Step{Do: OpStep, Rank: to, N: 1 + g.rng.IntN(4)})
	g.add(Step{Do: OpSend, Rank: from, Peer: to, Tag: tag, Size: 700 + g.rng.IntN(1<<10-700)})
	for range 1 + g.rng.IntN(3) {
		g.add(Step{Do: OpStep, Rank: pick(g, from, to), N: 1})
	}
	g.add(Step{Do: OpStep, Rank: to, N: 1})
	if g.p.Params.TM.DelayData >= 50 { // it comes whole, but the device is slow to say so
		for range 3 {
			g.add(Step{Do: OpStep, Rank: from, N: 2})
			g.add(Step{Do: OpStep, Rank: to, N: 2})
		}
		g.add(Step{Do: OpPoll, Rank: to, N: 1})
	}
	switch {
	case g.p.Params.TM.KillQPPart > 0: // its queue pair fails of itself
	case g.chance(0.3):
		g.add(Step{Do: OpKill, Rank: from})
	default:
		g.add(Step{Do: OpBreak, Rank: from, Peer: to})
	}
}

// thrash lets message after message come between the search of the unexpected queue and the
// receive's arrival in the list.
func (g *generator) thrash() {
	from, to := 0, 1
	for range 66 + g.rng.IntN(30) {
		tag := g.rng.Uint64N(g.numbers)
		g.add(Step{Do: OpSend, Rank: from, Peer: to, Tag: tag, Size: 8})
		g.add(Step{Do: OpStep, Rank: from, N: 1})
		g.add(Step{Do: OpPoll, Rank: from, N: 1})
		g.add(Step{Do: OpStep, Rank: to, N: 2})
		g.add(Step{Do: OpRecv, Rank: to, Peer: from, Tag: tag, Size: 1 << 10})
		g.add(Step{Do: OpPoll, Rank: to, N: 1})
	}
	if g.chance(0.7) {
		g.outlast(to, from)
	}
}

// outlast lets a rank post and cancel receives until the device's rest is over, with some among
// them that stay.
func (g *generator) outlast(rank, from int) {
	for i := range restLeast {
		if i > restLeast-40 && g.chance(0.2) {
			g.post()
		}
		g.add(Step{Do: OpRecv, Rank: rank, Peer: from, Tag: g.numbers, Size: 1})
		g.add(Step{Do: OpCancel, Rank: rank})
	}
}
