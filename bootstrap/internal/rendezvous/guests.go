package rendezvous

import (
	"net"
	"sync"
	"time"

	"github.com/tagmatch/tagmatch/internal/keepalive"
)

// guests are the open connections of a listener.
type guests struct {
	mu     sync.Mutex // guards the fields below
	open   map[net.Conn]struct{}
	closed bool
}

// keep remembers a connection, unless g is closed: then it closes that.
func (g *guests) keep(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = conn.Close()
		return false
	}
	if g.open == nil {
		g.open = map[net.Conn]struct{}{}
	}
	g.open[conn] = struct{}{}
	return true
}

// forget closes a connection.
func (g *guests) forget(conn net.Conn) {
	_ = conn.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, conn) // a no-op once g is closed
}

// close has readers stop, and writers finish. It closes after patience what they still use, and
// returns when wait does.
func (g *guests) close(patience time.Duration, wait func()) {
	g.mu.Lock()
	open := g.open
	g.open, g.closed = nil, true
	g.mu.Unlock()
	for c := range open {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
	t := time.AfterFunc(patience, func() {
		for c := range open {
			_ = c.Close()
		}
	})
	defer t.Stop()
	wait()
}

// greeted reads preface and HELLO of who has dialled; hello is nil where that speaks another
// version.
func greeted(conn net.Conn, cfg *Config) (f *framer, hello *helloMsg, version uint32, err error) {
	f = newFramer(conn)
	if err = keepalive.All(conn, cfg.PeerTimeout); err != nil {
		return f, nil, 0, err
	}
	if version, err = f.readPreface(); err != nil {
		return f, nil, 0, err
	}
	if err = f.writePreface(); err != nil || version != protocolVersion {
		return f, nil, version, err
	}
	hello, err = expect[*helloMsg](f, maxHandshake)
	return f, hello, version, err
}
