// Package link is the line between a rank and the local launcher that started it: a socket that the
// rank inherits. The rank writes to it how far it is with its job, which ranks it has lost, and an
// Abort; it reads end of file when the launcher is gone.
//
// Concurrency: the methods of a Link may be called from any goroutine; Close only once.
//
// This package carries no compatibility promise yet.
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

// Env names the variable that leads to the socket: "fd:inode". The inode makes sure that a
// descriptor of that number in some descendant is the same socket still.
const Env = "TAGMATCH_LAUNCH_FD"

// State is how far a rank is with its job. A launcher that must say which rank brought the job down
// looks at it.
type State int

// States in their order.
const (
	Outside State = iota // it has not begun to join
	Joining
	Joined
	Closed   // it has left before all had come to the end
	Finished // it has left when all had
)

// maxLine bounds what the launcher reads of a line.
const maxLine = 1 << 10

// Link is a rank's end.
type Link struct{ f *os.File }

// Open finds the link of this process, or nil when it has none. Each call gives a descriptor of its
// own.
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
	_, _ = io.WriteString(l.f, line+"\n") // a launcher that is gone needs no telling
}

// Say tells the launcher how far this rank is.
func (l *Link) Say(s State) {
	_ = l.f.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(l.f, "state %d\n", s) // a launcher that is gone needs no telling
}

// Lost tells the launcher that this rank has lost another one. It does not block: a launcher that
// does not read misses it.
func (l *Link) Lost(rank int) {
	c, err := l.f.SyscallConn()
	if err != nil {
		return
	}
	_ = c.Control(func(fd uintptr) { // not Write, which waits for an Abort that is being written
		_, _ = unix.Write(int(fd), fmt.Appendf(nil, "lost %d\n", rank))
	})
}

// Wait blocks until the launcher is gone or the link is closed.
func (l *Link) Wait() {
	_, _ = io.Copy(io.Discard, l.f)
}

// Close gives the link up.
func (l *Link) Close() error { return l.f.Close() }

// Reader is told what a rank sends.
type Reader struct {
	Abort func(code int, reason string)
	Say   func(State)
	Lost  func(rank int)
}

// Read tells to what a rank sends over r, until r ends. Anything else a program may write there is
// ignored.
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
