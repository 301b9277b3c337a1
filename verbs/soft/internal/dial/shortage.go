package dial

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/door"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// lack explains err if it says that this process or its host is short of something, or is forbidden
// something, and returns the code to refuse a connection with for that. For all other errors the
// code is 0. It does not mean that the peer is lost: who dials tries again.
func lack(a *wire.Address, err error) (rejectCode, error) {
	rank := a.Rank
	var errno syscall.Errno
	errors.As(err, &errno)
	switch errno {
	case syscall.EMFILE:
		return rejectShort, fmt.Errorf("rank %d has no file descriptor left, raise its limit (ulimit -n): %w", rank, err)
	case syscall.ENFILE:
		return rejectShort, fmt.Errorf("the host of rank %d has no file descriptor left: %w", rank, err)
	case syscall.ETOOMANYREFS: // unix(7): of the user, over all processes, until the peers have read them
		return rejectShort, fmt.Errorf("the user of rank %d has too many file descriptors under way to other processes, raise the limit (ulimit -n): %w", rank, err)
	case syscall.ENOMEM, syscall.ENOBUFS, syscall.ENOSPC: // fallocate(2) of a memfd gives the last one
		return rejectShort, fmt.Errorf("rank %d has no memory left: %w", rank, err)
	case syscall.EPERM, syscall.EACCES, syscall.ENOSYS:
		return rejectForbidden, fmt.Errorf("the kernel refuses rank %d a system call, for a seccomp filter as in a container, or a firewall or route: %w", rank, err)
	}
	return 0, err
}

// Ready exchanges with the other end whether both have what the connection needs: err is what this
// end, a, has failed with. It returns nil only if neither end has failed, as far as this end knows:
// where Close ends the wait for the other's word, that end may have the connection already, and is
// to be told why it ends.
func Ready(a *wire.Address, conn net.Conn, err error) error {
	if err != nil {
		code, why := lack(a, err)
		if code != 0 {
			r := Refuse(code, "%v", why)
			writeReject(conn, r)
			err = r
		} else {
			code = RejectClosing
			if errors.Is(err, verbs.ErrProtocol) {
				code = rejectViolated
			}
			writeReject(conn, Refuse(code, "rank %d: %v", a.Rank, err))
		}
		_, _ = readMsg(conn, msgReady) // closed with unread input, a socket may lose the reject
		return err
	}
	if err := writeMsg(conn, msgReady, nil); err != nil {
		return err
	}
	if _, err = readMsg(conn, msgReady); errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// reserve is a descriptor that is kept open for when the process has no others: closing it allows
// to accept a connection and refuse it, so that the dialler learns the reason and tries again. Only
// the door's goroutine that accepts uses it.
type reserve struct{ f *os.File }

func (r *reserve) fill() (err error) {
	if r.f == nil {
		r.f, err = os.Open(os.DevNull)
	}
	return err
}

func (r *reserve) empty() {
	if r.f != nil {
		_ = r.f.Close()
		r.f = nil
	}
}

// short reports whether err says that this process or its host is short of something.
func (c *Connector) short(err error) bool {
	code, _ := lack(c.cfg.Self, err)
	return code == rejectShort
}

// accept accepts a connection. It does not wait for one without the reserve: another part of the
// process could take the descriptor meanwhile.
func (c *Connector) accept() (net.Conn, error) {
	if err := c.spare.fill(); c.short(err) {
		return nil, err
	}
	return c.cfg.Listener.Accept()
}

// acceptShort accepts and refuses a connection in exchange for the reserve, or returns it if there
// are descriptors again. It does so only if a connection waits: accept fails without descriptors
// before it looks for one. Other failures it leaves alone.
func (c *Connector) acceptShort(short error) (net.Conn, error) {
	if !c.short(short) || !door.Waiting(c.cfg.Listener) {
		return nil, short
	}
	c.cfg.Log.Warn("accept failed", "wire", c.cfg.Kind, "err", short)
	c.spare.empty()
	conn, err := c.cfg.Listener.Accept()
	if err != nil || !c.short(c.spare.fill()) {
		return conn, err
	}
	code, why := lack(c.cfg.Self, short)
	_ = conn.SetDeadline(time.Now().Add(door.Patience))
	writeReject(conn, Refuse(code, "%v", why))
	_, _, _ = readHello(conn) // so that the reject is not lost, see Ready
	_ = conn.Close()
	_ = c.spare.fill() // accept tries again
	return nil, short
}
