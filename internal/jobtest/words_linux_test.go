package jobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/launch"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["left"] = leftRole
	roles["hello"] = helloRole
	roles["cause"] = causeRole
	roles["outlived"] = outlivedRole
}

// Ways for rank 1 to leave the job.
const (
	byKill = iota
	byExit
	byClose
	byCode
	byError
)

// leftRole: rank 1 leaves while rank 0 waits for it, which fails with the error.
func leftRole(ctx context.Context, w *p2p.World) error {
	signal.Ignore(syscall.SIGTERM) // rank 0's output is needed, however late
	if err := exchangeBefore(ctx, w); err != nil {
		return err
	}
	if w.Rank() == 0 {
		_, err := w.Comm().Recv(ctx, 1, 5, nil)
		return err
	}
	return leave(w)
}

// exchangeBefore exchanges messages before something happens to rank 1.
func exchangeBefore(ctx context.Context, w *p2p.World) error {
	if _, err := exchange(ctx, w, 1, make([]uint64, w.Size())); err != nil {
		return err
	}
	return received(ctx, w)
}

// leave has this rank leave the job in the way that argVar names.
func leave(w *p2p.World) error {
	switch number(argVar) {
	case byKill:
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case byExit:
		os.Exit(0)
	case byCode:
		os.Exit(3)
	case byError:
		return errors.New("not well")
	}
	return w.Close()
}

// causeRole: rank 0 fails, and so closes its World, which waits for all. Rank 1 notices, and rank 2
// does not, until it is ended.
func causeRole(ctx context.Context, w *p2p.World) error {
	if _, err := exchange(ctx, w, 1, make([]uint64, w.Size())); err != nil {
		return err
	}
	switch w.Rank() {
	case 0:
		if _, err := w.Comm().Recv(ctx, 2, 6, nil); err != nil {
			return err
		}
		return errors.New("the cause")
	case 2:
		if err := w.Comm().Send(ctx, 0, 6, nil); err != nil {
			return err
		}
		time.Sleep(time.Minute)
	}
	_, err := w.Comm().Recv(ctx, 0, 5, nil)
	return err
}

// helloRole prints the size of the world.
func helloRole(_ context.Context, w *p2p.World) error {
	fmt.Printf("rank %d of %d\n", w.Rank(), w.Size())
	return nil
}

// TestWords: the texts that the users of a rank and of the launcher read when another rank has
// gone.
func TestWords(t *testing.T) {
	for arg, want := range []struct{ rank, launcher string }{
		byKill:  {"its process has ended or was killed", "tagmatch: rank 1 was killed by a signal: killed\n"},
		byExit:  {"its process has ended or was killed", "tagmatch: rank 1 ended with code 0, but without Shutdown; rank 0 exited with code 1\n"},
		byClose: {"it has closed its World while this rank still counted on it", "tagmatch: rank 1 left the job without a complete Shutdown; rank 0 exited with code 1\n"},
	} {
		eachDevice(t, func(t *testing.T, device string) {
			for _, env := range [][]string{nil, tmsrqEnv} {
				r := job{n: 2, role: "left", device: device, arg: arg, env: env}.run(t)
				require.NotZero(t, r.code)
				require.Contains(t, r.err, "[0] left: p2p: recv from 1, tag 0x5: rank 1 lost: "+want.rank+"\n", "%s%s", r.out, r.err)
				require.Contains(t, r.err, want.launcher, "%s%s", r.out, r.err)
			}
		})
	}
}

// outlivedRole: rank 1 leaves, and the others end well without it.
func outlivedRole(ctx context.Context, w *p2p.World) error {
	if w.Rank() == 1 {
		for _, other := range []int{0, 2} { // they have left Init
			if _, err := w.Comm().Recv(ctx, other, 4, nil); err != nil {
				return err
			}
		}
		return leave(w)
	}
	if err := w.Comm().Send(ctx, 1, 4, nil); err != nil {
		return err
	}
	if _, err := w.Comm().Recv(ctx, 1, 5, nil); !errors.Is(err, p2p.ErrPeerLost) {
		return fmt.Errorf("receive from a rank that has left: %w", err)
	}
	if err := w.Shutdown(ctx); err != nil && !errors.Is(err, p2p.ErrPeerLost) {
		return err
	}
	return w.Close()
}

