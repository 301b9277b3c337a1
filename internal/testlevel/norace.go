//go:build !race

package testlevel

// Race is true in builds with the race detector.
const Race = false

// Effort divides numbers of rounds: it is above 1 in builds with the race detector.
const Effort = 1
