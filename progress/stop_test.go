package progress

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// TestTransportFails: everything ends, also receives whose buffers the device may write to, while
// the program is in Wait and not in Close.
func TestTransportFails(t *testing.T) {
	for _, tags := range []int{0, 4} {
		modes(t, func(t *testing.T, cfg Config) {
			c := newCluster(t, 2, cfg, fakeOpts{tags: tags})
			n := c.net.nodes[0]
			n.hold(true)
			s := c.e[1].Isend(0, 1, fill(1000, 1))
			early := c.e[1].Isend(0, 3, fill(1000, 1))
			reading := c.e[0].Irecv(1, 1, exact, make([]byte, 1000))
			waiting := c.e[0].Irecv(1, 2, exact, make([]byte, 1000))
			require.Eventually(t, func() bool {
				c.e[0].Poll()
				c.e[1].Poll()
				m := c.e[0].Metrics()
				return m.UnexpectedNow == 1 && (m.ReadsNow == 1 || m.Offload.Offloaded == 2)
			}, testlevel.Patience(10*time.Second), time.Millisecond)
			failure := errors.New("the completion queue has overflowed")
			go n.fail(failure)
			for _, r := range []Request{reading, waiting} {
				_, err := r.Wait(bg)
				require.ErrorIs(t, err, failure)
			}
			require.ErrorIs(t, c.e[0].Send(bg, 1, 1, nil), failure)
			_, err := c.e[0].Recv(bg, 1, 3, exact, make([]byte, 1000))
			require.Error(t, err, "its message can be read no more")
			require.NoError(t, c.e[0].Close(nil))
			require.NoError(t, c.e[1].Close(nil))
			for _, r := range []Request{s, early} {
				_, err := r.Wait(bg)
				require.Equal(t, ErrClosed, err)
			}
		})
	}
}
