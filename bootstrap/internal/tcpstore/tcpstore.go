// Package tcpstore is a client of TCPStore, the key-value store of PyTorch's c10d, which the agent
// of torchrun serves: as much of it as hands a value of rank 0 to all ranks. Integers are
// little-endian, strings have a length of eight bytes, and every request begins with its opcode.
// The store authenticates nobody: whoever reaches its port can read what is in it.
//
// There are two dialects. That of PyTorch 2 begins with a request VALIDATE; that of 1.x knows none,
// and closes a connection that makes it.
//
// The methods of a Client may be called from any goroutine.
package tcpstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
)

// Opcodes of PyTorch 2. Those of 1.x are one less, but for DELETE, and PING and VALIDATE, which it
// lacks.
const (
	OpValidate = 0
	OpSet      = 1
	OpGet      = 3
	OpWait     = 6
	OpDelete   = 8 // in both
	OpPing     = 13
)

// Magic is what VALIDATE sends.
const Magic = 0x3C85F7CE

const (
	probe    = 10 * time.Second // how long a server may take to answer the first PING
	atTheEnd = time.Second      // to remove the key
)

// Client is a connection to the store. It implements space.Space.
type Client struct {
	id   space.Identity
	key  string
	conn net.Conn
	old  bool // speaks the dialect of 1.x
}

// Open connects to the store at addr, and goes on trying until ctx ends: the agent may start later,
// and its name resolve later. prefix begins the names of the job's keys and must be the same for
// all of its ranks, and another after a restart.
func Open(ctx context.Context, addr, prefix string, id space.Identity) (*Client, error) {
	const first, last = 10 * time.Millisecond, time.Second
	var why error // of the last try that ctx did not cut short: it names the problem
	for wait := first; ; wait = min(2*wait, last) {
		c, err := dial(ctx, addr, false)
		if err != nil && ctx.Err() == nil && refusesValidate(err) {
			c, err = dial(ctx, addr, true)
		}
		if err == nil {
			c.id, c.key = id, prefix+"rendezvous"
			return c, nil
		}
		if why == nil || !space.Over(ctx) {
			why = err
		}
		if !space.Pause(ctx, wait) {
			return nil, fmt.Errorf("torchrun's store at %s: %w (%w)", addr, why, context.Cause(ctx))
		}
	}
}

// errNoValidate wraps what a server of 1.x does at once when it is sent VALIDATE: it closes the
// connection.
var errNoValidate = errors.New("no answer to VALIDATE and PING")

func refusesValidate(err error) bool { return errors.Is(err, errNoValidate) }

// dial connects, and in the dialect of PyTorch 2 asks whether the server speaks that.
func dial(ctx context.Context, addr string, old bool) (*Client, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, old: old}
	if old {
		return c, nil
	}
	limited, cancel := context.WithTimeout(ctx, probe)
	defer cancel()
	// A server of 1.x takes the magic number, the opcode and three bytes of the nonce for the
	// length of a key: with the highest bit set it is one that it refuses at once.
	nonce := rand.Uint32() | 1<<23
	b := binary.LittleEndian.AppendUint32([]byte{OpValidate}, Magic)
	b = binary.LittleEndian.AppendUint32(append(b, OpPing), nonce)
	var answer [4]byte
	err = c.do(limited, b, func() error {
		_, err := io.ReadFull(conn, answer[:])
		return err
	})
	if err == nil && binary.LittleEndian.Uint32(answer[:]) != nonce {
		err = fmt.Errorf("another program listens there: it answered %x", answer)
	} else if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		err = fmt.Errorf("%w: %w", errNoValidate, err)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// do sends a request and reads its answer, until ctx ends.
func (c *Client) do(ctx context.Context, request []byte, answer func() error) error {
	_ = c.conn.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := c.conn.Write(request)
	if err == nil && answer != nil {
		err = answer()
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// request begins a request for the client's key, with n as the number of keys where it has a list.
func (c *Client) request(op byte, list bool) []byte {
	if c.old {
		op--
	}
	b := []byte{op}
	if list {
		b = binary.LittleEndian.AppendUint64(b, 1)
	}
	return appendString(b, c.key)
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// Identity implements space.Space.
func (c *Client) Identity() space.Identity { return c.id }

// Broadcast implements space.Space.
func (c *Client) Broadcast(ctx context.Context, value []byte) ([]byte, error) {
	if c.id.Rank == 0 {
		if len(value) == 0 || len(value) > space.MaxValue {
			return nil, fmt.Errorf("a value of %d bytes: 1 to %d can be handed to all ranks", len(value), space.MaxValue)
		}
		return value, c.set(ctx, value)
	}
	// GET of a key that is not there ends the connection: WAIT first.
	err := c.do(ctx, c.request(OpWait, true), func() error {
		var b [1]byte
		_, err := io.ReadFull(c.conn, b[:])
		if err == nil && b[0] != 0 {
			err = fmt.Errorf("answer %d to WAIT", b[0])
		}
		return err
	})
	if err == nil {
		err = c.do(ctx, c.request(OpGet, false), func() error {
			value, err = c.blob()
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("torchrun's store at %s: waiting for rank 0: %w", c.conn.RemoteAddr(), err)
	}
	return value, nil
}

// set sets the client's key. SET has no answer: that to WAIT shows that it has arrived.
func (c *Client) set(ctx context.Context, value []byte) error {
	b := appendString(c.request(OpSet, false), string(value))
	b = append(b, c.request(OpWait, true)...)
	err := c.do(ctx, b, func() error {
		var b [1]byte
		_, err := io.ReadFull(c.conn, b[:])
		return err
	})
	if err != nil {
		err = fmt.Errorf("torchrun's store at %s: publishing: %w", c.conn.RemoteAddr(), err)
	}
	return err
}

// blob reads a value.
func (c *Client) blob() ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n == 0 || n > space.MaxValue {
		return nil, fmt.Errorf("a value of %d bytes, which rank 0 has not put there", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(c.conn, b)
	return b, err
}

// Joined implements space.Space: it removes the key, or the next program of the same workers would
// take it for its own.
func (c *Client) Joined() {
	ctx, cancel := context.WithTimeout(context.Background(), atTheEnd)
	defer cancel()
	_ = c.do(ctx, appendString([]byte{OpDelete}, c.key), func() error {
		var deleted [8]byte
		_, err := io.ReadFull(c.conn, deleted[:])
		return err
	})
}

// Abort implements space.Space. The store has no such request: the agent ends the job when this
// process does.
func (c *Client) Abort(int, string) {}

// Close implements space.Space.
func (c *Client) Close() error { return c.conn.Close() }
