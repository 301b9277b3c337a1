package tmsrq

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// TestRefusedAddKeepsNothing: the list does not keep the buffer of a receive for which it has no
// bounce buffer.
func TestRefusedAddKeepsNothing(t *testing.T) {
	trs, _ := lenders(t)
	l := &trs[0].list
	for {
		if _, _, ok := l.bounce.Get(); !ok {
			break
		}
	}
	require.Equal(t, transport.ErrAgain, l.Add(1, 7, ^uint64(0), make([]byte, 8), 0))
	for i := range l.entries {
		require.Nil(t, l.entries[i].buf)
	}
}
