package dial

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// TestFullBacklog: a peer of this host whose backlog is full is waited for.
func TestFullBacklog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: name}))
	require.NoError(t, unix.Listen(fd, 0))
	filler, err := net.Dial("unix", name)
	require.NoError(t, err)
	defer filler.Close()
	full := make(chan struct{}, 1000)
	a := newConnEnd(t, 0, 1, func(c *Config) {
		c.Retry = 10 * time.Millisecond
		c.Dial = func(ctx context.Context, a *wire.Address) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", name)
			if errors.Is(err, syscall.EAGAIN) {
				full <- struct{}{}
			}
			return conn, err
		}
	})
	a.Connect(&wire.Address{ID: wire.DeviceID{9}, Rank: 3})
	for range 8 { // the pauses between them are longer than Retry together
		select {
		case <-full:
		case <-a.woke:
			require.Fail(t, "it is given up", "%v", a.Take())
		}
	}
	require.False(t, a.Pending())
	for range 2 {
		conn, _, err := unix.Accept(fd)
		require.NoError(t, err)
		defer unix.Close(conn)
	}
}
