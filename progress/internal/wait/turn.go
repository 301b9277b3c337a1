package wait

import "time"

// turn is a wait that polls: how many rounds so far, and for how long. Guarded by Set.mu.
type turn struct {
	start    time.Time
	elapsed  time.Duration // since start, at the end of the last round
	yielded  time.Duration // when the processor was yielded last, likewise
	rounds   int
	runnable bool // other goroutines of this process wanted to run at the start
}

func newTurn(runnable bool) turn {
	return turn{start: time.Now(), yielded: -spinYield, runnable: runnable}
}

// over reports whether the policy has no more rounds for it.
func (t *turn) over(p *policy) bool { return t.rounds >= p.rounds && t.elapsed >= p.budget }

// endRound follows the polls of a round. It lets go of the lock if it yields the processor: what is
// waited for may be the work of another process there.
func (s *Set) endRound(t *turn, p *policy) {
	if p.yields && t.elapsed >= p.keep && t.elapsed >= t.yielded+p.every {
		s.yieldOnce()
		t.yielded = t.elapsed
	}
	t.rounds++
	t.elapsed = time.Since(t.start)
}
