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
	for _, check := range []bool{false, true} {
		verified, several := Verified{Check: check}, pairs{Counts{1, 7}}
		for name, test := range map[string]Test{
			"threads": &Threads{verified, several},
			"rate":    &Rate{streamed{Verified: verified, Window: 3}, several},
			"many":    &Rate{streamed{Verified: verified, Window: 3, Many: true}, several},
			"sliding": &Rate{streamed{Verified: verified, Window: 3, Sliding: true}, several}} {
			var out bytes.Buffer
			p2ptest.Run(t, 2, func(w *p2p.World) {
				s := &Session{World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0, report: &reporter{Table: Table{Out: &out}}}
				require.NoError(t, test.Run(s, 8, 7*leastRounds))
			})
			require.Regexp(t, `goroutines.*\n.* 1 +140 .* 1.000\n.* 7 +140 .*\n$`, out.String(), name)
		}
	}
}

func TestDamageOfOnePairIsSeen(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		_, err := (&streamed{Window: 3}).measure(&Session{World: w}, "rate", 21, 10, 4, func(p *part, _ *p2p.World) error {
			for i := range p.n {
				Fill(p.buf(i), payload(p.pair, i))
			}
			if p.pair == 2 {
				p.bufs[0][20]++
			}
			return nil
		})
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
	loops := []*loop{{began: at.Add(5), elapsed: 10}, {began: at, elapsed: 3}, {began: at.Add(1), elapsed: 2}}
	require.Equal(t, time.Duration(15), span(loops))
}
