package benchkit

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tagmatch/tagmatch/internal/launch"
	"github.com/tagmatch/tagmatch/p2p"
)

// Test is a subcommand that measures. Its fields are its flags. It embeds Common, which has a
// method for all but Run.
type Test interface {
	Register(fs *flag.FlagSet)                   // adds the flags; their values are the defaults
	Faults() []error                             // what is wrong with them that package flag does not find
	Config() p2p.Config                          // what they ask of the library
	Ranks() (started, measuring int)             // those that do not measure wait in Recv
	Jobs() []Job                                 // of a start without a launcher; nil: one, of the flags
	Messages(size int, device string) int        // where -iters leaves it open
	Run(s *Session, size, iters int) (err error) // one rank's part for a size; it reports results

	common() *Common
}

// Driver is a Test that may start its jobs by itself.
type Driver interface {
	Test
	Drives() bool // with the flags that it was given
	Drive(out io.Writer) (code int, err error)
}

// Job is one of several that are started for a table.
type Job struct {
	Ranks   int
	OneCore bool     // as the flag has it
	Args    []string // override those that were given
}

// Everyone is the number of ranks that measure where all do.
const Everyone = launch.MaxRanks

// Exec runs a test with its arguments and returns its exit code. Without a launcher it checks its
// flags and then launches itself as ranks on this host.
func Exec(name, about string, t Test, args []string, stdout, stderr io.Writer) int {
	err := parse(name, about, t, args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v (-h lists the flags)\n", name, err)
		return 2
	}
	code, err := start(t, &reporter{Table: Table{Out: stdout, JSON: t.common().JSON, About: about}})
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return max(code, 1)
	}
	return code
}

// parse reads the flags. Its error is for the user; -h prints package flag's list. What is wrong
// with the environment is told here too, once instead of once by each rank.
func parse(name, about string, t Test, args []string, stderr io.Writer) error {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	t.Register(fs)
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stderr, "%s: %s\n\nFlags:\n", name, about)
		fs.SetOutput(stderr)
		fs.PrintDefaults()
		return err
	case err != nil:
		return err
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if errs := t.Faults(); len(errs) > 0 {
		return errors.Join(errs...)
	}
	_, err = inEffect(t.Config())
	return err
}

// Launched reports whether this process is a rank that a launcher has started.
func Launched() bool { return launch.Launched() }

// start launches ranks, or is one.
func start(t Test, report *reporter) (code int, err error) {
	c := t.common()
	if !launch.Launched() {
		if d, ok := t.(Driver); ok && d.Drives() {
			return d.Drive(report.Out)
		}
		if jobs := t.Jobs(); len(jobs) > 0 {
			return inTurn(c, jobs, report)
		}
		started, _ := t.Ranks()
		return launch.Self(started, c.Options())
	}
	launch.WatchParent()
	if !c.noPin {
		if c.others, err = launch.PinSelf(); err != nil {
			return 1, err
		}
	}
	return 0, rank(t, report)
}

// rank runs one rank. Ranks that do not measure wait in Recv for the end.
func rank(t Test, report *reporter) error {
	s, err := join(t, report)
	if err != nil {
		return err
	}
	defer s.World.Close()
	_, measuring := t.Ranks()
	if s.World.Rank() >= measuring {
		return errors.Join(s.park(measuring), s.leave())
	}
	if err := s.greet(measuring, s.World.Size()); err != nil {
		return err
	}
	c := t.common()
	for _, size := range c.Sizes {
		n := c.Iters
		if n == 0 {
			n = t.Messages(size, s.device())
		}
		if err := t.Run(s, size, n); err != nil {
			return ofSize(size, err)
		}
	}
	if s.First {
		err = s.dismiss(measuring)
	}
	return errors.Join(err, s.leave(), s.verdict)
}

// ofSize adds the size to an error.
func ofSize(size int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("size %s: %w", sizeName(size), err)
}

// inTurn runs one job after the other, each this program with the job's arguments, and prints their
// results as one table. A job that failed is the last one: who interrupts it wants no other, and
// what killed a rank would come again.
func inTurn(c *Common, jobs []Job, report *reporter) (code int, err error) {
	exe, err := os.Executable()
	if err != nil {
		return 1, err
	}
	for _, j := range jobs {
		var printed strings.Builder
		code, err := j.run(exe, c.Options(), &printed)
		if err != nil {
			return code, err
		}
		if err := report.lines(printed.String()); err != nil {
			return max(code, 1), err
		}
		if code != 0 {
			return code, nil
		}
	}
	return 0, nil
}
