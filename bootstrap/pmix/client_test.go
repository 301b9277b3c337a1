//go:build linux && (amd64 || arm64)

package pmix

import (
	"context"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestLayout: sizes and offsets as libpmix 4.2 has them.
func TestLayout(t *testing.T) {
	require.EqualValues(t, 260, unsafe.Sizeof(proc{}))
	require.EqualValues(t, 256, unsafe.Offsetof(proc{}.rank))
	require.EqualValues(t, 32, unsafe.Sizeof(value{}))
	require.EqualValues(t, 8, unsafe.Offsetof(value{}.data))
	require.EqualValues(t, 552, unsafe.Sizeof(info{}))
	require.EqualValues(t, 512, unsafe.Offsetof(info{}.flags))
	require.EqualValues(t, 520, unsafe.Offsetof(info{}.value))
	v := bytesValue([]byte("abc"))
	got, err := v.bytes(3)
	require.NoError(t, err)
	require.Equal(t, "abc", string(got))
	_, err = v.bytes(2)
	require.ErrorContains(t, err, "type 27 and 3 bytes")
	_, err = v.number()
	require.Error(t, err)
}

func TestNoLibrary(t *testing.T) {
	_, err := open(context.Background(), "/no/such/libpmix.so")
	require.ErrorContains(t, err, "/no/such/libpmix.so")
	require.ErrorContains(t, err, "libpmix2")
	_, err = open(context.Background(), "libc.so.6")
	require.ErrorContains(t, err, "the PMIx library is not one")
}
