// Package link is the connection between a rank and the local launcher that started it: a socket
// that the rank inherits. The rank reports how far it is with its job, which ranks it has lost, and
// an Abort; it reads end of file when the launcher is gone.
//
// Concurrency: the methods of a Link may be called from any goroutine; Close only once.
package link

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Env names the variable with the socket: "fd:inode". The inode verifies that the descriptor of
// that number is still the same socket in a descendant.
const Env = "TAGMATCH_LAUNCH_FD"

// State is how far a rank is with its job. The launcher uses it to find the rank that brought the
// job down.
type State int

// States in their order.
const (
	Outside State = iota // before it joins
	Joining
	Joined
	Closed   // it has left before all had finished
	Finished // it has left after all had finished
)

// maxLine bounds the length of a line to the launcher.
const maxLine = 1 << 10

// Link is a rank's end.
type Link struct{ f *os.File }

// Open returns the link of this process, or nil if it has none. Each call opens a new descriptor.
func Open(getenv func(string) string) *Link {
	fd, inode, ok := strings.Cut(getenv(Env), ":")
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(fd)
	if err != nil || n < 0 {
		return nil
	}
	ino, err := strconv.ParseUint(inode, 10, 64)
	if err != nil {
		return nil
	}
	f := duplicate(n, ino)
	if f == nil {
		return nil
	}
	return &Link{f}
}

// Abort asks the launcher to end the job with code.
func (l *Link) Abort(code int, reason string) {
	line := fmt.Sprintf("abort %d %q", code, reason)
	if len(line) > maxLine-1 {
		line = fmt.Sprintf("abort %d %q", code, reason[:maxLine/8])
	}
	_ = l.f.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(l.f, line+"\n") // a launcher that is gone needs no report
}

// Say reports how far this rank is.
func (l *Link) Say(s State) {
	_ = l.f.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(l.f, "state %d\n", s) // a launcher that is gone needs no report
}

// Lost reports that this rank has lost another one. It does not block: a launcher that does not
// read misses it.
func (l *Link) Lost(rank int) {
	c, err := l.f.SyscallConn()
	if err != nil {
		return
	}
	_ = c.Control(func(fd uintptr) { // not Write, which would wait for an Abort being written
		_, _ = unix.Write(int(fd), fmt.Appendf(nil, "lost %d\n", rank))
	})
}

// Wait blocks until the launcher is gone or the link is closed.
func (l *Link) Wait() {
	_, _ = io.Copy(io.Discard, l.f)
}

// Close closes this rank's end.
func (l *Link) Close() error { return l.f.Close() }

// Reader gets the reports of a rank.
type Reader struct {
	Abort func(code int, reason string)
	Say   func(State)
	Lost  func(rank int)
}

// Read passes the reports of a rank over r on, until r ends. Anything else that a program may write
// there is ignored.
func Read(r io.Reader, to Reader) {
	b := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := b.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return
		}
		var code int
		var reason string
		if n, _ := fmt.Sscanf(string(line), "abort %d %q\n", &code, &reason); n == 2 {
			to.Abort(code, reason)
		}
		var s State
		if n, _ := fmt.Sscanf(string(line), "state %d\n", &s); n == 1 && s >= Outside && s <= Finished {
			to.Say(s)
		}
		var rank int
		if n, _ := fmt.Sscanf(string(line), "lost %d\n", &rank); n == 1 {
			to.Lost(rank)
		}
	}
}
