package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxReply bounds the bytes of a reply: the limit of MPICH's own clients.
const maxReply = 64 << 10

// channel is the connection to the process manager.
type channel struct {
	conn conn
	r    *bufio.Reader
	wmu  sync.Mutex // an Abort may come beside a request
}

// conn is an *os.File, or a net.Conn.
type conn interface {
	io.ReadWriteCloser
	SetDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

func newChannel(c conn) *channel { return &channel{conn: c, r: bufio.NewReaderSize(c, maxReply)} }

func (c *channel) close() error { return c.conn.Close() }

// write sends a request by one system call: Slurm's PMI-1 takes what one read returns for one whole
// command.
func (c *channel) write(request string) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if _, err := io.WriteString(c.conn, request); err != nil {
		return fmt.Errorf("writing to the process manager: %w", err)
	}
	return nil
}

// line reads a PMI-1 line.
func (c *channel) line() (string, error) {
	b, err := c.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", fmt.Errorf("the process manager has sent a line of more than %d bytes", maxReply)
	case err != nil:
		return "", readError(err)
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}

// message reads a PMI-2 message: six characters with the length of the rest, padded on either side.
func (c *channel) message() (string, error) {
	var head [6]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return "", readError(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(head[:])))
	if err != nil || n < 0 || n > maxReply {
		return "", fmt.Errorf("the process manager has sent a message with the length %q", head[:])
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.r, body); err != nil {
		return "", readError(err)
	}
	return string(body), nil
}

func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the process manager has closed the connection")
	}
	return fmt.Errorf("reading from the process manager: %w", err)
}

// fields are the pairs of a reply. Those that nobody asks for are ignored: servers add some.
type fields map[string]string

// parse reads key=value pairs that sep separates; a value may have further equals signs.
func parse(s, sep string) fields {
	f := fields{}
	for pair := range strings.SplitSeq(s, sep) {
		if k, v, ok := strings.Cut(pair, "="); ok {
			f[k] = v
		}
	}
	return f
}

// check verifies that f answers with command want and success.
func (f fields) check(want string) error {
	if f["cmd"] != want {
		return fmt.Errorf("the process manager has answered %q where %q was due", f["cmd"], want)
	}
	if rc, ok := f["rc"]; ok && rc != "0" {
		return fmt.Errorf("the process manager has refused a request: %s, rc=%s %s", want, rc, f["msg"]+f["errmsg"])
	}
	return nil
}

// number is the value of key as a number from 0 on.
func (f fields) number(key string) (int, error) {
	n, err := strconv.Atoi(f[key])
	if err != nil || n < 0 {
		return 0, fmt.Errorf("the process manager says that %s is %q, in answer to %s", key, f[key], f["cmd"])
	}
	return n, nil
}
