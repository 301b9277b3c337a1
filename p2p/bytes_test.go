package p2p_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

func TestBytes(t *testing.T) {
	require.Nil(t, p2p.Bytes([]float64(nil)))
	require.Nil(t, p2p.Bytes([]int32{}))
	type celsius float32
	s := []celsius{1.5, -2}
	b := p2p.Bytes(s)
	require.Len(t, b, 8)
	require.Equal(t, math.Float32bits(-2), binary.NativeEndian.Uint32(b[4:]))
	binary.NativeEndian.PutUint32(b, math.Float32bits(7))
	require.Equal(t, celsius(7), s[0], "it is the same memory")
	require.Equal(t, 16*3, cap(p2p.Bytes(make([]complex128, 3, 5))))
}

func TestElements(t *testing.T) {
	b := p2p.Bytes(make([]uint64, 4))
	e := p2p.Elements[float64](b[:23])
	require.Len(t, e, 2)
	e[1] = 1
	require.Equal(t, p2p.Bytes(e), b[:16])
	require.Nil(t, p2p.Elements[float64](b[:7]))
	require.Nil(t, p2p.Elements[float64](nil))
	require.Nil(t, p2p.Elements[uint16](b[1:]))
	require.Len(t, p2p.Elements[int8](b[1:]), 31)
}
