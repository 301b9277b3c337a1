package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/refuse"
	"github.com/tagmatch/tagmatch/p2p"
)

// shortEnv lets losses be detected within seconds.
var shortEnv = []string{"TAGMATCH_PEER_TIMEOUT=6s"}

const dirVar = "JOBTEST_DIR" // a directory that the ranks of a job share

func init() {
	roles["refused"] = refusedRole
	roles["nopush"] = noPushRole
	roles["starved"] = starvedRole
	roles["fed"] = fedRole
	roles["asleep"] = asleepRole
	roles["crossed"] = crossedRole
}

// TestRefused: after its Init, the kernel refuses rank 0 the system calls for a connection over
// shared memory. Its Send to rank 1 fails, and both learn that they cannot reach each other.
func TestRefused(t *testing.T) {
	t.Parallel()
	eachTransport(t, []string{"shm"}, func(t *testing.T, device string, env []string) {
		job{n: 3, role: "refused", device: device, env: slices.Concat(env, shortEnv)}.succeed(t)
		// Nobody tells rank 1, which finds out as it waits for rank 0.
		job{n: 3, role: "refused", device: device, env: slices.Concat(env, shortEnv, []string{noStoreVar + "=1"})}.succeed(t)
	})
}

func refusedRole(ctx context.Context, w *p2p.World) error {
	if w.Rank() != 1 { // which could connect before
		if _, err := exchangeAmong(ctx, w, []int{0, 2}); err != nil {
			return err
		}
	}
	if w.Rank() == 0 {
		if err := refuse.Calls(unix.EPERM, unix.SYS_PIDFD_OPEN, unix.SYS_MEMFD_CREATE); err != nil {
			return err
		}
	}
	if err := throughRank2(ctx, w); err != nil {
		return err
	}
	return disconnectedFrom(ctx, w, "the kernel refuses rank 0 a system call")
}

// TestPushesRefused: once two ranks have exchanged long messages over shared memory, the kernel
// refuses rank 0 to write to another process. The peer reads all of its messages then, and nobody
// is lost.
func TestPushesRefused(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{"rc": nil, "tmsrq": tmsrqEnv, "async": asyncEnv} {
		t.Run(name, func(t *testing.T) { job{n: 2, role: "nopush", device: "shm", env: slices.Clone(env)}.succeed(t) })
	}
}

