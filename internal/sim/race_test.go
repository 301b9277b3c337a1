//go:build race

package sim

// effort divides the number of runs: the race detector slows everything down.
const effort = 8
