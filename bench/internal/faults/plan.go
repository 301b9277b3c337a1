package faults

import (
	"math/rand/v2"
	"syscall"
)

// fault is what befalls a job.
type fault struct {
	stopped int     // rank that is stopped for a while before, -1: none
	stopAt  float64 // of the time from the job's start to its rank's end
	stopFor float64 // the same; both together are less than 1
	rank    int     // that dies
	how     int     // index in ways
}

// ways are the ends of a rank, each the rank's response to a signal.
var ways = []struct {
	name   string
	signal syscall.Signal
}{
	{"killed", syscall.SIGKILL},
	{"exited", sigExit},
	{"panicked", sigPanic},
}

// What a rank does by itself when it gets these.
const (
	sigExit  = syscall.SIGUSR1
	sigPanic = syscall.SIGUSR2
)

// sequence returns the faults of one job after the other: the same ones for the same seed.
func sequence(seed uint64, ranks int) func() fault {
	rng := rand.New(rand.NewPCG(seed, uint64(ranks)))
	return func() fault {
		f := fault{stopped: rng.IntN(2*ranks) - ranks, stopAt: rng.Float64() / 2, stopFor: rng.Float64() / 4,
			rank: rng.IntN(ranks), how: rng.IntN(len(ways))}
		f.stopped = max(f.stopped, -1)
		return f
	}
}
