package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/bench/internal/judge"
	"github.com/tagmatch/tagmatch/bench/internal/peers"
	"github.com/tagmatch/tagmatch/internal/cpus"
)

// comparison holds the flags of compare.
type comparison struct {
	rows, peers list
	rounds      int
	sample      time.Duration
	twice, json bool
}

// list is a flag of words separated by commas.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = strings.Split(s, ","); return nil }

const compareAbout = `bench compare: tagmatch beside UCX, Open MPI, MPICH and gloo, measured by turns in one run.

All programs run as two processes, pinned to the same two processors, one after the other, in another order each round.
Before and after each sample a probe bounces a cache line between these processors. A sample whose two probes differ
by more than 10 percent is dropped: the neighbours have changed the machine meanwhile. The hop also has phases, fast
and slow ones: of all ranges of 15 percent the one is taken in which the contestant with the fewest samples has most,
and only samples whose hop lies in it are compared. Rounds are made until all have enough of them, or three times as
many as asked for; with fewer than 3 the row is noisy and has no verdict.

The ratio is that of the medians, ours to the best peer's. Latencies are half round trips: of ours and of MPI the
median of 100 parts of the run, in which the clock is not read; of UCX its own median, which reads the clock each
time. Rates and bandwidths of ours and of MPI are windows of 64 Isends and Irecvs, each ended by Waitall and an answer
of 4 bytes (osu_mbw_mr's pattern). The rows "sliding" have one window: ours waits for its oldest message before the
next and answers at the end, and UCX does tag_bw -O 64, which does the like. Buffers are hot in the cache, except in
the rows "cold". cpu s/GB is the processor time of both processes for 10^9 bytes; UCX's includes the start of its
processes.

Ours is tuned: built with the profile beside bench, GOMAXPROCS 1. With -twice it takes part once more, by turns with the
others, with default settings: built without the profile, GOMAXPROCS the number of processors. Marks are for what is
tuned. Some rows set GOMAXPROCS themselves.

Rows coll-* are collective operations on float32, which take an hour and are measured where they are named. Each rank is
the root in turn. The figure is the median of 9 parts, of the time of all calls of a part over their number. Sizes are
those of a vector, or of each rank's block. With 4 and 8 ranks on two processors MPICH, which spins, takes milliseconds.
Gloo is that of torch, with one thread and over TCP, its only wire.

Threads of peers make rounds for 0.3 s, of which the average is taken. Where the reference of a row is bench itself or
a limit of bench limits, its command is in the JSON; peers are then measured for the record. Rows that have no
reference have marks for the figure itself.

Peers are Debian's builds (ucx-utils; openmpi-bin libopenmpi-dev; mpich libmpich-dev; python3-torch), without XPMEM.
Only those are needed that the chosen rows name.

Flags:
`

// compare runs the subcommand and returns its exit code, which says nothing of marks.
func compare(args []string, stdout, stderr io.Writer) int {
	c := comparison{peers: peers.Names}
	fs := flag.NewFlagSet("bench compare", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, compareAbout)
		fs.PrintDefaults()
		fmt.Fprintf(stderr, "\nRows, with what the ratio must reach and the aim, and whom the peers are:\n")
		for _, r := range judge.Table() {
			fmt.Fprintf(stderr, "  %s\n", r.String())
		}
	}
	fs.Var(&c.rows, "rows", "`names` or patterns of rows (shm-*), separated by commas; default all that have a mark, but coll-*")
	fs.Var(&c.peers, "peers", "`names` of peers to compare with, separated by commas")
	fs.BoolVar(&c.twice, "twice", false, "measure ours also with default settings")
	fs.IntVar(&c.rounds, "rounds", 7, "samples of each that are compared")
	fs.DurationVar(&c.sample, "sample", 200*time.Millisecond, "`time` that a sample takes, where the row leaves it open")
	fs.BoolVar(&c.json, "json", false, "print one JSON object a line instead of text, with all samples")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	rows, err := c.validate(fs.Args())
	if err != nil {
		fmt.Fprintf(stderr, "bench compare: %v\n", err)
		return 2
	}
	if err := c.run(rows, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "bench compare: %v\n", err)
		return 1
	}
	return 0
}

