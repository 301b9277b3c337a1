package soft

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func sampleAddress() *address {
	a := &address{rank: 7, pid: 4711, shm: "@tagmatch/1", tcp: []string{"10.0.0.1:4000", "[::1]:4000"}, loop: 1 << 40}
	for i := range a.id {
		a.id[i], a.host[i] = byte(i), byte(100+i)
	}
	return a
}

func TestAddressRoundTrip(t *testing.T) {
	for _, a := range []*address{{}, sampleAddress(), {tcp: []string{strings.Repeat("x", maxAddressText)}}} {
		got, err := decodeAddress(a.encode())
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
}

func TestAddressLimits(t *testing.T) {
	a := &address{shm: strings.Repeat("s", maxAddressText)}
	for range maxAddressTCP + 3 {
		a.tcp = append(a.tcp, strings.Repeat("c", maxAddressText))
	}
	b := a.encode()
	require.LessOrEqual(t, len(b), maxAddressSize)
	got, err := decodeAddress(b)
	require.NoError(t, err)
	require.Len(t, got.tcp, maxAddressTCP)
}

func TestAddressRefused(t *testing.T) {
	good := sampleAddress().encode()
	for n := range good {
		_, err := decodeAddress(good[:n])
		require.Error(t, err, "cut to %d bytes", n)
	}
	_, err := decodeAddress(append(good, 0))
	require.ErrorContains(t, err, "too many")
	_, err = decodeAddress(make([]byte, maxAddressSize+1))
	require.ErrorContains(t, err, "the most is")
	newer := append([]byte(nil), good...)
	newer[3]++
	_, err = decodeAddress(newer)
	require.ErrorContains(t, err, "version 2")
	newer[0] = 'X'
	_, err = decodeAddress(newer)
	require.ErrorContains(t, err, "not the address")
}

func FuzzAddress(f *testing.F) {
	f.Add([]byte{})
	f.Add(sampleAddress().encode())
	f.Add((&address{}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAddress(b)
		if err != nil {
			return
		}
		require.Equal(t, b, a.encode(), "there is one encoding of an address")
	})
}
