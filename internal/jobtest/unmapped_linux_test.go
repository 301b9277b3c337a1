//go:build !invariants

// A build with -tags invariants reads the buffer of a send itself, and panics where that is gone.

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/p2p"
)

func init() { roles["unmapped"] = unmappedRole }

// TestUnmappedSendBuffer: a send whose buffer is gone fails at both ends, and nothing else.
func TestUnmappedSendBuffer(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		for name, env := range map[string][]string{"rc": nil, "tmsrq": tmsrqEnv} {
			t.Run(name, func(t *testing.T) {
				job{n: 2, role: "unmapped", device: device, env: slices.Clone(env)}.succeed(t)
			})
		}
	})
}

// unmappedRole: rank 0 sends what nobody may read to rank 1; then they exchange a message, and end
// in order.
func unmappedRole(ctx context.Context, w *p2p.World) error {
	const size = 3 << 20
	c := w.Comm()
	var err error
	if w.Rank() == 0 {
		buf, merr := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if merr != nil {
			return merr
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
	} else {
		if _, err := c.Recv(ctx, 0, 2, nil); err != nil {
			return err
		}
		_, err = c.Recv(ctx, 0, 1, make([]byte, size))
	}
	if !errors.Is(err, p2p.ErrFault) || errors.Is(err, p2p.ErrPeerLost) {
		return fmt.Errorf("the operation ended with %w", err)
	}
	if _, err := c.Sendrecv(ctx, 1-w.Rank(), 3, nil, 1-w.Rank(), 3, nil); err != nil {
		return err
	}
	if failed := w.Failed(); len(failed) != 0 {
		return fmt.Errorf("ranks %v are lost", failed)
	}
	return nil
}
