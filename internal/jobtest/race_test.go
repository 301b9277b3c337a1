//go:build race

package jobtest

// effort divides the number of rounds: the race detector is slow, and detects kinds of accesses,
// however often they happen.
const effort = 8
