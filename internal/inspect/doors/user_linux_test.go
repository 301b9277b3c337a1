package doors

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const nobody = 65534

// asNobody calls do in a thread of another user, which this process must be allowed to have: do
// makes system calls only.
func asNobody(t *testing.T, do func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a thread of it becomes another user's")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread, of that user now, ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			done <- errno
			return
		}
		done <- do()
	}()
	require.NoError(t, <-done)
}

// TestOtherUserAsks: a door says nothing to other users.
func TestOtherUserAsks(t *testing.T) {
	_, n := open(t, 0, echo)
	answer := make([]byte, 100)
	got := -1
	asNobody(t, func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: n.String()}); err != nil {
			return err
		}
		_, _ = unix.Write(fd, []byte("state\n")) // fails where it was turned away already
		if got, err = unix.Read(fd, answer); err == unix.ECONNRESET {
			got, err = 0, nil
		}
		return err
	})
	require.Zero(t, got, string(answer))
}

// TestOtherUserAnswers: a socket that another user has made in the name of a rank is not believed.
func TestOtherUserAnswers(t *testing.T) {
	n := Name{UID: os.Geteuid(), Job: "forged", PID: os.Getpid()}
	fd := -1
	asNobody(t, func() (err error) {
		fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: n.String()})
		}
		if err == nil {
			err = unix.Listen(fd, 1)
		}
		return err
	})
	defer func() { _ = unix.Close(fd) }()
	s := States(t.Context(), []Name{n})[0]
	require.Equal(t, "the door of rank 0 is of user 65534, and its name says 0: somebody has put another one in its place", s.Silent)
}
