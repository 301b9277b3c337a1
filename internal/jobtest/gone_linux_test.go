//go:build !invariants

// A build with -tags invariants touches buffers itself, and panics where they are gone.

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["goneout"] = goneOutRole
	roles["gonein"] = goneInRole
	if role := os.Getenv(roleVar); role == "goneout" || role == "gonein" {
		if err := standApart(); err != nil {
			panic(err)
		}
	}
}

// eachWay runs a role of two ranks over each device and transport, with devices that work by
// themselves, and over shared memory where the kernel lets no process copy from or to another.
func eachWay(t *testing.T, role string) {
	packets := []string{refuseVar + "=process_vm_readv,process_vm_writev", whoVar + "=all"}
	eachDevice(t, func(t *testing.T, device string) {
		for name, env := range map[string][]string{"rc": nil, "tmsrq": tmsrqEnv, "async": asyncEnv, "packets": packets} {
			if name == "packets" && device != "shm" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				job{n: 2, role: role, device: device, env: slices.Clone(env)}.succeed(t)
			})
		}
	})
}

// TestSendBufferIsGone: a send whose buffer was protected fails at both ends, and nothing else.
func TestSendBufferIsGone(t *testing.T) { eachWay(t, "goneout") }

// TestReceiveBufferIsGone: a receive whose buffer cannot be written fails, and nothing else: the
// send of its message succeeds.
func TestReceiveBufferIsGone(t *testing.T) { eachWay(t, "gonein") }

// goneSizes are lengths of messages, in bytes: read at once, shared between both ends, in pieces.
var goneSizes = []int{40_000, 200_000, 3 << 20}

// goneOutRole: rank 0 sends what nobody may read to rank 1; then they exchange a message.
func goneOutRole(ctx context.Context, w *p2p.World) error {
	for _, size := range goneSizes {
		var err error
		if w.Rank() == 0 {
			err = sendGone(ctx, w.Comm(), size)
		} else if _, err = w.Comm().Recv(ctx, 0, 2, nil); err == nil {
			_, err = w.Comm().Recv(ctx, 0, 1, make([]byte, size))
		}
		if err := isFault(err, "the sender's buffer", "this send"); err != nil {
			return err
		}
		if err := goOn(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func sendGone(ctx context.Context, c *p2p.Comm, size int) error {
	buf, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	r := c.Isend(1, 1, buf)
	// Memory that is unmapped might be mapped again, by the connection that is being made.
	if err := unix.Mprotect(buf, unix.PROT_NONE); err != nil {
		return err
	}
	if err := c.Send(ctx, 1, 2, nil); err != nil {
		return err
	}
	_, err = r.Wait(ctx)
	return err
}

// isFault checks the error of an operation whose buffer, or whose peer's, is gone: one of the texts
// is in it.
func isFault(err error, texts ...string) error {
	has := func(text string) bool { return err != nil && strings.Contains(err.Error(), text) }
	if !errors.Is(err, p2p.ErrFault) || errors.Is(err, p2p.ErrPeerLost) || !slices.ContainsFunc(texts, has) {
		return fmt.Errorf("an operation without its buffer ended with: %w", err)
	}
	return nil
}

// receives are ways to receive into a buffer from rank 0, with tag 1.
var receives = map[string]func(c *p2p.Comm, buf []byte) p2p.Request{
	"Irecv":     func(c *p2p.Comm, buf []byte) p2p.Request { return c.Irecv(0, 1, buf) },
	"too short": func(c *p2p.Comm, buf []byte) p2p.Request { return c.Irecv(0, 1, buf[:len(buf)-4096]) },
	"RecvInit":  func(c *p2p.Comm, buf []byte) p2p.Request { return c.RecvInit(0, 1, buf).Start() },
	"long parts": func(c *p2p.Comm, buf []byte) p2p.Request {
		return c.IrecvVec(0, 1, [][]byte{make([]byte, 9), buf[:len(buf)-9]})
	},
	"short parts": func(c *p2p.Comm, buf []byte) p2p.Request {
		return c.IrecvVec(0, 1, slices.Collect(slices.Chunk(buf, 3000)))
	},
}

// spoils are ways to lose the memory of a receive buffer, which is that of a file.
var spoils = map[string]func(b []byte, fd int) error{
	"read-only": func(b []byte, _ int) error { return unix.Mprotect(b, unix.PROT_READ) },
	"protected": func(b []byte, _ int) error { return unix.Mprotect(b[len(b)/2&^4095:], unix.PROT_NONE) },
	"truncated": func(_ []byte, fd int) error { return unix.Ftruncate(fd, 4096) },
}

// goneInRole: rank 0 sends to rank 1, which cannot write to the buffer: when it posts the receive
// for a message that has been announced, or when that arrives, out of memory that is shared.
func goneInRole(ctx context.Context, w *p2p.World) error {
	n := 0
	for _, size := range goneSizes {
		for _, how := range slices.Sorted(maps.Keys(receives)) {
			for _, why := range slices.Sorted(maps.Keys(spoils)) {
				for _, early := range []bool{false, true} {
					if n++; n%(effort|1) != 0 {
						continue
					}
					if err := goneIn(ctx, w, size, receives[how], spoils[why], early); err != nil {
						return fmt.Errorf("%d bytes, %s, %s, early %v: %w", size, how, why, early, err)
					}
				}
			}
		}
	}
	return nil
}

func goneIn(ctx context.Context, w *p2p.World, size int, receive func(*p2p.Comm, []byte) p2p.Request, spoil func([]byte, int) error, early bool) error {
	c := w.Comm()
	if w.Rank() == 0 {
		if early {
			if _, err := c.Recv(ctx, 1, 2, nil); err != nil {
				return err
			}
		}
		region, err := w.Alloc(size)
		if err != nil {
			return err
		}
		buf := region.Bytes()
		if !early {
			buf = make([]byte, size)
		}
		r := c.Isend(1, 1, buf)
		if err := c.Send(ctx, 1, 2, nil); err != nil {
			return err
		}
		if _, err := r.Wait(ctx); err != nil {
			return fmt.Errorf("the send: %w", err)
		}
		return errors.Join(region.Close(), goOn(ctx, w))
	}
	fd, err := unix.MemfdCreate("buffer", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return err
	}
	buf, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	if err := spoil(buf, fd); err != nil {
		return err
	}
	var r p2p.Request
	if early {
		r = receive(c, buf)
		if err := c.Send(ctx, 0, 2, nil); err != nil {
			return err
		}
	}
	if _, err := c.Recv(ctx, 0, 2, nil); err != nil {
		return err
	}
	if !early {
		r = receive(c, buf)
	}
	_, err = r.Wait(ctx)
	if err := isFault(err, "the buffer was unmapped or protected before this receive had ended"); err != nil {
		return err
	}
	if err := goOn(ctx, w); err != nil {
		return err
	}
	return unix.Munmap(buf)
}
