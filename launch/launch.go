// Package launch lets a program start itself as the ranks of a job on this host, where no launcher
// has started it. `tagmatch run`, and any launcher that package bootstrap knows, starts the same
// program as it is.
//
// Concurrency: Self is called once, at the start of a program, before it has other goroutines.
package launch

import (
	"io"

	"github.com/tagmatch/tagmatch/internal/launch"
)

// MaxRanks bounds the number of ranks of Self.
const MaxRanks = launch.MaxRanks

// Options of Self. The zero value is a good default.
type Options struct {
	Stdout, Stderr io.Writer // for the output of all ranks; default os.Stdout and os.Stderr

	Prefix bool // put "[rank] " in front of each line
	Pin    bool // bind each rank to a processor of its own while there are enough; Linux
}

// Self makes this process a rank of a job. Where a launcher has started it Self returns rank true,
// and the program goes on with p2p.Init. Otherwise Self runs n copies of the program, with its own
// arguments, environment and directory, and returns when all have ended: rank is false, and code is
// what the program is to exit with. It is 0, or the first other code of a rank, which ends the
// others; 128 and the signal's number where a signal has ended that rank. Ranks end with this
// process. An error, with a code other than 0, is a job that could not be started, or Pin refused.
func Self(n int, opt Options) (code int, rank bool, err error) {
	if !launch.Launched() {
		code, err = launch.Self(n, launch.Options{Stdout: opt.Stdout, Stderr: opt.Stderr, NoPrefix: !opt.Prefix, Pin: opt.Pin})
		return code, false, err
	}
	launch.WatchParent()
	if opt.Pin {
		if _, err := launch.PinSelf(); err != nil {
			return 1, false, err
		}
	}
	return 0, true, nil
}
