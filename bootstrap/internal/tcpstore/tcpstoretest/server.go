// Package tcpstoretest is a TCPStore as the agent of torchrun serves it, in both dialects, for
// tests without PyTorch. It is written from the protocol's description; see package tcpstore.
package tcpstoretest

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap/internal/tcpstore"
)

// Server is a store. Its methods may be called from any goroutine.
type Server struct {
	ln  net.Listener
	old bool
	wg  sync.WaitGroup

	mu     sync.Mutex
	set    *sync.Cond // a key was set, or the server closes
	values map[string]string
	waits  int // clients that wait for a key
	conns  map[net.Conn]bool
	closed bool
}

// Start serves a store at addr, in the dialect of PyTorch 1.x if old.
func Start(addr string, old bool) (*Server, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Server{ln: ln, old: old, values: map[string]string{}, conns: map[net.Conn]bool{}}
	s.set = sync.NewCond(&s.mu)
	s.wg.Go(s.accept)
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Keys are the keys that are set.
func (s *Server) Keys() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.values {
		keys = append(keys, k)
	}
	return keys
}

// AwaitReader returns when a client waits for a key.
func (s *Server) AwaitReader(ctx context.Context) error {
	waits := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.waits
	}
	for waits() == 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// Close ends all connections.
func (s *Server) Close() {
	_ = s.ln.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close()
	}
	s.set.Broadcast()
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *Server) accept() {
	for {
		conn, err := s.ln.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[conn] = true
		closed := s.closed
		s.mu.Unlock()
		if closed {
			_ = conn.Close()
			return
		}
		s.wg.Go(func() {
			c := &client{s: s, conn: conn, r: bufio.NewReader(conn)}
			for first := true; c.serve(first); first = false {
			}
			_ = conn.Close()
		})
	}
}

type client struct {
	s    *Server
	conn net.Conn
	r    *bufio.Reader
}

// serve answers one request; false: the connection ends.
func (c *client) serve(first bool) bool {
	op, err := c.r.ReadByte()
	if err != nil {
		return false
	}
	if !c.s.old && first {
		return op == tcpstore.OpValidate && c.u32() == tcpstore.Magic
	}
	if c.s.old && op != tcpstore.OpDelete {
		op++
	}
	switch op {
	case tcpstore.OpSet:
		k, ok := c.string()
		if !ok {
			return false
		}
		v, ok := c.string()
		if ok {
			c.s.put(k, v)
		}
		return ok
	case tcpstore.OpGet:
		k, _ := c.string()
		v, ok := c.s.get(k, false)
		if !ok {
			return false
		}
		b := binary.LittleEndian.AppendUint64(nil, uint64(len(v)))
		_, err := c.conn.Write(append(b, v...))
		return err == nil
	case tcpstore.OpWait:
		for n := c.u64(); n > 0; n-- {
			k, ok := c.string()
			if !ok {
				return false
			}
			if _, ok := c.s.get(k, true); !ok {
				return false
			}
		}
		_, err := c.conn.Write([]byte{0})
		return err == nil
	case tcpstore.OpDelete:
		k, _ := c.string()
		_, err := c.conn.Write(binary.LittleEndian.AppendUint64(nil, c.s.remove(k)))
		return err == nil
	case tcpstore.OpPing:
		_, err := c.conn.Write(binary.LittleEndian.AppendUint32(nil, c.u32()))
		return err == nil && !c.s.old
	}
	return false
}

func (s *Server) put(k, v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[k] = v
	s.set.Broadcast()
}

// remove returns how many values it has removed.
func (s *Server) remove(k string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.values)
	delete(s.values, k)
	return uint64(n - len(s.values))
}

// get returns a value; with wait once it is set.
func (s *Server) get(k string, wait bool) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		v, ok := s.values[k]
		if ok || !wait || s.closed {
			return v, ok
		}
		s.waits++
		s.set.Wait()
		s.waits--
	}
}

func (c *client) u32() uint32 {
	var b [4]byte
	_, _ = io.ReadFull(c.r, b[:])
	return binary.LittleEndian.Uint32(b[:])
}

func (c *client) u64() uint64 {
	var b [8]byte
	_, _ = io.ReadFull(c.r, b[:])
	return binary.LittleEndian.Uint64(b[:])
}

func (c *client) string() (string, bool) {
	n := c.u64()
	if n > 8<<20 {
		return "", false
	}
	b := make([]byte, n)
	_, err := io.ReadFull(c.r, b)
	return string(b), err == nil
}
