package jobtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	scribbles = "scribbled" // the role whose hostile rank writes to all shared memory

	mostAreas   = 64 // mappings that it has at once
	controlPart = 2 << 10
)

func init() {
	addHostile(scribbles, scribblePlan, func(h hostile) { beginHarm = newScribbler(h).begin })
}

func scribblePlan(seed uint64) hostile {
	h := hostilePlan(seed)
	h.role, h.device, h.talks = scribbles, "shm", 300*time.Millisecond
	return h
}

// TestScribbler: one rank writes anything to all memory that it shares with others, at any time,
// punches holes in it, fills pipes, and clears the flags of open files. It keeps that memory when
// the others have given it up. What holds of TestHostile's rank holds of this one.
func TestScribbler(t *testing.T) { testHostile(t, scribblePlan) }

// area is a mapping of shared memory.
type area struct{ addr, n uintptr }

// scribbler does so.
type scribbler struct {
	rng   *rand.Rand
	first time.Duration // before it begins
	pause time.Duration // between two times, at most
	seen  map[string]bool
	areas []area
	noise []byte
}

func newScribbler(h hostile) *scribbler {
	s := &scribbler{rng: rand.New(rand.NewPCG(h.seed, 0x5c71bb1e)), seen: map[string]bool{}, noise: make([]byte, 4<<10)}
	s.first = time.Duration(s.rng.IntN(100)) * time.Millisecond
	s.pause = []time.Duration{time.Microsecond, 100 * time.Microsecond, 2 * time.Millisecond, 20 * time.Millisecond}[s.rng.IntN(4)]
	return s
}

func (s *scribbler) begin() {
	go func() {
		time.Sleep(s.first)
		for i := 0; ; i++ {
			if i%64 == 0 {
				if err := s.look(); err != nil {
					fmt.Fprintln(os.Stderr, "scribbler:", err)
					return
				}
				s.misuse()
			}
			for range 1 + s.rng.IntN(4) {
				s.scribble()
			}
			time.Sleep(time.Duration(s.rng.Int64N(int64(s.pause))))
		}
	}()
}

// look maps again all shared memory that this process has mapped for writing, so that it keeps it.
func (s *scribbler) look() error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "rw-s" || !strings.HasPrefix(f[5], "/memfd:tagmatch-") || s.seen[f[4]] {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		a, err := strconv.ParseUint(from, 16, 64)
		if err != nil {
			return err
		}
		b, err := strconv.ParseUint(to, 16, 64)
		if err != nil {
			return err
		}
		addr, _, errno := unix.Syscall6(unix.SYS_MREMAP, uintptr(a), 0, uintptr(b-a), unix.MREMAP_MAYMOVE, 0, 0)
		if errno != 0 { // it has been unmapped
			continue
		}
		s.seen[f[4]] = true
		s.areas = append(s.areas, area{addr, uintptr(b - a)})
	}
	if len(s.areas) == 0 {
		return fmt.Errorf("no shared memory in\n%s", maps)
	}
	for ; len(s.areas) > mostAreas; s.areas = slices.Delete(s.areas, mostAreas/2, mostAreas/2+1) {
		a := s.areas[mostAreas/2] // the first ones are rings and inboxes
		if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, a.addr, a.n, 0); errno != 0 {
			return errno
		}
	}
	return nil
}

// scribble writes zeros or noise to some place, or punches a hole there. Control words are few, and
// hit often.
func (s *scribbler) scribble() {
	a := s.areas[s.rng.IntN(len(s.areas))]
	n := uintptr(1 + s.rng.IntN(16))
	switch s.rng.IntN(16) {
	case 0:
		n = uintptr(len(s.noise))
	case 1, 2:
		n = uintptr(1 + s.rng.IntN(256))
	}
	off := uintptr(s.rng.Uint64()) % (a.n - n + 1)
	if s.rng.IntN(2) == 0 {
		off %= controlPart
	}
	if s.rng.IntN(2) == 0 {
		off &^= 7
	}
	if s.rng.IntN(32) == 0 {
		page := uintptr(os.Getpagesize())
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, a.addr+off&^(page-1), page*uintptr(1+s.rng.IntN(4)), unix.MADV_REMOVE)
		return
	}
	bytes := s.noise[:n]
	clear(bytes)
	if s.rng.IntN(3) > 0 {
		for i := range bytes {
			bytes[i] = byte(s.rng.Uint32())
		}
	}
	local := []unix.Iovec{{Base: &bytes[0]}}
	local[0].SetLen(len(bytes))
	_, _ = unix.ProcessVMWritev(os.Getpid(), local, []unix.RemoteIovec{{Base: a.addr + off, Len: len(bytes)}}, 0)
}

// misuse clears the flags of all open files of this process, punches holes in memory, and fills
// pipes.
func (s *scribbler) misuse() {
	names, _ := filepath.Glob("/proc/self/fd/*")
	for _, name := range names {
		fd, _ := strconv.Atoi(filepath.Base(name))
		what, _ := os.Readlink(name)
		if fd <= 2 {
			continue
		}
		switch {
		case strings.HasPrefix(what, "/memfd:tagmatch-"):
			_ = unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, s.rng.Int64N(256<<10), s.rng.Int64N(16<<10))
		case strings.HasPrefix(what, "socket:"):
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0)
		case strings.HasPrefix(what, "pipe:"):
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0)
			s.fill(name)
		}
	}
}

// fill fills a pipe by an open file of its own.
func (s *scribbler) fill(name string) {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for err == nil && s.rng.IntN(32) > 0 {
		_, err = unix.Write(fd, s.noise)
	}
	_ = unix.Close(fd)
}
