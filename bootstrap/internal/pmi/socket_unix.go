//go:build unix

package pmi

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// isSocket reports whether a descriptor is a connected stream socket: that of a rank may be closed,
// or another file, in a process that the rank has started.
func isSocket(fd int) bool {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return false
	}
	_, err = unix.Getpeername(fd)
	return err == nil
}

// inherit takes over the descriptor. It must be non-blocking before os.NewFile, or deadlines would
// have no effect.
func inherit(fd int) (*os.File, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "PMI")
	if f == nil {
		return nil, errors.New("it is no descriptor")
	}
	return f, nil
}
