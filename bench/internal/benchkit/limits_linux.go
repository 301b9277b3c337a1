package benchkit

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/launch"
	"github.com/tagmatch/tagmatch/p2p"
)

// Limits measures what this machine can do at best: the parts of a message, each alone. The two
// ranks tell each other by messages where to find what they measure, and then send none.
type Limits struct {
	Common
	Only []string
}

// limit is one thing to measure.
type limit struct {
	name, about string
	sizes       Sizes
	iters       int // 0: what copies 2 GB
	parts       float64
	oneCore     bool
	body        func(s *Session, l *loop) error
}

var copies = Sizes{64 << 10, 256 << 10, 1 << 20, 4 << 20}

var limits = []limit{
	{name: "line", about: "half round trip of a cache line in shared memory", sizes: Sizes{8}, iters: 500_000, parts: 2,
		body: func(s *Session, l *loop) error { return handOver(s, l, func() {}) }},
	{name: "cma", about: "copying out of the other process (process_vm_readv)", sizes: copies, parts: 1, body: readAll},
	{name: "cma2", about: "the same, while the other copies the second half (process_vm_writev)", sizes: copies, parts: 1, body: readHalf},
	{name: "socket", about: "half round trip over TCP loopback, spinning on non-blocking system calls", sizes: Sizes{8}, iters: 20_000, parts: 2,
		body: overSocket},
	{name: "yield", about: "half round trip of two processes on one processor that hand over by sched_yield", sizes: Sizes{8}, iters: 100_000,
		parts: 2, oneCore: true, body: func(s *Session, l *loop) error { return handOver(s, l, schedYield) }},
}

// NewLimits has the defaults.
func NewLimits() *Limits { return &Limits{} }

// Register adds the flags.
func (t *Limits) Register(fs *flag.FlagSet) {
	t.Common.Register(fs)
	about := "`names` of limits, separated by commas, by default all:"
	for _, l := range limits {
		about += "\n" + l.name + ": " + l.about
		t.Only = append(t.Only, l.name)
	}
	fs.Func("only", about, func(text string) error { t.Only = strings.Split(text, ","); return nil })
}

// Faults of the flags.
func (t *Limits) Faults() []error {
	errs := t.Common.Faults()
	for _, name := range t.Only {
		if limitOf(name) == nil {
			errs = append(errs, fmt.Errorf("-only: there is no limit %q (-h lists them)", name))
		}
	}
	if launch.Launched() && (len(t.Only) != 1 || len(t.Sizes) == 0) {
		errs = append(errs, errors.New("under a launcher give one of -only, and -sizes"))
	}
	return errs
}

func limitOf(name string) *limit {
	if i := slices.IndexFunc(limits, func(l limit) bool { return l.name == name }); i >= 0 {
		return &limits[i]
	}
	return nil
}

// Jobs are one a limit.
func (t *Limits) Jobs() (jobs []Job) {
	for _, name := range t.Only {
		l := limitOf(name)
		sizes := t.Sizes
		if len(sizes) == 0 {
			sizes = l.sizes
		}
		jobs = append(jobs, Job{Ranks: 2, OneCore: l.oneCore, Args: []string{"-only", name, "-sizes", sizes.String()}})
	}
	return jobs
}

// Messages take some tenths of a second.
func (t *Limits) Messages(size int, _ string) int {
	return cmp.Or(limitOf(t.Only[0]).iters, max(2_000_000_000/max(size, 1), 20))
}

// Run measures a size.
func (t *Limits) Run(s *Session, size, iters int) error {
	l := limitOf(t.Only[0])
	r, err := s.rounds("limits", newLoop(s, size, iters, false), l.parts, func(_ *p2p.World, loop *loop) error {
		return errors.Join(l.body(s, loop), s.sync())
	})
	r.What, r.Device, r.Transport = l.name, "", ""
	r.MBs = float64(size) / max(r.MidUs, 1e-3)
	return s.Report(r, err)
}

func schedYield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// handOver passes 8 bytes to and fro in one line of memory.
func handOver(s *Session, l *loop, idle func()) error {
	if len(l.in) != 8 {
		return errors.New("a line takes 8 bytes")
	}
	p, err := s.page()
	if err != nil {
		return err
	}
	turn := uint32(0)
	hand := func() {
		turn++
		p.stamp.Store(int64(binary.LittleEndian.Uint64(l.out)))
		p.word.Store(turn)
	}
	take := func() {
		for turn++; p.word.Load() != turn; {
			idle()
		}
		binary.LittleEndian.PutUint64(l.in, uint64(p.stamp.Load()))
	}
	for range l.rounds {
		if s.First {
			hand()
			take()
		} else {
			take()
			hand()
		}
	}
	return p.close()
}

