package door

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// peek returns what has come over conn so far, as much of it as b has room for, and leaves it
// there.
func peek(conn net.Conn, b []byte) []byte {
	n := 0
	control(conn, func(fd int) { n, _, _ = unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT) })
	return b[:max(n, 0)]
}

// address is the IP address that conn comes from.
func address(conn net.Conn) (Who, error) {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return Who(conn.RemoteAddr().String()), nil
	}
	return Who(host), nil
}

// Waiting reports whether a connection waits at l. It assumes one where that cannot be found out.
func Waiting(l net.Listener) bool {
	waits := true
	control(l, func(fd int) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		waits = n > 0 || err != nil && err != unix.EINTR
	})
	return waits
}

// control calls f with the descriptor of a socket, if it has one.
func control(socket any, f func(fd int)) {
	s, ok := socket.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
