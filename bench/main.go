package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// tests are the subcommands that measure ours alone.
var tests = []struct {
	name, about string
	test        benchkit.Test
}{
	{"lat", "half round trip by message size; -n: where so many other ranks wait, and over that without them", benchkit.NewLatency()},
	{"bw", "bandwidth by message size, of windows that are answered or of one that slides", benchkit.NewBandwidth()},
	{"rate", "messages a second by message size, of all goroutines", benchkit.NewRate()},
	{"threads", "half round trip of pairs of goroutines at once, and messages a second of all together", benchkit.NewThreads()},
	{"depth", "half round trip behind queued entries that do not match, and over that behind the first depth", benchkit.NewDepth()},
	{"idle", "processor time of a rank that waits in Recv, and how long it takes to wake it up, beside a futex", benchkit.NewIdle()},
	{"echo", "an HTTP echo in a process that has a goroutine in Recv: none, one that sleeps, one to which messages come all the time", benchkit.NewEcho()},
	{"alltoall", "exchanges in which each rank sends an equal part of so many bytes to each other; -n ranks, over two ranks", benchkit.NewAlltoall()},
	{"coll", "package coll's operations by bytes of a vector, or of the block of each rank; -n ranks; -algorithms: those, by turns, over the automatic choice", benchkit.NewColl()},
	{"overlap", "how much of a transfer a computing receiver gets for nothing; each transport and device, with and without the progress goroutine", benchkit.NewOverlap()},
	{"flood", "memory of a rank that three others flood while it does not receive, or waits for something else; exit code 1 if it outgrows its bound", benchkit.NewFlooding()},
	{"limits", "what the machine can do at best: a line, copies, sockets, each alone; half round trips, and bandwidths of copies", benchkit.NewLimits()},
	{"soak", "random messages among -n ranks by every kind of call, all compared; -iters: at most, from each rank to each other in each part of a round; -fault: ranks die meanwhile", newSoak()},
}

func run(args []string, stdout, stderr io.Writer) int {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	switch name {
	case "compare":
		return compare(args[1:], stdout, stderr)
	case "ranks":
		return ranks(args[1:], stdout, stderr)
	}
	for _, t := range tests {
		if t.name == name {
			return benchkit.Exec("bench "+name, t.about, t.test, args[1:], stdout, stderr)
		}
	}
	if name != "" && !strings.HasPrefix(name, "-h") && name != "--help" && name != "help" {
		fmt.Fprintf(stderr, "bench: there is no test %q\n", name)
	}
	fmt.Fprintf(stderr, "usage: bench TEST [flags], and bench TEST -h for its flags. TEST is one of:\n")
	for _, t := range tests {
		fmt.Fprintf(stderr, "  %-8s %s\n", t.name, t.about)
	}
	fmt.Fprintf(stderr, "  %-8s %s\n", "ranks", "memory for each rank that a rank never talks to, in a job of -n of which it alone is there")
	fmt.Fprintf(stderr, "  %-8s %s\n", "compare", "ratios to UCX, Open MPI, MPICH and gloo, measured by turns in one run")
	return 2
}
