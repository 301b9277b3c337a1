package diagnose

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// statesMost bounds a search: of a world with more that can happen, walks at random are sampled.
const statesMost = 2000

// program makes the programs of 2 to 5 ranks at random: with what they do in common in the same
// order on all, so that most of them can end, and then with a few mistakes.
func program(rnd *rand.Rand, mistakes int) [][][]step {
	n := 2 + rnd.IntN(4)
	ps := make([][][]step, n)
	for r := range ps {
		ps[r] = [][]step{nil}
	}
	add := func(r int, s ...step) { ps[r][0] = append(ps[r][0], s...) }
	for range 1 + rnd.IntN(7) {
		switch rnd.IntN(9) {
		case 0:
			add(rnd.IntN(n), step{kind: doCompute, parked: rnd.IntN(2) == 0})
		case 1:
			for r := range n {
				add(r, step{kind: doBarrier})
			}
		case 2:
			for r := range n {
				add(r, step{kind: doScan})
			}
		case 3:
			burst(rnd, ps)
		default:
			transfer(rnd, ps)
		}
	}
	for r := range ps {
		if rnd.IntN(4) != 0 {
			add(r, step{kind: doWaitAll})
		}
		add(r, step{kind: doJoin}, step{kind: doShutdown})
	}
	for range mistakes {
		mistake(rnd, ps)
	}
	return ps
}

// burst is more messages than the receiver has room for, which it receives in another order;
// perhaps not all of them.
func burst(rnd *rand.Rand, ps [][][]step) {
	from, to := rnd.IntN(len(ps)), rnd.IntN(len(ps))
	n := 3 + rnd.IntN(3)
	for range n {
		s := step{kind: doSend, peer: to, tag: rnd.IntN(2), large: rnd.IntN(8) == 0}
		if from == to || rnd.IntN(3) == 0 {
			s.kind = doIsend
		}
		ps[from][0] = append(ps[from][0], s)
	}
	sent := ps[from][0][len(ps[from][0])-n:]
	for _, k := range rnd.Perm(n)[rnd.IntN(2):] {
		r := step{kind: doRecv, peer: from, tag: sent[k].tag, timed: rnd.IntN(4) == 0}
		if rnd.IntN(4) == 0 {
			r.kind, r.timed = doIrecv, false
		}
		if rnd.IntN(4) == 0 {
			r.peer = inspect.Any
		}
		ps[to][0] = append(ps[to][0], r)
	}
}

// transfer is a message, or several, between two ranks. Another thread of the sender may send it.
func transfer(rnd *rand.Rand, ps [][][]step) {
	from, to := rnd.IntN(len(ps)), rnd.IntN(len(ps))
	s := step{kind: doSend, peer: to, tag: rnd.IntN(3), other: rnd.IntN(4) == 0, large: rnd.IntN(3) == 0}
	if from == to || rnd.IntN(3) == 0 {
		s.kind = doIsend
	}
	r := step{kind: doRecv, peer: from, tag: s.tag, other: s.other, timed: rnd.IntN(8) == 0}
	if rnd.IntN(4) == 0 {
		r.kind, r.timed = doIrecv, false
	}
	if rnd.IntN(5) == 0 {
		r.peer = inspect.Any
	}
	if rnd.IntN(6) == 0 {
		r.tag = anyTag
	}
	sends := &ps[from][0]
	if rnd.IntN(6) == 0 {
		s.kind = doSend
		ps[from] = append(ps[from], []step{{kind: doCompute, parked: rnd.IntN(3) != 0}})
		sends = &ps[from][len(ps[from])-1]
	}
	for range 1 + rnd.IntN(6)*rnd.IntN(2) {
		*sends = append(*sends, s)
		ps[to][0] = append(ps[to][0], r)
	}
}

// mistake changes a step.
func mistake(rnd *rand.Rand, ps [][][]step) {
	r := rnd.IntN(len(ps))
	steps := ps[r][0]
	i := rnd.IntN(len(steps))
	s := &steps[i]
	switch rnd.IntN(7) {
	case 0:
		s.tag++
	case 1:
		s.peer = rnd.IntN(len(ps))
	case 2:
		s.other = !s.other
	case 3:
		ps[r][0] = slices.Delete(steps, i, i+1)
	case 4:
		*s = step{kind: doSpin}
	case 5:
		*s = step{kind: doExit}
	case 6:
		k := rnd.IntN(len(steps))
		steps[i], steps[k] = steps[k], steps[i]
	}
	if len(ps[r][0]) == 0 {
		ps[r][0] = []step{{kind: doExit}}
	}
}

