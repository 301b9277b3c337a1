package p2p_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/p2p"
)

// late is a Bootstrap whose rank has met the others but does not get further with Init before gone
// is closed.
type late struct {
	p2p.Bootstrap
	gone <-chan struct{}
}

func (b *late) Get(ctx context.Context, rank int, key string) ([]byte, error) {
	<-b.gone
	return b.Bootstrap.Get(ctx, rank, key)
}

// TestLeavingRightAfterInit: rank 1 leaves before the others have finished their Init.
func TestLeavingRightAfterInit(t *testing.T) {
	for _, device := range []string{"shm", "tcp"} {
		t.Run(device, func(t *testing.T) {
			skipUnlessLinux(t, device)
			gone := make(chan struct{})
			list := bootstrap.NewLocal(3)
			errs := make(chan error, 3)
			for r, b := range list {
				go func() {
					if r != 1 {
						b = &late{b, gone}
					}
					w, err := p2p.Init(background, p2p.Config{Device: device, Bootstrap: b})
					switch {
					case r == 1:
						defer close(gone)
					case err == nil:
						_, lost := w.Comm().Recv(background, 1, 5, nil)
						assert.ErrorIs(t, lost, p2p.ErrPeerLost)
					}
					if err == nil {
						err = w.Close()
					}
					errs <- err
				}()
			}
			for range list {
				require.NoError(t, <-errs)
			}
		})
	}
}
