package sim

// A tangle is what the rest of a plan comes to once in many thousand seeds: a call gives its message back while a receive that matches is
// in the device, and things happen before that has answered.

// tangled sets the knobs for it: a list that is slow, or that has little room for operations.
func (g *generator) tangled() {
	q := &g.p.Params
	q.Transport, q.OffloadMin, q.Fabric.Stepped = "tmsrq", -1, true
	q.Tags = pick(g, 1, 2, 7)
	q.MaxEager = pick(g, -1, 64, 256)
	if q.Ranks = pick(g, 2, 3, 3); q.Mux {
		q.Ranks = 4
	}
	g.device(&q.TM)
	q.TM.DelayOps, q.TM.MaxOps, q.RefuseOps = 4+g.rng.IntN(16), pick(g, 0, 0, 2), pick(g, 0, 3)
	g.numbers = pick[uint64](g, 1, 2)
	g.calls = 0.5
}

// tangle plays one, of messages from rank 1, or 2, to rank 0.
func (g *generator) tangle() {
	t := tangler{generator: g, to: 0, from: 1}
	for range 1 + g.rng.IntN(2) {
		t.send(g.chance(0.4))
	}
	for range 3 {
		t.work(t.from, OpPoll, 1)
		t.work(t.from, OpStep, 1)
		t.work(t.to, OpStep, 1)
		t.work(t.to, OpPoll, 1)
	}
	t.recv(true)
	for range 1 + g.rng.IntN(3) {
		t.recv(false)
	}
	for range g.rng.IntN(3) {
		t.work(t.to, pick(g, OpStep, OpStep, OpPoll), 12)
	}
	if g.chance(0.4) {
		t.cancel()
	}
	g.add(Step{Do: OpExpire, Rank: t.to})
	if g.chance(0.2) {
		t.lose()
	}
	for range 2 + g.rng.IntN(9) {
		t.meddle()
	}
}

type tangler struct {
	*generator
	to, from int
}

// source is a rank that sends.
func (t *tangler) source() int {
	if t.p.Params.Ranks > 2 && t.chance(0.4) {
		return 2
	}
	return t.from
}

func (t *tangler) work(rank int, do Op, most int) {
	t.add(Step{Do: do, Rank: rank, N: 1 + t.rng.IntN(most)})
}

func (t *tangler) send(call bool) {
	eager := max(t.p.Params.MaxEager, 0)
	size := eager + pick(t.generator, 1, 120, 1+t.rng.IntN(900))
	if t.chance(0.2) {
		size = t.rng.IntN(eager + 1)
	}
	t.add(Step{Do: pick(t.generator, OpSend, OpSend, OpSsend), Rank: t.source(), Peer: t.to, Tag: t.rng.Uint64N(t.numbers), Call: call, Size: size})
}

func (t *tangler) recv(call bool) {
	t.add(Step{Do: OpRecv, Rank: t.to, Peer: t.source(), Tag: t.rng.Uint64N(t.numbers), Call: call,
		Size: pick(t.generator, 2<<10, 2<<10, 2<<10, 100, 1), Mask: pick(t.generator, masks...)})
}

// cancel cancels receives before the call gives up.
func (t *tangler) cancel() {
	for range 1 + t.rng.IntN(2) {
		t.add(Step{Do: OpCancel, Rank: t.to, N: t.rng.IntN(5)})
	}
	if t.chance(0.5) {
		t.send(false)
	}
}

// lose ends a sender, and often the receiver has acknowledged that before its device answers.
func (t *tangler) lose() {
	t.add(Step{Do: pick(t.generator, OpBreak, OpKill), Rank: t.source(), Peer: t.to})
	t.work(t.to, OpPoll, 2)
	t.add(Step{Do: OpAck, Rank: t.to})
}

// meddle does something meanwhile.
func (t *tangler) meddle() {
	switch t.rng.IntN(11) {
	case 0:
		t.send(t.chance(0.3))
	case 1:
		t.recv(t.chance(0.6))
	case 2:
		t.add(Step{Do: OpExpire, Rank: t.to})
	case 3:
		t.add(Step{Do: OpExpire, Rank: t.from})
	case 4:
		t.add(Step{Do: OpCancel, Rank: t.to, N: t.rng.IntN(5)})
	case 5:
		t.add(Step{Do: OpCancel, Rank: t.from, N: t.rng.IntN(5)})
	case 6, 7:
		t.work(t.to, OpStep, 3)
	case 8:
		t.work(t.to, OpPoll, 1)
	case 9:
		t.work(t.source(), OpStep, 3)
	case 10:
		t.work(t.source(), OpPoll, 1)
	}
}
