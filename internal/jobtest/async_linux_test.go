package jobtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() { roles["cutshort"], roles["absent"] = cutShortRole, absentRole }

// asyncEnv selects asynchronous devices that match.
var asyncEnv = append([]string{"TAGMATCH_ASYNC=on"}, tmsrqEnv...)

// eachProgress runs a test with asynchronous devices, with and without the progress goroutine.
func eachProgress(t *testing.T, f func(t *testing.T, device string, env []string)) {
	for _, progress := range []string{"auto", "manual"} {
		t.Run(progress, func(t *testing.T) {
			eachDevice(t, func(t *testing.T, device string) {
				f(t, device, append([]string{"TAGMATCH_PROGRESS=" + progress}, asyncEnv...))
			})
		})
	}
}

// TestAsync runs roles with asynchronous devices.
func TestAsync(t *testing.T) {
	eachProgress(t, func(t *testing.T, device string, env []string) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		job{n: 3, role: "schedule", device: device, arg: 30, seed: seed, env: env}.succeed(t)
		job{n: 3, role: "stream", device: device, arg: 1000 / effort, env: env}.succeed(t)
		job{n: 2, role: "pingpong", device: device, arg: 2000 / effort, env: env}.succeed(t)
	})
	// Rank 0 waits outside the library: only the progress goroutine receives.
	eachDevice(t, func(t *testing.T, device string) {
		job{n: 3, role: "orderly", device: device, env: asyncEnv}.succeed(t)
	})
}

// TestAsyncKilled kills the sender, and then the receiver, of large messages that asynchronous
// devices move.
func TestAsyncKilled(t *testing.T) {
	eachProgress(t, func(t *testing.T, device string, env []string) {
		for victim := range 2 {
			r := job{n: 2, role: "cutshort", device: device, arg: victim, grace: time.Minute, env: env}.run(t)
			require.Equal(t, 128+9, r.code, "%s%s", r.out, r.err)
			require.Contains(t, r.out, "[0] survived", "%s%s", r.out, r.err)
		}
	})
}

// cutShortRole sends large messages until rank 1 is killed: the sender where the argument is 0,
// else the receiver. Receivers compute between posting and waiting.
func cutShortRole(ctx context.Context, w *p2p.World) error {
	signal.Ignore(syscall.SIGTERM) // the launcher's signal to the ranks after a death
	if w.Rank() == 1 {
		time.AfterFunc(time.Duration(20+rand.IntN(20))*time.Millisecond, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
	}
	buf := make([]byte, 16<<20)
	sends := (w.Rank() == 1) == (number(argVar) == 0)
	for {
		var err error
		if sends {
			err = w.Comm().Send(ctx, 1-w.Rank(), 3, buf)
		} else {
			r := w.Comm().Irecv(1-w.Rank(), 3, buf)
			for start := time.Now(); time.Since(start) < 3*time.Millisecond; {
			}
			_, err = r.Wait(ctx)
		}
		if err == nil {
			continue
		}
		if err := lostRank1(p2p.Status{}, err); err != nil {
			return err
		}
		fmt.Println("survived")
		if err := w.Close(); err != nil && !errors.Is(err, p2p.ErrClosed) {
			return err
		}
		return nil
	}
}

const sentVar = "TAGMATCH_TEST_SENT" // the file that says that rank 1 has sent

// TestRequestIsUrgent: a large message ends while its receiver computes, whatever else has come.
func TestRequestIsUrgent(t *testing.T) {
	eachProgress(t, func(t *testing.T, device string, env []string) {
		job{n: 2, role: "absent", device: device, env: append(env, sentVar+"="+filepath.Join(t.TempDir(), "sent"))}.succeed(t)
	})
}

// absentRole has rank 0 compute until rank 1 has sent it a large message, behind small ones.
func absentRole(ctx context.Context, w *p2p.World) error {
	const large, small = 3, 4
	c, sent := w.Comm(), os.Getenv(sentVar)
	buf := make([]byte, 4<<20)
	if w.Rank() == 1 {
		if _, err := c.Recv(ctx, 0, small, nil); err != nil {
			return err
		}
		for range 5 {
			if err := c.Send(ctx, 0, small, buf[:8]); err != nil {
				return err
			}
		}
		if err := c.Send(ctx, 0, large, buf); err != nil {
			return err
		}
		return os.WriteFile(sent, nil, 0o600)
	}
	var head [8]byte
	r := c.Irecv(1, large, buf)
	if err := c.Send(ctx, 1, small, nil); err != nil {
		return err
	}
	for start := time.Now(); ; {
		if _, err := os.Stat(sent); err == nil {
			break
		}
		if time.Since(start) > testlevel.Patience(20*time.Second) {
			return errors.New("the message waits for its receiver")
		}
	}
	for range 5 {
		if _, err := c.Recv(ctx, 1, small, head[:]); err != nil {
			return err
		}
	}
	_, err := r.Wait(ctx)
	return err
}
