package jobtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["taken"] = takenRole
	surviving = append(surviving, "taken")
}

const takenBytes = 128 << 20 // takes long enough that the sender's Close comes in the middle

// takenRole: rank 0 sends a long message, and closes its World while rank 1 reads it. That is the
// loss of rank 0: nobody has withdrawn the message.
func takenRole(ctx context.Context, w *p2p.World) error {
	c := w.Comm()
	if w.Rank() == 0 {
		r := c.Isend(1, 1, make([]byte, takenBytes))
		if _, err := c.Recv(ctx, 1, 2, nil); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		if _, err := r.Wait(ctx); err != nil && !errors.Is(err, p2p.ErrClosed) {
			return err
		}
		return nil
	}
	r := c.Irecv(0, 1, make([]byte, takenBytes))
	for w.Metrics().PostedNow != 0 { // until it is matched
		time.Sleep(100 * time.Microsecond)
	}
	if err := c.Send(ctx, 0, 2, nil); err != nil {
		return err
	}
	_, err := r.Wait(ctx)
	var lost *p2p.PeerError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &lost) || len(lost.Ranks) != 1 || lost.Ranks[0] != 0:
		return fmt.Errorf("a receive from a rank that has closed its World: %w", err)
	}
	fmt.Println("lost")
	return nil
}

// TestTakenBack: a receive that reads from a rank which closes its World ends with its loss.
func TestTakenBack(t *testing.T) {
	eachTransport(t, []string{"shm", "tcp"}, func(t *testing.T, device string, env []string) {
		lost := 0
		for range 3 {
			r := job{n: 2, role: "taken", device: device, env: env, keep: true}.run(t)
			require.Zero(t, r.code, "%s%s", r.out, r.err)
			lost += strings.Count(r.out, "lost")
		}
		require.NotZero(t, lost, "the sender was never in time")
	})
}
