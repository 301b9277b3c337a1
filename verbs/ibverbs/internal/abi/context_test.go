package abi

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestOp: an operation is there if the context is an extended one, if its size, which the library
// was built with, covers the operation, and if the provider has it.
func TestOp(t *testing.T) {
	var b struct {
		VerbsContext
		Context
	}
	// Of what verbs_get_ctx_op asks for, sizes and offsets are those that TestLayout compares.
	offset := unsafe.Offsetof(b.PostSRQOps)
	needed := unsafe.Sizeof(b) - offset
	b.ABICompat, b.Sz, b.PostSRQOps, b.QueryPort = ABIExtended, unsafe.Sizeof(b), 17, 18
	require.EqualValues(t, 17, b.Op(offset))
	require.EqualValues(t, 18, b.Op(unsafe.Offsetof(b.QueryPort)), "the first")
	b.Sz = needed
	require.EqualValues(t, 17, b.Op(offset), "the size just suffices")
	require.Zero(t, b.Op(unsafe.Offsetof(b.QueryPort)), "an older library")
	b.Sz--
	require.Zero(t, b.Op(offset), "an older library")
	b.Sz++
	b.PostSRQOps = 0
	require.Zero(t, b.Op(offset), "the provider has none")
	b.PostSRQOps, b.ABICompat = 17, 0
	require.Zero(t, b.Op(offset), "no extended context")
}