// losses counts the ranks that have ended without Shutdown.
func (w *model) losses() (n int) {
	for _, nd := range w.nodes {
		if nd.gone && !nd.closed {
			n++
		}
	}
	return n
}

// frozen looks whether ranks do not go on, whatever happens but further losses. It searches all
// that can happen, or, of more than statesMost states, walks at random; all reports which.
func (w *model) frozen(rnd *rand.Rand, ranks []int) (yes, all bool) {
	at := func(m *model) string {
		var b []byte
		for _, r := range ranks {
			for _, t := range m.nodes[r].threads {
				b = append(b, byte(t.at), byte(t.stage))
			}
		}
		return string(b)
	}
	start, losses := at(w), w.losses()
	seen := map[string]bool{}
	queue := []*model{w}
	for len(queue) != 0 {
		m := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if at(m) != start {
			return false, true
		}
		for _, mv := range m.moves() {
			c := m.clone()
			c.do(mv)
			if k := c.key(); !seen[k] && c.losses() == losses {
				seen[k] = true
				queue = append(queue, c)
			}
		}
		if len(seen) > statesMost {
			for range 20 {
				c := w.clone()
				for n := 0; n < 1000 && c.losses() == losses; n++ {
					if at(c) != start {
						return false, true
					}
					c.run(rnd, 1)
				}
			}
			return true, false
		}
	}
	return true, true
}

// stuck lists the ranks that have not ended, and do not spin.
func (w *model) stuck() (ranks []int) {
	for r := range w.nodes {
		n := &w.nodes[r]
		if n.gone {
			continue
		}
		for t := range n.threads {
			if s := n.threads[t].step(); s != nil && s.kind != doSpin && s.kind != doJoin {
				ranks = append(ranks, r)
				break
			}
		}
	}
	return ranks
}

type tally struct{ runs, ended, certain, quiet, large, late, lost int }

// play runs one program, looks at it while it runs and when nothing more happens, and compares what
// Diagnose says with what can happen.
func (c *tally) play(t *testing.T, seed uint64, mistakes int) {
	rnd := rand.New(rand.NewPCG(seed, uint64(mistakes)))
	w := newModel(program(rnd, mistakes))
	for k := range w.slow {
		w.slow[k] = rnd.IntN(3) == 0
	}
	c.runs++
	for range 4 {
		w.run(rnd, rnd.IntN(30))
		for _, busy := range []int{0, 1, 4} {
			now, before := w.looks(rnd, busy)
			c.sound(t, w, rnd, now, before, fmt.Sprintf("-seed %d, %d mistakes", seed, mistakes))
		}
	}
	for w.run(rnd, 1000) {
	}
	now, before := w.looks(rnd, 0)
	c.sound(t, w, rnd, now, before, fmt.Sprintf("-seed %d, %d mistakes, at the end", seed, mistakes))
	stuck := w.stuck()
	if len(stuck) == 0 {
		c.ended++
		return
	}
	c.quiet++
	c.complete(t, w, stuck, Diagnose(now, before), fmt.Sprintf("-seed %d, %d mistakes", seed, mistakes))
}

// sound: whom a certain verdict says to wait for good never goes on.
func (c *tally) sound(t *testing.T, w *model, rnd *rand.Rand, now, before inspect.Look, name string) {
	for _, v := range Diagnose(now, before) {
		if !v.Certain || !v.Class.Deadlock() {
			continue
		}
		if w.lostSince(now) {
			c.lost++ // meanwhile: what is certain holds as long as no further rank is lost
			continue
		}
		c.certain++
		ranks := v.Ranks
		if v.Class == Mismatch {
			ranks = ranks[:1] // whoever has sent another message may go on
		}
		yes, all := w.frozen(rnd, ranks)
		require.True(t, yes, "%s: they go on\n%+v\nnow %+v\nbefore %+v", name, v, now, before)
		if !all {
			c.large++
		}
	}
}

// spins reports whether a thread of the rank runs for ever.
func (w *model) spins(r int) bool {
	return slices.ContainsFunc(w.nodes[r].threads, func(th thread) bool { return th.step() != nil && th.step().kind == doSpin })
}

// lostSince reports whether a rank was lost after it had answered.
func (w *model) lostSince(now inspect.Look) bool {
	for _, s := range now.States {
		if n := &w.nodes[s.Rank]; n.gone && !n.closed {
			return true
		}
	}
	return false
}

// free reports whether a rank runs for ever while something is held up: it might free the memory.
func (w *model) free() bool {
	spins, held := false, false
	for r := range w.nodes {
		spins = spins || !w.nodes[r].gone && w.spins(r)
		held = held || slices.ContainsFunc(w.nodes[r].links, func(l link) bool { return l.held() })
	}
	return spins && held
}

