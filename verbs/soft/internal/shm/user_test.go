//go:build linux

package shm

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/door"
)

// TestOtherUser: the kernel tells who has dialled, whatever that says. Who is another user is
// refused.
func TestOtherUser(t *testing.T) {
	name := fmt.Sprintf("@tagmatch-test-%d", os.Getpid())
	ln, err := net.Listen("unix", name)
	require.NoError(t, err)
	defer ln.Close()
	fd := -1
	dial := func() {
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
		}
	}
	accept := func() (door.Who, error) {
		require.NoError(t, err)
		defer func() { _ = unix.Close(fd) }()
		conn, err := ln.Accept()
		require.NoError(t, err)
		defer conn.Close()
		return from(conn)
	}
	dial()
	who, err := accept()
	require.NoError(t, err)
	require.Equal(t, door.Who(fmt.Sprint("process ", os.Getpid())), who)
	if os.Geteuid() != 0 {
		t.Skip("needs root: it dials as another user")
	}
	const nobody = 65534
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread, of that user now, ends with the goroutine
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		if err = errno; errno == 0 {
			dial()
		}
	}()
	<-done
	who, err = accept()
	require.Equal(t, door.Who("user 65534"), who)
	require.ErrorContains(t, err, "the peer runs as user 65534, this process as 0")
}
