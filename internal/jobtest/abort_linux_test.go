package jobtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["aborted"] = abortedRole
	surviving = append(surviving, "aborted")
}

// TestAborted aborts a job from one rank while the others wait for messages, of which it has sent
// none: operations end on all of them, and the launcher exits with the code.
func TestAborted(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		r := job{n: 4, role: "aborted", device: device, grace: time.Minute}.run(t)
		require.Equal(t, 7, r.code, "%s%s", r.out, r.err)
		require.Contains(t, r.err, "tagmatch: rank 1 aborted the job with code 7: the sky fell\n")
		for rank := range 4 {
			require.Contains(t, r.out, fmt.Sprintf("[%d] ended: p2p: recv from any, tag 0x5: job aborted: by rank 1 with code 7: the sky fell\n", rank), "%s", r.err)
		}
	})
}

func abortedRole(ctx context.Context, w *p2p.World) error {
	if err := w.Comm().Send(ctx, 1, 4, nil); err != nil {
		return err
	}
	if w.Rank() == 1 {
		for range w.Size() { // all have left Init
			if _, err := w.Comm().Recv(ctx, p2p.AnySource, 4, nil); err != nil {
				return err
			}
		}
		w.Abort(7, "the sky fell")
	}
	_, err := w.Comm().Recv(ctx, p2p.AnySource, 5, nil)
	if !errors.Is(err, p2p.ErrAborted) {
		return fmt.Errorf("receive of a rank in an aborted job: %w", err)
	}
	fmt.Println("ended:", err)
	return w.Close()
}
