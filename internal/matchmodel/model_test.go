package matchmodel

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

func TestRules(t *testing.T) {
	const all = ^uint64(0)
	recv := func(src int, tag, mask uint64, gotSrc, got int) Recv {
		return Recv{Source: src, Tag: tag, Mask: mask, GotSource: gotSrc, Got: got}
	}
	gone := func(tag, mask uint64, from, until int) Recv {
		return Recv{Source: AnySource, Tag: tag, Mask: mask, Gone: true, From: from, Until: until}
	}
	leaving := func(tag, mask uint64, from, got int) Recv {
		return Recv{Source: AnySource, Tag: tag, Mask: mask, Got: got, Leaving: true, From: from}
	}
	// Messages of one source with tag 7, of which it had the first back when it had sent so many.
	withdrawn := func(until int, behind bool, recvs ...Recv) History {
		return History{Recvs: recvs, Messages: [][]uint64{{7, 7, 7}}, Withdrawn: [][]int{{until}}, Behind: behind, Returns: 1}
	}
	inPlace := []Recv{recv(0, 7, all, 0, 1), recv(0, 7, all, 0, 2)}
	turned := []Recv{recv(0, 7, all, 0, 2), recv(0, 7, all, 0, 1)}
	for _, c := range []struct {
		name string
		h    History
		ok   bool
	}{
		{"nothing", History{}, true},
		{"one", History{Recvs: []Recv{recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7}}}, true},
		{"left matchable", History{Recvs: []Recv{recv(0, 7, all, 0, Unmatched)}, Messages: [][]uint64{{7}}}, false},
		{"wrong tag", History{Recvs: []Recv{recv(0, 8, all, 0, 0)}, Messages: [][]uint64{{7}}}, false},
		{"wrong source", History{Recvs: []Recv{recv(1, 7, all, 0, 0)}, Messages: [][]uint64{{7}, {}}}, false},
		{"never sent", History{Recvs: []Recv{recv(0, 7, all, 0, 1)}, Messages: [][]uint64{{7}}}, false},
		{"twice", History{Recvs: []Recv{recv(0, 7, all, 0, 0), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7}}}, false},
		{"in order", History{Recvs: []Recv{recv(0, 7, all, 0, 0), recv(0, 7, all, 0, 1)}, Messages: [][]uint64{{7, 7}}}, true},
		{"overtaken", History{Recvs: []Recv{recv(0, 7, all, 0, 1), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7, 7}}}, false},
		{"other tags may pass", History{Recvs: []Recv{recv(0, 8, all, 0, 1), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7, 8}}}, true},
		{"wildcard posted first gets it", History{Recvs: []Recv{recv(0, 0, 0, 0, 1), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7, 8}}}, false},
		{"sources interleave", History{Recvs: []Recv{recv(AnySource, 0, 0, 1, 0), recv(AnySource, 0, 0, 0, 0)}, Messages: [][]uint64{{7}, {7}}}, true},
		{"later receive stole", History{Recvs: []Recv{recv(AnySource, 7, all, 0, Unmatched), recv(AnySource, 7, all, 0, 0)}, Messages: [][]uint64{{7}}}, false},
		// Receive 0 got source 1's message only after receive 1 got source 0's second: impossible
		// in time.
		{"cycle", History{Recvs: []Recv{recv(AnySource, 0, 0, 0, 1), recv(0, 0, 0, 0, 0)}, Messages: [][]uint64{{1, 2}}}, false},
		{"requeued and got", History{Recvs: []Recv{gone(7, all, 1, 1), recv(0, 7, all, 0, 0), recv(0, 7, all, 0, 1)}, Messages: [][]uint64{{7, 7}}}, true},
		{"requeued to its old place", History{Recvs: []Recv{gone(7, all, 1, 1), recv(0, 7, all, 0, 1), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7, 7}}}, false},
		{"later one got meanwhile", History{Recvs: []Recv{gone(7, all, 2, 2), recv(0, 7, all, 0, 1), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7, 7}}}, true},
		{"requeued to who waits", History{Recvs: []Recv{gone(7, all, 3, 3), recv(0, 0, 0, 0, 1), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7, 8}}}, false},
		{"requeued before one waits", History{Recvs: []Recv{gone(7, all, 2, 2), recv(0, 0, 0, 0, 1), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7, 8}}}, true},
		{"who waits is passed over", History{Recvs: []Recv{gone(7, all, 2, 2), recv(0, 7, all, 0, Unmatched), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7}}}, false},
		{"requeued twice", History{Recvs: []Recv{gone(7, all, 2, 2), gone(7, all, 3, 3), recv(0, 7, all, 0, 1), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7, 7}}}, true},
		{"requeued and lost", History{Recvs: []Recv{gone(7, all, 1, 1), recv(0, 7, all, 0, Unmatched)}, Messages: [][]uint64{{7}}}, false},
		{"requeued beside who is to end", History{Recvs: []Recv{gone(7, all, 3, 3), recv(0, 0, 0, 0, 1), leaving(7, all, 3, Unmatched), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7, 8}}}, true},
		{"requeued beside who waits too", History{Recvs: []Recv{gone(7, all, 4, 4), recv(0, 0, 0, 0, 1), leaving(7, all, 3, Unmatched), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7, 8}}}, false},
		{"requeued beside who is to end later", History{Recvs: []Recv{gone(7, all, 3, 3), recv(0, 0, 0, 0, 1), leaving(7, all, 4, Unmatched), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7, 8}}}, false},
		{"what is sent to who is to end is not passed over", History{Recvs: []Recv{leaving(7, all, 0, 1), recv(0, 7, all, 0, 0)}, Messages: [][]uint64{{7, 7}}}, false},
		{"back in its place", withdrawn(1, false, inPlace...), true},
		{"back after a later one has a message", withdrawn(3, false, turned...), true},
		{"back before that, and not in its place", withdrawn(1, false, turned...), false},
		{"back behind it", withdrawn(1, true, turned...), true},
		{"not withdrawn", withdrawn(0, false, inPlace...), false},
		{"withdrawn and received", withdrawn(1, false, recv(0, 7, all, 0, 0), recv(0, 7, all, 0, 1)), false},
		{"back, and passed over", withdrawn(1, false, recv(0, 7, all, 0, Unmatched), inPlace[0], inPlace[1]), false},
		{"ended before it was posted", History{Recvs: []Recv{recv(0, 7, all, 0, 0), gone(7, all, 1, 2)}, Messages: [][]uint64{{7}}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := Check(&c.h); c.ok {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
			}
		})
	}
}

