package launch

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// maxLine is where an endless line is cut, so that a rank cannot fill the launcher's memory.
const maxLine = 1 << 20

// lineWriter forwards whole lines, each with a prefix and in one write. One goroutine writes; mu is
// shared with the other writers of the same output.
type lineWriter struct {
	mu      *sync.Mutex
	w       io.Writer
	prefix  string
	buf     []byte // an unfinished line
	out     []byte
	writing time.Duration // how long all writes took, the other writers' before them too
}

func (l *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	l.out = l.out[:0]
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}
		l.out = append(l.out, l.prefix...)
		l.out = append(l.out, l.buf...)
		l.out = append(l.out, p[:i+1]...)
		l.buf, p = l.buf[:0], p[i+1:]
	}
	l.buf = append(l.buf, p...)
	if len(l.buf) > maxLine {
		l.cut()
	}
	if err := l.pass(); err != nil {
		return 0, err // not n: io.CopyN would take that for success
	}
	return n, nil
}

// cut ends the current line.
func (l *lineWriter) cut() {
	l.out = append(l.out, l.prefix...)
	l.out = append(l.out, l.buf...)
	l.out = append(l.out, '\n')
	l.buf = l.buf[:0]
}

// pass writes the complete lines.
func (l *lineWriter) pass() error {
	if len(l.out) == 0 {
		return nil
	}
	start := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.w.Write(l.out)
	l.writing += time.Since(start)
	return err
}

// flush forwards an unfinished line.
func (l *lineWriter) flush() error {
	l.out = l.out[:0]
	if len(l.buf) > 0 {
		l.cut()
	}
	return l.pass()
}
