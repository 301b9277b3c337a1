package links

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
)

// copied is a region that a peer copies to.
type copied struct {
	verbs.QuietMR
	busy  bool // the peer is in the middle of a copy
	asked int
	gone  bool
	kept  bool
}

func (m *copied) Kept() bool { return m.kept }

func (m *copied) Quiet() bool { m.asked++; return !m.busy }

func (m *copied) Dereg() error { m.gone = true; return nil }

// TestAbandonAsksAll: of a message that is read in several parts, no part is copied to by a new
// copy while one in another part comes to its end; and none is given back before all are quiet.
func TestAbandonAsksAll(t *testing.T) {
	var o reads
	p, other := &peer{}, &peer{}
	parts := []*copied{{busy: true}, {}, {}}
	for _, m := range parts {
		o.add(read{id: 7, mr: m, peer: p})
	}
	stays := &copied{}
	o.add(read{id: 7, mr: stays, peer: other})

	quiet, err := o.abandon(p, 7)
	require.NoError(t, err)
	require.False(t, quiet)
	for i, m := range parts {
		require.Equal(t, 1, m.asked, i)
		require.False(t, m.gone, i)
	}
	parts[0].busy = false
	quiet, err = o.abandon(p, 7)
	require.NoError(t, err)
	require.True(t, quiet)
	for i, m := range parts {
		require.True(t, m.gone, i)
	}
	require.Zero(t, stays.asked)
	require.False(t, stays.gone)
}
