package launch

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/launch/link"
)

// Self runs n copies of this program, with its own arguments, as the ranks of a job. Options.N and
// Command are set by it.
func Self(n int, opt Options) (int, error) {
	exe, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("launch: cannot find this program to start it again: %w", err)
	}
	opt.N, opt.Command = n, slices.Concat([]string{exe}, os.Args[1:])
	return Run(context.Background(), opt)
}

// Launched reports whether some launcher started this process as a rank, so that Self is not to be
// called. It is true also where the launcher's settings are wrong or cannot be used: joining the
// job will say why.
func Launched() bool {
	f, err := bootstrap.Inspect(bootstrap.Options{})
	return err != nil || f.Launcher != "singleton"
}

// WatchParent ends this process when the launcher that started it, directly or through some other
// program, is gone. It does nothing in a process that no launcher of this package has started. Call
// it once, at the start.
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
