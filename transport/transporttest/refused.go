package transporttest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport/internal/format"
)

func decode(t *testing.T, b []byte) *format.Address {
	t.Helper()
	a, err := format.DecodeAddress(b)
	require.NoError(t, err)
	return a
}

func cut(sets [][]uint32, n int) {
	for i := range sets {
		sets[i] = sets[i][:n]
	}
}

// testRefused connects to addresses that do not fit: the error names the rank and the difference,
// and other connections are unaffected.
func testRefused(t *testing.T, h Harness, opts Options) {
	c := h.open(t, 2, opts)
	a, b := c.ranks[0], c.ranks[1]
	good := b.Address()
	refuse := func(addr []byte, words ...string) {
		t.Helper()
		err := a.Connect(1, addr)
		require.Error(t, err)
		require.ErrorContains(t, err, "rank 1")
		for _, w := range words {
			require.ErrorContains(t, err, w)
		}
	}
	for n := range good {
		refuse(good[:n])
	}
	refuse(append(good[:len(good):len(good)], 0))
	for _, v := range []byte{0, 2, 255} {
		addr := append([]byte(nil), good...)
		addr[3] = v
		refuse(addr, "version")
	}
	with := func(change func(a *format.Address)) []byte {
		x := decode(t, good)
		change(x)
		return x.Encode()
	}
	refuse(with(func(a *format.Address) { a.MaxEager = 77 }), "eager limit", "77")
	refuse(with(func(a *format.Address) { a.Mode = "other" }), "other", a.Caps().Name)
	refuse(with(func(a *format.Address) { a.Job = "elsewhere" }), "elsewhere")
	refuse(with(func(a *format.Address) { a.Rank = 0 }), "rank 0")
	refuse(with(func(a *format.Address) { a.Size = 1; a.Rank = 0; cut(a.QPNs, 1) }), "2")
	refuse(with(func(a *format.Address) { a.Device = []byte("nonsense") }))
	require.Error(t, a.Connect(2, good))
	require.Error(t, a.Connect(-1, good))
	requireGone(t, a, 1) // not connected is not ErrAgain

	c.connect(c.ranks)
	refuse(good, "already")
	c.ping(a, b)
}
