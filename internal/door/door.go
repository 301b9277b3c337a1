// Package door lets connections in at a listener that strangers reach too. Whoever has shown that
// it is of the job is not limited; of all others a few are open at once, and none of them stands in
// the way of one that comes later.
//
// The rules: a stranger has a second for its greeting. Where there are as many strangers as there
// may be, or the process has no descriptor left, a newcomer takes the place of the oldest one of
// the address that has the most. A greeting that has come whole with its connection is looked at
// before all that: a flood cannot put out who sends it.
//
// Concurrency: all methods may be called from any goroutine. A Door has one goroutine that accepts,
// one for each visitor, and one while it warns.
package door

import (
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Patience is how long a stranger may take for its greeting.
const Patience = time.Second

// grace is for how long a stranger is not closed for the sake of its descriptor.
const grace = Patience / 10

// AcceptAgain is the pause after a failure to accept, which may pass.
const AcceptAgain = 50 * time.Millisecond

// warnEvery is the shortest time between two warnings.
const warnEvery = time.Minute

// ErrReplaced is what Visitor.Pass returns to a stranger whose place another one has taken.
var ErrReplaced = errors.New("a newer connection took its place")

// Config is what a Door is opened with. The functions are called in the background.
type Config struct {
	Listener net.Listener                // the Door closes it
	Accept   func() (net.Conn, error)    // nil: that of Listener
	From     func(net.Conn) (Who, error) // nil: by IP address
	Greeting int                         // the most bytes of a greeting
	// Known reports whether first, the bytes that have come with a connection, are a whole greeting
	// of the job. It is called with what comes first only, by one goroutine. Nil: none is known so.
	Known func(first []byte) bool
	// Serve serves a visitor. A stranger's deadline is Patience from its accept on. Serve calls
	// Visitor.Pass once it knows that it is of the job; the connection is its own from then on, and
	// is closed where Serve returns before. The error says why it has not passed; nil: it has gone
	// by itself, and is not counted.
	Serve     func(v *Visitor) error
	Strangers int // so many at once; at least 1
	// Failed is told that no connection could be accepted; where that is for want of descriptors,
	// that there is no stranger to be closed instead, or none waits. It may return a connection all
	// the same. It is called again after AcceptAgain.
	Failed func(err error) (net.Conn, error)
	// Warn is told of those that were turned away since it was called last: at once of the first
	// one, and then at most every minute. It is called by one goroutine at a time.
	Warn func(t Turned)
}

// Who names the other end of a connection, for counting: an address, or a process of this host.
type Who string

// Turned are connections that were turned away.
type Turned struct {
	N    int
	From Who   // where the last one came from
	Err  error // why that was turned away
}

// Door accepts connections.
type Door struct {
	cfg     Config
	wg      sync.WaitGroup
	closing chan struct{}

	mu        sync.Mutex // guards the fields below
	closed    bool
	strangers []*Visitor // oldest first
	open      map[Who]int
	total     int         // turned away
	untold    Turned      // of these those that Warn was not told of
	timer     *time.Timer // of the next warning; nil: none is due. Counts in wg
}

// Visitor is a connection that was accepted.
type Visitor struct {
	net.Conn
	door  *Door
	from  Who
	since time.Time
	state state // guarded by door.mu
}

type state uint8

const (
	stranger state = iota
	passed
	replaced // and closed, or about to be
)

// Open begins to accept. The owner calls Close, and then Wait.
func Open(cfg Config) *Door {
	if cfg.Accept == nil {
		cfg.Accept = cfg.Listener.Accept
	}
	if cfg.From == nil {
		cfg.From = address
	}
	hush(cfg.Listener)
	d := &Door{cfg: cfg, closing: make(chan struct{}), open: map[Who]int{}}
	d.wg.Go(d.accept)
	return d
}

// Close stops accepting and closes the strangers. It does not wait, see Wait.
func (d *Door) Close() {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return
	}
	d.closed = true
	close(d.closing)
	out := d.strangers
	d.strangers = nil
	for _, v := range out {
		v.state = replaced
	}
	var untold Turned // unless a warning is under way, which looks again
	if d.timer != nil && d.timer.Stop() {
		untold = d.untold
		d.wg.Done()
	}
	d.mu.Unlock()
	_ = d.cfg.Listener.Close()
	for _, v := range out {
		v.end()
	}
	if untold.N > 0 {
		d.cfg.Warn(untold)
	}
}

// Wait returns when all goroutines of the Door have ended, those in Config.Serve included. Close
// comes before.
func (d *Door) Wait() { d.wg.Wait() }

// Turned is how many connections were turned away.
func (d *Door) Turned() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total
}

// Pass lets v in if check returns nil; the connection is then the caller's, and keeps its deadline.
// Where v has passed already, by its first bytes, check is not called.
func (v *Visitor) Pass(check func() error) error {
	if v.Passed() {
		return nil
	}
	if err := check(); err != nil {
		return err
	}
	d := v.door
	d.mu.Lock()
	defer d.mu.Unlock()
	if v.state != stranger {
		return ErrReplaced
	}
	d.removeLocked(v, passed)
	return nil
}

