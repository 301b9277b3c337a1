package benchkit

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestColl: all operations leave what they should, a barrier is measured once.
func TestColl(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		var out bytes.Buffer
		c := NewColl()
		c.Sizes = Sizes{0, 4, 100 << 10}
		p2ptest.Run(t, ranks, func(w *p2p.World) {
			s := &Session{World: w, First: w.Rank() == 0, report: &reporter{Table: Table{Out: &out, JSON: true}}}
			for _, size := range c.Sizes {
				require.NoError(t, c.Run(s, size, 11))
			}
		})
		for _, o := range collectives {
			lines := 3
			if o.want == nil {
				lines = 1
			}
			require.Equal(t, lines, bytes.Count(out.Bytes(), fmt.Appendf(nil, `"what":"%s"`, o.name)), o.name)
		}
	}
}

// TestCollChecked: each operation is seen to do nothing.
func TestCollChecked(t *testing.T) {
	p2ptest.Run(t, 2, func(w *p2p.World) {
		for _, o := range collectives {
			o.run = func(context.Context, *contender, int) error { return nil }
			a, err := newContender(&Session{World: w}, o, "auto", 8)
			require.NoError(t, err)
			own := o.name == "barrier" || w.Rank() == 0 && (o.name == "bcast" || o.name == "scan" || o.name == "scatter") ||
				w.Rank() == 1 && (o.name == "reduce" || o.name == "gather") // nothing is to be done
			if err = a.verified(); own {
				require.NoError(t, err, o.name)
			} else {
				require.ErrorContains(t, err, fmt.Sprintf("rank %d has", w.Rank()), o.name)
			}
			require.NoError(t, a.group.Close())
		}
	})
}
