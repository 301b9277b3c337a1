package sim

// expire ends the contexts of calls while large messages are in flight, with others before and
// behind them.
func (g *generator) expire() {
	from, to, tag := g.rank(), g.rank(), g.rng.Uint64N(g.numbers)
	send := Step{Do: OpSend, Rank: from, Peer: to, Tag: tag, Call: g.chance(0.4), Size: max(g.p.Params.MaxEager, 0) + 1 + g.rng.IntN(1<<10)}
	recv := Step{Do: OpRecv, Rank: to, Peer: from, Tag: tag, Call: g.chance(0.8), Size: pick(g, 1, 2<<10, 2<<10)}
	posts := []Step{send, recv}
	for range g.rng.IntN(4) {
		posts = append(posts, g.more(send, recv))
	}
	g.rng.Shuffle(len(posts), func(i, j int) { posts[i], posts[j] = posts[j], posts[i] })
	for _, s := range posts {
		g.add(s)
		for range g.rng.IntN(4) {
			g.add(Step{Do: pick(g, OpStep, OpPoll, OpPoll), Rank: pick(g, from, to), N: 1})
		}
	}
	for range 1 + g.rng.IntN(4) {
		g.add(Step{Do: OpExpire, Rank: pick(g, from, to)})
		if g.chance(0.3) {
			g.add(Step{Do: OpPoll, Rank: pick(g, from, to), N: 1})
		}
	}
	if g.chance(0.5) {
		recv.Call = false
		g.add(recv)
	}
}

// more is another message or receive that may match one of those two.
func (g *generator) more(send, recv Step) Step {
	if s := send; g.chance(0.35) {
		s.Call, s.Size = false, g.size()
		return s
	}
	recv.Call, recv.Mask = false, pick(g, MaskExact, MaskSource, MaskParity, MaskAny)
	return recv
}

// requeue lets a rank's calls receive large messages of one source, the latest first, and cancels
// all of them.
func (g *generator) requeue() {
	from, to := g.rank(), g.rank()
	n := 2 + g.rng.Uint64N(2)
	for tag := range n {
		g.add(Step{Do: OpSend, Rank: from, Peer: to, Tag: tag, Size: max(g.p.Params.MaxEager, 0) + 1 + g.rng.IntN(1<<10)})
	}
	for range 4 + g.rng.IntN(8) {
		g.add(Step{Do: pick(g, OpStep, OpPoll), Rank: pick(g, from, to), N: 1})
	}
	for tag := range n {
		g.add(Step{Do: OpRecv, Rank: to, Peer: from, Tag: n - 1 - tag, Call: true, Size: 2 << 10})
		g.add(Step{Do: OpExpire, Rank: to})
	}
	g.add(Step{Do: OpRecv, Rank: to, Peer: from, Mask: pick(g, MaskSource, MaskAny), Size: 2 << 10})
}
