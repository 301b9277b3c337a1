package launch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttr makes a rank its own process group, which ends with the launcher.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit waits for the end of pid without reaping it.
func awaitExit(pid int) bool {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return true
		}
	}
}

// exitQueue reports the order in which processes end: epoll returns events in their order, while
// goroutines that wait for one process each run in the scheduler's order.
type exitQueue struct {
	epfd  int
	ranks map[int32]*rank // by pidfd
}

// newExitQueue returns nil where the kernel, or a filter of system calls, does not support it.
func newExitQueue() *exitQueue {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	return &exitQueue{epfd, map[int32]*rank{}}
}

// prepare asks for a descriptor of the process that c starts next. Start stores it in the result.
func (q *exitQueue) prepare(c *exec.Cmd) *int {
	fd := -1
	c.SysProcAttr.PidFD = &fd
	return &fd
}

// add takes over fd, the result of prepare, once r has started.
func (q *exitQueue) add(r *rank, fd int) {
	if fd < 0 {
		return
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
	if unix.EpollCtl(q.epfd, unix.EPOLL_CTL_ADD, fd, &ev) != nil {
		_ = unix.Close(fd)
		return
	}
	r.queued = make(chan struct{})
	q.ranks[int32(fd)] = r
}

// run calls ended for each added rank in the order of their ends, and returns after the last.
func (q *exitQueue) run(ended func(*rank)) {
	defer func() { _ = unix.Close(q.epfd) }()
	var events [64]unix.EpollEvent
	for len(q.ranks) > 0 {
		n, err := unix.EpollWait(q.epfd, events[:], -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			n = 0
		}
		for _, ev := range events[:max(n, 0)] {
			r := q.ranks[ev.Fd]
			delete(q.ranks, ev.Fd)
			_ = unix.Close(int(ev.Fd))
			ended(r)
			close(r.queued)
		}
	}
}

// signalGroup sends sig to all of a rank's processes.
func signalGroup(p *os.Process, sig syscall.Signal) {
	_ = unix.Kill(-p.Pid, sig) // no process left is fine
}

// killHolders ends all other processes that have a descriptor of one of the sockets, which /proc
// names so.
func killHolders(sockets map[string]bool) {
	for more, rounds := true, 0; more && rounds < 10; rounds++ { // they may be starting others
		more = false
		paths, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is right
		for _, path := range paths {
			if to, err := os.Readlink(path); err == nil && sockets[to] {
				more = killHolder(path, to) || more
			}
		}
	}
}

// killHolder ends the process that has a descriptor: the same one, if its number is used again.
func killHolder(path, socket string) bool {
	pid, err := strconv.Atoi(strings.Split(path, "/")[2])
	if err != nil || pid == os.Getpid() {
		return false
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }()
	if to, err := os.Readlink(path); err != nil || to != socket {
		return false
	}
	return p.Kill() == nil
}

// unread is the number of bytes in a pipe.
func unread(pipe *os.File) (n int) {
	c, err := pipe.SyscallConn()
	if err == nil {
		err = c.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	if err != nil {
		return 0
	}
	return n
}
