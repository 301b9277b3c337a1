package jobtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["frozen"] = frozenRole
	roles["starvedcpu"] = starvedCPURole
}

// freezes is how many jobs of TestFrozen run on each device.
var freezes = flag.Int("freezes", 4, "stop a rank that makes its connections in so many jobs on each device")

// patientEnv has a host given up as soon as can be had.
const patientEnv = "TAGMATCH_PEER_TIMEOUT=6s"

// TestFrozen stops a rank for longer than PeerTimeout while the first messages are sent: it is not
// lost, nor loses others.
func TestFrozen(t *testing.T) {
	t.Parallel()
	eachDevice(t, func(t *testing.T, device string) {
		for i := range *freezes {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				job{n: 3, role: "frozen", device: device, env: []string{patientEnv}}.succeed(t)
			})
		}
	})
}

// frozenRole sends the first messages of all ranks at the same time. Rank 1 is stopped at about
// then, for 8 s.
func frozenRole(ctx context.Context, w *p2p.World) error {
	first := time.Now().Truncate(time.Second).Add(1100 * time.Millisecond)
	if w.Rank() == 1 {
		wake, err := stopLater(first.Add(time.Duration(rand.IntN(15_000)-3_000) * time.Microsecond))
		if err != nil {
			return err
		}
		defer wake()
	}
	time.Sleep(time.Until(first))
	return talkUnharmed(ctx, w)
}

// stopLater stops this process at a time for 8 s. The caller calls wait, which returns after that.
func stopLater(at time.Time) (wait func(), err error) {
	cmd := exec.Command("sh", "-c", "read word && sleep 8; kill -CONT "+strconv.Itoa(os.Getpid()))
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		time.Sleep(time.Until(at))
		if _, err := io.WriteString(in, "now\n"); err == nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
	}()
	return func() { <-stopped; _ = cmd.Wait() }, nil
}

// talkUnharmed exchanges messages among all ranks, of which none may be lost.
func talkUnharmed(ctx context.Context, w *p2p.World) error {
	for tag := range p2p.Tag(2) {
		if err := everybodyTalks(ctx, w, tag); err != nil {
			return err
		}
	}
	if f := w.Failed(); len(f) != 0 {
		return fmt.Errorf("failed: %v", f)
	}
	return nil
}

// TestStarvedOfProcessor gives a rank that makes its connections next to no time of its processor:
// it is not lost, nor loses others.
func TestStarvedOfProcessor(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		job{n: 3, role: "starvedcpu", device: device, env: []string{patientEnv}}.succeed(t)
	})
}

func starvedCPURole(ctx context.Context, w *p2p.World) error {
	if w.Rank() == 1 {
		end, err := besideLoops(8, 0)
		defer end()
		if err != nil {
			return err
		}
		if _, err := exchange(ctx, w, 1, make([]uint64, w.Size())); err != nil {
			return err
		}
		end()
	} else if _, err := exchange(ctx, w, 1, make([]uint64, w.Size())); err != nil {
		return err
	}
	return talkUnharmed(ctx, w)
}

// besideLoops starts busy loops on one processor and leaves this process what they do not take of
// it, until end is called, or for the time that they last: this process may be too slow to call it.
// 0 is for ever.
func besideLoops(n int, lasts time.Duration) (end func(), err error) {
	var loops []*exec.Cmd
	end = sync.OnceFunc(func() {
		for _, l := range loops {
			_ = l.Process.Signal(syscall.SIGTERM) // timeout passes it on
			_ = l.Wait()
		}
	})
	if err := stayOn(1); err != nil {
		return end, err
	}
	for range n {
		l := exec.Command("timeout", fmt.Sprint(lasts.Seconds()), "sh", "-c", fmt.Sprintf("while kill -0 %d; do :; done", os.Getpid()))
		if err := l.Start(); err != nil {
			return end, err
		}
		loops = append(loops, l)
	}
	threads, err := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		tid, _ := strconv.Atoi(t.Name())
		if e := unix.Setpriority(unix.PRIO_PROCESS, tid, 19); e != unix.ESRCH {
			err = errors.Join(err, e)
		}
	}
	return end, err
}
