package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
)

// TestHeaders: TMH and RVH to the byte, both ways.
func TestHeaders(t *testing.T) {
	require.Equal(t, []int{16, 16}, []int{verbs.TMHSize, verbs.RVHSize})
	b := make([]byte, 16)
	for i := range b {
		b[i] = 0xff
	}
	tmh := verbs.TMH{Opcode: verbs.TMHEager, AppCtx: 0x01020304, Tag: 0x1112131415161718}
	tmh.Put(b)
	require.Equal(t, []byte{3, 0, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18}, b)
	require.Equal(t, tmh, verbs.ParseTMH(b))
	rvh := verbs.RVH{VA: 0x2122232425262728, RKey: 0x31323334, Len: 0x41424344}
	rvh.Put(b)
	require.Equal(t, []byte{0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44}, b)
	require.Equal(t, rvh, verbs.ParseRVH(b))
}
