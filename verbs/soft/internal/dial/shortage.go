package dial

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// What an end lacks itself says nothing about the other: it is tried again, and named for what it
// is, on both sides.

// lack says for people what err is, where this process or its host is short of something, and under
// which code the other end is told. The code is 0 where err is nothing of that kind.
func lack(a *wire.Address, err error) (rejectCode, error) {
	rank := a.Rank
	is := func(list ...syscall.Errno) bool {
		for _, e := range list {
			if errors.Is(err, e) {
				return true
			}
		}
		return false
	}
	switch {
	case is(syscall.EMFILE):
		return rejectShort, fmt.Errorf("rank %d has no file descriptor left, raise its limit (ulimit -n): %w", rank, err)
	case is(syscall.ENFILE):
		return rejectShort, fmt.Errorf("the host of rank %d has no file descriptor left: %w", rank, err)
	case is(syscall.ENOMEM, syscall.ENOBUFS):
		return rejectShort, fmt.Errorf("rank %d has no memory left: %w", rank, err)
	case is(syscall.EPERM, syscall.EACCES, syscall.ENOSYS):
		return rejectForbidden, fmt.Errorf("the kernel refuses rank %d a system call, for a seccomp filter as in a container, or a firewall or route: %w", rank, err)
	}
	return 0, err
}

// Ready tells the other end that this one has what the connection takes here, where err is nil, or
// what it lacks, and hears the same of it. Only if both have it there is no error.
func Ready(a *wire.Address, conn net.Conn, err error) error {
	if err != nil {
		code, why := lack(a, err)
		if code != 0 {
			why = Refuse(code, "%v", why)
			writeReject(conn, Refuse(code, "%v", why))
		} else {
			writeReject(conn, Refuse(RejectClosing, "rank %d: %v", a.Rank, err))
		}
		_, _ = readMsg(conn, msgReady) // a connection closed with something unread in it might not deliver this
		return why
	}
	if err := writeMsg(conn, msgReady, nil); err != nil {
		return err
	}
	_, err = readMsg(conn, msgReady)
	return err
}

// reserve is a descriptor that is kept for when there are none: with it a connection can be
// accepted and refused, so that who dialled learns what the matter is, and tries again. Owned by
// acceptLoop.
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

// short tells whether err says that this process or its host lacks something.
func (c *Connector) short(err error) bool {
	code, _ := lack(c.cfg.Self, err)
	return code == rejectShort
}

// acceptShort accepts a connection in place of the reserve, if one waits: the kernel refuses an
// accept for want of descriptors before it looks, and a reserve given up to wait for a connection
// would be anybody's. (Nor does acceptLoop wait for one without the reserve.) It returns the
// connection if it turns out that there are descriptors again.
func (c *Connector) acceptShort(r *reserve, short error) (net.Conn, error) {
	if !dialled(c.cfg.Listener) {
		return nil, short
	}
	c.cfg.Log.Warn("accept failed", "wire", c.cfg.Kind, "err", short)
	r.empty()
	conn, err := c.cfg.Listener.Accept()
	if err != nil || !c.short(r.fill()) {
		return conn, err
	}
	code, why := lack(c.cfg.Self, short)
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	writeReject(conn, Refuse(code, "%v", why))
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	_, _, _ = readHello(conn) // see Ready
	_ = conn.Close()
	_ = r.fill() // acceptLoop tries again
	return nil, short
}

// dialled tells whether a connection waits at l; a listener that cannot tell has one. After a
// signal it is asked again the next time.
func dialled(l net.Listener) bool {
	s, ok := l.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true
	}
	waits := true
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		waits = n > 0 || err != nil && err != unix.EINTR
	})
	return waits
}
