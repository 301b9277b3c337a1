package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/trace/timeline"
	"github.com/tagmatch/tagmatch/internal/trace/tracing"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() { roles["recorded"] = recordedRole }

// Args of recordedRole: how the job ends.
const (
	recordedShutdown = iota
	recordedKill     // rank 1 kills itself
	recordedAbort    // rank 1 aborts the job
)

// recordedRole: ranks exchange messages, then the job ends.
func recordedRole(ctx context.Context, w *p2p.World) error {
	for i := range tracedMessages {
		if err := exchangeTraced(ctx, w, i); err != nil {
			return err
		}
	}
	if err := w.Comm().Barrier(ctx); err != nil || number(argVar) == recordedShutdown {
		return err
	}
	if w.Rank() == 1 {
		if number(argVar) == recordedKill {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		w.Abort(7, "enough")
	}
	_, err := w.Comm().Recv(ctx, 1, 1<<20, nil)
	if !errors.Is(err, p2p.ErrPeerLost) && !errors.Is(err, p2p.ErrAborted) {
		return fmt.Errorf("the receive ends with %w", err)
	}
	if w.Rank() == 0 {
		os.Exit(3) // as programs do that do not expect it
	}
	return errors.Join(w.Close(), err)
}

// TestRecorded: ranks record from their beginning into files, which are left where the job does not
// end well, however a rank has ended, and have all messages.
func TestRecorded(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		for how, name := range []string{"shutdown", "kill", "abort"} {
			t.Run(name, func(t *testing.T) {
				dir := t.TempDir()
				r := job{n: 3, role: "recorded", device: device, arg: how, keep: true, env: []string{"TAGMATCH_TRACE=ring:" + dir}}.run(t)
				require.NotContains(t, r.err, "TAGMATCH_TRACE")
				files, err := filepath.Glob(filepath.Join(dir, "tagmatch-*.trace"))
				require.NoError(t, err)
				if how == recordedShutdown {
					require.Zero(t, r.code, r.err)
					require.Empty(t, files)
					return
				}
				require.NotZero(t, r.code)
				require.Len(t, files, 3)
				ranks, err := tracing.ReadFiles(files)
				require.NoError(t, err)
				require.NoError(t, judgeTraced(timeline.New(ranks)))
			})
		}
	})
}
