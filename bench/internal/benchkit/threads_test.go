package benchkit

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestGoroutines: each pair has messages of its own, all of which are verified.
func TestGoroutines(t *testing.T) {
	for name, run := range map[string]Test{"threads": Threads, "rate": Rate} {
		for _, check := range []bool{false, true} {
			var out bytes.Buffer
			p2ptest.Run(t, 2, func(w *p2p.World) {
				report := &reporter{out: &out}
				f := Flags{Check: check, Goroutines: Counts{1, 7}}
				if name == "rate" {
					f.Window = 3
				}
				for _, one := range GoroutineCases(f) {
					s := &Session{Flags: one, World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0}
					r, err := run(s, 8, 7*leastRounds)
					require.NoError(t, err)
					require.Equal(t, [3]any{name, one.Goroutines[0], 7 * leastRounds}, [3]any{r.Test, r.Goroutines, r.Iters})
					require.InDelta(t, r.MsgS*8/1e6, r.MBs, 1e-6)
					if s.First {
						require.NoError(t, report.print(&r))
					}
				}
			})
			require.Regexp(t, `goroutines.*\n +8 +1 +140 .* 1.00\n +8 +7 +140 .*\n$`, out.String())
		}
	}
}

func TestDamageOfOnePairIsSeen(t *testing.T) {
	test := Streams("rate", func(_ *p2p.World, s *Stream) error {
		for range s.Batches {
			for _, p := range s.parts {
				for i := range p.n {
					Fill(p.buf(i), payload(p.pair, i))
				}
			}
			s.parts[2].bufs[0][20]++
		}
		return nil
	})
	p2ptest.Run(t, 1, func(w *p2p.World) {
		_, err := test(&Session{Flags: Flags{Window: 3, Goroutines: Counts{4}}, World: w}, 21, 10)
		require.ErrorContains(t, err, "of 21 bytes arrived damaged: byte 20 is ")
	})
}

func TestInParallel(t *testing.T) {
	var ran atomic.Int32
	require.NoError(t, inParallel(5, func(i int) error { ran.Add(1 << i); return nil }))
	require.Equal(t, int32(31), ran.Load())

	failed, blocked := errors.New("failed"), make(chan struct{})
	defer close(blocked)
	require.ErrorIs(t, inParallel(2, func(i int) error {
		if i == 0 {
			<-blocked
		}
		return failed
	}), failed)
}

func TestSpan(t *testing.T) {
	at := time.Now()
	loops := []*Loop{{began: at.Add(5), elapsed: 10}, {began: at, elapsed: 3}, {began: at.Add(1), elapsed: 2}}
	require.Equal(t, time.Duration(15), span(loops))
}