// remote is memory of the other rank.
type remote struct {
	pid     int
	in, out uintptr // of its loop
}

// exchange tells the other rank where this one's buffers are, which have the first round's payload.
func (s *Session) exchange(l *loop) (their remote, err error) {
	Fill(l.out, payload(0, 1))
	// Yama, where it is on, lets only those read this memory whom the process names.
	_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0)
	mine := []uint64{uint64(os.Getpid()), uint64(address(l.in)), uint64(address(l.out))}
	buf := make([]byte, 24)
	for i, n := range mine {
		binary.LittleEndian.PutUint64(buf[8*i:], n)
	}
	send := s.World.Isend(s.Peer, tagNumber, slices.Clone(buf))
	if _, err = s.World.Recv(context.Background(), tagNumber, p2p.MaskExact, buf); err != nil {
		return their, err
	}
	word := func(i int) uintptr { return uintptr(binary.LittleEndian.Uint64(buf[8*i:])) }
	_, err = send.Wait(context.Background())
	return remote{pid: int(word(0)), in: word(1), out: word(2)}, err
}

type vmCall func(pid int, local []unix.Iovec, remote []unix.RemoteIovec, flags uint) (int, error)

// copy is one by the kernel, of mine from or to the other rank's memory at addr.
func (r *remote) copy(call vmCall, mine []byte, addr uintptr) error {
	local := []unix.Iovec{{Base: &mine[0]}}
	local[0].SetLen(len(mine))
	n, err := call(r.pid, local, []unix.RemoteIovec{{Base: addr, Len: len(mine)}}, 0)
	if err == nil && n != len(mine) {
		err = io.ErrShortWrite
	}
	return os.NewSyscallError("process_vm_readv, process_vm_writev", err)
}

// readAll has the first rank read, while the other sleeps.
func readAll(s *Session, l *loop) error {
	their, err := s.exchange(l)
	if err != nil {
		return err
	}
	if !s.First {
		l.parts = []float64{0} // it has no rounds
		defer runtime.KeepAlive(l)
		return s.sync()
	}
	for range l.rounds {
		if err := their.copy(unix.ProcessVMReadv, l.in, their.out); err != nil {
			return err
		}
	}
	return s.sync()
}

// readHalf has the first rank read the first half while the other writes the second.
func readHalf(s *Session, l *loop) error {
	their, err := s.exchange(l)
	if err != nil {
		return err
	}
	p, err := s.page()
	if err != nil {
		return err
	}
	half, turn := len(l.in)/2, uint32(0)
	for range l.rounds {
		turn++
		if s.First {
			p.word.Store(turn)
			err = their.copy(unix.ProcessVMReadv, l.in[:half], their.out)
			for err == nil && p.stamp.Load() != int64(turn) {
			}
		} else {
			for p.word.Load() != turn {
			}
			err = their.copy(unix.ProcessVMWritev, l.out[half:], their.in+uintptr(half))
			p.stamp.Store(int64(turn))
			copy(l.in, l.out) // of what it gets nothing is compared
		}
		if err != nil {
			return err
		}
	}
	return p.close()
}

// overSocket bounces over a connection whose system calls never wait.
func overSocket(s *Session, l *loop) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	controlled := raw.Control(func(fd uintptr) {
		write := func() error { return spin(l.out, func(b []byte) (int, error) { return syscall.Write(int(fd), b) }) }
		read := func() error { return spin(l.in, func(b []byte) (int, error) { return syscall.Read(int(fd), b) }) }
		first, second := write, read
		if !s.First {
			first, second = read, write
		}
		for range l.rounds {
			if err = first(); err == nil {
				err = second()
			}
			if err != nil {
				return
			}
		}
	})
	return errors.Join(controlled, err)
}

// connect makes a connection over the loopback interface between the ranks.
func (s *Session) connect() (net.Conn, error) {
	ctx := context.Background()
	if !s.First {
		port, _, err := s.World.RecvAlloc(ctx, tagNumber, p2p.MaskExact, 8)
		if err != nil {
			return nil, err
		}
		return net.Dial("tcp", "127.0.0.1:"+string(port))
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	if err := s.World.Send(ctx, s.Peer, tagNumber, []byte(port)); err != nil {
		return nil, err
	}
	return ln.Accept()
}

// spin repeats a system call until all of buf has gone.
func spin(buf []byte, call func([]byte) (int, error)) error {
	for len(buf) > 0 {
		switch n, err := call(buf); {
		case err == syscall.EAGAIN || err == syscall.EINTR:
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		default:
			buf = buf[n:]
		}
	}
	return nil
}
