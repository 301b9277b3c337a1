// Package link is the line between a rank and the local launcher that started it: a socket that the rank inherits. The
// rank writes an Abort to it; it reads end of file when the launcher is gone.
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
)

// Env names the variable that leads to the socket: "fd:inode". The inode makes sure that a descriptor of that number in
// some descendant is the same socket still.
const Env = "TAGMATCH_LAUNCH_FD"

// maxLine bounds what the launcher reads of a line.
const maxLine = 1 << 10

// Link is a rank's end.
type Link struct{ f *os.File }

// Open finds the link of this process, or nil when it has none. Each call gives a descriptor of its own.
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

// Wait blocks until the launcher is gone or the link is closed.
func (l *Link) Wait() {
	_, _ = io.Copy(io.Discard, l.f)
}

// Close gives the link up.
func (l *Link) Close() error { return l.f.Close() }

// ReadAborts calls abort for each Abort that a rank sends over r, until r ends. Anything else a program may write there
// is ignored.
func ReadAborts(r io.Reader, abort func(code int, reason string)) {
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
			abort(code, reason)
		}
	}
}
