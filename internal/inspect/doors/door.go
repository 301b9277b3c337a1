package doors

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// Bounds of what others can cost a rank.
const (
	mostConnections = 4 // at a time; others are turned away
	longestRequest  = 256
	timeToAsk       = time.Second
	timeToRead      = 2 * time.Second // the answer
	restAfterError  = 100 * time.Millisecond

	// restAfterRefusal makes those who ask again at once wait, instead of taking the processor.
	restAfterRefusal = time.Millisecond
)

// Answer is the lines of an answer: each value is one, as JSON. Where it panics its process ends.
type Answer func(request string) (lines []any)

// Stream is a line of an answer that stands for lines which come one by one: it calls emit for
// each, until that fails. Others are answered meanwhile.
type Stream func(emit func(line any) error)

// Door is an open door.
type Door struct {
	listener *net.UnixListener
	answer   Answer
	one      sync.Mutex // answers are made one at a time
	serving  sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool // open ones
	closed bool
}

// Open opens the door of a rank. The caller closes it.
func Open(n Name, answer Answer) (*Door, error) {
	if !supported {
		return nil, errUnsupported
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: n.String(), Net: "unix"})
	if err != nil {
		return nil, err
	}
	d := &Door{listener: l, answer: answer, conns: map[net.Conn]bool{}}
	d.serving.Go(d.accept)
	return d, nil
}

// Close closes the door, and returns when nobody is served any more: that is as soon as an answer
// is made. It may be called twice, and with nil.
func (d *Door) Close() {
	if d == nil {
		return
	}
	d.mu.Lock()
	d.closed = true
	_ = d.listener.Close()
	for c := range d.conns {
		c.Close()
	}
	d.mu.Unlock()
	d.serving.Wait()
}

func (d *Door) accept() {
	for {
		c, err := d.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // descriptors or memory are short
			time.Sleep(restAfterError)
			continue
		}
		if !d.admit(c) {
			time.Sleep(restAfterRefusal)
		}
	}
}

// admit serves a connection in a goroutine of its own, or closes it and returns false.
func (d *Door) admit(c *net.UnixConn) bool {
	uid, _, err := peer(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil || uid != os.Geteuid() && uid != 0 || len(d.conns) >= mostConnections || d.closed {
		_ = c.Close()
		return false
	}
	d.conns[c] = true
	d.serving.Go(func() {
		d.serve(c)
		d.mu.Lock()
		delete(d.conns, c)
		d.mu.Unlock()
		_ = c.Close()
	})
	return true
}

// refusal is the answer to a request that cannot be served.
type refusal struct {
	Error string `json:"error"`
}

// serve reads one request and answers it.
func (d *Door) serve(c net.Conn) {
	c.SetReadDeadline(time.Now().Add(timeToAsk))
	request, err := bufio.NewReader(io.LimitReader(c, longestRequest)).ReadString('\n')
	if err != nil {
		return
	}
	lines := d.lines(strings.TrimSuffix(request, "\n"))
	out := bufio.NewWriter(c)
	emit := func(line any) error {
		b, err := json.Marshal(line)
		if err != nil {
			b, _ = json.Marshal(refusal{err.Error()})
		}
		c.SetWriteDeadline(time.Now().Add(timeToRead))
		_, err = out.Write(append(b, '\n'))
		return err
	}
	for _, line := range lines {
		if stream, ok := line.(Stream); ok {
			stream(emit)
		} else if emit(line) != nil {
			return // who has gone needs no answer
		}
	}
	_ = out.Flush()
}

func (d *Door) lines(request string) []any {
	d.one.Lock()
	defer d.one.Unlock()
	return d.answer(request)
}

// Refuse is the answer to a request that nobody knows.
func Refuse(request string) []any {
	if len(request) > 40 {
		request = request[:40]
	}
	return []any{refusal{"no request " + strings.ToValidUTF8(request, "?")}}
}

// Refused is the answer to a request that has failed.
func Refused(err error) any { return refusal{err.Error()} }
