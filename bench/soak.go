package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
	"github.com/tagmatch/tagmatch/bench/internal/faults"
	"github.com/tagmatch/tagmatch/bench/internal/soak"
	"github.com/tagmatch/tagmatch/p2p"
)

// soakTest exchanges random messages, and compares each.
type soakTest struct {
	benchkit.Common
	benchkit.Crowd
	length time.Duration
	fault  time.Duration // between the ends of ranks; 0: none ends before its time
	seed   uint64        // of who ends, and how
}

func newSoak() *soakTest {
	return &soakTest{Common: benchkit.Common{Sizes: benchkit.Sizes{1 << 20}}, Crowd: benchkit.Crowd{N: 4}}
}

func (s *soakTest) Register(fs *flag.FlagSet) {
	s.Common.Register(fs)
	s.Crowd.Register(fs)
	fs.DurationVar(&s.length, "for", time.Minute, "how long messages are exchanged")
	fs.DurationVar(&s.fault, "fault", 0, "kill a rank so often, or have it exit or panic, stop some now and then, and start the job again; 0: never")
	fs.Uint64Var(&s.seed, "seed", 0, "`number` that says who dies, and how, with -fault")
}

const (
	leastFault    = 5 * time.Second // a loss is to be over before the next
	maxFaultRanks = 64              // each has operations with each other
	envDriven     = "BENCH_DRIVEN"  // set by Drive
)

func (s *soakTest) Faults() []error {
	errs := append(append(s.Common.Faults(), s.Crowd.Faults()...), benchkit.SomeTime(s.length)...)
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	drives := s.Drives()
	wrong(!drives && s.seed != 0, "-seed is %d without -fault: give -fault some time, such as 10s", s.seed)
	wrong(drives && s.fault < leastFault, "-fault is %v: give %v or more, or 0 for no faults", s.fault, leastFault)
	wrong(s.fault > s.length, "-fault is %v, and -for ends before, after %v", s.fault, s.length)
	wrong(drives && s.N > maxFaultRanks, "-n is %d: give up to %d ranks with -fault", s.N, maxFaultRanks)
	wrong(drives && len(s.Sizes) > 1, "-sizes is %s: give one with -fault", s.Sizes.String())
	wrong(drives && benchkit.Launched() && os.Getenv(envDriven) == "",
		"-fault ends ranks that this command starts, and another launcher has started this one: start the command without it")
	return errs
}

func (s *soakTest) Ranks() (started, measuring int) { return s.N, benchkit.Everyone }

func (s *soakTest) Messages(int, string) int { return 50 }

func (s *soakTest) Run(w *benchkit.Session, size, count int) error {
	if s.Drives() {
		w.Left = true
		return endure(w.World, soak.Options{Size: size, Count: count})
	}
	start := time.Now()
	t, err := soak.Run(w.World, soak.Options{Size: size, Count: count, For: s.length})
	seconds := time.Since(start).Seconds()
	r := w.Result("soak", size, count, time.Since(start))
	r.Ranks, r.Soak, r.AvgUs = w.World.Size(), &t, 0
	r.MBs, r.MsgS = float64(t.Bytes)/seconds/1e6, float64(t.Messages)/seconds
	return w.Report(r, err)
}

func (s *soakTest) Drives() bool { return s.fault != 0 }

// Drive starts the jobs of which a rank dies.
func (s *soakTest) Drive(out io.Writer) (int, error) {
	exe, err := os.Executable()
	if err != nil {
		return 1, err
	}
	opt := s.Options()
	opt.N, opt.KeepGoing, opt.Env = s.N, true, append(os.Environ(), envDriven+"=1")
	opt.Command = append([]string{exe}, os.Args[1:]...)
	return faults.Drive(faults.Options{Job: opt, Every: s.fault, For: s.length, Seed: s.seed, JSON: s.JSON}, out)
}

// endure is the side of a rank of such a job.
func endure(w *p2p.World, o soak.Options) error {
	r := faults.Join(w.Rank())
	t, loss, err := soak.Endure(w, o, r.Ready)
	if err != nil {
		return err
	}
	if err = r.Over(faults.Survivor{Lost: loss.Rank, At: loss.At, Over: loss.Over, Soak: t}); err != nil {
		return err
	}
	if err := w.Shutdown(context.Background()); !errors.Is(err, p2p.ErrPeerLost) {
		return errors.Join(errors.New("the end of a job that has lost a rank does not tell of the loss"), err)
	}
	return nil
}
