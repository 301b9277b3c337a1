package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/internal/benchkit"
)

// job is one thing to measure with both programs.
type job struct {
	test   string // "lat" or "bw"
	device string // "shm" or "tcp"
	size   int
	iters  int
	cpus   [2]int
}

func (j job) String() string { return fmt.Sprintf("%s %s %d B", j.device, j.test, j.size) }

// comparison holds the flags of compare and what they lead to.
type comparison struct {
	tests, devices list
	sizes          benchkit.Sizes
	rounds, iters  int
	json, strict   bool
	tls            string

	ucx  string // path of ucx_perftest
	self string // path of this program
	cpus [2]int
}

// list is a flag of words separated by commas.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = strings.Split(s, ","); return nil }

const compareAbout = `bench compare: ratios of tagmatch to UCX, measured by turns in one run.

Both programs run as two processes, pinned to the same two processors, one after the other, as many rounds as asked
for. Before, between and after them a probe bounces a cache line between these processors: where its figures
differ by more than 10 percent the neighbours have changed the machine meanwhile, and the round is made again.
A latency is the median half round trip, a ratio ours divided by UCX's, and the figure the median of all rounds.

UCX is Debian's build (1.13.1 of 2022, without XPMEM, buffers hot in the cache, as ours are). cpu s/GB is the
processor time of both processes for 10^9 bytes; UCX's includes the start of its two processes.

Flags:
`

// compare runs the subcommand and returns its exit code: 1 also where -strict is set and a mark is
// missed.
func compare(args []string, stdout, stderr io.Writer) int {
	c := comparison{tests: list{"lat", "bw"}, devices: list{"shm", "tcp"}}
	fs := flag.NewFlagSet("bench compare", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() { fmt.Fprint(stderr, compareAbout); fs.PrintDefaults() }
	fs.Var(&c.tests, "tests", "`names` of lat and bw, separated by commas")
	fs.Var(&c.devices, "device", "`names` of shm and tcp, separated by commas")
	fs.Var(&c.sizes, "sizes", "message `sizes` for each test and device; default: those with a mark and a few more")
	fs.IntVar(&c.rounds, "rounds", 5, "quiet rounds for each figure")
	fs.IntVar(&c.iters, "iters", 0, "messages in each measurement, 0: as many as the size calls for")
	fs.StringVar(&c.tls, "ucx-tls", "", "UCX_TLS; default posix,cma,self for shm and tcp,self for tcp")
	fs.BoolVar(&c.json, "json", false, "print one JSON object a line instead of text")
	fs.BoolVar(&c.strict, "strict", false, "exit with code 1 when a mark is missed")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if err := c.validate(fs.Args()); err != nil {
		fmt.Fprintf(stderr, "bench compare: %v\n", err)
		return 2
	}
	missed, err := c.run(stdout)
	if err != nil {
		fmt.Fprintf(stderr, "bench compare: %v\n", err)
		return 1
	}
	if c.strict && missed > 0 {
		return 1
	}
	return 0
}

func (c *comparison) validate(rest []string) error {
	var errs []error
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", rest[0]))
	}
	known := func(flag string, given, names []string) {
		for _, n := range given {
			if !slices.Contains(names, n) {
				errs = append(errs, fmt.Errorf("-%s: %q is not one of %s", flag, n, strings.Join(names, ", ")))
			}
		}
	}
	known("tests", c.tests, []string{"lat", "bw"})
	known("device", c.devices, []string{"shm", "tcp"})
	if c.rounds < 1 {
		errs = append(errs, fmt.Errorf("-rounds is %d: give 1 or more", c.rounds))
	}
	if c.iters < 0 {
		errs = append(errs, fmt.Errorf("-iters is %d: give 1 or more, or 0 for as many as the size calls for", c.iters))
	}
	return errors.Join(errs...)
}

// run measures everything and returns how many marks were missed.
func (c *comparison) run(stdout io.Writer) (missed int, err error) {
	if c.ucx, err = findUCX(); err != nil {
		return 0, err
	}
	if c.self, err = os.Executable(); err != nil {
		return 0, err
	}
	cpus, err := processors()
	if err != nil {
		return 0, err
	}
	if len(cpus) < 2 {
		return 0, fmt.Errorf("this process may use %d processor: comparing takes two", len(cpus))
	}
	c.cpus = [2]int(cpus[:2])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for _, j := range c.jobs() {
		f, err := c.measure(ctx, j)
		if err != nil {
			return missed, fmt.Errorf("%v: %w", j, err)
		}
		if err := f.print(stdout, c.json); err != nil {
			return missed, err
		}
		if f.Pass != nil && !*f.Pass {
			missed++
		}
	}
	return missed, nil
}

// defaultSizes are measured where -sizes is not given.
var defaultSizes = map[string][]int{
	"shm lat": {8, 1 << 10, 8 << 10, 64 << 10, 1 << 20},
	"shm bw":  {64 << 10, 1 << 20, 4 << 20},
	"tcp lat": {8, 64 << 10},
	"tcp bw":  {1 << 20},
}

func (c *comparison) jobs() []job {
	var jobs []job
	for _, device := range c.devices {
		for _, test := range c.tests {
			sizes := []int(c.sizes)
			if len(sizes) == 0 {
				sizes = defaultSizes[device+" "+test]
			}
			for _, size := range sizes {
				j := job{test, device, size, c.iters, c.cpus}
				if j.iters == 0 {
					j.iters = benchkit.Messages(size, device)
				}
				jobs = append(jobs, j)
			}
		}
	}
	return jobs
}

// most is how many rounds are made for each quiet one before the noise is accepted as a fact.
const most = 3

// measure makes rounds until there are enough quiet ones.
func (c *comparison) measure(ctx context.Context, j job) (*figure, error) {
	f := newFigure(j)
	before, err := probeHop(c.cpus)
	if err != nil {
		return nil, err
	}
	for made := 0; len(f.Ratios) < c.rounds && made < most*c.rounds; made++ {
		ours, err := c.ours(ctx, j)
		if err != nil {
			return nil, err
		}
		between, err := probeHop(c.cpus)
		if err != nil {
			return nil, err
		}
		theirs, err := ucxRun(ctx, c.ucx, j, ucxEnv(j.device, c.tls))
		if err != nil {
			return nil, err
		}
		after, err := probeHop(c.cpus)
		if err != nil {
			return nil, err
		}
		f.add(ours, theirs, before, between, after)
		before = after
	}
	f.finish()
	return f, nil
}

// ours is one measurement by this program, started again.
func (c *comparison) ours(ctx context.Context, j job) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.self, j.test, "-device", j.device, "-sizes", strconv.Itoa(j.size),
		"-iters", strconv.Itoa(j.iters), "-json")
	// An interrupt lets the program end its ranks.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return sample{}, fmt.Errorf("%v: %w: %s", cmd.Args, err, &stderr)
	}
	var s sample
	if err := json.Unmarshal(out, &s); err != nil {
		return sample{}, fmt.Errorf("%v printed %q: %w", cmd.Args, out, err)
	}
	return s, nil
}
