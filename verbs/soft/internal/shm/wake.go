//go:build linux

package shm

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// pipe wakes a device: peers write a byte to it. Where it is full its owner is awake.
//
// O_NONBLOCK is of an open file, and all processes that have a descriptor of that share it. So
// nobody reads or writes by an open file that another process has: the reading end stays with the
// device, and a peer opens what it is given, the writing end, once more for itself.
type pipe struct {
	r, w int // w is what peers are given, and not written to
	buf  [512]byte
}

// newPipe makes the pipe. It fails without /proc, as openWaker would for peers' descriptors.
func newPipe() (*pipe, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	p := &pipe{r: ends[0], w: ends[1]}
	fd, err := openWaker(p.w)
	if err != nil {
		p.close()
		return nil, err
	}
	closeFD(&fd)
	return p, nil
}

// drain takes wake-ups: all, if peers write no more than they should.
func (p *pipe) drain() { _, _ = unix.Read(p.r, p.buf[:]) }

func (p *pipe) close() {
	closeFD(&p.r)
	closeFD(&p.w)
}

// openWaker opens the pipe that a peer has given away once more, as a nonblocking descriptor of
// this process alone. It could read too: a write to a pipe without readers raises SIGPIPE, and the
// peer may have ended. To open something else than a pipe could have effects.
func openWaker(fd int) (int, error) {
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	name, err := os.Readlink(path)
	if err != nil {
		return -1, fmt.Errorf("cannot tell what a descriptor is, is /proc mounted? %w", err)
	}
	if !strings.HasPrefix(name, "pipe:[") {
		return -1, fmt.Errorf("the peer's descriptor is no pipe but %q", name)
	}
	own, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("open "+path, err)
	}
	return own, nil
}

// wake ends the sleep of the device whose pipe openWaker has opened. The byte was written to just
// now: with the pipe's lock held the kernel need not read it from a file.
func wake(fd int) {
	b := [1]byte{1}
	_, _ = unix.Write(fd, b[:])
}
