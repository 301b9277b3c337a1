// Package ports opens listeners within a range of TCP ports, as firewalls and network policies let
// through.
//
// Concurrency: it has functions and constant values only.
package ports

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// Range is the lowest and the highest port. The zero Range leaves the port to the kernel.
type Range [2]int

// Parse reads LOW-HIGH, or one port; "" is the zero Range.
func Parse(s string) (Range, error) {
	if s == "" {
		return Range{}, nil
	}
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	first, err1 := strconv.ParseUint(low, 10, 16)
	last, err2 := strconv.ParseUint(high, 10, 16)
	if err1 != nil || err2 != nil || first == 0 || last < first {
		return Range{}, errors.New("give the lowest and the highest port as LOW-HIGH, such as 40000-40099, from 1 to 65535")
	}
	return Range{int(first), int(last)}, nil
}

// String is what Parse reads.
func (r Range) String() string {
	if r == (Range{}) {
		return ""
	}
	return fmt.Sprintf("%d-%d", r[0], r[1])
}

// Pick is a port of the range that is the same for the same n, or other where there is no range.
func (r Range) Pick(n uint64, other int) int {
	if r == (Range{}) {
		return other
	}
	return r[0] + int(n%uint64(r[1]-r[0]+1))
}

// Listen listens at host, at the first free port of the range from a random one on. Where none is
// free the error is EADDRINUSE.
func (r Range) Listen(ctx context.Context, host string) (net.Listener, error) {
	var lc net.ListenConfig
	if r == (Range{}) {
		return lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	}
	n := r[1] - r[0] + 1
	start := rand.IntN(n)
	for i := range n {
		ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(r[0]+(start+i)%n)))
		if !errors.Is(err, syscall.EADDRINUSE) {
			return ln, err
		}
	}
	return nil, fmt.Errorf("none of the %d ports %v is free on this host: %w", n, r, syscall.EADDRINUSE)
}
