package benchkit

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestDepth: the entries of each kind are there while rounds are measured, and gone afterwards.
func TestDepth(t *testing.T) {
	var out bytes.Buffer
	p2ptest.Run(t, 2, func(w *p2p.World) {
		s := &Session{World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0, report: &reporter{Table: Table{Out: &out}}}
		before := w.Metrics()
		require.NoError(t, (&Depth{Kind: kindAll, Depths: Counts{3, 100}}).Run(s, 8, 5))
		now := w.Metrics()
		require.Zero(t, now.PostedNow)
		require.Equal(t, uint64(3*(3+100)), now.Canceled-before.Canceled)
		require.Zero(t, w.Metrics().UnexpectedNow)
	})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2+2*4, out.String())
	require.Regexp(t, `^ +loop +tmsrq +8 +3 +posted +5 .* 1.000$`, lines[2])
	require.Regexp(t, `^ +loop +tmsrq +8 +100 +posted +5 .*$`, lines[3])
	require.Regexp(t, `^ +loop +tmsrq +8 +3 +masks +5 .* 1.000$`, lines[8])
}

// TestDepthMissing: entries that are not queued, or not what was queued, are an error.
func TestDepthMissing(t *testing.T) {
	p2ptest.Run(t, 2, func(w *p2p.World) {
		s := &Session{World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0}
		for _, kind := range []string{KindPosted, KindUnexpected} {
			require.ErrorContains(t, (&queue{s: s, kind: kind, n: 10}).check(), "entries are queued, want 10")
		}
		d := &queue{s: s, kind: KindUnexpected, n: 2, tag: 7}
		require.NoError(t, d.send())
		d.tag = 8
		require.EqualError(t, d.receive(), "queued message 1 was received as message 0")
		d.tag, d.n = 7, 1
		require.NoError(t, d.receive())
	})
}

func TestRoomForDepth(t *testing.T) {
	c := (&Depth{Depths: Counts{16, 1_000_000}}).Config()
	require.Greater(t, c.UnexpectedLimit, int64(2*(256+queuedBytes)*1_000_000))
}

func TestCompared(t *testing.T) {
	p := reporter{Table: Table{Out: &bytes.Buffer{}, JSON: true}}
	for _, c := range []struct{ avg, over float64 }{{0.5, 1}, {1, 2}, {0.25, 0.5}} {
		r := Result{Test: "depth", Kind: KindPosted, Depth: 1, AvgUs: c.avg}
		require.NoError(t, p.print(&r))
		require.Equal(t, c.over, r.Over)
		other := Result{Test: "depth", Kind: KindMasks, Depth: 1, AvgUs: 7}
		require.NoError(t, p.print(&other))
		require.Equal(t, 1.0, other.Over)
	}
}
