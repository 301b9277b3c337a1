package limits

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/shmring"
)

// ringBytes of each of two rings, the first of which the first side writes.
const ringBytes = 256 << 10

// rings are this side's ends.
func (s *side) rings(first bool) (*shmring.Producer, *shmring.Consumer, error) {
	n := shmring.Size(ringBytes)
	out, in := s.mem[:n], s.mem[2*n:][:n]
	if !first {
		out, in = in, out
	}
	p, err := shmring.NewProducer(out, nil)
	if err != nil {
		return nil, nil, err
	}
	c, err := shmring.NewConsumer(in)
	if err != nil {
		return nil, nil, err
	}
	c.SetHot(true)
	s.meet(first)
	return p, c, nil
}

// take polls until there is a packet, and takes it.
func take(c *shmring.Consumer, pkt *shmring.Packet) error {
	for {
		if ok, err := c.Peek(pkt); ok || err != nil {
			c.Advance()
			c.Release()
			return err
		}
	}
}

// put polls until there is room.
func put(p *shmring.Producer, payload []byte) {
	for !p.Push(0, 0, nil, nil, payload) {
	}
	_ = p.NeedsSignal()
}

func firstRing(s *side) error {
	p, c, err := s.rings(true)
	if err != nil {
		return err
	}
	payload, pkt := make([]byte, s.line.Size), new(shmring.Packet)
	return s.latency(func(n int) error {
		for range n {
			put(p, payload)
			if err := take(c, pkt); err != nil {
				return err
			}
		}
		return nil
	})
}

func secondRing(s *side) error {
	p, c, err := s.rings(false)
	if err != nil {
		return err
	}
	payload, pkt := make([]byte, s.line.Size), new(shmring.Packet)
	for range s.line.Iters {
		if err := take(c, pkt); err != nil {
			return err
		}
		put(p, payload)
	}
	return nil
}

// buffer is mapped, with all its pages there.
func buffer(size int) ([]byte, error) {
	buf, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	for i := range buf {
		buf[i] = byte(i)
	}
	// Yama, where it is on, lets only those read this memory whom the process names.
	_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0)
	return buf, nil
}

// offer tells the other side where this one's buffer is, and returns where its is.
func (s *side) offer(first bool, buf []byte) (theirs uintptr) {
	if first {
		s.ctl.value.Store(uint64(address(buf)))
		s.meet(first)
		s.meet(first)
		return uintptr(s.ctl.value.Load())
	}
	s.meet(first)
	theirs = uintptr(s.ctl.value.Load())
	s.ctl.value.Store(uint64(address(buf)))
	s.meet(first)
	return theirs
}

type vmCall func(pid int, local []unix.Iovec, remote []unix.RemoteIovec, flags uint) (int, error)

// copies by the kernel, of mine from or to theirs.
func (s *side) copy(call vmCall, mine []byte, theirs uintptr) error {
	local := []unix.Iovec{{Base: &mine[0]}}
	local[0].SetLen(len(mine))
	n, err := call(s.peer, local, []unix.RemoteIovec{{Base: theirs, Len: len(mine)}}, 0)
	if err != nil {
		return os.NewSyscallError("process_vm_readv, process_vm_writev", err)
	}
	if n != len(mine) {
		return fmt.Errorf("the kernel copied %d of %d bytes", n, len(mine))
	}
	return nil
}

func firstCMA(s *side) error {
	buf, err := buffer(s.line.Size)
	if err != nil {
		return err
	}
	theirs := s.offer(true, buf)
	return s.bandwidth(func(n int) error {
		for range n {
			if err := s.copy(unix.ProcessVMReadv, buf, theirs); err != nil {
				return err
			}
		}
		return nil
	})
}

func secondCMA(s *side) error {
	buf, err := buffer(s.line.Size)
	if err == nil {
		s.offer(false, buf)
	}
	return err
}

func firstCMA2(s *side) error {
	buf, err := buffer(s.line.Size)
	if err != nil {
		return err
	}
	theirs := s.offer(true, buf)
	i := uint32(0)
	return s.bandwidth(func(n int) error {
		for range n {
			i++
			s.ctl.turn.Store(i)
			if err := s.copy(unix.ProcessVMReadv, buf[:len(buf)/2], theirs); err != nil {
				return err
			}
			for s.ctl.done.Load() != i {
			}
		}
		return nil
	})
}

func secondCMA2(s *side) error {
	buf, err := buffer(s.line.Size)
	if err != nil {
		return err
	}
	theirs, half := s.offer(false, buf), len(buf)/2
	for i := range uint32(s.line.Iters) {
		for s.ctl.turn.Load() != i+1 {
		}
		if err := s.copy(unix.ProcessVMWritev, buf[half:], theirs+uintptr(half)); err != nil {
			return err
		}
		s.ctl.done.Store(i + 1)
	}
	return nil
}
