package link

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// duplicate opens descriptor fd again if it is the socket with that inode. The original stays, for
// others in this process, but children do not inherit it.
func duplicate(fd int, inode uint64) *os.File {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Ino != inode {
		return nil
	}
	unix.CloseOnExec(fd)
	// Nonblocking, for the runtime's poller: deadlines work, and Close ends a Wait.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil
	}
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(n), "launcher")
}

// Pair creates a link: the launcher's end, the rank's end, and the value of Env for a rank that
// inherits its end as fd.
func Pair(fd int) (parent, child *os.File, env string, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, "", os.NewSyscallError("socketpair", err)
	}
	parent, child = os.NewFile(uintptr(p[0]), "rank"), os.NewFile(uintptr(p[1]), "launcher")
	var st unix.Stat_t
	if err := unix.Fstat(p[1], &st); err != nil {
		_ = parent.Close()
		_ = child.Close()
		return nil, nil, "", os.NewSyscallError("fstat", err)
	}
	return parent, child, fmt.Sprintf("%d:%d", fd, st.Ino), nil
}
