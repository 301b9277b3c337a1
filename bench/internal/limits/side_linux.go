package limits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/bench/internal/hop"
	"github.com/tagmatch/tagmatch/internal/memfd"
)

// halves of the limits, by their names; the first fills in the line.
var halves = map[string]struct{ first, second func(s *side) error }{
	"ring":   {firstRing, secondRing},
	"cma":    {firstCMA, secondCMA},
	"cma2":   {firstCMA2, secondCMA2},
	"socket": {firstSocket, secondSocket},
	"yield":  {firstYield, secondYield},
}

// side is one of the two processes of a measurement.
type side struct {
	line Line
	mem  []byte  // shared, zero at first
	ctl  *shared // its beginning
	peer int     // the other process
	turn uint32  // how often meet was called
}

// controlBytes of the shared memory are shared; the rest is for the limits.
const (
	controlBytes = 4096
	memBytes     = 4 << 20
)

// Measure measures a limit with each of its sizes. self is the path of a program that calls Serve
// for arguments that begin with args and Second. iters is 0 for as many as the size calls for.
func Measure(ctx context.Context, self string, args []string, name string, iters int, cpus [2]int, print func(Line) error) error {
	i := slices.IndexFunc(table, func(l limit) bool { return l.name == name })
	if i < 0 {
		return fmt.Errorf("%q: %w", name, errUnknown)
	}
	l := &table[i]
	for _, size := range l.sizes {
		n := iters
		if n == 0 {
			n = l.iters(size)
		}
		if l.oneCore {
			cpus[1] = cpus[0]
		}
		line, err := measure(ctx, self, args, l, size, n, cpus)
		if err != nil {
			return fmt.Errorf("%s, %d bytes: %w", name, size, err)
		}
		if err := print(line); err != nil {
			return err
		}
	}
	return nil
}

func measure(ctx context.Context, self string, args []string, l *limit, size, iters int, cpus [2]int) (Line, error) {
	s := &side{line: Line{Test: "limits", What: l.name, Size: size, Iters: iters}}
	seg, err := memfd.New("tagmatch-limits", memBytes, memfd.Allocated|memfd.Populated)
	if err != nil {
		return Line{}, err
	}
	defer func() { _ = unix.Close(seg.FD); seg.Close() }()
	s.share(seg.Mem)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	words := slices.Concat(args, []string{Second, l.name, strconv.Itoa(size), strconv.Itoa(iters), strconv.Itoa(cpus[1]), strconv.Itoa(os.Getpid())})
	cmd := exec.CommandContext(ctx, self, words...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	// The second side ends with this pipe.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return Line{}, err
	}
	fd, err := unix.FcntlInt(uintptr(seg.FD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return Line{}, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(fd), "shared")
	cmd.ExtraFiles = []*os.File{file}
	err = cmd.Start()
	if err = errors.Join(err, file.Close()); err != nil {
		return Line{}, err
	}
	s.peer = cmd.Process.Pid
	// Where the second side has failed the first waits for it in vain: that goroutine is left
	// behind, with the memory, and ends with this process.
	done, over := make(chan error, 1), make(chan error, 1)
	go func() { done <- s.pinned(cpus[0], halves[l.name].first) }()
	go func() { over <- cmd.Wait() }()
	select {
	case err = <-done:
		return s.line, errors.Join(err, stdin.Close(), <-over)
	case err = <-over:
		return Line{}, fmt.Errorf("the second process has ended: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
}

// Serve is the second side. words are those behind Second.
func Serve(words []string) error {
	numbers := make([]int, max(len(words)-1, 0))
	for i := range numbers {
		n, err := strconv.Atoi(words[i+1])
		if err != nil {
			return err
		}
		numbers[i] = n
	}
	if len(numbers) != 4 {
		return fmt.Errorf("%s is for processes that bench limits starts: %s", Second, strings.Join(words, " "))
	}
	half, ok := halves[words[0]]
	if !ok {
		return errUnknown
	}
	seg, err := memfd.Adopt(3, memBytes, unix.PROT_READ|unix.PROT_WRITE, memfd.Allocated|memfd.Populated)
	if err != nil {
		return err
	}
	s := &side{line: Line{Size: numbers[0], Iters: numbers[1]}, peer: numbers[3]}
	s.share(seg.Mem)
	ended := make(chan error, 1)
	go func() { ended <- s.pinned(numbers[2], half.second) }()
	over := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, os.Stdin); over <- err }()
	select {
	case err := <-ended:
		if err != nil {
			return err
		}
		return <-over
	case err := <-over:
		return err
	}
}

// pinned runs f on a processor of its own.
func (s *side) pinned(cpu int, f func(s *side) error) error {
	runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
	if err := hop.Pin(cpu); err != nil {
		return err
	}
	return f(s)
}

func (s *side) share(mem []byte) {
	s.mem, s.ctl = mem[controlBytes:], sharedIn(mem)
}

// meet returns when both sides have called it as often.
func (s *side) meet(first bool) {
	mine, theirs := &s.ctl.first, &s.ctl.second
	if !first {
		mine, theirs = theirs, mine
	}
	s.turn++
	mine.Store(s.turn)
	for theirs.Load() < s.turn {
		time.Sleep(10 * time.Microsecond)
	}
}
