package benchkit

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/internal/launch"
	"github.com/tagmatch/tagmatch/p2p"
)

// Flags are the flags of every measuring command.
type Flags struct {
	Device     string
	Transport  string
	Sizes      Sizes
	Iters      int // 0: chosen by size
	Window     int // 0: the command has no window
	Cold       bool
	Many       bool
	Ranks      int // 0: the command is for a pair
	Check      bool
	JSON       bool
	NoPin      bool
	OffloadMin int // below 0: from the environment, or the default
	MaxTags    int // below 0: the same
	Manual     bool
	Async      p2p.AsyncMode // AsyncDefault where -async is not given
	GOMAXPROCS int
	OneCore    bool
	While      string // what the flooded rank does meanwhile; "": no flood
	Depths     Counts // nil: the command queues nothing
	Kind       string // of the queued entries
	Goroutines Counts // of each rank; nil: one
	Parts      Counts // of a message; nil: one
	For        time.Duration
	Waiter     string        // beside the server; no flag
	Fault      time.Duration // between the ends of ranks; 0: none ends before its time
	Seed       uint64        // of who ends, and how

	others []int // processors from which pinning keeps this rank
}

// Register adds the flags to fs, except for -check; the values in f are the defaults.
func (f *Flags) Register(fs *flag.FlagSet) {
	fs.StringVar(&f.Device, "device", "auto", "`name`: "+strings.Join(p2p.Devices(), ", ")+", or several of them with commas, best first")
	fs.StringVar(&f.Transport, "transport", "auto", "`name`: "+strings.Join(p2p.Transports(), ", ")+"; with tmsrq the device matches")
	fs.IntVar(&f.OffloadMin, "offload-min", -1, "`bytes` of the smallest receive that the device matches, 0: of any size, -1: as TAGMATCH_OFFLOAD_MIN says")
	fs.IntVar(&f.MaxTags, "max-tags", -1, "`receives` that the device's tag list holds, 0: none, -1: as TAGMATCH_MAX_TAGS says")
	fs.BoolVar(&f.Manual, "manual", false, "without the progress goroutine")
	fs.BoolFunc("async", "let the device work by itself while the program computes, =false: do not; else as TAGMATCH_ASYNC says, or a line of overlap's table", f.setAsync)
	fs.Var(&f.Sizes, "sizes", "message `sizes` in bytes, separated by commas; k and m are powers of 1024")
	fs.IntVar(&f.Iters, f.iters(), f.Iters, "messages of each size, 0: as many as the size calls for")
	if f.While != "" {
		fs.StringVar(&f.While, "while", f.While, "`what` the flooded rank does until everything is posted: "+strings.Join(whiles, ", "))
	}
	if f.Depths != nil {
		fs.Var(&f.Depths, "depths", "`numbers` of queued entries, separated by commas")
		fs.StringVar(&f.Kind, "kind", f.Kind, "`what` the queued entries are: "+strings.Join(kinds, ", "))
	}
	if f.Goroutines != nil {
		fs.Var(&f.Goroutines, "goroutines", "`numbers` of goroutines of each rank, each of which exchanges messages with its like")
	}
	if f.Parts != nil {
		fs.Var(&f.Parts, "parts", "`numbers` of parts of a message")
	}
	if f.For > 0 {
		fs.DurationVar(&f.For, "for", f.For, "how long a rank waits, or messages are exchanged")
	}
	if f.Window > 0 {
		fs.IntVar(&f.Window, "window", f.Window, "messages under way at once")
		if f.Goroutines != nil {
			fs.BoolVar(&f.Many, "many", false, "let one call post a window, instead of one call each message")
		}
		fs.BoolVar(&f.Cold, "cold", false, "take another buffer for each message, from so many that none is in a cache")
	}
	if f.Ranks > 0 {
		fs.IntVar(&f.Ranks, "n", f.Ranks, "`ranks` of the job, where the command starts it")
	}
	fs.BoolVar(&f.JSON, "json", false, "print one JSON object a line instead of a table")
	fs.BoolVar(&f.NoPin, "nopin", false, "leave ranks where the kernel puts them, instead of on distinct processors")
	fs.BoolVar(&f.OneCore, "onecore", false, "pin all ranks to one processor, where the command starts them")
	fs.IntVar(&f.GOMAXPROCS, "gomaxprocs", 0, "set GOMAXPROCS in each rank, 0: leave it")
}

func (f *Flags) setAsync(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return errors.New("give true or false")
	}
	f.Async = asyncMode(on)
	return nil
}

func asyncMode(on bool) p2p.AsyncMode {
	if on {
		return p2p.AsyncOn
	}
	return p2p.AsyncOff
}

// iters is the name of the flag of Iters.
func (f *Flags) iters() string {
	if f.While != "" {
		return "messages"
	}
	return "iters"
}

