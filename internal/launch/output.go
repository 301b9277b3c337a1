package launch

import (
	"bytes"
	"io"
	"sync"
)

// maxLine is where a line that does not end is cut, so that a rank cannot fill the launcher's
// memory.
const maxLine = 1 << 20

// lineWriter passes whole lines on, each with a prefix and in one piece. One goroutine writes; mu
// is shared with the other writers of the same output.
type lineWriter struct {
	mu     *sync.Mutex
	w      io.Writer
	prefix string
	buf    []byte // an unfinished line
	out    []byte
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
	return n, l.pass()
}

// cut makes a line of what there is.
func (l *lineWriter) cut() {
	l.out = append(l.out, l.prefix...)
	l.out = append(l.out, l.buf...)
	l.out = append(l.out, '\n')
	l.buf = l.buf[:0]
}

// pass writes what is ready.
func (l *lineWriter) pass() error {
	if len(l.out) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.w.Write(l.out)
	return err
}

// flush passes on an unfinished line.
func (l *lineWriter) flush() {
	l.out = l.out[:0]
	if len(l.buf) > 0 {
		l.cut()
	}
	_ = l.pass() // the rank has ended: nobody is left to be told
}
