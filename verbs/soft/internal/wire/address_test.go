package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func sampleAddress() *Address {
	a := &Address{Rank: 7, PID: 4711, SHM: "@tagmatch/1", TCP: []string{"10.0.0.1:4000", "[::1]:4000"}, Loop: 1 << 40, Carried: "a port"}
	for i := range a.ID {
		a.ID[i], a.Host[i] = byte(i), byte(100+i)
	}
	return a
}

func TestAddressRoundTrip(t *testing.T) {
	for _, a := range []*Address{{}, sampleAddress(), {TCP: []string{strings.Repeat("x", maxAddressText)}}} {
		got, err := DecodeAddress(a.Encode())
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
}

func TestAddressLimits(t *testing.T) {
	a := &Address{SHM: strings.Repeat("s", maxAddressText)}
	for range MaxAddressTCP + 3 {
		a.TCP = append(a.TCP, strings.Repeat("c", maxAddressText))
	}
	b := a.Encode()
	require.LessOrEqual(t, len(b), MaxAddressSize)
	got, err := DecodeAddress(b)
	require.NoError(t, err)
	require.Len(t, got.TCP, MaxAddressTCP)
}

func TestAddressRefused(t *testing.T) {
	good := sampleAddress().Encode()
	for n := range good {
		_, err := DecodeAddress(good[:n])
		require.Error(t, err, "cut to %d bytes", n)
	}
	_, err := DecodeAddress(append(good, 0))
	require.ErrorContains(t, err, "too many")
	_, err = DecodeAddress(make([]byte, MaxAddressSize+1))
	require.ErrorContains(t, err, "the most is")
	_, err = DecodeAddress((&Address{Carried: strings.Repeat("x", MaxCarried+1)}).Encode())
	require.ErrorContains(t, err, "carries 65 bytes: the most is 64")
	newer := append([]byte(nil), good...)
	newer[3]++
	_, err = DecodeAddress(newer)
	require.ErrorContains(t, err, "version 3")
	newer[0] = 'X'
	_, err = DecodeAddress(newer)
	require.ErrorContains(t, err, "not the address")
}

func FuzzAddress(f *testing.F) {
	f.Add([]byte{})
	f.Add(sampleAddress().Encode())
	f.Add((&Address{}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeAddress(b)
		if err != nil {
			return
		}
		require.Equal(t, b, a.Encode(), "there is one encoding of an address")
	})
}
