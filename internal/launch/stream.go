package launch

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"time"
)

// stream passes on what a rank writes to its standard output, or to its standard error. The pipe is
// the launcher's own, not os/exec's, which closes it some time after the end of the process even if
// only whoever reads the launcher's output keeps the rest waiting in it.
type stream struct {
	line     *lineWriter
	pipe     *os.File
	patience time.Duration // for descendants that the rank leaves behind: lastWords
	done     chan error    // gets the outcome
}

func newStream(line *lineWriter) *stream {
	return &stream{line: line, patience: lastWords, done: make(chan error, 1)}
}

// startStreams starts c, whose output out and errs pass on.
func startStreams(c *exec.Cmd, out, errs *stream) (err error) {
	var children [2]*os.File
	for i, s := range []*stream{out, errs} {
		if s.pipe, children[i], err = os.Pipe(); err != nil {
			break
		}
	}
	if err == nil {
		c.Stdout, c.Stderr = children[0], children[1]
		err = c.Start()
	}
	for i, s := range []*stream{out, errs} {
		_ = children[i].Close() // the child has its own; that of a pipe which failed is nil
		if err != nil {
			_ = s.pipe.Close()
			continue
		}
		go s.run()
	}
	return err
}

// run reads to the end, which is that of the last process with the pipe, or soon after rankEnded.
func (s *stream) run() {
	_, err := io.Copy(s.line, s.pipe)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = s.rest()
	}
	_ = s.pipe.Close() // where the output is lost the rank's next write fails
	if e := s.line.flush(); err == nil {
		err = e
	}
	s.done <- err
}

// rankEnded tells run that only descendants of the rank may still write.
func (s *stream) rankEnded() {
	if s.pipe.SetReadDeadline(time.Now()) != nil {
		_ = s.pipe.Close() // a system without deadlines for pipes; or run has closed it
	}
}

// rest passes on what the rank left in the pipe, however long that takes, and what its descendants
// write within patience. The time in which nobody takes the output does not count.
func (s *stream) rest() error {
	_ = s.pipe.SetReadDeadline(time.Time{})
	if _, err := io.CopyN(s.line, s.pipe, int64(unread(s.pipe))); err != nil {
		return err
	}
	start := time.Now().Add(-s.line.writing)
	buf := make([]byte, 32<<10)
	for {
		_ = s.pipe.SetReadDeadline(start.Add(s.line.writing + s.patience))
		n, err := s.pipe.Read(buf)
		if err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil // Read looks at the deadline first: a descendant that never pauses ends here too
		}
		if err == nil {
			_, err = s.line.Write(buf[:n])
		}
		if err != nil {
			return err
		}
	}
}
