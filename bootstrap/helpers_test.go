package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/internal/ports/portstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var hexSecret = strings.Repeat("5a", SecretSize)

// vars is an environment.
type vars map[string]string

func (v vars) get(name string) string { return v[name] }

func (v vars) with(more ...string) vars {
	c := vars{}
	for k, s := range v {
		c[k] = s
	}
	for i := 0; i < len(more); i += 2 {
		c[more[i]] = more[i+1]
	}
	return c
}

// freePort returns a free port, which another test may take before it is used: see jobEnv.
func freePort(t *testing.T) string { return strconv.Itoa(portstest.Free(t, 1)[0]) }

// jobEnv returns the environment of each rank. Where sockets can be inherited, rank 0 gets a
// listening one, so that no other test can take its port.
func jobEnv(t *testing.T, n int) func(rank int) vars { return jobEnvAt(t, n, "127.0.0.1") }

func jobEnvAt(t *testing.T, n int, ip string) func(rank int) vars {
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	fd := handOver(t, ln.(*net.TCPListener))
	ln.Close()
	return func(rank int) vars {
		if rank == 0 {
			return envOf(rank, n, port).with(EnvRendezvousFD, fd)
		}
		return envOf(rank, n, port)
	}
}

func envOf(rank, size int, port string) vars {
	return vars{"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
}

func options(v vars) Options {
	return Options{Getenv: v.get, Linger: 300 * time.Millisecond, handshake: 2 * time.Second}
}

// timeout is a context that ends only where a test has failed: also a busy machine is fast enough.
func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// logHook is a Logger's handler that calls do for a record with message msg: a way to wait for what
// no call shows.
type logHook struct {
	msg string
	do  func()
}

func (h logHook) Enabled(context.Context, slog.Level) bool { return true }
func (h logHook) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h logHook) WithGroup(string) slog.Handler            { return h }
func (h logHook) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.msg {
		h.do()
	}
	return nil
}

// on has the Logger of opt call do when it logs msg.
func (opt *Options) on(msg string, do func()) { opt.Logger = slog.New(logHook{msg, do}) }

// cancelOn returns a context that is cancelled when the Logger of opt logs msg.
func cancelOn(t *testing.T, opt *Options, msg string) context.Context {
	ctx, cancel := context.WithCancel(timeout(t))
	t.Cleanup(cancel)
	opt.on(msg, cancel)
	return ctx
}

// once returns a channel, and what closes it at its first call.
func once() (c chan struct{}, first func()) {
	c = make(chan struct{})
	return c, sync.OnceFunc(func() { close(c) })
}

// within waits until c is closed.
func within(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hubOf is the hub of the job whose rank 0 is root.
func hubOf(root Bootstrap) *hub {
	switch up := root.(*endpoint).up.(type) {
	case *localLink:
		return up.hub
	case *rootLink:
		return up.hub
	}
	panic("not rank 0")
}

// portOf is the port at which rank 0 serves.
func portOf(root Bootstrap) string {
	return strconv.Itoa(root.(*endpoint).up.(*rootLink).store.ln.Addr().(*net.TCPAddr).Port)
}

// awaitArrival waits until n ranks are in the fence.
func awaitArrival(h *hub, n int) error {
	arrived := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.arrived
	}
	for end := time.Now().Add(30 * time.Second); arrived() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%d ranks are in the fence, want %d", arrived(), n)
		}
	}
	return nil
}

// each runs f concurrently for all ranks and fails with their errors.
func each(t *testing.T, n int, f func(rank int) error) {
	t.Helper()
	for r, err := range outcomes(n, f) {
		require.NoError(t, err, "rank %d", r)
	}
}

func outcomes(n int, f func(rank int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { errs[r] = f(r) })
	}
	wg.Wait()
	return errs
}

// startJob joins n ranks over TCP, each with the environment of a job plus more.
func startJob(t *testing.T, n int, more ...string) []Bootstrap {
	t.Helper()
	env := jobEnv(t, n)
	list := make([]Bootstrap, n)
	ctx := timeout(t)
	each(t, n, func(r int) (err error) {
		list[r], err = Detect(ctx, options(env(r).with(more...)))
		return err
	})
	t.Cleanup(func() { closeAll(t, list) })
	return list
}

func closeAll(t *testing.T, list []Bootstrap) {
	t.Helper()
	each(t, len(list), func(r int) error {
		if list[r] == nil {
			return nil
		}
		return list[r].Close()
	})
}