// TestRandom plays random interleavings: their histories must be legal, and illegal once the
// messages of two receives that both match two messages of one source are swapped.
func TestRandom(t *testing.T) {
	refused := 0
	for seed := range uint64(1500) {
		h := play(rand.New(rand.NewPCG(seed, 1)))
		require.NoError(t, Check(h), "seed %d", seed)
		if swapOneSource(h) {
			refused++
			require.Error(t, Check(h), "seed %d, after a swap", seed)
		}
	}
	require.Greater(t, refused, 200)
}

// TestRandomGone does the same where some receives return a message.
func TestRandomGone(t *testing.T) {
	seeds := uint64(15000)
	if !testlevel.CI() {
		seeds = 1500
	}
	refused, past := uint64(0), 0
	for seed := range seeds {
		p := &player{rng: rand.New(rand.NewPCG(seed, 2)), past: map[int]int{}}
		h := p.play()
		require.NoError(t, Check(h), "seed %d\n%s", seed, h)
		if len(p.past) > 0 {
			for i := range h.Recvs {
				h.Recvs[i].Leaving = false
			}
			if Check(h) != nil {
				past++
			}
			continue
		}
		if p.back > 0 && swapOneSource(h) && Check(h) != nil {
			refused++
		}
	}
	require.Greater(t, refused, seeds/30)
	require.Positive(t, past)
}

// TestRandomWithdrawn does the same where senders have taken messages back, also from receives.
func TestRandomWithdrawn(t *testing.T) {
	refused, needed := 0, 0
	for seed := range uint64(1500) {
		p := player{rng: rand.New(rand.NewPCG(seed, 3)), past: map[int]int{}, withdraws: true}
		h := p.play()
		require.NoError(t, Check(h), "seed %d", seed)
		if p.back == 0 {
			continue
		}
		never := *h
		never.Withdrawn = make([][]int, len(h.Withdrawn))
		for src, until := range h.Withdrawn { // had back at once
			for seq, n := range until {
				never.Withdrawn[src] = append(never.Withdrawn[src], min(n, seq+1))
			}
		}
		if Check(&never) != nil {
			needed++
		}
		if swapOneSource(h) && Check(h) != nil {
			refused++
		}
	}
	require.Greater(t, needed, 50)
	require.Greater(t, refused, 50)
}