func noPushRole(ctx context.Context, w *p2p.World) error {
	if err := goOn(ctx, w); err != nil {
		return err
	}
	if w.Rank() == 0 {
		if err := refuse.Calls(unix.EPERM, unix.SYS_PROCESS_VM_WRITEV); err != nil {
			return err
		}
	}
	for range 3 {
		if err := goOn(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// throughRank2 connects rank 2 with both others, which are not connected to each other.
func throughRank2(ctx context.Context, w *p2p.World) error {
	for _, r := range []int{0, 1} {
		if w.Rank() == r || w.Rank() == 2 {
			if _, err := exchangeAmong(ctx, w, []int{r, 2}); err != nil {
				return err
			}
		}
	}
	return nil
}

// disconnectedFrom lets rank 0 send to rank 1, which is impossible: both report why, and rank 2
// still reaches both.
func disconnectedFrom(ctx context.Context, w *p2p.World, why string) error {
	c := w.Comm()
	if w.Rank() == 0 {
		if err := lostTo(1, c.Send(ctx, 1, 3, nil), why); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	if w.Rank() < 2 {
		peer := 1 - w.Rank()
		for _, tag := range []p2p.Tag{3, 4} { // the second one when the loss is known
			_, err := c.Recv(ctx, peer, tag, make([]byte, 100))
			if err := lostTo(peer, err, why); err != nil {
				return fmt.Errorf("receive: %w", err)
			}
		}
		if err := lostTo(peer, c.Send(ctx, peer, 5, make([]byte, 1<<20)), why); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		if f := w.Failed(); len(f) != 1 || f[0] != peer {
			return fmt.Errorf("failed: %v", f)
		}
	}
	if err := throughRank2(ctx, w); err != nil {
		return err
	}
	if w.Rank() == 2 && len(w.Failed()) != 0 {
		return fmt.Errorf("rank 2 has lost %v", w.Failed())
	}
	return nil
}

// lostTo checks the error of an operation with peer.
func lostTo(peer int, err error, why string) error {
	var lost *p2p.PeerError
	if !errors.As(err, &lost) || len(lost.Ranks) != 1 || lost.Ranks[0] != peer || !strings.Contains(err.Error(), why) {
		return fmt.Errorf("want a PeerError of rank %d that says %q, got %w", peer, why, err)
	}
	return nil
}

// eachStarved plays a role in which rank 0 or 1, whose number is argVar, has no descriptors.
func eachStarved(t *testing.T, role string) {
	t.Parallel()
	eachTransport(t, []string{"shm", "tcp"}, func(t *testing.T, device string, env []string) {
		t.Parallel()
		for who := range 2 {
			t.Run(strconv.Itoa(who), func(t *testing.T) {
				t.Parallel()
				job{n: 3, role: role, device: device, arg: who, env: slices.Concat(env, shortEnv)}.succeed(t)
			})
		}
	})
}

// TestStarved: rank 0 or 1, whose number is argVar, runs out of file descriptors after its Init.
func TestStarved(t *testing.T) { eachStarved(t, "starved") }

func starvedRole(ctx context.Context, w *p2p.World) error {
	who, free, err := starve(ctx, w)
	if err != nil {
		return err
	}
	defer free()
	return disconnectedFrom(ctx, w, fmt.Sprintf("rank %d has no file descriptor left", who))
}

// starve takes all descriptors of rank who; the other ranks continue afterwards. free gives them
// back, in that rank.
func starve(ctx context.Context, w *p2p.World) (who int, free func(), err error) {
	who, free = int(number(argVar)), func() {}
	if err := throughRank2(ctx, w); err != nil {
		return who, nil, err
	}
	if w.Rank() == who {
		if free, err = refuse.Descriptors(); err != nil {
			return who, nil, err
		}
		if err := w.Comm().Send(ctx, 2, 8, nil); err != nil {
			return who, nil, err
		}
	}
	return who, free, passOn(ctx, w, who)
}

// passOn lets rank 2 tell the other one of ranks 0 and 1 that rank who has no descriptors left.
func passOn(ctx context.Context, w *p2p.World, who int) error {
	c := w.Comm()
	switch w.Rank() {
	case 2:
		if _, err := c.Recv(ctx, who, 8, nil); err != nil {
			return err
		}
		return c.Send(ctx, 1-who, 8, nil)
	case 1 - who:
		_, err := c.Recv(ctx, 2, 8, nil)
		return err
	}
	return nil
}

// TestStarvedBothDial: ranks 0 and 1 send to each other at once when one of them, whose number is
// argVar, has no descriptors. Both name that, also where it gets them back as soon as it has given
// the other up, so that the other reaches it.
func TestStarvedBothDial(t *testing.T) { eachStarved(t, "crossed") }

func crossedRole(ctx context.Context, w *p2p.World) error {
	who, free, err := starve(ctx, w)
	if err != nil {
		return err
	}
	if w.Rank() < 2 {
		peer := 1 - w.Rank()
		err := w.Comm().Send(ctx, peer, 3, make([]byte, 1<<20))
		free()
		if err := lostTo(peer, err, fmt.Sprintf("rank %d has no file descriptor left", who)); err != nil {
			return err
		}
	}
	return throughRank2(ctx, w)
}

// TestFed frees the descriptors again: a temporary shortage is no loss.
func TestFed(t *testing.T) { eachStarved(t, "fed") }

func fedRole(ctx context.Context, w *p2p.World) error {
	_, free, err := starve(ctx, w)
	if err != nil {
		return err
	}
	time.AfterFunc(time.Second, free) // some tries must have failed before
	if _, err := exchange(ctx, w, 1, make([]uint64, w.Size())); err != nil {
		return err
	}
	if f := w.Failed(); len(f) != 0 {
		return fmt.Errorf("failed: %v", f)
	}
	return nil
}

// TestAsleep stops rank 1 for longer than PeerTimeout: with its socket or ring full or, with
// argVar, before any connection to it. Its host answers, so it is not lost.
func TestAsleep(t *testing.T) {
	t.Parallel()
	eachDevice(t, func(t *testing.T, device string) {
		t.Parallel()
		for arg := range 2 {
			t.Run(strconv.Itoa(arg), func(t *testing.T) {
				t.Parallel()
				env := append([]string{dirVar + "=" + t.TempDir()}, shortEnv...)
				job{n: 2, role: "asleep", device: device, arg: arg, env: env}.succeed(t)
			})
		}
	})
}

const (
	asleepCount = 400
	asleepSize  = 32 << 10
)

func asleepRole(ctx context.Context, w *p2p.World) error {
	if number(argVar) == 0 {
		if err := exchangeBefore(ctx, w); err != nil {
			return err
		}
	}
	if w.Rank() == 1 {
		if err := fallAsleep(); err != nil {
			return err
		}
		buf := make([]byte, asleepSize)
		for range asleepCount {
			if _, err := w.Comm().Recv(ctx, 0, 3, buf); err != nil {
				return err
			}
		}
		return nil
	}
	return sendAsleep(ctx, w)
}

// fallAsleep stops this process, until another one finds it by asleepPID and lets it go on.
func fallAsleep() error {
	path := asleepPath()
	if err := os.WriteFile(path+".new", []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	err := syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	for err == nil { // this thread may run a little before the whole process is stopped
		if _, err = os.Stat(path); err == nil {
			time.Sleep(time.Millisecond)
		}
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// awaken lets such a process go on.
func awaken(pid int) error {
	return errors.Join(os.Remove(asleepPath()), syscall.Kill(pid, syscall.SIGCONT))
}

// asleepPID waits until a process of the job is stopped.
func asleepPID(ctx context.Context) (pid int, err error) {
	for ctx.Err() == nil && pid == 0 {
		b, _ := os.ReadFile(asleepPath())
		pid, _ = strconv.Atoi(string(b))
		time.Sleep(time.Millisecond)
	}
	return pid, untilStopped(ctx, pid)
}

func asleepPath() string { return filepath.Join(os.Getenv(dirVar), "pid") }

func sendAsleep(ctx context.Context, w *p2p.World) error {
	pid, err := asleepPID(ctx)
	if err != nil {
		return err
	}
	var reqs []p2p.Request
	for range asleepCount {
		reqs = append(reqs, w.Comm().Isend(1, 3, make([]byte, asleepSize)))
	}
	time.Sleep(9 * time.Second) // half as long again as PeerTimeout: nothing must happen
	if f := w.Failed(); len(f) != 0 {
		return fmt.Errorf("failed: %v", f)
	}
	if err := awaken(pid); err != nil {
		return err
	}
	return p2p.WaitAll(ctx, reqs, nil)
}

// goOn exchanges messages of both kinds between ranks 0 and 1, none of which is lost.
func goOn(ctx context.Context, w *p2p.World) error {
	for _, size := range []int{0, 300_000} {
		out, in := make([]byte, size), make([]byte, size)
		for i := range out {
			out[i] = byte(i >> 3)
		}
		if _, err := w.Comm().Sendrecv(ctx, 1-w.Rank(), 3, out, 1-w.Rank(), 3, in); err != nil {
			return fmt.Errorf("they do not go on: %w", err)
		}
		if !slices.Equal(in, out) {
			return errors.New("another message has other bytes")
		}
	}
	if failed := w.Failed(); len(failed) != 0 {
		return fmt.Errorf("ranks %v are lost", failed)
	}
	return nil
}
