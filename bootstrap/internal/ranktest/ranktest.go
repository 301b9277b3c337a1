// Package ranktest helps tests that play several ranks of a job in one process.
package ranktest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Timeout is a context that ends only where a test has failed: also a busy machine is fast enough.
func Timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Each runs f concurrently for all ranks and fails with their errors.
func Each(t *testing.T, n int, f func(rank int) error) {
	t.Helper()
	for r, err := range Outcomes(n, f) {
		require.NoError(t, err, "rank %d", r)
	}
}

// Outcomes runs f concurrently for all ranks.
func Outcomes(n int, f func(rank int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { errs[r] = f(r) })
	}
	wg.Wait()
	return errs
}

// Once returns a channel, and what closes it at its first call.
func Once() (c chan struct{}, first func()) {
	c = make(chan struct{})
	return c, sync.OnceFunc(func() { close(c) })
}

// Within waits until c is closed.
func Within(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// On returns a logger that calls do for a record with message msg: a way to wait for what no call
// shows.
func On(msg string, do func()) *slog.Logger { return slog.New(hook{msg, do}) }

// CancelOn returns a context that is cancelled when the logger gets a record with message msg.
func CancelOn(t *testing.T, msg string) (context.Context, *slog.Logger) {
	ctx, cancel := context.WithCancel(Timeout(t))
	t.Cleanup(cancel)
	return ctx, On(msg, cancel)
}

// hook is the handler of On.
type hook struct {
	msg string
	do  func()
}

func (h hook) Enabled(context.Context, slog.Level) bool { return true }
func (h hook) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h hook) WithGroup(string) slog.Handler            { return h }
func (h hook) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.msg {
		h.do()
	}
	return nil
}
