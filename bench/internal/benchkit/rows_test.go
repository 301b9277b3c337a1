package benchkit_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
	"github.com/tagmatch/tagmatch/internal/cmdtest"
	"github.com/tagmatch/tagmatch/p2p"
)

func TestMain(m *testing.M) { cmdtest.Main(m, command) }

// jobs is a test of two jobs. Its first argument is what happens in each of them when a result was
// printed.
type jobs struct{ benchkit.Common }

func (*jobs) Jobs() []benchkit.Job { return []benchkit.Job{{Ranks: 2}, {Ranks: 2}} }

func (*jobs) Run(s *benchkit.Session, size, iters int) error {
	if size == 9 {
		switch os.Args[1] {
		case "interrupted":
			return signal(s, 0, os.Getppid(), os.Interrupt)
		case "killed":
			return signal(s, 1, os.Getpid(), os.Kill)
		case "failed":
			return errors.New("failed")
		}
	}
	return s.Report(s.Result("jobs", size, iters, 1), nil)
}

func command() {
	t := &jobs{benchkit.Common{Sizes: benchkit.Sizes{8, 9}, Iters: 1}}
	os.Exit(benchkit.Exec("jobs", "", t, os.Args[2:], os.Stdout, os.Stderr))
}

// signal has a rank signal a process. Rank 0, which has printed a result by now, begins; then both
// wait for what never comes.
func signal(s *benchkit.Session, rank, pid int, sig os.Signal) error {
	ctx, w := context.Background(), s.World
	const begin, never = 1, 2
	if s.First {
		if err := w.Send(ctx, s.Peer, begin, nil); err != nil {
			return err
		}
	} else if _, err := w.Recv(ctx, begin, p2p.MaskExact, nil); err != nil {
		return err
	}
	if w.Rank() == rank {
		p, err := os.FindProcess(pid)
		if err != nil {
			return err
		}
		if err = p.Signal(sig); err != nil {
			return err
		}
	}
	_, err := w.Recv(ctx, never, p2p.MaskExact, nil)
	return err
}

// TestLastJob: after a job that was interrupted, or failed, there is no other, although its ranks
// have printed results; a verdict does not stop the others.
func TestLastJob(t *testing.T) {
	for how, want := range map[string]struct {
		code, results int
		stderr        string
	}{
		"interrupted": {130, 1, "got interrupt"},
		"killed":      {137, 1, "rank 1 was killed"},
		"failed":      {1, 1, "failed"},
	} {
		t.Run(how, func(t *testing.T) {
			stdout, stderr, err := cmdtest.Run(t, how, "-nopin", "-json")
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, want.code, exit.ExitCode(), stderr)
			require.Equal(t, want.results, strings.Count(stdout, `"test":"jobs"`), "%s%s", stdout, stderr)
			require.Contains(t, stderr, want.stderr)
		})
	}
}
