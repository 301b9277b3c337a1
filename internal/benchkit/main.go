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

// Command is a measuring command: a benchmark, or an example.
type Command struct {
	Name   string // for messages
	About  string // one line
	Sizes  Sizes  // default of -sizes
	Window int    // default of -window; 0: not a stream
	Iters  int    // messages of each size; 0: as many as the size calls for
	// Run measures one size on both ranks; the result of the first rank is reported. It verifies payloads before timing.
	Run func(s *Session, size, iters int) (Result, error)
	// Rows are the jobs that a plain start runs instead of one; nil: one.
	Rows func(f Flags) []Flags
}

// Main runs the command with the flags of this process and ends it.
func (c Command) Main() { os.Exit(c.Exec(os.Args[1:], os.Stdout, os.Stderr)) }

// Exec runs the command and returns its exit code. Started plainly, it launches itself as two ranks on this host, once its
// flags are known to be good.
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

// parse reads the flags. Its error is for people; of the flag package's own way only the list for -h is left.
func (c Command) parse(args []string, stderr io.Writer) (Flags, error) {
	f := Flags{Sizes: c.Sizes, Window: c.Window, Iters: c.Iters}
	fs := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	f.Register(fs)
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
	return f, f.validate(c.Window > 0, os.Getenv)
}

// start launches ranks, or is one.
func (c Command) start(f Flags, stdout io.Writer) (int, error) {
	switch {
	case launch.Launched():
	case c.Rows != nil:
		return c.rows(f, stdout)
	default:
		return launchSelf(f)
	}
	launch.WatchParent()
	if !f.NoPin {
		others, err := launch.PinSelf()
		if err != nil {
			return 1, err
		}
		if f.AsyncCPUs == asyncOthers {
			f.others = others
		}
	}
	return 0, c.rank(f, stdout)
}

// rank is the life of one rank. Ranks beyond the second wait for the end, as long as it takes.
func (c Command) rank(f Flags, stdout io.Writer) error {
	s, measure, err := join(f, stdout, c.Window > 0)
	if err != nil {
		return err
	}
	defer s.World.Close()
	if !measure {
		return s.leave(24 * time.Hour)
	}
	for _, size := range f.Sizes {
		if err := wrap(size, c.size(s, size)); err != nil {
			return err
		}
	}
	return s.leave(joinTimeout)
}

func (c Command) size(s *Session, size int) error {
	before := s.World.Metrics()
	r, err := c.Run(s, size, s.messages(size))
	if err != nil || !s.First {
		return err
	}
	now := s.World.Metrics()
	r.Offload = offload(&before, &now)
	return s.report.print(&r)
}
