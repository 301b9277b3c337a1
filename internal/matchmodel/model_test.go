package matchmodel

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRules(t *testing.T) {
	const all = ^uint64(0)
	recv := func(src int, tag, mask uint64, gotSrc, got int) Recv {
		return Recv{Source: src, Tag: tag, Mask: mask, GotSource: gotSrc, Got: got}
	}
	for _, c := range []struct {
		name string
		h    History
		ok   bool
	}{
		{"nothing", History{}, true},
		{"one", History{[]Recv{recv(0, 7, all, 0, 0)}, [][]uint64{{7}}}, true},
		{"left matchable", History{[]Recv{recv(0, 7, all, 0, Unmatched)}, [][]uint64{{7}}}, false},
		{"wrong tag", History{[]Recv{recv(0, 8, all, 0, 0)}, [][]uint64{{7}}}, false},
		{"wrong source", History{[]Recv{recv(1, 7, all, 0, 0)}, [][]uint64{{7}, {}}}, false},
		{"never sent", History{[]Recv{recv(0, 7, all, 0, 1)}, [][]uint64{{7}}}, false},
		{"twice", History{[]Recv{recv(0, 7, all, 0, 0), recv(0, 7, all, 0, 0)}, [][]uint64{{7}}}, false},
		{"in order", History{[]Recv{recv(0, 7, all, 0, 0), recv(0, 7, all, 0, 1)}, [][]uint64{{7, 7}}}, true},
		{"overtaken", History{[]Recv{recv(0, 7, all, 0, 1), recv(0, 7, all, 0, 0)}, [][]uint64{{7, 7}}}, false},
		{"other tags may pass", History{[]Recv{recv(0, 8, all, 0, 1), recv(0, 7, all, 0, 0)}, [][]uint64{{7, 8}}}, true},
		{"wildcard posted first gets it", History{[]Recv{recv(0, 0, 0, 0, 1), recv(0, 7, all, 0, 0)}, [][]uint64{{7, 8}}}, false},
		{"sources interleave", History{[]Recv{recv(AnySource, 0, 0, 1, 0), recv(AnySource, 0, 0, 0, 0)}, [][]uint64{{7}, {7}}}, true},
		{"later receive stole", History{[]Recv{recv(AnySource, 7, all, 0, Unmatched), recv(AnySource, 7, all, 0, 0)}, [][]uint64{{7}}}, false},
		// Receive 0 got source 1's only after source 0's second was taken by receive 1: needs a cycle in time.
		{"cycle", History{[]Recv{recv(AnySource, 0, 0, 0, 1), recv(0, 0, 0, 0, 0)}, [][]uint64{{1, 2}}}, false},
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

// TestRandom plays random interleavings forwards: what they give must be allowed, and swapping the messages of two receives
// that both accept both messages of one source must not be.
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

// play makes a history by simulating one interleaving.
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

// swapOneSource exchanges what two receives got, where that breaks the order of one source; false if there is no such pair.
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

// TestGivesUp checks that a wrong history ends the search even where its states are without number.
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
	require.ErrorContains(t, Check(h), "no interleaving found in 65536 states")
}
