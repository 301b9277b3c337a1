package bootstrap

import (
	"context"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/internal/launch/link"
)

// inheritable returns a descriptor that no object of this process owns.
func inheritable(t *testing.T, f *os.File, err error) int {
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	fd, err := unix.Dup(int(f.Fd()))
	require.NoError(t, err)
	return fd
}

func handOver(t *testing.T, ln *net.TCPListener) string {
	f, err := ln.File()
	return strconv.Itoa(inheritable(t, f, err))
}

func TestInheritedListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	f, err := ln.(*net.TCPListener).File()
	fd := inheritable(t, f, err)
	require.NoError(t, ln.Close())

	list := make([]Bootstrap, 2)
	unset := ""
	ranktest.Each(t, 2, func(r int) (err error) {
		opt := options(envOf(r, 2, port))
		if r == 0 {
			opt = options(envOf(r, 2, port).with(EnvRendezvousFD, strconv.Itoa(fd)))
			opt.Unsetenv = func(name string) error { unset = name; return nil }
		}
		list[r], err = Detect(ranktest.Timeout(t), opt)
		return err
	})
	require.Equal(t, EnvRendezvousFD, unset)
	// It is closed; the number may be in use again, by another descriptor that is not inherited.
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	require.True(t, err == unix.EBADF || flags&unix.FD_CLOEXEC != 0, "the descriptor must not stay open for children")
	closeAll(t, list)
}

// TestLauncherGone: rank 1 detects the end of its launcher.
func TestLauncherGone(t *testing.T) {
	parent, child, env, err := link.Pair(0)
	fd := inheritable(t, child, err)
	defer unix.Close(fd)
	_, inode, _ := strings.Cut(env, ":")
	job := jobEnv(t, 2)
	list := make([]Bootstrap, 2)
	ranktest.Each(t, 2, func(r int) (err error) {
		v := job(r)
		if r == 1 {
			v = v.with(link.Env, strconv.Itoa(fd)+":"+inode)
		}
		list[r], err = Detect(ranktest.Timeout(t), options(v))
		return err
	})
	require.NoError(t, parent.Close())
	for _, b := range list {
		require.Equal(t, AbortInfo{Rank: -1, Code: 1, Reason: "the launcher is gone"}, <-b.Aborted())
	}
	closeAll(t, list)
}

// TestLauncherGoneBeforeAllJoined: a rank that waits for others does not outlive its launcher.
func TestLauncherGoneBeforeAllJoined(t *testing.T) {
	for r := range 2 {
		parent, child, env, err := link.Pair(0)
		fd := inheritable(t, child, err)
		defer unix.Close(fd)
		_, inode, _ := strings.Cut(env, ":")
		joining := make(chan string, 1)
		go func() {
			b := make([]byte, len("state 1\n"))
			_, _ = io.ReadFull(parent, b)
			_ = parent.Close()
			joining <- string(b)
		}()
		_, err = Detect(t.Context(), options(jobEnv(t, 2)(r).with(link.Env, strconv.Itoa(fd)+":"+inode)))
		require.ErrorContains(t, err, "the launcher is gone", "rank %d", r)
		require.Equal(t, "state 1\n", <-joining)
	}
}

// TestInheritedListenerWithoutDescriptors: it is the limit that is wrong, not the variable.
func TestInheritedListenerWithoutDescriptors(t *testing.T) {
	job := jobEnv(t, 2)
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0 // what is open stays open
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	_, err := Detect(t.Context(), options(job(0)))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.ErrorIs(t, err, unix.EMFILE)
	require.ErrorContains(t, err, "too many open files: raise its limit of open files (ulimit -n)")
	require.NotContains(t, err.Error(), "unset it")
}

func TestInheritedNonsense(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/file")
	plain := inheritable(t, file, err)
	defer unix.Close(plain)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	f, err := conn.(*net.TCPConn).File()
	connected := inheritable(t, f, err)
	defer unix.Close(connected)
	tests := []struct{ value, want string }{
		{"three", "which is not a file descriptor"},
		{"-1", "which is not a file descriptor"},
		{"999999", "it is not an open socket"},
		{strconv.Itoa(plain), "it is not an open socket"},
		{strconv.Itoa(connected), "the socket does not listen"},
	}
	for _, tt := range tests {
		_, err := Detect(context.Background(), options(envOf(0, 2, "1").with(EnvRendezvousFD, tt.value)))
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, tt.want)
	}
}