// validate returns the rows that were chosen.
func (c *comparison) validate(rest []string) ([]judge.Row, error) {
	var errs []error
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", rest[0]))
	}
	for _, p := range c.peers {
		if !slices.Contains(peers.Names, p) {
			errs = append(errs, fmt.Errorf("-peers: %q is not one of %s", p, strings.Join(peers.Names, ", ")))
		}
	}
	if c.rounds < 1 {
		errs = append(errs, fmt.Errorf("-rounds is %d: give 1 or more", c.rounds))
	}
	if c.sample <= 0 || c.sample > time.Minute {
		errs = append(errs, fmt.Errorf("-sample is %v: give up to 1m", c.sample))
	}
	rows, err := choose(judge.Table(), c.rows)
	return rows, errors.Join(append(errs, err)...)
}

// choose returns the rows that one of the patterns names; if there are none, those with a mark, but
// for collective operations.
func choose(table []judge.Row, patterns []string) ([]judge.Row, error) {
	if len(patterns) == 0 {
		return slices.DeleteFunc(table, func(r judge.Row) bool { return !r.Marked() || strings.HasPrefix(r.Name, "coll-") }), nil
	}
	var errs []error
	chosen := map[string]bool{}
	for _, p := range patterns {
		found := false
		for _, r := range table {
			if ok, err := path.Match(p, r.Name); ok && err == nil {
				chosen[r.Name], found = true, true
			}
		}
		if !found {
			errs = append(errs, fmt.Errorf("-rows: there is no row %q (-h lists them)", p))
		}
	}
	return slices.DeleteFunc(table, func(r judge.Row) bool { return !chosen[r.Name] }), errors.Join(errs...)
}

// run measures the rows.
func (c *comparison) run(rows []judge.Row, stdout, stderr io.Writer) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "tagmatch-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	j, err := c.judge(ctx, rows, dir)
	if err != nil {
		return err
	}
	out := judge.Report{Out: stdout, JSON: c.json}
	if err := out.Host(j.Host()); err != nil {
		return err
	}
	for i, r := range rows {
		fmt.Fprintf(stderr, "compare: row %d of %d, %s\n", i+1, len(rows), r.Name)
		res := j.Measure(ctx, r)
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := out.Row(res); err != nil {
			return err
		}
	}
	return nil
}

// judge finds what the rows need beside ours.
func (c *comparison) judge(ctx context.Context, rows []judge.Row, dir string) (*judge.Judge, error) {
	j := &judge.Judge{Rounds: c.rounds, Sample: c.sample}
	list, err := cpus.Allowed()
	if err != nil {
		return nil, fmt.Errorf("what is compared is pinned to processors: %w", err)
	}
	if len(list) < 2 {
		return nil, fmt.Errorf("this process may use %d processor: comparing takes two", len(list))
	}
	j.CPUs = [2]int(list[:2])
	needed := slices.DeleteFunc(slices.Clone(c.peers), func(name string) bool {
		return !slices.ContainsFunc(rows, func(r judge.Row) bool { return r.Takes(name) })
	})
	if j.Peers, err = peers.Find(ctx, needed, dir); err != nil {
		return nil, err
	}
	return j, c.programs(ctx, j, dir)
}

// programs gives the judge ours. GOMAXPROCS is given to the plain one too: ranks that bench pins
// would have 1, those of a user the number of processors.
func (c *comparison) programs(ctx context.Context, j *judge.Judge, dir string) (err error) {
	j.Self.Env = "GOMAXPROCS=1"
	if j.Self.Path, err = os.Executable(); err != nil || !c.twice {
		return err
	}
	j.Plain = &judge.Program{Path: filepath.Join(dir, "bench"), Env: fmt.Sprintf("GOMAXPROCS=%d", runtime.NumCPU())}
	out, err := exec.CommandContext(ctx, "go", "build", "-pgo=off", "-o", j.Plain.Path, "github.com/tagmatch/tagmatch/bench").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("-twice builds bench without its profile, and so works in tagmatch's directory: %w\n%s", err, out)
	}
	return err
}
