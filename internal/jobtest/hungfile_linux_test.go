//go:build !invariants

// A build with -tags invariants touches buffers itself, and would hang in that.

package jobtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/userfault"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["hungfile"] = hungFileRole
	roles["servedmemory"] = servedMemoryRole
}

const hungSize = 1 << 20 // bytes of the file: so long a message is copied by both ends

// TestHungFile: who sends out of a mapped file whose file system does not answer, or receives into
// one, hangs alone: its peer goes on with others.
func TestHungFile(t *testing.T) {
	needs(t, "it mounts a file system", unix.CAP_SYS_ADMIN)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("needs a device for file systems of programs: ", err)
	}
	for arg, what := range []string{"sends", "receives"} {
		t.Run(what, func(t *testing.T) {
			eachTransport(t, []string{"shm"}, func(t *testing.T, device string, env []string) {
				file := filepath.Join(t.TempDir(), "file")
				require.NoError(t, os.WriteFile(file, nil, 0o600))
				t.Cleanup(func() { _ = unmountHung(file) })
				job{n: 3, role: "hungfile", device: device, arg: arg, env: slices.Concat(env, []string{dirVar + "=" + file})}.succeed(t)
			})
		})
	}
}

// hungFileRole: rank 1 sends to rank 0 out of a file that hangs, or receives into it, until the
// file is unmounted by force.
func hungFileRole(ctx context.Context, w *p2p.World) error {
	c, sends, file := w.Comm(), number(argVar) == 0, os.Getenv(dirVar)
	if w.Rank() == 1 {
		mem, err := mapHung(file)
		if err != nil {
			return err
		}
		post := c.Irecv
		if sends {
			post = c.Isend
		}
		r := post(0, 1, mem)
		if err := c.Send(ctx, 0, 2, nil); err != nil {
			return err
		}
		_, err = r.Wait(ctx)
		return isFault(err, "this send", "this receive")
	}
	var r p2p.Request
	if w.Rank() == 0 {
		if _, err := c.Recv(ctx, 1, 2, nil); err != nil {
			return err
		}
		if buf := make([]byte, hungSize); sends {
			r = c.Irecv(1, 1, buf)
		} else {
			r = c.Isend(1, 1, buf)
		}
	}
	for range 2000 {
		if _, err := c.Sendrecv(ctx, 2-w.Rank(), 4, nil, 2-w.Rank(), 4, nil); err != nil {
			return fmt.Errorf("beside a rank that hangs: %w", err)
		}
	}
	if w.Rank() == 2 {
		return nil
	}
	if err := unmountHung(file); err != nil {
		return err
	}
	_, err := r.Wait(ctx)
	if sends {
		err = isFault(err, "the sender's buffer")
	}
	return err
}

// unmountHung ends all waiting for the file.
func unmountHung(path string) error { return unix.Unmount(path, unix.MNT_FORCE|unix.MNT_DETACH) }

// mapHung mounts a file system on a file, and maps that. Of FUSE's requests it takes those of
// mounting and opening, but no read: a process that waits for one that was taken cannot be killed.
func mapHung(path string) ([]byte, error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	const options = "fd=%d,rootmode=100600,user_id=0,group_id=0"
	if err := unix.Mount("hung", path, "fuse", 0, fmt.Sprintf(options, fd)); err != nil {
		return nil, err
	}
	opened, served := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(served)
		serveHung(fd, opened)
	}()
	defer func() {
		close(opened)
		<-served
	}()
	file, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Fstat(file, new(unix.Stat_t)); err != nil { // the kernel learns its size
		return nil, err
	}
	return unix.Mmap(file, 0, hungSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// serveHung answers FUSE's requests until the file was opened; see fuse(4) and linux/fuse.h.
func serveHung(fd int, opened chan struct{}) {
	const getattr, open, initialise = 3, 14, 26
	le := binary.LittleEndian
	req := make([]byte, 1<<18)
	for {
		select {
		case <-opened:
			return
		default:
		}
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10); n <= 0 {
			continue
		}
		if n, err := unix.Read(fd, req); err != nil || n < 40 {
			return
		}
		answer := make([]byte, 16)
		switch le.Uint32(req[4:]) {
		case initialise:
			body := make([]byte, 64)
			le.PutUint32(body, 7)
			le.PutUint32(body[4:], 31)
			le.PutUint32(body[20:], 4096) // the most bytes of a write
			answer = append(answer, body...)
		case getattr:
			body := make([]byte, 104)
			le.PutUint64(body[16:], 1) // inode
			le.PutUint64(body[24:], hungSize)
			le.PutUint32(body[76:], unix.S_IFREG|0o600)
			le.PutUint32(body[80:], 1) // links
			answer = append(answer, body...)
		case open:
			answer = append(answer, make([]byte, 16)...)
		default:
			errno := unix.ENOSYS
			le.PutUint32(answer[4:], -uint32(errno))
		}
		le.PutUint32(answer, uint32(len(answer)))
		copy(answer[8:16], req[8:16]) // which request it is
		_, _ = unix.Write(fd, answer)
	}
}

// TestServedMemory: who sends out of memory whose pages never come hangs alone: its peer goes on
// with others.
func TestServedMemory(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, hungSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	fd, err := userfault.Forget(mem)
	if err != nil {
		t.Skip("needs userfaultfd: ", err)
	}
	require.NoError(t, errors.Join(unix.Close(fd), unix.Munmap(mem)))
	eachTransport(t, []string{"shm"}, func(t *testing.T, device string, env []string) {
		job{n: 3, role: "servedmemory", device: device, env: env}.survives(t, 2)
	})
}

// servedMemoryRole: rank 1 sends to rank 0 out of such memory, until that kills it.
func servedMemoryRole(ctx context.Context, w *p2p.World) error {
	c := w.Comm()
	if w.Rank() == 1 {
		mem, err := unix.Mmap(-1, 0, hungSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		if _, err := userfault.Forget(mem); err != nil {
			return err
		}
		r := c.Isend(0, 1, mem)
		if err := c.Send(ctx, 0, 2, binary.LittleEndian.AppendUint64(nil, uint64(os.Getpid()))); err != nil {
			return err
		}
		_, err = r.Wait(ctx)
		return fmt.Errorf("a send out of memory that is not there has ended: %w", err)
	}
	var pid [8]byte
	var r p2p.Request
	if w.Rank() == 0 {
		if _, err := c.Recv(ctx, 1, 2, pid[:]); err != nil {
			return err
		}
		r = c.Irecv(1, 1, make([]byte, hungSize))
	}
	for range 2000 {
		if _, err := c.Sendrecv(ctx, 2-w.Rank(), 4, nil, 2-w.Rank(), 4, nil); err != nil {
			return fmt.Errorf("beside a rank that hangs: %w", err)
		}
	}
	if w.Rank() == 0 {
		if err := unix.Kill(int(binary.LittleEndian.Uint64(pid[:])), unix.SIGKILL); err != nil {
			return err
		}
		if _, err := r.Wait(ctx); !errors.Is(err, p2p.ErrPeerLost) {
			return fmt.Errorf("the receive ends with %w", err)
		}
	}
	fmt.Println("survived")
	return w.Close()
}
