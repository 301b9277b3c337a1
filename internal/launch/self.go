package launch

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/cpus"
	"github.com/tagmatch/tagmatch/internal/launch/link"
)

// Self runs n copies of this program, with its own arguments, as the ranks of a job. It sets
// Options.N and Command.
func Self(n int, opt Options) (int, error) {
	exe, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("launch: cannot find this program to start it again: %w", err)
	}
	opt.N, opt.Command = n, slices.Concat([]string{exe}, os.Args[1:])
	return Run(context.Background(), opt)
}

// Launched reports whether some launcher started this process as a rank, so that Self must not be
// called. It is true even if the launcher's settings are wrong or unsupported: joining the job
// returns the error.
func Launched() bool {
	f, err := bootstrap.Inspect(bootstrap.Options{})
	return err != nil || f.Launcher != "singleton"
}

// OneCPU reports whether PinSelf, which it must precede, binds this process to the first CPU that
// it may use, as Options.OneCPU has it for all ranks. By Options.Pin alone only rank 0 gets that.
func OneCPU() bool {
	list, err := cpus.Allowed()
	return err == nil && os.Getenv(EnvPin) == strconv.Itoa(list[0])
}

// WatchParent ends this process when the launcher that started it, directly or through another
// program, is gone. It does nothing in a process without a launcher of this package. Call it once,
// at the start.
func WatchParent() {
	l := link.Open(os.Getenv)
	if l == nil {
		return
	}
	go func() {
		l.Wait()
		fmt.Fprintln(os.Stderr, "tagmatch: the launcher is gone; ending")
		os.Exit(1)
	}()
}
