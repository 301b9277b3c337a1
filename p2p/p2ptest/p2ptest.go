package p2ptest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// shutdownTime bounds the Shutdown after fn has returned: a rank that waits for ever is a failure.
const shutdownTime = 30 * time.Second

// Run calls fn once for each of n ranks, each in its own goroutine, and returns when all have ended
// and shut down. fn may Close its World itself. A rank whose fn panics or ends its goroutine
// (t.FailNow, require) closes its World, so that the others notice.
func Run(t testing.TB, n int, fn func(w *p2p.World)) {
	t.Helper()
	RunConfig(t, n, p2p.Config{}, fn)
}

// RunConfig is Run with a Config, whose Bootstrap must be nil. If cfg.Device is set, the ranks use
// that device. Builds with -tags invariants log warnings to the test if cfg has no Logger.
func RunConfig(t testing.TB, n int, cfg p2p.Config, fn func(w *p2p.World)) {
	t.Helper()
	if invariant.Enabled && cfg.Logger == nil { // it reports requests that were never completed
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	var ranks sync.WaitGroup
	for _, b := range wirings(n, &cfg) {
		ranks.Go(func() {
			c := cfg
			c.Bootstrap = b
			if err := rank(c, fn); err != nil {
				t.Errorf("rank %d: %v", b.Rank(), err)
			}
		})
	}
	ranks.Wait()
}

// wirings returns the Bootstraps of n ranks in this process.
func wirings(n int, cfg *p2p.Config) []p2p.Bootstrap {
	fabric := soft.NewFabric()
	var list []p2p.Bootstrap
	for _, b := range bootstrap.NewLocal(n) {
		if cfg.Device == "" {
			b = &hook.Wiring{Bootstrap: b, Fabric: fabric}
		}
		list = append(list, b)
	}
	return list
}

// rank runs one rank.
func rank(cfg p2p.Config, fn func(w *p2p.World)) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	w, err := p2p.Init(ctx, cfg)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned { // fn panicked, or failed its test from this goroutine
			if v := recover(); v != nil {
				err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
			}
			w.Close()
		}
	}()
	fn(w)
	returned = true
	ctx, cancel2 := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel2()
	if err := w.Shutdown(ctx); !errors.Is(err, p2p.ErrClosed) {
		return err
	}
	return nil // fn has closed it itself
}
