package p2p_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
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
	p2ptest.Run(t, 1, func(w *p2p.World) {
		a, err := w.Alloc(23)
		require.NoError(t, err)
		e := p2p.Elements[float64](a)
		require.Len(t, e, 2)
		e[1] = 1
		require.Equal(t, p2p.Bytes(e), a.Bytes()[:16])
		require.NoError(t, a.Close())
		require.Nil(t, p2p.Elements[float64](a))
		own := p2p.Bytes(make([]uint64, 4))
		r, err := w.Register(own[1:])
		require.NoError(t, err)
		require.Nil(t, p2p.Elements[uint16](r))
		require.Len(t, p2p.Elements[int8](r), 31)
		require.NoError(t, r.Close())
	})
}
