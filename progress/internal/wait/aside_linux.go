package wait

import (
	"os"

	"golang.org/x/sys/unix"
)

// newBell returns nil if there is no descriptor.
func newBell() *bell {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil
	}
	b := &bell{file: os.NewFile(uintptr(fd), "eventfd")}
	if b.raw, err = b.file.SyscallConn(); err != nil {
		_ = b.file.Close()
		return nil
	}
	return b
}

// ring makes the descriptor ready once more: the netpoller is told of each write.
func ring(fd int) bool {
	one := [8]byte{1}
	n, err := unix.Write(fd, one[:])
	return n == len(one) && err == nil
}
