package dial

import (
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/refuse"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// TestReserve: a connector without descriptors refuses every connection by name. What it keeps for
// that is nobody else's, not between two connections either.
func TestReserve(t *testing.T) {
	a := newConnEnd(t, 5, 1)
	dialler := func() int { // its descriptor is taken before there are none
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Close(fd) })
		require.NoError(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}))
		return fd
	}
	diallers := []int{dialler(), dialler(), dialler()}
	free, err := refuse.Descriptors()
	require.NoError(t, err)
	defer free()
	addr := netip.MustParseAddrPort(a.self.TCP[0])
	for _, fd := range diallers {
		require.NoError(t, unix.Connect(fd, &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}))
		h := &hello{kind: "tcp", dst: a.self.ID, dstRank: 5}
		_, err := unix.Write(fd, h.sign([]byte("secret")))
		require.NoError(t, err)
		_, err = readMsg(rawReader(fd), msgChallenge)
		require.ErrorContains(t, err, "rank 5 has no file descriptor left")
		_, err = rawReader(fd).Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		require.Eventually(t, func() bool { return !oneFree() }, testlevel.Patience(time.Minute), time.Millisecond)
		for range 20 { // the connector looks every 50 ms
			require.False(t, oneFree(), "the reserve is given up though nobody dials")
			time.Sleep(10 * time.Millisecond)
		}
	}
}

type rawReader int

func (r rawReader) Read(b []byte) (int, error) {
	n, err := unix.Read(int(r), b)
	for err == unix.EINTR {
		n, err = unix.Read(int(r), b)
	}
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, err
}

// oneFree reports whether this process could open a file.
func oneFree() bool {
	fd, err := unix.Open(os.DevNull, unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}