// player simulates one interleaving, by other means than the model: it knows the order of events.
type player struct {
	rng  *rand.Rand
	h    History
	sent []sent
	back int         // returned messages
	past map[int]int // by receive: the number of earlier messages, which it must not match

	withdraws bool // messages are withdrawn, and no receives end
}

// sent is a message, in the order of arrival.
type sent struct {
	src, seq, taker int // -1: nobody
}

func (p *player) play() *History {
	p.h.Messages = make([][]uint64, 1+p.rng.IntN(2))
	for range 4 + p.rng.IntN(12) {
		switch p.rng.IntN(7) {
		case 0, 1:
			p.h.Recvs = append(p.h.Recvs, Recv{Source: AnySource, Tag: p.rng.Uint64N(2), Mask: p.rng.Uint64N(2), Got: Unmatched})
		case 2, 3:
			src := p.rng.IntN(len(p.h.Messages))
			p.sent = append(p.sent, sent{src, len(p.h.Messages[src]), -1})
			p.h.Messages[src] = append(p.h.Messages[src], p.rng.Uint64N(2))
		default:
			if p.withdraws {
				p.withdraw()
			} else {
				p.end()
			}
		}
		p.match()
	}
	for i, m := range p.sent {
		if m.taker >= 0 {
			r := &p.h.Recvs[m.taker]
			r.GotSource, r.Got = p.sent[i].src, p.sent[i].seq
		}
	}
	return &p.h
}

// withdraw takes a message back, which a receive may have.
func (p *player) withdraw() {
	if len(p.sent) == 0 {
		return
	}
	p.h.Withdrawn = append(p.h.Withdrawn, make([][]int, len(p.h.Messages)-len(p.h.Withdrawn))...)
	m := &p.sent[p.rng.IntN(len(p.sent))]
	until := append(p.h.Withdrawn[m.src], make([]int, len(p.h.Messages[m.src])-len(p.h.Withdrawn[m.src]))...)
	p.h.Withdrawn[m.src] = until
	if until[m.seq] == 0 && p.rng.IntN(2) == 0 {
		until[m.seq] = len(until)
		if m.taker >= 0 {
			p.back++
			p.h.Returns++
		}
		m.taker = -1
	}
}

// withdrawn reports whether that has happened to m.
func (p *player) withdrawn(m *sent) bool {
	w := p.h.Withdrawn
	return m.src < len(w) && m.seq < len(w[m.src]) && w[m.src][m.seq] != 0
}

// end ends a receive without a message, or one whose message no other receive matches.
func (p *player) end() {
	n := len(p.h.Recvs)
	if n == 0 {
		return
	}
	i := p.rng.IntN(n)
	r := &p.h.Recvs[i]
	if r.Gone {
		return
	}
	has := slices.IndexFunc(p.sent, func(m sent) bool { return m.taker == i })
	if p.rng.IntN(2) == 0 || has >= 0 && p.wanted(p.sent[has]) {
		if !r.Leaving {
			r.Leaving, r.From = true, n
		}
		return
	}
	r.Gone, r.From, r.Until = true, n, n
	if has >= 0 {
		p.back++
		p.sent[has].taker = -1
	}
}

// wanted reports whether a receive waits that matches m: one that is asked to end need not count.
func (p *player) wanted(m sent) bool {
	var over []int
	for i := range p.h.Recvs {
		r := &p.h.Recvs[i]
		busy := r.Gone || slices.ContainsFunc(p.sent, func(o sent) bool { return o.taker == i })
		switch {
		case busy || !r.accepts(m.src, p.h.Messages[m.src][m.seq]):
		case r.Leaving && p.rng.IntN(2) == 0:
			over = append(over, i)
		default:
			return true
		}
	}
	for _, i := range over {
		p.past[i] = len(p.sent)
	}
	return false
}

// match assigns unassigned messages to receives without one: the oldest to the first.
func (p *player) match() {
	for j := range p.sent {
		m := &p.sent[j]
		for i := range p.h.Recvs {
			r := &p.h.Recvs[i]
			busy := r.Gone || slices.ContainsFunc(p.sent, func(o sent) bool { return o.taker == i })
			if m.taker < 0 && !busy && !p.withdrawn(m) && j >= p.past[i] && r.accepts(m.src, p.h.Messages[m.src][m.seq]) {
				m.taker = i
			}
		}
	}
}