// Passed reports whether v is of the job.
func (v *Visitor) Passed() bool {
	v.door.mu.Lock()
	defer v.door.mu.Unlock()
	return v.state == passed
}

// end closes the connection without a word, and leaves nothing of it in the kernel.
func (v *Visitor) end() {
	if c, ok := v.Conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	_ = v.Conn.Close()
}

// accept runs until the listener is closed.
func (d *Door) accept() {
	first := make([]byte, d.cfg.Greeting)
	for {
		conn, err := d.next()
		switch {
		case err == nil:
			d.enter(conn, first)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		select {
		case <-time.After(AcceptAgain):
		case <-d.closing:
			return
		}
	}
}

// next accepts a connection, in the place of a stranger where there is no other.
func (d *Door) next() (net.Conn, error) {
	for {
		conn, err := d.cfg.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		// Without descriptors an accept fails whether a connection waits or not.
		if !short(err) || !Waiting(d.cfg.Listener) || !d.makeRoom() {
			return d.cfg.Failed(err)
		}
	}
}

// short reports whether err is a lack of descriptors or memory.
func short(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return false
	}
	return slices.Contains([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}, errno)
}

// makeRoom ends a stranger, if there is one that has had time to become known.
func (d *Door) makeRoom() bool {
	d.mu.Lock()
	v := d.oldestLocked()
	if v != nil && time.Since(v.since) < grace {
		v = nil
	}
	if v != nil {
		d.replaceLocked(v)
	}
	d.mu.Unlock()
	if v == nil {
		return false
	}
	v.end()
	return true
}

// enter starts to serve a connection. first is for what it has said.
func (d *Door) enter(conn net.Conn, first []byte) {
	from, err := d.cfg.From(conn)
	if err != nil {
		d.mu.Lock()
		d.turnLocked(from, err)
		d.mu.Unlock()
		_ = conn.Close()
		return
	}
	v := &Visitor{Conn: conn, door: d, from: from, since: time.Now()}
	if d.cfg.Known != nil && d.cfg.Known(peek(conn, first)) {
		v.state = passed
	} else {
		conn.SetDeadline(v.since.Add(Patience))
	}
	var out *Visitor
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		_ = conn.Close()
		return
	}
	if v.state == stranger {
		d.strangers = append(d.strangers, v)
		d.open[from]++
		if len(d.strangers) > d.cfg.Strangers {
			out = d.oldestLocked()
			d.replaceLocked(out)
		}
	}
	d.wg.Go(func() { d.serve(v) })
	d.mu.Unlock()
	if out != nil {
		out.end()
	}
}

// oldestLocked is the oldest stranger of those that have the most; nil: there is none.
func (d *Door) oldestLocked() *Visitor {
	var out *Visitor
	for _, v := range d.strangers {
		if out == nil || d.open[v.from] > d.open[out.from] {
			out = v
		}
	}
	return out
}

// replaceLocked takes the place of a stranger. The caller closes it.
func (d *Door) replaceLocked(v *Visitor) {
	d.removeLocked(v, replaced)
	d.turnLocked(v.from, ErrReplaced)
}

// removeLocked makes a stranger something else.
func (d *Door) removeLocked(v *Visitor, to state) {
	v.state = to
	if i := slices.Index(d.strangers, v); i >= 0 {
		d.strangers = slices.Delete(d.strangers, i, i+1)
	}
	if d.open[v.from]--; d.open[v.from] == 0 {
		delete(d.open, v.from)
	}
}

// serve serves a visitor, and ends it if it is still a stranger then.
func (d *Door) serve(v *Visitor) {
	err := d.cfg.Serve(v)
	d.mu.Lock()
	still := v.state == stranger
	if still {
		d.removeLocked(v, replaced)
		if err != nil {
			d.turnLocked(v.from, err)
		}
	}
	d.mu.Unlock()
	if still {
		_ = v.Conn.Close()
	}
}

// turnLocked counts a connection that was turned away.
func (d *Door) turnLocked(from Who, err error) {
	d.total++
	d.untold = Turned{d.untold.N + 1, from, err}
	if d.timer == nil && !d.closed {
		d.wg.Add(1)
		d.timer = time.AfterFunc(0, d.warn)
	}
}

// warn tells of those that were turned away, and looks again after warnEvery.
func (d *Door) warn() {
	defer d.wg.Done()
	for {
		d.mu.Lock()
		t := d.untold
		d.untold = Turned{}
		if t.N == 0 {
			d.timer = nil
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		d.cfg.Warn(t)
		d.mu.Lock()
		closed := d.closed
		if !closed {
			d.wg.Add(1)
			d.timer = time.AfterFunc(warnEvery, d.warn)
		}
		d.mu.Unlock()
		if !closed {
			return
		}
	}
}
