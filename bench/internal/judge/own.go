package judge

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tagmatch/tagmatch/bench/internal/peers"
)

// own are the rows whose reference is bench itself, with other flags or a limit, or which have
// none.
func own() []Row {
	return slices.Concat(depth(), goroutines(), places(), waiting(), crowds(), []Row{
		overlap("shm", false, 85, 95), overlap("shm", true, 85, 95), overlap("tcp", false, 80, 90), overlap("tcp", true, 80, 90),
		{Name: "gc", About: "cycles of the garbage collector in 10 s of messages; none, so below a half", Must: 0.5, metric: cycles, unprobed: true,
			sample: 10 * time.Second, ours: command{args: []string{"rate", "-device", "shm", "-sizes", "8"}}},
	})
}

// places are half round trips where ranks have less than a processor each for themselves, or other
// company.
func places() []Row {
	one := lat("shm", "-onecore")
	world := lat("shm", "-n", "64")
	world.line = `"ranks":64,`
	two := lat("shm", "-gomaxprocs", "2")
	two.name = "GOMAXPROCS=2"
	return []Row{
		over(lat("tcp"), command{name: "socket", args: []string{"limits", "-only", "socket"}},
			Row{Name: "tcp-lat-8-raw", About: "half round trip over TCP, over that of raw sockets", Must: 1.3, Aim: 1.1}),
		over(lat("shm", "-gomaxprocs", "1"), two, Row{Name: "gomaxprocs-1", About: "half round trip with GOMAXPROCS=1, over that with 2", Must: 1.3}),
		over(one, command{name: "yield", args: []string{"limits", "-only", "yield"}},
			Row{Name: "one-core", About: "half round trip of ranks on one processor, over that of processes that hand over by sched_yield", Must: 3}),
		over(world, plain(), Row{Name: "world-64", About: "half round trip of two ranks of 64, over that of two of 2", Must: 1.3, Aim: 1.05}),
	}
}

// over compares a half round trip with another.
func over(ours, base command, r Row) Row {
	r.metric, r.ours, r.base = metrics["lat"], ours, &base
	return r
}

// waiting are about ranks that do nothing but wait.
func waiting() []Row {
	rows := []Row{
		{Name: "idle-cpu", About: "processor time of a rank that waits for 10 s, in percent of a core", Must: 0.5, Aim: 0.1, metric: cpuPct, unprobed: true,
			ours: command{args: []string{"idle", "-for", "10s", "-iters", "1"}, fixed: true}},
		{Name: "idle-wake", About: "wake-up of a rank that waits, over a futex wake by turns with it", Must: 2, Aim: 1.3, metric: overFutex,
			ours: command{args: []string{"idle", "-for", "100ms", "-iters", "20"}, fixed: true}},
	}
	for _, waiter := range []string{"asleep", "busy"} {
		args := []string{"echo"}
		rows = append(rows, Row{Name: "echo-" + waiter, About: "p99 of an HTTP echo beside a goroutine in Recv, over that without", Must: 2, metric: "p99_us",
			ours: command{args: args, line: `"waiter":"` + waiter + `"`, fixed: true}, base: &command{name: "alone", args: args, line: `"waiter":"none"`, fixed: true}})
	}
	return rows
}

// crowds are more ranks than processors.
func crowds() []Row {
	var rows []Row
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		args := []string{"alltoall", "-n", "8", "-sizes", strconv.Itoa(size)}
		rows = append(rows, Row{Name: "crowd-" + sizeName(size), About: "exchange among 8 ranks on 2 processors, over 2 ranks with the same bytes a rank", Must: 12, Aim: 6,
			metric: "avg_us", ours: command{args: args, line: `"ranks":8,`, fixed: true}, base: &command{name: "2 ranks", args: args, line: `"ranks":2,`, fixed: true}})
	}
	return rows
}

// lat is the half round trip of 8 bytes.
func lat(device string, flags ...string) command {
	return command{args: append([]string{"lat", "-device", device, "-sizes", "8"}, flags...)}
}

// plain is that of a plain start.
func plain() command {
	s := lat("shm")
	s.name = "plain"
	return s
}

// depth are half round trips behind queued entries, over those behind 16. Peers are measured for
// the record; where a queue is long they would take minutes.
func depth() []Row {
	var rows []Row
	for _, kind := range []string{"posted", "unexpected", "anysource", "masks"} {
		for _, d := range []struct {
			n         int
			name      string
			must, aim float64
			peers     []string
		}{{1_000, "1k", 0, 0, pairs}, {10_000, "10k", 1.5, 1.15, pairs}, {100_000, "100k", 1.5, 1.15, nil}, {1_000_000, "1m", 0, 1.15, nil}} {
			job := peers.Job{Test: "depth", Device: "shm", Size: 8, Kind: kind, Depth: d.n}
			shallow := job
			shallow.Depth = 16
			rows = append(rows, Row{Name: "depth-" + kind + "-" + d.name, About: fmt.Sprintf("half round trip behind %d %s entries, over 16", d.n, kind),
				Must: d.must, Aim: d.aim, metric: metrics["depth"], ours: command{args: ours(job)}, base: &command{name: "depth 16", args: ours(shallow)},
				job: &job, peers: d.peers})
		}
	}
	return rows
}

// streaming is how long goroutines are measured: a thousand take some 20 ms to begin.
const streaming = 400 * time.Millisecond

// goroutines are pairs of them: latency beside the threads of peers, rates of all over that of one.
func goroutines() []Row {
	rows := []Row{against("threads-4", "half round trip of 4 pairs of goroutines, or threads, at once", peers.Job{Test: "threads", Device: "shm", Size: 8, Threads: 4}, 2, 1, pairs)}
	rate := func(n int) []string {
		return []string{"rate", "-device", "shm", "-sizes", "8", "-goroutines", strconv.Itoa(n)}
	}
	for _, n := range []int{8, 64, 1024} {
		rows = append(rows, Row{Name: fmt.Sprintf("goroutines-%d", n), About: fmt.Sprintf("messages a second of %d pairs of goroutines, over one pair's", n),
			Must: 0.7, Aim: 1, metric: metrics["rate"], sample: streaming, ours: command{args: rate(n)}, base: &command{name: "one pair", args: rate(1)}})
	}
	return rows
}

func overlap(device string, manual bool, must, aim float64) Row {
	r := Row{Name: "overlap-" + device, About: "what of a receive of 4 MiB proceeds while the receiver computes, in percent; tmsrq, progress goroutine",
		Must: must, Aim: aim, metric: "overlap_pct",
		ours: command{args: []string{"overlap", "-device", device, "-transport", "tmsrq", "-sizes", "4m"}, line: `"progress":"goroutine"`, fixed: true}}
	if manual {
		r.Name, r.About = r.Name+"-manual", "the same without the progress goroutine"
		r.ours.args, r.ours.line = append(r.ours.args, "-manual"), `"progress":"manual"`
	}
	return r
}
