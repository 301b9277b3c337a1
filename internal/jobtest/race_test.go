//go:build race

package jobtest

// effort divides the number of rounds: the race detector slows everything down, and looks at the
// kind of thing that is done, not at how often.
const effort = 8
