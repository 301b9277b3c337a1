package format

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func testAddress() *Address {
	return &Address{Mode: "rc", Job: "j", Rank: 1, Size: 3, MaxEager: 32 << 10, MTU: 5, RdAtomic: 16, CellAddr: 1 << 40,
		CellRKey: 7, Device: []byte("device"), QPNs: [][]uint32{{1, 2, 1<<24 - 1}}}
}

func TestAddress(t *testing.T) {
	for _, change := range []func(a *Address){
		func(*Address) {},
		func(a *Address) { a.Mode, a.Job, a.Device = "", "", nil },
		func(a *Address) { a.QPNs = append(a.QPNs, []uint32{4, 5, 6}) },
	} {
		want := testAddress()
		change(want)
		got, err := DecodeAddress(want.Encode())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for name, change := range map[string]func(a *Address){
		"rank":  func(a *Address) { a.Rank = 3 },
		"size":  func(a *Address) { a.Size = 0; a.Rank = 0; a.QPNs = [][]uint32{{}} },
		"large": func(a *Address) { a.Size = MaxRanks + 1 },
		"mtu":   func(a *Address) { a.MTU = 6 },
		"sets":  func(a *Address) { a.QPNs = nil },
		"short": func(a *Address) { a.QPNs[0] = a.QPNs[0][:2] },
		"long":  func(a *Address) { a.QPNs[0] = append(a.QPNs[0], 1) },
	} {
		a := testAddress()
		change(a)
		_, err := DecodeAddress(a.Encode())
		require.Error(t, err, name)
	}
}

func FuzzDecodeAddress(f *testing.F) {
	f.Add(testAddress().Encode())
	f.Add([]byte(addressMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeAddress(b)
		if err != nil {
			require.Nil(t, a)
			return
		}
		require.Equal(t, b, a.Encode(), "one encoding for each address")
	})
}
