// Package portstest finds ports for tests of whole jobs.
package portstest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"github.com/tagmatch/tagmatch/internal/ports"
)

// Free is a range of n ports that are free now. They lie below those that the kernel gives to
// connections and listeners that ask for none, so that only a test that does the same can take one
// before it is used.
func Free(t testing.TB, n int) ports.Range {
	t.Helper()
	const low, high = 20000, 32000
	for first := low + rand.IntN((high-low)/2); first+n <= high; first += n {
		if free(first, n) {
			return ports.Range{first, first + n - 1}
		}
	}
	t.Fatal("no free ports")
	return ports.Range{}
}

func free(first, n int) bool {
	for p := first; p < first+n; p++ {
		ln, err := net.Listen("tcp", ":"+strconv.Itoa(p))
		if err != nil || ln.Close() != nil {
			return false
		}
	}
	return true
}
