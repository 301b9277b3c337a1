package p2p_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/p2p"
)

// heldFence is the Bootstrap of a rank that hears of the end of a fence once hold returns.
type heldFence struct {
	bootstrap.Bootstrap
	hold func()
}

func (b *heldFence) Fence(ctx context.Context) error {
	err := b.Bootstrap.Fence(ctx)
	if b.hold != nil {
		b.hold()
	}
	return err
}

// TestOrderlyEndIsNoWarning: a rank that is the first to leave Shutdown closes while the others are
// still in it. They log that as nothing to be warned of.
func TestOrderlyEndIsNoWarning(t *testing.T) {
	for _, device := range []string{"shm", "tcp"} {
		skipUnlessLinux(t, device)
		list := bootstrap.NewLocal(2)
		late := &heldFence{Bootstrap: list[1]}
		list[1] = late
		var log bytes.Buffer
		var ws [2]*p2p.World
		together(t, 2, func(r int) {
			cfg := p2p.Config{Bootstrap: list[r], Device: device}
			if r == 1 {
				cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			}
			var err error
			ws[r], err = p2p.Init(background, cfg)
			assert.NoError(t, err)
		})
		peer := make(chan struct{})
		late.hold = sync.OnceFunc(func() {
			<-peer
			eventually(t, func() bool { return len(ws[1].Failed()) == 1 })
		})
		together(t, 2, func(r int) {
			c := ws[r].Comm()
			_, err := c.Sendrecv(background, 1-r, 1, nil, 1-r, 1, nil) // they are connected
			assert.NoError(t, err)
			assert.NoError(t, ws[r].Shutdown(background))
			if r == 0 {
				close(peer)
			}
		})
		require.Contains(t, log.String(), `level=DEBUG msg="peer lost" rank=1 peer=0`)
		require.NotContains(t, log.String(), `level=WARN msg="peer lost"`)
	}
}

// deafFence is the Bootstrap of a rank whose fences, from some time on, end with their contexts
// only: the launcher tells it of no loss.
type deafFence struct {
	bootstrap.Bootstrap
	entered func()
}

func (b *deafFence) Fence(ctx context.Context) error {
	if b.entered == nil {
		return b.Bootstrap.Fence(ctx)
	}
	b.entered()
	<-ctx.Done()
	return ctx.Err()
}

// TestShutdownInVainNamesLaterLoss: a rank that is lost while this one waits for all in Shutdown is
// named by its error, since the log takes that for an orderly end.
func TestShutdownInVainNamesLaterLoss(t *testing.T) {
	list := bootstrap.NewLocal(2)
	deaf := &deafFence{Bootstrap: list[1]}
	list[1] = deaf
	var ws [2]*p2p.World
	together(t, 2, func(r int) {
		var err error
		ws[r], err = p2p.Init(background, p2p.Config{Bootstrap: list[r]})
		assert.NoError(t, err)
	})
	waits := make(chan struct{})
	deaf.entered = func() { close(waits) }
	ctx, cancel := context.WithCancel(background)
	together(t, 2, func(r int) {
		c := ws[r].Comm()
		_, err := c.Sendrecv(background, 1-r, 1, nil, 1-r, 1, nil) // they are connected
		assert.NoError(t, err)
		if r == 0 {
			<-waits
			assert.NoError(t, ws[0].Close())
			eventually(t, func() bool { return len(ws[1].Failed()) == 1 })
			cancel()
			return
		}
		err = ws[1].Shutdown(ctx)
		assert.ErrorIs(t, err, context.Canceled)
		var lost *p2p.PeerError
		if assert.ErrorAs(t, err, &lost) {
			assert.Equal(t, []int{0}, lost.Ranks)
		}
	})
}
