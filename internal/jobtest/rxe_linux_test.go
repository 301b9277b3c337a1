//go:build rxe

package jobtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	_ "github.com/tagmatch/tagmatch/verbs/ibverbs"
)

// ipcVar is an IPC namespace that ranks from 2 on enter.
const ipcVar = "JOBTEST_IPC"

// wireLoss is how many packets test/vm's wire loses; "": none.
var wireLoss = os.Getenv("TAGMATCH_TEST_LOSS")

// In the machine of test/vm the ranks are on the two devices rv0 and rv1 by turns. The interfaces
// of these, v0 and v1, are the ends of a wire.
func init() {
	roles["rxe-pingpong"] = rxePingPongRole
	roles["rxe-across"] = rxeAcrossRole
	roles["rxe-killed"] = rxeKilledRole
	roles["rxe-cut"] = rxeCutRole
	roles["rxe-port"] = rxePortRole
	roles["rxe-computes"] = rxeComputesRole
	surviving = append(surviving, "rxe-killed")
	rank, err := strconv.Atoi(os.Getenv("RANK"))
	if err != nil {
		return
	}
	if err := errors.Join(os.Setenv("TAGMATCH_RDMA_PORT", fmt.Sprint("rv", rank%2)), enterIPC(rank)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func enterIPC(rank int) error {
	name := os.Getenv(ipcVar)
	if name == "" || rank < 2 {
		return nil
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Setns(fd, unix.CLONE_NEWIPC), unix.Close(fd))
}

// byItself has ranks hear of losses from their devices alone, and from these at once or never.
var byItself = []string{noStoreVar + "=1", "TAGMATCH_PEER_TIMEOUT=1h"}

// TestRXE runs jobs on the kernel's software RDMA. How long a loss takes to be told is logged.
func TestRXE(t *testing.T) {
	t.Run("pingpong", func(t *testing.T) {
		job{n: 2, role: "rxe-pingpong", device: "rdma", arg: 20}.succeed(t)
	})
	t.Run("no tag matching", func(t *testing.T) {
		r := job{n: 2, role: "rxe-pingpong", device: "rdma", env: []string{"TAGMATCH_TRANSPORT=tmsrq"}}.run(t)
		require.NotZero(t, r.code, r.out)
		require.Contains(t, r.err, "the device has no tag matching")
	})
	t.Run("two namespaces", func(t *testing.T) {
		other := exec.Command("unshare", "--ipc", "sleep", "1000")
		require.NoError(t, other.Start())
		defer func() { _, _ = other.Process.Kill(), other.Wait() }()
		name := fmt.Sprintf("/proc/%d/ns/ipc", other.Process.Pid)
		require.Eventually(t, func() bool {
			mine, err1 := os.Readlink("/proc/self/ns/ipc")
			its, err2 := os.Readlink(name)
			return err1 == nil && err2 == nil && mine != its
		}, testlevel.Patience(20*time.Second), time.Millisecond)
		job{n: 4, role: "rxe-across", device: "shm,rdma", arg: 60, env: []string{ipcVar + "=" + name}}.succeed(t)
	})
	t.Run("computes", func(t *testing.T) {
		job{n: 2, role: "rxe-computes", device: "rdma", env: []string{"TAGMATCH_PROGRESS=manual"}}.succeed(t)
	})
	t.Run("port down and up", func(t *testing.T) {
		job{n: 2, role: "rxe-port", device: "rdma"}.succeed(t)
	})
	t.Run("killed", func(t *testing.T) {
		r := job{n: 4, role: "rxe-killed", device: "rdma", grace: time.Minute, env: byItself}.run(t)
		require.Equal(t, 128+9, r.code, "%s%s", r.out, r.err)
		require.Equal(t, 3, strings.Count(r.out, "told after"), "%s%s", r.out, r.err)
		t.Log(r.out)
	})
	t.Run("cut", func(t *testing.T) {
		defer func() { require.NoError(t, lose(wireLoss)) }()
		r := job{n: 2, role: "rxe-cut", device: "rdma", env: byItself}.run(t)
		require.Equal(t, 2, strings.Count(r.out, "told after"), "%s%s", r.out, r.err)
		t.Log(r.out)
	})
}

// onWires is an error where a World has other wires, or its first device another transport.
func onWires(w *p2p.World, wires, transport string) error {
	if m := w.Metrics(); m.Device != wires || m.Transport != transport {
		return fmt.Errorf("device %s, transport %s", m.Device, m.Transport)
	}
	return nil
}

// rxePingPongRole bounces argVar messages of each size, of which each has bytes of its own.
func rxePingPongRole(ctx context.Context, w *p2p.World) error {
	for _, size := range []int{0, 1, 8, 300, 8 << 10, 8<<10 + 1, 100_000, 3 << 20} {
		if size > 1<<20 && wireLoss != "" {
			break // each packet of a READ that is lost costs rxe a second
		}
		if err := bounce(ctx, w, int(number(argVar)), size); err != nil {
			return fmt.Errorf("%d bytes: %w", size, err)
		}
	}
	return onWires(w, "roce", "rc")
}

// bounce sends messages of a size back and forth between ranks 0 and 1.
func bounce(ctx context.Context, w *p2p.World, rounds, size int) error {
	want, buf := make([]byte, size), make([]byte, size)
	for i := range rounds {
		fill(want, uint64(size)<<32|uint64(i))
		if i%2 == w.Rank() {
			if err := w.Send(ctx, 1-w.Rank(), p2p.Tag(i), want); err != nil {
				return err
			}
			continue
		}
		clear(buf)
		if _, err := w.Recv(ctx, p2p.Tag(i), p2p.MaskExact, buf); err != nil {
			return err
		}
		if !bytes.Equal(buf, want) {
			return fmt.Errorf("message %d is another", i)
		}
	}
	return nil
}

// rxeAcrossRole receives from any rank over shared memory and over RDMA.
func rxeAcrossRole(ctx context.Context, w *p2p.World) error {
	if err := streamRole(ctx, w); err != nil {
		return err
	}
	return onWires(w, "roce+shm", "tmsrq")
}

// rxeComputesRole has rank 0 send 10,000 messages to rank 1, which computes for a second.
func rxeComputesRole(ctx context.Context, w *p2p.World) error {
	const count = 10_000
	if err := bounce(ctx, w, 2, 8); err != nil { // they are connected
		return err
	}
	if w.Rank() == 0 {
		reqs := make([]p2p.Request, count)
		for i := range reqs {
			reqs[i] = w.Isend(1, 7, binary.LittleEndian.AppendUint64(nil, uint64(i)))
		}
		return p2p.WaitAll(ctx, reqs, nil)
	}
	for start := time.Now(); time.Since(start) < time.Second; {
	}
	var buf [8]byte
	for i := range uint64(count) {
		if _, err := w.Recv(ctx, 7, p2p.MaskExact, buf[:]); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if got := binary.LittleEndian.Uint64(buf[:]); got != i {
			return fmt.Errorf("message %d came in place of %d", got, i)
		}
	}
	return nil
}

// lose has the wire lose so many of the packets that leave v0; "": none.
func lose(percent string) error {
	if percent == "" {
		return command("tc", "qdisc", "del", "dev", "v0", "root")
	}
	return command("tc", "qdisc", "replace", "dev", "v0", "root", "netem", "limit", "100000", "loss", percent)
}

// command runs a command of this host.
func command(args ...string) error {
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return nil
}

// rxePortRole takes a port down, and up, between messages.
func rxePortRole(ctx context.Context, w *p2p.World) error {
	if err := bounce(ctx, w, 4, 100_000); err != nil {
		return err
	}
	if w.Rank() == 0 {
		for _, c := range []struct{ set, state string }{{"down", "DOWN"}, {"up", "ACTIVE"}} {
			if err := command("ip", "link", "set", "v0", c.set); err != nil {
				return err
			}
			if err := until(ctx, c.state); err != nil {
				return err
			}
		}
	}
	return bounce(ctx, w, 4, 100_000)
}

// until waits for a state of the port of rv0.
func until(ctx context.Context, state string) error {
	for ctx.Err() == nil {
		b, err := os.ReadFile("/sys/class/infiniband/rv0/ports/1/state")
		if err != nil {
			return err
		}
		if strings.Contains(string(b), state) {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return context.Cause(ctx)
}

// rxeKilledRole kills rank 1, which has told the others when.
func rxeKilledRole(ctx context.Context, w *p2p.World) error {
	if _, err := exchange(ctx, w, 1, make([]uint64, w.Size())); err != nil {
		return err
	}
	var when [8]byte
	if w.Rank() == 1 {
		for rank := range w.Size() {
			if rank == 1 {
				continue
			}
			if _, err := w.Comm().Recv(ctx, rank, 1, nil); err != nil {
				return err
			}
		}
		binary.LittleEndian.PutUint64(when[:], uint64(time.Now().UnixNano()))
		for rank := range w.Size() {
			if rank == 1 {
				continue
			}
			if err := w.Comm().Ssend(ctx, rank, 2, when[:]); err != nil {
				return err
			}
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if err := w.Comm().Send(ctx, 1, 1, nil); err != nil {
		return err
	}
	if _, err := w.Comm().Recv(ctx, 1, 2, when[:]); err != nil {
		return err
	}
	if err := lostRank1(w.Comm().Recv(ctx, 1, 3, nil)); err != nil {
		return err
	}
	fmt.Println("told after", time.Since(time.Unix(0, int64(binary.LittleEndian.Uint64(when[:])))))
	return survivorsTalk(ctx, w)
}

// rxeCutRole cuts the wire while rank 0 sends. Lines do not use it: nothing but the sender's
// device notices, and its rank tells the other one.
func rxeCutRole(ctx context.Context, w *p2p.World) error {
	if err := bounce(ctx, w, 4, 100_000); err != nil {
		return err
	}
	start, peer := time.Now(), 1-w.Rank()
	var err error
	if w.Rank() == 0 {
		if err := lose("100%"); err != nil {
			return err
		}
		for err == nil {
			err = w.Comm().Ssend(ctx, peer, 1, nil)
		}
	} else {
		_, err = w.Comm().Recv(ctx, peer, 2, nil)
	}
	if lost, ok := errors.AsType[*p2p.PeerError](err); !ok || len(lost.Ranks) != 1 || lost.Ranks[0] != peer {
		return fmt.Errorf("want the loss of rank %d, got %w", peer, err)
	}
	fmt.Println("told after", time.Since(start), err)
	return w.Close()
}
