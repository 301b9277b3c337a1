package p2p_test

import (
	"context"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// exchange sends from one part of memory to another rank's, and back into a third.
func exchange(t *testing.T, w *p2p.World, memory []byte, sizes ...int) {
	c, peer := w.Comm(), 1-w.Rank()
	for _, size := range sizes {
		out, in := memory[1:1+size], memory[1+size:1+2*size]
		for i := range out {
			out[i] = byte(i*3 + w.Rank() + size)
		}
		r := c.Irecv(peer, 5, in)
		require.NoError(t, c.Send(background, peer, 5, out))
		_, err := r.Wait(background)
		require.NoError(t, err)
		for i := range in {
			if in[i] != byte(i*3+peer+size) {
				t.Fatalf("byte %d of %d is %d", i, size, in[i])
			}
		}
	}
}

func TestRegions(t *testing.T) {
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		const size = 5<<20 + 3
		a, err := w.Alloc(size)
		require.NoError(t, err)
		require.Len(t, a.Bytes(), size)
		require.Equal(t, size, cap(a.Bytes()))
		require.Equal(t, make([]byte, size), a.Bytes())
		own := make([]byte, size)
		r, err := w.Register(own)
		require.NoError(t, err)
		for _, memory := range [][]byte{a.Bytes(), r.Bytes(), own} {
			exchange(t, w, memory, 1, 1000, 40<<10, 300_000, size/2-1)
		}
		require.NoError(t, a.Close())
		require.NoError(t, r.Close())
		exchange(t, w, own, 300_000)
		require.NoError(t, a.Close())
		require.Nil(t, a.Bytes())
	})
}

// Over shared memory the other rank maps what Alloc has returned, whose pages are free after Close
// all the same. To a device that works by itself everything is pushed, which maps nothing.
func TestAllocIsMapped(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory is shared on Linux only")
	}
	for _, transport := range []string{"rc", "tmsrq"} {
		p2ptest.RunConfig(t, 2, p2p.Config{Device: "shm", Transport: transport, OffloadMin: -1, Async: p2p.AsyncOff}, func(w *p2p.World) {
			const size = 2 << 20
			a, err := w.Alloc(size)
			require.NoError(t, err)
			exchange(t, w, a.Bytes(), size/2-1)
			require.NoError(t, w.Comm().Send(background, 1-w.Rank(), 6, nil)) // both have read
			_, err = w.Comm().Recv(background, 1-w.Rank(), 6, nil)
			require.NoError(t, err)
			require.GreaterOrEqual(t, mappings(t), 3) // own, the peer's, and own at the peer
			require.NoError(t, a.Close())
		})
		require.Zero(t, mappings(t))
	}
}

// mappings counts the mappings of memory of Alloc in this process.
func mappings(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(text), "memfd:tagmatch-memory")
}

func TestRegionMisuse(t *testing.T) {
	for _, transport := range []string{"rc", "tmsrq"} {
		p2ptest.RunConfig(t, 1, p2p.Config{Transport: transport, OffloadMin: -1}, func(w *p2p.World) {
			for _, size := range []int{0, -1} {
				_, err := w.Alloc(size)
				require.ErrorIs(t, err, p2p.ErrInvalid)
			}
			_, err := w.Alloc(1 << 50)
			require.ErrorIs(t, err, syscall.ENOMEM)
			_, err = w.Register(nil)
			require.ErrorIs(t, err, p2p.ErrInvalid)
			own := make([]byte, 100<<10)
			r, err := w.Register(own[:90<<10])
			require.NoError(t, err)
			_, err = w.Register(own[1:2])
			require.ErrorIs(t, err, p2p.ErrInvalid)
			_, err = w.Register(own)
			require.ErrorIs(t, err, p2p.ErrInvalid)

			// What is posted holds it: receives in software and in the device, and sends.
			self := w.Comm()
			uses := []p2p.Request{
				self.Irecv(w.Rank(), 1, own[:10]), self.Irecv(w.Rank(), 2, own[10:80<<10]),
				w.Irecv(3, p2p.MaskAny, own[80<<10:]), self.Isend(w.Rank(), 4, own[:60<<10]),
			}
			require.EqualError(t, r.Close(), "p2p: invalid argument: close of a Region of 92160 bytes: operations on it are not complete: 4")
			for _, u := range uses {
				u.Cancel()
			}
			ctx, cancel := context.WithTimeout(background, testlevel.Patience(20*time.Second))
			defer cancel()
			for _, u := range uses {
				_, err := u.Wait(ctx)
				require.ErrorIs(t, err, p2p.ErrCanceled)
			}
			require.NoError(t, r.Close())

			a, err := w.Alloc(1)
			require.NoError(t, err)
			b, err := w.Register(own)
			require.NoError(t, err)
			require.NoError(t, w.Close())
			a.Bytes()[0] = 1 // it is the program's still
			_, err = w.Alloc(1)
			require.ErrorIs(t, err, p2p.ErrClosed)
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
		})
	}
}
