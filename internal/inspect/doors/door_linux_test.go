package doors

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// open opens a door of this process and test.
func open(t *testing.T, rank int, answer Answer) (*Door, Name) {
	t.Helper()
	n := Name{UID: os.Geteuid(), Job: strings.ToLower(t.Name()), Rank: rank, PID: os.Getpid()}
	d, err := Open(n, answer)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d, n
}

func dial(t *testing.T, n Name) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", n.String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func echo(request string) []any {
	if request == "?" {
		return Refuse(request)
	}
	return []any{map[string]string{"you": request}, 2}
}

// descriptors are the open ones of this process.
func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// TestDoor asks through a door, and finds nothing left of it.
func TestDoor(t *testing.T) {
	first, _ := open(t, 0, echo) // makes the descriptors of the runtime's own
	first.Close()
	defer goleak.VerifyNone(t)
	fds := descriptors(t)
	d, n := open(t, 3, echo)
	found, err := Find()
	require.NoError(t, err)
	require.Contains(t, found, n)
	lines, pid, err := Ask(t.Context(), n, "state")
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), pid)
	require.Equal(t, `{"you":"state"}|2`, fmt.Sprintf("%s|%s", lines[0], lines[1]))
	_, _, err = Ask(t.Context(), n, "?")
	require.EqualError(t, err, "the rank answers: no request ?")
	_, _, err = Ask(t.Context(), n, strings.Repeat("a", longestRequest))
	require.Error(t, err)
	_, err = Open(n, echo)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	d.Close()
	d.Close()
	(*Door)(nil).Close()
	_, _, err = Ask(t.Context(), n, "state")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.Equal(t, fds, descriptors(t))
}

// TestAskersThatHarm: those who ask nothing, who go in the middle, and who do not read, take
// nothing from others, and the door closes.
func TestAskersThatHarm(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	d, n := open(t, 0, func(request string) []any {
		if request == "long" {
			return []any{long}
		}
		return echo(request)
	})
	for range mostConnections - 1 { // do not read
		_, err := dial(t, n).Write([]byte("long\n"))
		require.NoError(t, err)
	}
	for range 100 {
		gone := dial(t, n)
		_, _ = gone.Write([]byte("long\n")) // fails where it was turned away
		gone.Close()
	}
	require.Eventually(t, func() bool {
		_, _, err := Ask(t.Context(), n, "state")
		return err == nil
	}, time.Minute, time.Millisecond)
	for range mostConnections { // ask nothing
		dial(t, n)
	}
	d.Close()
	goleak.VerifyNone(t)
}

// TestLongAnswer: of an answer without end no more is read than a rank has to say.
func TestLongAnswer(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	_, n := open(t, 0, func(string) []any { return []any{long, long, long, long, long} })
	_, _, err := Ask(t.Context(), n, "state")
	require.EqualError(t, err, "its answer is longer than 4194304 bytes")
	lines, _, err := Ask(t.Context(), n, "job state")
	require.NoError(t, err)
	require.Len(t, lines, 5)
}

// TestCrowd: those who are too many are turned away, and others are served when places are free.
func TestCrowd(t *testing.T) {
	_, n := open(t, 0, echo)
	for range mostConnections {
		dial(t, n)
	}
	_, _, err := Ask(t.Context(), n, "state")
	require.Error(t, err)
	require.Eventually(t, func() bool {
		_, _, err := Ask(t.Context(), n, "state")
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

// TestNoAnswer: an answer that does not come ends with the context, and who asks knows the process.
func TestNoAnswer(t *testing.T) {
	release := make(chan struct{})
	_, n := open(t, 0, func(string) []any {
		<-release
		return nil
	})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	_, pid, err := Ask(ctx, n, "state")
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, []int{0, os.Getpid()}, pid, "0 where it had not connected")
	require.Equal(t, Busy, Process(os.Getpid()))
}

// TestProcess has a process that is stopped, and then ended.
func TestProcess(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	pid := cmd.Process.Pid
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	require.Eventually(t, func() bool { return Process(pid) == Stopped }, time.Minute, time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	require.Eventually(t, func() bool { return Process(pid) == Gone }, time.Minute, time.Millisecond)
	require.Error(t, cmd.Wait())
	require.Equal(t, Gone, Process(pid))
}

// TestFindOthers: of the sockets of a host only doors are found, and only those of the user; root
// finds all.
func TestFindOthers(t *testing.T) {
	const table = `Num       RefCount Protocol Flags    Type St Inode Path
ffff8: 00000002 00000000 00010000 0001 01 1 @tagmatch/1000/1a2b/10/20
ffff8: 00000002 00000000 00010000 0001 01 2 @tagmatch/1000/1a2b/9/21
ffff8: 00000002 00000000 00000000 0001 03 3 @tagmatch/1000/1a2b/8/21
ffff8: 00000002 00000000 00010000 0001 01 4 @tagmatch/0/77/0/22
ffff8: 00000002 00000000 00010000 0001 01 5 @tagmatch/1000/../0/22
ffff8: 00000002 00000000 00010000 0001 01 6 @tagmatch/1000/1a2b/0
ffff8: 00000002 00000000 00010000 0001 01 7 @tagmatch/1000/1a2b/-1/22
ffff8: 00000002 00000000 00010000 0001 01 8 @tagmatch/1000/1a2b/01/22
ffff8: 00000002 00000000 00010000 0001 01 9 @tagmatch/1000/1a2b/1/99999999999
ffff8: 00000002 00000000 00010000 0001 01 10 @tagmatch/1000/1A/1/9
ffff8: 00000002 00000000 00010000 0001 01 11 /run/x
ffff8: 00000003 00000000 00000000 0001 03 12
`
	mine := []Name{{1000, "1a2b", 9, 21}, {1000, "1a2b", 10, 20}}
	require.Equal(t, mine, find([]byte(table), 1000))
	require.Equal(t, append([]Name{{0, "77", 0, 22}}, mine...), find([]byte(table), 0))
	require.Empty(t, find([]byte(table), 7))
	require.Empty(t, find(nil, 0))
}