// TestOutlived: the code of a job that goes on without a rank is that of the others, unless that
// rank has closed its World and says by its code that it failed.
func TestOutlived(t *testing.T) {
	const lost = "tagmatch: rank 1 lost, 2 of 3 ended well\n"
	for arg, want := range []struct {
		code int
		text string
	}{
		byKill:  {0, "tagmatch: rank 1 was killed by a signal: killed\n" + lost},
		byExit:  {0, "tagmatch: rank 1 ended with code 0, but without Shutdown\n" + lost},
		byClose: {0, ""},
		byCode:  {0, "tagmatch: rank 1 exited with code 3\n" + lost},
		byError: {1, "tagmatch: rank 1 exited with code 1\ntagmatch: rank 1 failed, 2 of 3 ended well\n"},
	} {
		eachDevice(t, func(t *testing.T, device string) {
			r := job{n: 3, role: "outlived", device: device, arg: arg, keep: true}.run(t)
			require.Equal(t, want.code, r.code, "%d: %s%s", arg, r.out, r.err)
			_, tail, found := strings.Cut("\n"+r.err, "\ntagmatch: ")
			require.Equal(t, want.text != "", found, "%d: %s%s", arg, r.out, r.err)
			require.Equal(t, strings.TrimPrefix(want.text, "tagmatch: "), tail, "%d: %s%s", arg, r.out, r.err)
		})
	}
}

// TestCauseIsHeard: the rank whose error ended the job is the one that the launcher names, and what
// it says is read, although one that noticed has ended before.
func TestCauseIsHeard(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		r := job{n: 3, role: "cause", device: device}.run(t)
		require.Equal(t, 1, r.code)
		require.Contains(t, r.err, "[0] cause: the cause\n", "%s%s", r.out, r.err)
		require.Contains(t, r.err, "tagmatch: rank 0 exited with code 1\n", "%s%s", r.out, r.err)
	})
}

// TestNeverJoins: one rank of four sleeps instead of joining. Rank 0 says so after 10 seconds, and
// the others all name it when the time to join is over.
func TestNeverJoins(t *testing.T) {
	t.Parallel()
	script := `[ $RANK = 2 ] && exec sleep 60; exec "$0"`
	ctx, cancel := context.WithTimeout(context.Background(), testlevel.Patience(time.Minute))
	defer cancel()
	var out, stderr bytes.Buffer
	code, err := launch.Run(ctx, launch.Options{N: 4, Command: []string{"sh", "-c", script, os.Args[0]}, Stdout: &out, Stderr: &stderr,
		Env: append(os.Environ(), roleVar+"=hello", "TAGMATCH_JOIN_TIMEOUT=15s")})
	require.NoError(t, err)
	r := result{code, out.String(), stderr.String()}
	require.NotZero(t, r.code)
	require.Equal(t, 1+3, strings.Count(r.err, "still missing: rank 2 of 4"), r.err)
	require.Regexp(t, `(?m)^\[0\] tagmatch: rank 0 on \S+ has waited 1\ds at 127.0.0.1:\d+ for all ranks to join; still missing: rank 2 of 4(;.*)?$`, r.err)
	require.Contains(t, r.err, "the 15s of TAGMATCH_JOIN_TIMEOUT are over")
	require.Contains(t, r.err, "tagmatch: rank 2 did not join the job; rank ")
	require.Empty(t, r.out)
}

func TestMisspelledVariable(t *testing.T) {
	r := job{n: 2, role: "hello", env: []string{"TAGMATCH_TRANPORT=rc"}}.run(t)
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "the environment has TAGMATCH_TRANPORT, which is no variable of this release: did you mean TAGMATCH_TRANSPORT?")
}
