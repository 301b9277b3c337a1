package launch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/buffertest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// pausing is an output whose reader pauses at first, for longer than descendants are waited for.
type pausing struct {
	once sync.Once
	buffertest.Buffer
}

func (p *pausing) Write(b []byte) (int, error) {
	p.once.Do(func() { time.Sleep(lastWords + lastWords/2) })
	return p.Buffer.Write(b)
}

// numbers are as many lines as a pipe takes without a reader: the rank ends while its reader
// pauses.
func numbers() string {
	var b strings.Builder
	for i := range 12000 {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

func TestOutputWaitsForItsReader(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"seq 1 12000", "setsid sleep 5 & seq 1 12000"} {
		var out pausing
		var errs buffertest.Buffer
		code, err := Run(t.Context(), Options{N: 1, Command: []string{"sh", "-c", script}, Stdout: &out, Stderr: &errs, NoPrefix: true})
		require.NoError(t, err)
		require.Zero(t, code, errs.String())
		require.Equal(t, numbers(), out.String(), script)
	}
}

// startStream returns a stream whose pipe already holds written, and the pipe's other end.
func startStream(t *testing.T, w io.Writer, written string) (*stream, *os.File) {
	t.Helper()
	s := newStream(&lineWriter{mu: new(sync.Mutex), w: w})
	var err error
	var child *os.File
	s.pipe, child, err = os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = child.Close() })
	_, err = io.WriteString(child, written)
	require.NoError(t, err)
	return s, child
}

// TestRestOfAStream: what is in the pipe at the end of the rank is read even if there is no time
// left, as after the launcher was stopped, although a descendant keeps the pipe open.
func TestRestOfAStream(t *testing.T) {
	var out bytes.Buffer
	s, _ := startStream(t, &out, numbers()+"no newline")
	s.patience = 0
	s.rankEnded()
	s.run()
	require.NoError(t, <-s.done)
	require.Equal(t, numbers()+"no newline\n", out.String())
}

// TestLostRestIsAnError: also what was left in the pipe, of which the launcher knows how much it
// is.
func TestLostRestIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { _ = full.Close() }()
	s, _ := startStream(t, full, "line\n")
	s.rankEnded()
	s.run()
	require.ErrorIs(t, <-s.done, syscall.ENOSPC)
}

// refill is an output that writes to the pipe itself: a descendant that never pauses.
type refill struct {
	child *os.File
	lines int
}

func (r *refill) Write(b []byte) (int, error) {
	r.lines += bytes.Count(b, []byte("\n"))
	return r.child.Write(b)
}

func TestDescendantThatNeverPauses(t *testing.T) {
	var out refill
	s, child := startStream(t, &out, "line\n")
	out.child = child
	s.patience = 100 * time.Millisecond
	s.rankEnded()
	s.run()
	require.NoError(t, <-s.done)
	require.NotZero(t, out.lines)
}

// TestLostOutputIsAnError: also that of a line without an end, which is written last.
func TestLostOutputIsAnError(t *testing.T) {
	for _, script := range []string{"echo line", "printf word"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		var errs buffertest.Buffer
		code, err := Run(t.Context(), Options{N: 1, Command: []string{"sh", "-c", script}, Stdout: full, Stderr: &errs})
		require.NoError(t, err)
		require.Equal(t, 1, code, script)
		require.Contains(t, errs.String(), "rank 0 has lost output: write /dev/full: no space left on device")
		require.NoError(t, full.Close())
	}
}

// held is an output that takes nothing until it is let go.
type held struct {
	letGo chan struct{}
	buffertest.Buffer
}

func (h *held) Write(b []byte) (int, error) {
	<-h.letGo
	return h.Buffer.Write(b)
}

// TestFailureWithoutAReader: a rank that has printed and fails ends the others, although nobody
// takes what it has printed. Its code is the job's, and the reason follows its output.
func TestFailureWithoutAReader(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	out := held{letGo: make(chan struct{})}
	script := `if [ $RANK = 0 ]; then echo pid $$ >` + mark + `; exec sleep 600; fi
while ! grep -q pid ` + mark + ` 2>/dev/null; do sleep 0.01; done; echo line; exit 3`
	code := make(chan int)
	go func() {
		c, _ := Run(t.Context(), Options{N: 2, Command: []string{"sh", "-c", script}, Stdout: &out, Stderr: &out})
		code <- c
	}()
	var marks []byte
	require.Eventually(t, func() bool {
		marks, _ = os.ReadFile(mark) // is not there at first
		return len(pids(string(marks))) == 1
	}, testlevel.Patience(30*time.Second), 5*time.Millisecond)
	requireGone(t, pids(string(marks)))
	close(out.letGo)
	require.Equal(t, 3, <-code)
	require.Equal(t, "[1] line\ntagmatch: rank 1 exited with code 3\n", out.String())
}

// TestInterruptedWithoutAReader: the first signal ends ranks whose output nobody reads, the second
// one the launcher too.
func TestInterruptedWithoutAReader(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "mark")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = r.Close() }()
	defer func() { _ = w.Close() }()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), envRole+"=nested", "NESTED_COMMAND=echo pid $$ >>"+mark+"; exec yes")
	c.Stdout, c.Stderr = w, w
	require.NoError(t, c.Start())
	defer func() { _ = c.Process.Kill() }() // is over unless the test fails
	var marks []byte
	require.Eventually(t, func() bool {
		marks, _ = os.ReadFile(mark) // is not there at first
		return len(pids(string(marks))) == 2 && isFull(t, w)
	}, testlevel.Patience(30*time.Second), 5*time.Millisecond)
	require.NoError(t, c.Process.Signal(syscall.SIGINT))
	requireGone(t, pids(string(marks)))
	require.NoError(t, c.Process.Signal(syscall.SIGINT))
	_ = c.Wait() // says with which code it ended
	require.Equal(t, 128+int(syscall.SIGINT), c.ProcessState.ExitCode())
}

// isFull reports whether a pipe takes no more.
func isFull(t *testing.T, w *os.File) (full bool) {
	c, err := w.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, c.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(p, 0)
		full = n == 0 && err == nil
	}))
	return full
}
