package limits

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// connect makes a TCP connection over the loopback interface between the two sides.
func (s *side) connect(first bool) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	addr := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if first {
		if err = unix.Bind(fd, addr); err == nil {
			err = unix.Listen(fd, 1)
		}
		if err != nil {
			return 0, os.NewSyscallError("listen", err)
		}
		name, err := unix.Getsockname(fd)
		if err != nil {
			return 0, os.NewSyscallError("getsockname", err)
		}
		s.ctl.value.Store(uint64(name.(*unix.SockaddrInet4).Port))
		s.meet(first)
		if fd, _, err = unix.Accept(fd); err != nil {
			return 0, os.NewSyscallError("accept", err)
		}
	} else {
		s.meet(first)
		addr.Port = int(s.ctl.value.Load())
		if err = unix.Connect(fd, addr); err != nil {
			return 0, os.NewSyscallError("connect", err)
		}
	}
	return fd, os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
}

// move repeats the system call until the whole message has gone one way.
func move(call uintptr, fd int, buf []byte) error {
	for len(buf) > 0 {
		n, e := transfer(call, fd, buf)
		switch {
		case e == unix.EAGAIN || e == unix.EINTR:
		case e != 0:
			return e
		case n == 0:
			return fmt.Errorf("the other process has closed the connection")
		default:
			buf = buf[n:]
		}
	}
	return nil
}

func firstSocket(s *side) error {
	fd, err := s.connect(true)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf := make([]byte, s.line.Size)
	return s.latency(func(n int) error {
		for range n {
			if err := move(unix.SYS_SENDTO, fd, buf); err != nil {
				return err
			}
			if err := move(unix.SYS_RECVFROM, fd, buf); err != nil {
				return err
			}
		}
		return nil
	})
}

func secondSocket(s *side) error {
	fd, err := s.connect(false)
	if err != nil {
		return err
	}
	buf := make([]byte, s.line.Size)
	for range s.line.Iters {
		if err := move(unix.SYS_RECVFROM, fd, buf); err != nil {
			return err
		}
		if err := move(unix.SYS_SENDTO, fd, buf); err != nil {
			return err
		}
	}
	return nil
}

// handOver waits for its turn, giving the processor away, and passes it on.
func (s *side) handOver(n int, side uint32) {
	for range n {
		for s.ctl.turn.Load() != side {
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
		s.ctl.turn.Store(1 - side)
	}
}

func firstYield(s *side) error {
	s.meet(true)
	return s.latency(func(n int) error { s.handOver(n, 0); return nil })
}

func secondYield(s *side) error {
	s.meet(false)
	s.handOver(s.line.Iters, 1)
	return nil
}
