package benchkit

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tagmatch/tagmatch/internal/launch"
	"github.com/tagmatch/tagmatch/p2p"
)

// Common are the flags of every test.
type Common struct {
	Sizes Sizes
	Iters int // 0: chosen by size
	JSON  bool

	device, transport   string
	offloadMin, maxTags int // below 0: from the environment, or the default
	manual              bool
	async               p2p.AsyncMode // AsyncDefault where -async is not given
	noPin, oneCore      bool
	procs               int

	others []int // processors from which pinning keeps this rank
}

func (c *Common) common() *Common { return c }

// Register adds the flags.
func (c *Common) Register(fs *flag.FlagSet) {
	fs.StringVar(&c.device, "device", "auto", "`name`: "+strings.Join(devices(), ", ")+", or several of them with commas, best first")
	fs.StringVar(&c.transport, "transport", "auto", "`name`: "+strings.Join(transports(), ", ")+"; with tmsrq the device matches")
	fs.IntVar(&c.offloadMin, "offload-min", -1, "`bytes` of the smallest receive that the device matches, 0: of any size, -1: as TAGMATCH_OFFLOAD_MIN says")
	fs.IntVar(&c.maxTags, "max-tags", -1, "`receives` that the device's tag list holds, 0: none, -1: as TAGMATCH_MAX_TAGS says")
	fs.BoolVar(&c.manual, "manual", false, "without the progress goroutine")
	fs.BoolFunc("async", "let the device work by itself while the program computes, =false: do not; else as TAGMATCH_ASYNC says, or a line of overlap's table", c.setAsync)
	fs.Var(&c.Sizes, "sizes", "message `sizes` in bytes, separated by commas; k and m are powers of 1024")
	fs.IntVar(&c.Iters, "iters", c.Iters, "messages of each size, 0: as many as the size calls for")
	fs.BoolVar(&c.JSON, "json", false, "print one JSON object a line instead of a table")
	fs.BoolVar(&c.noPin, "nopin", false, "leave ranks where the kernel puts them, instead of on distinct processors")
	fs.BoolVar(&c.oneCore, "onecore", false, "pin all ranks to one processor, where the command starts them")
	fs.IntVar(&c.procs, "gomaxprocs", 0, "set GOMAXPROCS in each rank, 0: leave it")
}

func (c *Common) setAsync(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return errors.New("give true or false")
	}
	c.async = asyncMode(on)
	return nil
}

func asyncMode(on bool) p2p.AsyncMode {
	if on {
		return p2p.AsyncOn
	}
	return p2p.AsyncOff
}

// Limits of flags; those of offloadMin and maxTags are p2p.Config's.
const (
	maxSize       = 1 << 30
	maxProcs      = 1 << 10
	maxCount      = 10_000_000
	maxOffloadMin = 1 << 40
	maxTags       = 1 << 16
)

// Faults of the flags.
func (c *Common) Faults() []error {
	var errs []error
	name := func(flag, value string, allowed []string) {
		if value != "" && !slices.Contains(allowed, value) {
			errs = append(errs, fmt.Errorf("-%s is %q: this build has %s", flag, value, strings.Join(allowed, ", ")))
		}
	}
	// One by one: Init reports what is wrong with several together.
	for device := range strings.SplitSeq(c.device, ",") {
		name("device", device, devices())
	}
	name("transport", c.transport, transports())
	if c.Iters < 0 {
		errs = append(errs, fmt.Errorf("-iters is %d: give 1 or more, or 0 for as many as the size calls for", c.Iters))
	}
	if c.oneCore && c.noPin {
		errs = append(errs, errors.New("-onecore and -nopin exclude each other"))
	}
	if c.offloadMin < -1 || c.offloadMin > maxOffloadMin {
		errs = append(errs, fmt.Errorf("-offload-min is %d: give 0 to %d bytes, or -1 for the default", c.offloadMin, maxOffloadMin))
	}
	if c.maxTags < -1 || c.maxTags > maxTags {
		errs = append(errs, fmt.Errorf("-max-tags is %d: give 0 to %d, or -1 for the default", c.maxTags, maxTags))
	}
	if c.procs < 0 || c.procs > maxProcs {
		errs = append(errs, fmt.Errorf("-gomaxprocs is %d: give 1 to %d, or 0 to leave it", c.procs, maxProcs))
	}
	if c.oneCore && launch.Launched() && !launch.OneCPU() {
		// Nothing would be measured on one processor, and the table would say so.
		errs = append(errs, errors.New("-onecore pins ranks that this command starts, and another launcher has started this one: "+
			"start the command without it, or bind all ranks to one processor by other means (taskset -c 0) and give no -onecore"))
	}
	return errs
}

