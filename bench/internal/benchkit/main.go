package benchkit

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tagmatch/tagmatch/internal/launch"
)

// Test measures one size on all participating ranks; the result of the first rank is reported. It
// verifies payloads before timing.
type Test func(s *Session, size, iters int) (Result, error)

// Command is a measuring command: a benchmark, or an example.
type Command struct {
	Name   string        // for messages
	About  string        // one line
	Sizes  Sizes         // default of -sizes
	Window int           // default of -window; 0: not a stream
	Iters  int           // messages of each size; 0: see Messages
	Ranks  int           // that participate, others wait; 0: two
	N      int           // default of -n, 0: no such flag
	Parked bool          // those beyond Ranks wait in Recv; else, with N, all participate
	Flood  bool          // it has the flags of a flood
	Depths Counts        // default of -depths; nil: no such flag, nor -kind
	For    time.Duration // default of -for; 0: no such flag
	// NoCheck: no flag -check, as payloads are compared anyway, or are none that could be.
	NoCheck bool
	// Goroutines is the default of -goroutines; nil: no such flag.
	Goroutines Counts
	// Parts is the default of -parts; nil: no such flag.
	Parts Counts
	// Drive starts jobs of which a rank dies every Flags.Fault, and Endure is the part of a rank;
	// nil: no flags -fault and -seed.
	Drive  func(f Flags, stdout io.Writer) (code int, err error)
	Endure func(s *Session) error
	// Messages is the default number for a size; nil: as many as take some tenths of a second.
	Messages func(size int) int
	Run      Test
	// Rows are the jobs of a start without a launcher; nil, or none: one.
	Rows func(f Flags) []Flags
	// Cases are what a job measures with each size, one after the other; nil: its flags.
	Cases func(f Flags) []Flags
}

// Main runs the command with the flags of this process, and exits.
func (c Command) Main() { os.Exit(c.Exec(os.Args[1:], os.Stdout, os.Stderr)) }

// Exec runs the command and returns its exit code. Without a launcher it checks its flags and then
// launches itself as ranks on this host.
func (c Command) Exec(args []string, stdout, stderr io.Writer) int {
	f, err := c.parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v (-h lists the flags)\n", c.Name, err)
		return 2
	}
	code, err := c.start(f, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", c.Name, err)
		return max(code, 1)
	}
	return code
}

// parse reads the flags. Its error is for the user; -h prints package flag's list.
func (c Command) parse(args []string, stderr io.Writer) (Flags, error) {
	f := Flags{Sizes: c.Sizes, Window: c.Window, Iters: c.Iters, Ranks: c.N, Depths: c.Depths, Goroutines: c.Goroutines, Parts: c.Parts, For: c.For}
	if c.Flood {
		f.While = whileBoth
	}
	if c.Depths != nil {
		f.Kind = kindAll
	}
	fs := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	f.Register(fs)
	if c.Drive != nil {
		f.registerFaults(fs)
	}
	if !c.NoCheck {
		fs.BoolVar(&f.Check, "check", false, "verify every payload, not only those before timing; slower")
	}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stderr, "%s: %s\n\nFlags:\n", c.Name, c.About)
		fs.SetOutput(stderr)
		fs.PrintDefaults()
		return f, err
	case err != nil:
		return f, err
	case fs.NArg() > 0:
		return f, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return f, f.validate(&c, os.Getenv)
}

// start launches ranks, or is one.
func (c Command) start(f Flags, stdout io.Writer) (int, error) {
	if !launch.Launched() {
		if f.Fault > 0 {
			return c.Drive(f, stdout)
		}
		if rows := c.jobs(f); len(rows) > 0 {
			return c.rows(f, rows, stdout)
		}
		return launch.Self(max(c.ranks(), f.Ranks), launch.Options{NoPrefix: true, Pin: !f.NoPin, OneCPU: f.OneCore})
	}
	if err := errors.Join(c.one(f), f.oneCore(), f.driven()); err != nil {
		return 2, err
	}
	launch.WatchParent()
	if !f.NoPin {
		var err error
		if f.others, err = launch.PinSelf(); err != nil {
			return 1, err
		}
	}
	return 0, c.rank(f, stdout)
}

func (c Command) jobs(f Flags) []Flags {
	if c.Rows == nil {
		return nil
	}
	return c.Rows(f)
}

func (c Command) ranks() int { return max(c.Ranks, 2) }

// rank runs one rank. Ranks that do not participate wait in Recv for the end.
func (c Command) rank(f Flags, stdout io.Writer) error {
	s, measure, err := join(f, stdout, &c)
	if err != nil {
		return err
	}
	defer s.World.Close()
	if f.Fault > 0 {
		return c.Endure(s)
	}
	if !measure {
		return errors.Join(s.park(c.ranks()), s.leave(joinTimeout))
	}
	parked := s.World.Size()
	if c.N > 0 && !c.Parked {
		parked = 0
	}
	if err = s.greet(c.ranks(), parked); err != nil {
		return err
	}
	verdict, err := c.measure(s, f)
	if err != nil {
		return err
	}
	if s.First && parked > 0 {
		err = s.dismiss(c.ranks())
	}
	return errors.Join(err, s.leave(joinTimeout), verdict)
}

// measure measures all sizes and cases. verdict is that of the test on its results.
func (c Command) measure(s *Session, f Flags) (verdict, err error) {
	for _, size := range f.Sizes {
		for _, s.Flags = range c.cases(f) {
			judged, err := c.size(s, size)
			if err != nil {
				return nil, wrap(size, err)
			}
			verdict = errors.Join(verdict, wrap(size, judged))
		}
	}
	return verdict, nil
}

func (c Command) cases(f Flags) []Flags {
	if c.Cases == nil {
		return []Flags{f}
	}
	return c.Cases(f)
}

// size measures one size. judged is the verdict of the test on its result.
func (c Command) size(s *Session, size int) (judged, err error) {
	before := s.World.Metrics()
	n := s.Iters
	if n == 0 && c.Messages != nil {
		n = c.Messages(size)
	} else if n == 0 {
		n = s.messages(size)
	}
	r, err := c.Run(s, size, n)
	if err != nil || !s.First {
		return nil, err
	}
	now := s.World.Metrics()
	r.Offload = offload(&before, &now)
	return r.Flood.verdict(), s.report.print(&r)
}
