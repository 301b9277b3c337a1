package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["acked"] = ackedRole
	roles["orphan"] = orphanRole
}

// survives runs the job, of which so many ranks survive another's death.
func (j job) survives(t *testing.T, n int) {
	t.Helper()
	j.grace = time.Minute
	r := j.run(t)
	require.Equal(t, n, strings.Count(r.out, "survived"), "%+v\n%s%s", j, r.out, r.err)
}

// TestAcked: what the error of a send has named Failed lists at once, and AckFailures acknowledges.
func TestAcked(t *testing.T) {
	eachTransport(t, []string{"shm", "tcp"}, func(t *testing.T, device string, env []string) {
		job{n: 3, role: "acked", device: device, env: env}.survives(t, 2)
	})
}

// ackedRole kills rank 1 while rank 0 sends to it. Then rank 0 receives from any source.
func ackedRole(ctx context.Context, w *p2p.World) error {
	c := w.Comm()
	switch w.Rank() {
	case 1:
		for range 500 {
			if _, err := c.Recv(ctx, 0, 1, nil); err != nil {
				return err
			}
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case 2:
		if _, err := c.Recv(ctx, 0, 2, nil); err != nil {
			return err
		}
		if err := c.Send(ctx, 0, 3, nil); err != nil {
			return err
		}
	default:
		var lost *p2p.PeerError
		for lost == nil {
			if err := c.Send(ctx, 1, 1, nil); err != nil && !errors.As(err, &lost) {
				return err
			}
		}
		if f := w.Failed(); !slices.Equal(f, lost.Ranks) {
			return fmt.Errorf("failed: %v after %w", f, lost)
		}
		w.AckFailures(lost.Ranks...)
		r := c.Irecv(p2p.AnySource, 3, nil)
		if err := c.Send(ctx, 2, 2, nil); err != nil {
			return err
		}
		if _, err := r.Wait(ctx); err != nil {
			return fmt.Errorf("after AckFailures: %w", err)
		}
	}
	fmt.Println("survived")
	return w.Close()
}

// How rank 3 of TestOrphan waits for rank 2, and what becomes of that.
const (
	orphanRecv    = iota // a receive from it; it is killed
	orphanAny            // a receive from any source; it closes its World
	orphanProbe          // probes that do not wait; it is killed
	orphanStopped        // a receive from it; it is stopped for longer than PeerTimeout
	orphanWays
)

// TestOrphan kills rank 0, which serves the launcher's store, before ranks 2 and 3 are connected:
// each still hears what becomes of the other where it waits for it, and of nobody else.
func TestOrphan(t *testing.T) {
	t.Parallel()
	eachTransport(t, []string{"shm", "tcp"}, func(t *testing.T, device string, env []string) {
		t.Parallel()
		for way := range orphanWays {
			t.Run(strconv.Itoa(way), func(t *testing.T) {
				t.Parallel()
				dir := []string{dirVar + "=" + t.TempDir()}
				job{n: 4, role: "orphan", device: device, arg: way, env: slices.Concat(env, shortEnv, dir)}.survives(t, 2)
			})
		}
	})
}

func orphanRole(ctx context.Context, w *p2p.World) error {
	ctx, cancel := context.WithTimeout(ctx, testlevel.Patience(40*time.Second))
	defer cancel()
	c, way := w.Comm(), int(number(argVar))
	if w.Rank() == 0 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	_, err := c.Recv(ctx, 0, 1, nil)
	if err := lostTo(0, err, ""); err != nil {
		return err
	}
	w.AckFailures(0)
	switch w.Rank() {
	case 1: // is there all the time
		if _, err := c.Recv(ctx, 3, 9, nil); err != nil {
			return err
		}
	case 2:
		if way == orphanStopped {
			if err := fallAsleep(); err != nil {
				return err
			}
			if err := c.Ssend(ctx, 3, 5, nil); err != nil {
				return err
			}
			return w.Close()
		}
		time.Sleep(time.Duration(os.Getpid()%3) * 100 * time.Millisecond) // before or after rank 3 has connected
		if way == orphanAny {
			return w.Close()
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	default:
		if way == orphanStopped {
			err = receiveFromAsleep(ctx, w)
		} else {
			err = lostTo(2, awaitRank2(ctx, w, way), "")
		}
		if err == nil && way != orphanStopped && !slices.Equal(w.Failed(), []int{0, 2}) {
			err = fmt.Errorf("failed: %v", w.Failed())
		}
		if err == nil {
			err = c.Send(ctx, 1, 9, nil)
		}
		if err != nil {
			return err
		}
	}
	fmt.Println("survived")
	return shutdown(ctx, w)
}

// awaitRank2 waits for a message of rank 2, which does not come.
func awaitRank2(ctx context.Context, w *p2p.World, way int) error {
	c := w.Comm()
	switch way {
	case orphanAny:
		_, err := c.Recv(ctx, p2p.AnySource, 5, nil)
		return err
	case orphanProbe:
		for ctx.Err() == nil {
			if _, _, err := c.Iprobe(2, 5); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
	_, err := c.Recv(ctx, 2, 5, nil)
	return err
}

// receiveFromAsleep: rank 2 is not lost while it is stopped.
func receiveFromAsleep(ctx context.Context, w *p2p.World) error {
	pid, err := asleepPID(ctx)
	if err != nil {
		return err
	}
	r := w.Comm().Irecv(2, 5, nil)
	time.Sleep(9 * time.Second) // half as long again as PeerTimeout: nothing must happen
	if f := w.Failed(); !slices.Equal(f, []int{0}) {
		return fmt.Errorf("failed: %v", f)
	}
	if err := awaken(pid); err != nil {
		return err
	}
	_, err = r.Wait(ctx)
	return err
}