// Config has the flags. In a p2p.Config 0 means the default and -1 none.
func (c *Common) Config() p2p.Config {
	none := func(n int) int {
		switch {
		case n < 0:
			return 0
		case n == 0:
			return -1
		}
		return n
	}
	given := func(name string) string {
		if name == "auto" {
			return ""
		}
		return name
	}
	config := p2p.Config{Device: given(c.device), Transport: given(c.transport), OffloadMin: none(c.offloadMin), MaxTags: none(c.maxTags), Async: c.async}
	if c.manual {
		config.Progress = p2p.ProgressManual
	}
	return config
}

// Ranks of a test between two.
func (c *Common) Ranks() (started, measuring int) { return 2, 2 }

// Jobs are one.
func (c *Common) Jobs() []Job { return nil }

// Messages of a size that take some tenths of a second.
func (c *Common) Messages(size int, device string) int {
	n := 200_000
	switch {
	case size > 256<<10:
		n = max(2<<30/size, 20)
	case size > 8<<10:
		n = 10_000
	case size > 1<<10:
		n = 50_000
	}
	if device != "shm" {
		n = max(n/10, 20)
	}
	return n
}

// Verified is Common for tests that may verify payloads while they measure.
type Verified struct {
	Common
	Check bool
}

// Register adds the flags.
func (v *Verified) Register(fs *flag.FlagSet) {
	v.Common.Register(fs)
	fs.BoolVar(&v.Check, "check", false, "verify every payload, not only those before timing; slower")
}

// Messages are fewer where all are verified.
func (v *Verified) Messages(size int, device string) int {
	n := v.Common.Messages(size, device)
	if v.Check {
		n = max(n/20, 10)
	}
	return n
}

// Crowd is the flag of tests among any number of ranks.
type Crowd struct{ N int }

// Register adds the flag.
func (c *Crowd) Register(fs *flag.FlagSet) {
	fs.IntVar(&c.N, "n", c.N, "`ranks` of the job, where the command starts it")
}

// Faults of the flag.
func (c *Crowd) Faults() []error {
	if c.N < 2 || c.N > launch.MaxRanks {
		return []error{fmt.Errorf("-n is %d: give 2 to %d ranks", c.N, launch.MaxRanks)}
	}
	return nil
}

// overTwo are a job of two ranks, and one of as many as -n says.
func (c *Crowd) overTwo() (jobs []Job) {
	for _, n := range []int{2, c.N} {
		jobs = append(jobs, Job{Ranks: n, Args: []string{"-n", strconv.Itoa(n)}})
	}
	return jobs
}

// Options are those of the launcher.
func (c *Common) Options() launch.Options {
	return launch.Options{NoPrefix: true, Pin: !c.noPin, OneCPU: c.oneCore}
}

// run runs the job and returns its exit code. Its ranks print to out.
func (j *Job) run(exe string, opt launch.Options, out io.Writer) (int, error) {
	args := j.Args
	if j.OneCore {
		args, opt.OneCPU = append(args, "-onecore"), true
	}
	opt.N, opt.Stdout, opt.Command = j.Ranks, out, slices.Concat([]string{exe}, os.Args[1:], args, []string{"-json"})
	return launch.Run(context.Background(), opt)
}

// either is the value of a flag, or all values if it has the value open.
func either(given, open string, all ...string) []string {
	if given != open {
		return []string{given}
	}
	return all
}

// Sizes is a list of message sizes as a flag.
type Sizes []int

// String is the list as Set reads it.
func (s *Sizes) String() string {
	var parts []string
	for _, n := range *s {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ",")
}

// Set reads a list such as 8,1k,4m.
func (s *Sizes) Set(text string) error {
	var list Sizes
	for part := range strings.SplitSeq(text, ",") {
		digits, shift := part, 0
		if part != "" {
			if i := strings.IndexByte("km", part[len(part)-1]|0x20); i >= 0 {
				digits, shift = part[:len(part)-1], 10*(i+1)
			}
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 || n > maxSize>>shift {
			return fmt.Errorf("%q is not a size: give 0 to %d bytes, for example 8,1k,4m", part, maxSize)
		}
		list = append(list, n<<shift)
	}
	*s = list
	return nil
}

// Counts is a list of numbers as a flag.
type Counts []int

// String is the list as Set reads it.
func (c *Counts) String() string { return (*Sizes)(c).String() }

// Set reads a list such as 16,1000.
func (c *Counts) Set(text string) error {
	var list Counts
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > maxCount {
			return fmt.Errorf("%q is not a number that can be used here: give 1 to %d, for example 16,1000", part, maxCount)
		}
		list = append(list, n)
	}
	*c = list
	return nil
}
