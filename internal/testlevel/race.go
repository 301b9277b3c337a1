//go:build race

package testlevel

// Race is true in builds with the race detector.
const Race = true

// Effort divides numbers of rounds: the race detector is slow, and detects kinds of accesses,
// however often they happen.
const Effort = 8