// play returns the history of one simulated interleaving.
func play(rng *rand.Rand) *History {
	h := &History{Messages: make([][]uint64, 1+rng.IntN(3))}
	type arrived struct{ src, seq int }
	var unexp []arrived
	for range 4 + rng.IntN(16) {
		if rng.IntN(2) == 0 {
			r := Recv{Source: rng.IntN(len(h.Messages)+1) - 1, Tag: rng.Uint64N(3), Mask: rng.Uint64N(4), Got: Unmatched}
			for i, m := range unexp {
				if r.accepts(m.src, h.Messages[m.src][m.seq]) {
					r.GotSource, r.Got = m.src, m.seq
					unexp = append(unexp[:i], unexp[i+1:]...)
					break
				}
			}
			h.Recvs = append(h.Recvs, r)
			continue
		}
		src, tag := rng.IntN(len(h.Messages)), rng.Uint64N(3)
		seq := len(h.Messages[src])
		h.Messages[src] = append(h.Messages[src], tag)
		taken := false
		for i := range h.Recvs {
			if r := &h.Recvs[i]; r.Got == Unmatched && r.accepts(src, tag) {
				r.GotSource, r.Got, taken = src, seq, true
				break
			}
		}
		if !taken {
			unexp = append(unexp, arrived{src, seq})
		}
	}
	return h
}

// swapOneSource swaps the messages of two receives where that breaks the order of one source; false
// if there is no such pair.
func swapOneSource(h *History) bool {
	for i := range h.Recvs {
		for j := range i {
			a, b := &h.Recvs[j], &h.Recvs[i]
			if a.Got == Unmatched || b.Got == Unmatched || a.GotSource != b.GotSource {
				continue
			}
			ta, tb := h.Messages[a.GotSource][a.Got], h.Messages[b.GotSource][b.Got]
			if a.accepts(a.GotSource, tb) && b.accepts(b.GotSource, ta) && a.Got < b.Got {
				a.Got, b.Got = b.Got, a.Got
				return true
			}
		}
	}
	return false
}

// TestGivesUp checks that the search ends for an illegal history with very many states.
func TestGivesUp(t *testing.T) {
	const sources, each = 8, 20
	h := &History{Messages: make([][]uint64, sources)}
	for i := range sources * each {
		src := i % sources
		h.Messages[src] = append(h.Messages[src], uint64(i))
		h.Recvs = append(h.Recvs, Recv{Source: AnySource, Tag: uint64(i), Mask: ^uint64(0), GotSource: src, Got: i / sources})
	}
	require.NoError(t, Check(h))
	last := len(h.Recvs) - 1
	h.Recvs[last].Mask, h.Recvs[last-sources].Mask = 0, 0
	h.Recvs[last].Got, h.Recvs[last-sources].Got = each-2, each-1
	require.ErrorContains(t, check(h, 1<<14), "no interleaving found in 16384 states")
}

// TestKeys checks that states differ whose lists, concatenated, are the same numbers.
func TestKeys(t *testing.T) {
	h := &History{Recvs: []Recv{{Gone: true}, {Gone: true}}}
	state := func(unexp []message, held map[int]message, over map[int]bool) string {
		s := &search{h: h, next: []int{1, 1, 2}, posted: 2, gone: []int{0, 1}, unexp: unexp, held: held, over: over,
			holder: map[message]int{}, arrived: map[message]int{{0, 0}: 0, {1, 0}: 1, {2, 0}: 2, {2, 1}: 3}}
		for i, m := range held {
			s.holder[m] = i
		}
		return s.key()
	}
	wait := state([]message{{2, 0}, {0, 0}, {2, 1}}, nil, map[int]bool{1: true})
	held := state(nil, map[int]message{0: {0, 0}, 1: {1, 0}}, nil)
	require.NotEqual(t, wait, held)
	require.Equal(t, held, state(nil, map[int]message{0: {0, 0}, 1: {1, 0}}, nil))
}

// TestKeysOfMany checks that a held message before 256 others differs from one behind them: that
// number does not fit in a byte.
func TestKeysOfMany(t *testing.T) {
	const each = 128
	held := message{2, 0}
	s := &search{h: &History{Recvs: []Recv{{Gone: true}}}, next: []int{each, each, 1}, posted: 1, gone: []int{0}, arrived: map[message]int{},
		held: map[int]message{0: held}, holder: map[message]int{held: 0}}
	for i := range 2 * each {
		m := message{i / each, i % each}
		s.unexp = append(s.unexp, m)
		s.arrived[m] = 1 + i
	}
	first := s.key()
	s.arrived[held] = 1 + 2*each
	require.NotEqual(t, first, s.key())
}
