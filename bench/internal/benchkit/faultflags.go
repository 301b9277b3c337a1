package benchkit

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/tagmatch/tagmatch/internal/launch"
)

// MinFault is the shortest Flags.Fault: a loss is to be over before the next.
const MinFault = 5 * time.Second

// maxFaultRanks bounds the ranks of a job with -fault, where each has operations with each other.
const maxFaultRanks = 64

// envDriven is what Drive tells its ranks.
const envDriven = "BENCH_DRIVEN"

func (f *Flags) registerFaults(fs *flag.FlagSet) {
	fs.DurationVar(&f.Fault, "fault", f.Fault, "kill a rank so often, or have it exit or panic, stop some now and then, and start the job again; 0: never")
	fs.Uint64Var(&f.Seed, "seed", f.Seed, "`number` that says who dies, and how, with -fault")
}

func (f *Flags) faultFaults() (errs []error) {
	switch {
	case f.Fault == 0 && f.Seed != 0:
		errs = append(errs, fmt.Errorf("-seed is %d without -fault: give -fault some time, such as 10s", f.Seed))
	case f.Fault != 0 && f.Fault < MinFault:
		errs = append(errs, fmt.Errorf("-fault is %v: give %v or more, or 0 for no faults", f.Fault, MinFault))
	case f.Fault > f.For:
		errs = append(errs, fmt.Errorf("-fault is %v, and -for ends before, after %v", f.Fault, f.For))
	}
	if f.Fault == 0 {
		return errs
	}
	if f.Ranks > maxFaultRanks {
		errs = append(errs, fmt.Errorf("-n is %d: give up to %d ranks with -fault", f.Ranks, maxFaultRanks))
	}
	if len(f.Sizes) > 1 {
		errs = append(errs, fmt.Errorf("-sizes is %s: give one with -fault", f.Sizes.String()))
	}
	return errs
}

// driven returns an error, in a rank, where -fault is given and another launcher has started it:
// nobody would end it.
func (f *Flags) driven() error {
	if f.Fault == 0 || os.Getenv(envDriven) != "" {
		return nil
	}
	return errors.New("-fault ends ranks that this command starts, and another launcher has started this one: start the command without it")
}

// Driven are the options by which Drive starts a job of this program's ranks.
func (f *Flags) Driven() (launch.Options, error) {
	exe, err := os.Executable()
	if err != nil {
		return launch.Options{}, err
	}
	return launch.Options{N: f.Ranks, Command: append([]string{exe}, os.Args[1:]...), Env: append(os.Environ(), envDriven+"=1"),
		NoPrefix: true, Pin: !f.NoPin, OneCPU: f.OneCore, KeepGoing: true}, nil
}