// complete: where nothing more happens a certain verdict names one of those that wait. Of a rank
// that has other threads which run for ever nothing is certain: they might do anything.
func (c *tally) complete(t *testing.T, w *model, stuck []int, verdicts []Verdict, name string) {
	doubt := slices.ContainsFunc(stuck, w.spins) || w.free()
	for _, v := range verdicts {
		if !v.Certain && !doubt {
			continue
		}
		if v.Class == Late {
			c.late++
			require.True(t, w.spins(v.Ranks[0]), "%s: %+v", name, v)
			return
		}
		if v.Class.Deadlock() {
			require.Contains(t, stuck, v.Ranks[0], "%s: %+v", name, v)
			return
		}
	}
	require.Fail(t, "nothing certain is said", "%s: %v wait\n%+v\n%+v", name, stuck, verdicts, w)
}

func TestMain(m *testing.M) {
	testlevel.MuchGarbage()
	os.Exit(m.Run())
}

var oneSeed = flag.Uint64("seed", 0, "of TestModel: play this one alone")

// TestModel plays programs with and without mistakes.
func TestModel(t *testing.T) {
	first, last := uint64(1), uint64(300)
	if testlevel.CI() {
		last = 5000
	}
	if *oneSeed != 0 {
		first, last = *oneSeed, *oneSeed
	}
	for mistakes := range 3 {
		t.Run(fmt.Sprint(mistakes), func(t *testing.T) {
			var c tally
			for seed := first; seed <= last; seed++ {
				c.play(t, seed, mistakes)
			}
			t.Logf("%+v", c)
			require.True(t, c.ended > 0 && c.certain > 0 || first == last, "nothing is tested")
		})
	}
}

// TestEndsAlways looks at programs of which every schedule ends, by a search of all that can
// happen: nothing certain is said of them.
func TestEndsAlways(t *testing.T) {
	searched, seeds := 0, uint64(60)
	if testlevel.CI() {
		seeds = 600
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 98))
		ps := program(rnd, 0)
		if !newModel(ps).endsAlways() {
			continue
		}
		searched++
		for range 20 {
			w := newModel(ps)
			for w.run(rnd, rnd.IntN(8)) {
				now, before := w.looks(rnd, rnd.IntN(4))
				for _, v := range Diagnose(now, before) {
					if v.Certain && v.Class.Deadlock() {
						require.Fail(t, "certain of what ends", "-seed %d: %+v", seed, v)
					}
				}
			}
		}
	}
	t.Logf("%d programs", searched)
	require.Greater(t, searched, 3)
}

// endsAlways searches all that can happen; false too where that is more than statesMost.
func (w *model) endsAlways() bool {
	seen := map[string]bool{}
	queue := []*model{w}
	for len(queue) != 0 && len(seen) <= statesMost {
		m := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		moves := m.moves()
		if len(moves) == 0 && len(m.stuck()) != 0 {
			return false
		}
		for _, mv := range moves {
			c := m.clone()
			c.do(mv)
			if k := c.key(); !seen[k] {
				seen[k] = true
				queue = append(queue, c)
			}
		}
	}
	return len(queue) == 0
}

// TestCulprit changes one tag of a program that ends, so that it hangs: the first verdict is of the
// receive, or the send, of that message in most cases.
func TestCulprit(t *testing.T) {
	named, hangs := 0, 0
	for seed := range uint64(4000) {
		rnd := rand.New(rand.NewPCG(seed, 99))
		ps := program(rnd, 0)
		if w := newModel(ps); !w.ends(rnd) {
			continue
		}
		r := rnd.IntN(len(ps))
		s := &ps[r][0][rnd.IntN(len(ps[r][0]))]
		if (s.kind != doSend && s.kind != doRecv) || s.tag == anyTag || s.timed {
			continue
		}
		s.tag++
		w := newModel(ps)
		if w.ends(rnd) {
			continue
		}
		hangs++
		now, before := w.looks(rnd, 0)
		v := Diagnose(now, before)[0]
		receiver := r
		if s.kind == doSend {
			receiver = s.peer
		}
		if v.Class == Mismatch && (v.Ranks[0] == receiver || slices.Equal(v.Ranks, []int{r, s.peer})) {
			named++
		}
	}
	t.Logf("%d of %d", named, hangs)
	require.Greater(t, hangs, 50)
	require.Greater(t, named*100, hangs*95)
}

// ends plays a world, and reports whether all ranks have ended.
func (w *model) ends(rnd *rand.Rand) bool {
	for w.run(rnd, 1000) {
	}
	return len(w.stuck()) == 0
}