// validate reports the faults that package flag does not find, and those of the environment: once,
// instead of once by each rank.
func (f *Flags) validate(c *Command, getenv func(string) string) error {
	errs := f.faults(c)
	if len(errs) == 0 {
		config := f.config()
		_, err := config.Effective(getenv)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (f *Flags) faults(c *Command) (errs []error) {
	name := func(flag, value string, allowed []string) {
		if value != "" && !slices.Contains(allowed, value) {
			errs = append(errs, fmt.Errorf("-%s is %q: this build has %s", flag, value, strings.Join(allowed, ", ")))
		}
	}
	// One by one: Init reports what is wrong with several together.
	for _, device := range strings.Split(f.Device, ",") {
		name("device", device, p2p.Devices())
	}
	name("transport", f.Transport, p2p.Transports())
	if f.Iters < 0 {
		errs = append(errs, fmt.Errorf("-%s is %d: give 1 or more, or 0 for as many as the size calls for", f.iters(), f.Iters))
	}
	if f.While != "" && !slices.Contains(whiles, f.While) {
		errs = append(errs, fmt.Errorf("-while is %q: give one of %s", f.While, strings.Join(whiles, ", ")))
	}
	if c.Depths != nil && !slices.Contains(kinds, f.Kind) {
		errs = append(errs, fmt.Errorf("-kind is %q: give one of %s", f.Kind, strings.Join(kinds, ", ")))
	}
	if most := slices.Max(append(f.Goroutines, 0)); most > maxGoroutines {
		errs = append(errs, fmt.Errorf("-goroutines has %d: give 1 to %d", most, maxGoroutines))
	}
	if c.For > 0 && f.For <= 0 {
		errs = append(errs, fmt.Errorf("-for is %v: give some time, such as 10s", f.For))
	}
	if c.Window > 0 && (f.Window < 1 || f.Window > maxWindow) {
		errs = append(errs, fmt.Errorf("-window is %d: give 1 to %d", f.Window, maxWindow))
	}
	if c.N > 0 && (f.Ranks < 2 || f.Ranks > launch.MaxRanks) {
		errs = append(errs, fmt.Errorf("-n is %d: give 2 to %d ranks", f.Ranks, launch.MaxRanks))
	}
	errs = append(errs, f.faultFaults()...)
	if f.OneCore && f.NoPin {
		errs = append(errs, errors.New("-onecore and -nopin exclude each other"))
	}
	if f.OffloadMin < -1 || f.OffloadMin > maxOffloadMin {
		errs = append(errs, fmt.Errorf("-offload-min is %d: give 0 to %d bytes, or -1 for the default", f.OffloadMin, maxOffloadMin))
	}
	if f.MaxTags < -1 || f.MaxTags > maxTags {
		errs = append(errs, fmt.Errorf("-max-tags is %d: give 0 to %d, or -1 for the default", f.MaxTags, maxTags))
	}
	if f.GOMAXPROCS < 0 || f.GOMAXPROCS > maxProcs {
		errs = append(errs, fmt.Errorf("-gomaxprocs is %d: give 1 to %d, or 0 to leave it", f.GOMAXPROCS, maxProcs))
	}
	return errs
}

// oneCore returns an error, under a launcher, where -onecore is not what the launcher has done:
// nothing would be measured on one processor, and the table would say so.
func (f *Flags) oneCore() error {
	if !f.OneCore || launch.OneCPU() {
		return nil
	}
	return errors.New("-onecore pins ranks that this command starts, and another launcher has started this one: " +
		"start the command without it, or bind all ranks to one processor by other means (taskset -c 0) and give no -onecore")
}

// config converts the flags to a Config. There 0 means the default and -1 none.
func (f *Flags) config() p2p.Config {
	none := func(n int) int {
		switch {
		case n < 0:
			return 0
		case n == 0:
			return -1
		}
		return n
	}
	c := p2p.Config{Device: given(f.Device), Transport: given(f.Transport), OffloadMin: none(f.OffloadMin), MaxTags: none(f.MaxTags),
		Async: f.Async}
	if f.While != "" {
		c.SendLimit = floodSendLimit
	}
	if f.Depths != nil {
		c.UnexpectedLimit = f.depthLimit()
	}
	if f.Manual {
		c.Progress = p2p.ProgressManual
	}
	return c
}

const (
	maxSize   = 1 << 30
	maxWindow = 1 << 14
	maxProcs  = 1 << 10
	maxCount  = 10_000_000

	maxGoroutines = 1 << 16

	// The same limits as in p2p.Config.
	maxOffloadMin = 1 << 40
	maxTags       = 1 << 16
)

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
		if i := strings.IndexByte("km", lastLower(part)); i >= 0 {
			digits, shift = part[:len(part)-1], 10*(i+1)
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

func lastLower(s string) byte {
	if s == "" {
		return 0
	}
	return s[len(s)-1] | 0x20
}
