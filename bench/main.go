package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// tests are the subcommands that measure ours alone.
var tests = []benchkit.Command{
	{
		Name:   "lat",
		About:  "half round trip by message size",
		Sizes:  benchkit.Sizes{0, 8, 64, 512, 1 << 10, 4 << 10, 8 << 10, 64 << 10, 512 << 10, 1 << 20},
		N:      2,
		Parked: true,
		Run:    benchkit.Latency,
		Rows:   benchkit.LatencyRows,
	},
	{
		Name:   "bw",
		About:  "bandwidth of a stream by message size",
		Sizes:  benchkit.Sizes{1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20},
		Window: 64,
		Run:    benchkit.Bandwidth,
	},
	{
		Name:   "rate",
		About:  "messages a second by message size",
		Sizes:  benchkit.Sizes{0, 8, 64, 512},
		Window: 64,
		Run:    benchkit.Rate,

		Goroutines: benchkit.Counts{1},
		Cases:      benchkit.GoroutineCases,
	},
	{
		Name:       "threads",
		About:      "half round trip of pairs of goroutines at once, and messages a second of all together",
		Sizes:      benchkit.Sizes{8},
		Goroutines: benchkit.Counts{1, 4, 8, 64, 1024},
		Run:        benchkit.Threads,
		Cases:      benchkit.GoroutineCases,
	},
	{
		Name:   "depth",
		About:  "half round trip behind queued entries that do not match",
		Sizes:  benchkit.Sizes{8},
		Depths: benchkit.Counts{16, 10_000, 100_000, 1_000_000},
		Run:    benchkit.Depth,
		Cases:  benchkit.DepthCases,
	},
	{
		Name:    "idle",
		About:   "processor time of a rank that waits in Recv, and how long it takes to wake it up, beside a futex",
		Sizes:   benchkit.Sizes{8},
		Iters:   200,
		For:     benchkit.IdleFor,
		NoCheck: true, // its messages are times
		Run:     benchkit.Idle,
	},
	{
		Name:     "vec",
		About:    "exchanges of messages of many parts, and of one by a program that packs them itself; -sizes: of a part",
		Sizes:    benchkit.Sizes{8, 64, 1000},
		Parts:    benchkit.Counts{1, 2, 8, 64, 1024, 4096},
		Messages: benchkit.VecMessages,
		NoCheck:  true, // it compares what comes before timing
		Run:      benchkit.Vectors,
		Cases:    benchkit.VecCases,
	},
	{
		Name:    "echo",
		About:   "an HTTP echo in a process that has a goroutine in Recv: none, one that sleeps, one to which messages come all the time",
		Sizes:   benchkit.Sizes{64},
		Iters:   5000,
		Run:     echo,
		NoCheck: true, // it compares each echo
		Cases:   echoCases,
	},
	{
		Name:     "alltoall",
		About:    "exchanges in which each rank sends an equal part of so many bytes to each other; -n ranks, over two ranks",
		Sizes:    benchkit.Sizes{1 << 10, 64 << 10, 1 << 20},
		Messages: benchkit.AlltoallMessages,
		N:        8,
		Run:      benchkit.Alltoall,
		Rows:     benchkit.AlltoallRows,
	},
	{
		Name:  "overlap",
		About: "how much of a transfer a computing receiver gets for nothing; each transport and device, with and without the progress goroutine",
		Sizes: benchkit.Sizes{4 << 20},
		Iters: 100,
		Run:   benchkit.Overlap,
		Rows:  benchkit.OverlapRows,
	},
	{
		Name:     "flood",
		About:    "memory of a rank that three others flood while it does not receive, or waits for something else; exit code 1 if it outgrows its bound",
		Sizes:    benchkit.Sizes{0, 64, 1 << 10, 64 << 10},
		Messages: benchkit.FloodMessages,
		Ranks:    benchkit.FloodRanks,
		Flood:    true,
		NoCheck:  true, // it compares each message
		Run:      benchkit.FloodRank,
		Rows:     benchkit.FloodRows,
	},
	{
		Name:     "soak",
		About:    "random messages among -n ranks by every kind of call, all compared; -iters: at most, from each rank to each other in each part of a round; -fault: ranks die meanwhile",
		Sizes:    benchkit.Sizes{1 << 20},
		Messages: soakMessages,
		N:        4,
		For:      soakFor,
		NoCheck:  true, // it compares each message
		Run:      soakRank,
		Drive:    soakFaults,
		Endure:   soakEndure,
	},
}

func run(args []string, stdout, stderr io.Writer) int {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	switch name {
	case "compare":
		return compare(args[1:], stdout, stderr)
	case "limits":
		return limitsCommand(args[1:], stdout, stderr)
	}
	i := slices.IndexFunc(tests, func(c benchkit.Command) bool { return c.Name == name })
	if i < 0 {
		return usage(name, stderr)
	}
	c := tests[i]
	c.Name = "bench " + c.Name
	return c.Exec(args[1:], stdout, stderr)
}

func usage(name string, stderr io.Writer) int {
	if name != "" && !strings.HasPrefix(name, "-h") && name != "--help" && name != "help" {
		fmt.Fprintf(stderr, "bench: there is no test %q\n", name)
	}
	fmt.Fprintf(stderr, "usage: bench TEST [flags], and bench TEST -h for its flags. TEST is one of:\n")
	for _, c := range tests {
		fmt.Fprintf(stderr, "  %-8s %s\n", c.Name, c.About)
	}
	fmt.Fprintf(stderr, "  %-8s %s\n", "limits", "what the machine can do at best: rings, copies, sockets")
	fmt.Fprintf(stderr, "  %-8s %s\n", "compare", "ratios to UCX, Open MPI and MPICH, measured by turns in one run")
	return 2
}
