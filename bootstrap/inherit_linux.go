package bootstrap

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// inheritListener takes over a listening TCP socket that this process inherited. The descriptor is
// closed if it is one, else left alone: it may be another file by now.
func inheritListener(fd int) (net.Listener, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, errors.New("it is not an open socket")
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_INET && domain != unix.AF_INET6 {
		return nil, errors.New("it is not a TCP socket")
	}
	if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on != 1 {
		return nil, errors.New("the socket does not listen")
	}
	f := os.NewFile(uintptr(fd), "rendezvous")
	defer func() { _ = f.Close() }()
	return net.FileListener(f) // a duplicate, close-on-exec
}
