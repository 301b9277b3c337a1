package format

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func testAddress() Address {
	return Address{Mode: "rc", Job: "j", Rank: 1, Size: 3, MaxEager: 32 << 10, Device: []byte("device")}
}

func TestAddress(t *testing.T) {
	for _, change := range []func(a *Address){
		func(*Address) {},
		func(a *Address) { a.Mode, a.Job, a.Device = "", "", []byte{} },
	} {
		want := testAddress()
		change(&want)
		got, err := DecodeAddress(want.Encode())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for name, change := range map[string]func(a *Address){
		"rank":  func(a *Address) { a.Rank = 3 },
		"size":  func(a *Address) { a.Size = 0; a.Rank = 0 },
		"large": func(a *Address) { a.Size = MaxRanks + 1 },
		"mode":  func(a *Address) { a.Mode = "a mode of 17 byte" },
	} {
		a := testAddress()
		change(&a)
		_, err := DecodeAddress(a.Encode())
		require.Error(t, err, name)
	}
	whole := new(testAddress()).Encode()
	for n := range whole {
		_, err := DecodeAddress(whole[:n])
		require.Error(t, err)
	}
	_, err := DecodeAddress(append(whole, 0))
	require.Error(t, err)
}

// TestAddressSize: the address is as long in a large job as in a small one.
func TestAddressSize(t *testing.T) {
	small, large := testAddress(), testAddress()
	large.Size, large.Rank = MaxRanks, MaxRanks-1
	require.Len(t, large.Encode(), len(small.Encode()))
}

func FuzzDecodeAddress(f *testing.F) {
	f.Add(new(testAddress()).Encode())
	f.Add([]byte(addressMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeAddress(b)
		if err != nil {
			return
		}
		require.Equal(t, b, a.Encode(), "one encoding for each address")
	})
}
