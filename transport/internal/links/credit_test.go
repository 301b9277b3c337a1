package links

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGrantsDue: whatever is put and taken, each peer with a grant is found once, at its place.
func TestGrantsDue(t *testing.T) {
	peers := make([]peer, 10)
	var g grants
	want := map[*peer]uint64{}
	for total := range uint64(1000) {
		p := &peers[rand.IntN(len(peers))]
		if rand.IntN(2) == 0 {
			g.put(p, total)
			want[p] = total
		} else {
			g.take(p)
			delete(want, p)
		}
		require.Len(t, g.due, len(want))
		for i, p := range g.due {
			require.Equal(t, i+1, p.grantAt)
			require.Equal(t, want[p], p.grant)
		}
		for i := range peers {
			_, due := want[&peers[i]]
			require.Equal(t, due, peers[i].grantDue())
		}
	}
}
