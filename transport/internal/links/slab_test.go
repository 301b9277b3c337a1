package links

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/fault"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
)

// keeper is a domain whose regions a peer may write to for ever, or may not.
type keeper struct {
	verbs.PD
	kept bool
}

func (k *keeper) RegMR([]byte, verbs.AccessFlags) (verbs.MR, error) {
	return &copied{kept: k.kept}, nil
}

// TestSlabIsKept: memory that a peer may still write to is not freed, as others could get it; and
// nothing names any memory after the end.
func TestSlabIsKept(t *testing.T) {
	var s slab
	require.NoError(t, s.open(&keeper{kept: true}, "buffers", 4, 4096, 0))
	mem := s.mem
	require.NoError(t, s.close())
	require.True(t, fault.Readable(mem))
	require.NoError(t, freeMemory(mem))
	require.Zero(t, s)

	require.NoError(t, s.open(&keeper{}, "buffers", 4, 4096, 0))
	mem = s.mem
	require.NoError(t, s.close())
	require.Equal(t, testlevel.Race, fault.Readable(mem), "of the heap it stays")
	require.NoError(t, s.close())
}
