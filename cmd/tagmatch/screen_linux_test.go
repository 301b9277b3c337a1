package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/inspect/top"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// keyboard is who sits at a terminal: what it shows is read, and keys are typed.
type keyboard struct {
	master, tty *os.File

	mu  sync.Mutex
	got bytes.Buffer // since the last clear
}

// newKeyboard makes a terminal of so many columns and lines.
func newKeyboard(t *testing.T, width, height int) *keyboard {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	fd := int(master.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	k := &keyboard{master: master, tty: tty}
	k.resize(t, width, height)
	var reads sync.WaitGroup
	reads.Go(k.read)
	t.Cleanup(func() {
		require.NoError(t, tty.Close())
		reads.Wait() // fails with EIO when nobody has the terminal open
		require.NoError(t, master.Close())
	})
	return k
}

func (k *keyboard) resize(t *testing.T, width, height int) {
	require.NoError(t, unix.IoctlSetWinsize(int(k.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(width), Row: uint16(height)}))
}

func (k *keyboard) read() {
	buf := make([]byte, 1<<14)
	for {
		n, err := k.master.Read(buf)
		if err != nil {
			return
		}
		k.mu.Lock()
		k.got.Write(buf[:n])
		k.mu.Unlock()
	}
}

func (k *keyboard) shown() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.got.String()
}

// shows waits until the terminal has shown a text after what was typed before, and forgets it.
func (k *keyboard) shows(t *testing.T, text string) (all string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(k.shown(), text) }, testlevel.Patience(time.Minute), time.Millisecond, text)
	k.mu.Lock()
	defer k.mu.Unlock()
	all = k.got.String()
	k.got.Reset()
	return all
}

func (k *keyboard) types(t *testing.T, keys string) {
	_, err := k.master.WriteString(keys)
	require.NoError(t, err)
}

// starts shows a table on the terminal, and returns what waits for its end.
func (k *keyboard) starts(t *testing.T, look sampler) (ended func(after string)) {
	s, ok := screenOf(k.tty, k.tty)
	require.True(t, ok)
	was, err := unix.IoctlGetTermios(int(k.tty.Fd()), unix.TCGETS)
	require.NoError(t, err)
	over := make(chan error, 1)
	go func() { over <- s.show(t.Context(), look, top.View{Sort: -1}) }()
	return func(after string) {
		t.Helper()
		require.NoError(t, <-over)
		is, err := unix.IoctlGetTermios(int(k.tty.Fd()), unix.TCGETS)
		require.NoError(t, err)
		require.Equal(t, was, is, "the terminal is as it was")
		k.shows(t, leaveScreen+after)
	}
}

// TestScreen: keys sort the table and end it, and it has the size of the terminal.
func TestScreen(t *testing.T) {
	k := newKeyboard(t, 80, 24)
	ended := k.starts(t, ticking(4, 1<<30))
	all := k.shows(t, "q quit")
	require.True(t, strings.HasPrefix(all, enterScreen+cursorHome+"job 1a2b: prog"+endOfLine+"\r\n"), "%q", all)
	require.Contains(t, all, "   RANK     pid   msg/s ")
	require.Contains(t, all, "\r\nsorted by rank; keys: ")
	for _, tt := range [][2]string{
		{">", "sorted by pid;"}, {"\x1b[C", "sorted by msg/s;"}, {"\x1bOC", "sorted by MB/s-in;"}, {"\x1b[D\x1b[A", "sorted by msg/s;"}, {"<<<<", "sorted by rank;"},
	} {
		k.types(t, tt[0])
		k.shows(t, tt[1])
	}
	k.types(t, "r")
	k.shows(t, "\r\n      3     997")
	k.resize(t, 60, 7)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGWINCH))
	all = k.shows(t, "and 2 more ranks")
	require.NotContains(t, all[strings.LastIndex(all, cursorHome):], "mem%")
	k.types(t, "q")
	ended("")
}

// TestScreenEnds: interrupt, end of file, signals and the end of the job leave the terminal as it
// was.
func TestScreenEnds(t *testing.T) {
	k := newKeyboard(t, 80, 24)
	for _, typed := range []string{"\x03", "\x04", "Q"} {
		ended := k.starts(t, ticking(1, 1<<30))
		k.shows(t, "q quit")
		k.types(t, typed)
		ended("")
	}
	ended := k.starts(t, ticking(1, 1<<30))
	k.shows(t, "q quit")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	ended("")
	k.starts(t, ticking(1, 1))("The job has ended.\r\n")
}
