//go:build !invariants

// A build with -tags invariants reads the buffer of a send itself, and panics where that is gone.

package p2p_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/p2p"
)

// spoiled are ways to lose the memory of a buffer that is being sent, all of it or its second half.
// It is not unmapped: its addresses could be those of other memory of this process at once.
var spoiled = map[string]func(b []byte) error{
	"protected":      func(b []byte) error { return unix.Mprotect(b, unix.PROT_NONE) },
	"half protected": func(b []byte) error { return unix.Mprotect(b[len(b)/2:], unix.PROT_NONE) },
}

// mapped is memory that is no part of the Go heap.
func mapped(t *testing.T, n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// A send whose buffer has gone ends with ErrFault, and so does the receive of its message, whether
// it is read by software or the device has matched it. Nobody is lost, and others go on.
func TestBufferOfSendIsGone(t *testing.T) {
	for name, spoil := range spoiled {
		for _, size := range []int{64 << 10, 1 << 20, 5 << 20} {
			t.Run(name, func(t *testing.T) {
				onWirings(t, 2, offloaded, func(t *testing.T, w *p2p.World) {
					c := w.Comm()
					for _, early := range []bool{false, true} {
						if w.Rank() == 0 {
							sendSpoiled(t, c, size, early, spoil)
						} else {
							receiveSpoiled(t, c, size, early)
						}
					}
					require.Empty(t, w.Failed())
				})
			})
		}
	}
}

// A receive whose buffer cannot be written ends with ErrFault; the send of its message succeeds.
func TestBufferOfReceiveIsGone(t *testing.T) {
	spoils := maps.Clone(spoiled)
	spoils["read-only"] = func(b []byte) error { return unix.Mprotect(b, unix.PROT_READ) }
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			onWirings(t, 2, offloaded, func(t *testing.T, w *p2p.World) {
				const size = 1 << 20
				if c := w.Comm(); w.Rank() == 0 {
					_, err := c.Recv(background, 1, 2, nil)
					require.NoError(t, err)
					require.NoError(t, c.Send(background, 1, 1, make([]byte, size)))
					require.NoError(t, c.Send(background, 1, 1, make([]byte, size)))
				} else {
					b := mapped(t, size)
					r, behind := c.Irecv(0, 1, b), c.Irecv(0, 1, make([]byte, size))
					require.NoError(t, spoil(b))
					require.NoError(t, c.Send(background, 0, 2, nil))
					endsInFault(t, r, behind, b, "p2p: recv from 0, tag 0x1: memory cannot be accessed: the buffer was unmapped or protected before this receive had ended")
				}
				require.Empty(t, w.Failed())
			})
		})
	}
}

func sendSpoiled(t *testing.T, c *p2p.Comm, size int, early bool, spoil func([]byte) error) {
	b := mapped(t, size)
	if early { // the receive is posted, and reads at once
		_, err := c.Recv(background, 1, 3, nil)
		require.NoError(t, err)
		require.NoError(t, spoil(b))
	}
	r := c.Isend(1, 1, b)
	behind := c.Isend(1, 1, make([]byte, size))
	if !early {
		require.NoError(t, spoil(b))
	}
	require.NoError(t, c.Send(background, 1, 2, nil))
	endsInFault(t, r, behind, b, "p2p: send to 1, tag 0x1: memory cannot be accessed: the buffer was unmapped or protected before this send had ended")
}

// endsInFault: the operation with the spoiled buffer b fails alone, and the one behind it does not.
func endsInFault(t *testing.T, r, behind p2p.Request, b []byte, text string) {
	_, err := r.Wait(background)
	require.ErrorIs(t, err, p2p.ErrFault)
	require.EqualError(t, err, text)
	_, err = behind.Wait(background)
	require.NoError(t, err)
	require.NoError(t, unix.Munmap(b))
}

func receiveSpoiled(t *testing.T, c *p2p.Comm, size int, early bool) {
	var r, behind p2p.Request
	post := func() {
		r, behind = c.Irecv(0, 1, make([]byte, size)), c.Irecv(0, 1, make([]byte, size))
	}
	if early {
		post()
		require.NoError(t, c.Send(background, 0, 3, nil))
	}
	_, err := c.Recv(background, 0, 2, nil)
	require.NoError(t, err)
	if !early {
		post()
	}
	_, err = r.Wait(background)
	require.ErrorIs(t, err, p2p.ErrFault)
	require.EqualError(t, err, "p2p: recv from 0, tag 0x1: memory cannot be accessed: the sender's buffer was unmapped or protected before its send had ended")
	st, err := behind.Wait(background)
	require.NoError(t, err)
	require.EqualValues(t, size, st.Len)
}
