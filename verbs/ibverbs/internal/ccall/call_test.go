//go:build linux && (amd64 || arm64)

package ccall

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// libc returns an address in the C library, which every process has that loads libraries.
func libc(t testing.TB, name string) uintptr {
	l, err := Load("libc.so.6")
	require.NoError(t, err)
	return address(t, l, name)
}

func address(t testing.TB, l *Library, name string) uintptr {
	p, err := l.Symbol(name)
	require.NoError(t, err)
	return p
}

// calls is testdata/calls.c, compiled and loaded.
func calls(t *testing.T) func(name string) uintptr {
	cc, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "gcc"))
	if err != nil {
		t.Skip("needs a C compiler: ", err)
	}
	file := filepath.Join(t.TempDir(), "libcalls.so")
	out, err := exec.Command(cc, "-O1", "-fno-omit-frame-pointer", "-shared", "-fPIC", "-o", file, "testdata/calls.c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	l, err := Load(file)
	require.NoError(t, err)
	return func(name string) uintptr { return address(t, l, name) }
}

// foreign is memory outside of the Go heap.
func foreign(t testing.TB, n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
	return b
}

func addr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

func TestLoadFails(t *testing.T) {
	_, err := Load("/no/such/library.so")
	require.ErrorContains(t, err, "/no/such/library.so")
	l, err := Load("libc.so.6")
	require.NoError(t, err)
	_, err = l.Symbol("no_such_function")
	require.ErrorContains(t, err, "libc.so.6")
	require.ErrorContains(t, err, "no_such_function")
}

func TestLibc(t *testing.T) {
	c := Call{Fn: libc(t, "getpid")}
	c.Do()
	require.Equal(t, os.Getpid(), int(c.Ret))

	c = Call{Fn: libc(t, "abs"), Args: [6]uintptr{uintptr(0xfffffffb)}}
	c.Do()
	require.EqualValues(t, 5, int32(c.Ret))

	b := foreign(t, 64)
	format := foreign(t, 64)
	copy(format, "%d, %d, %d\x00")
	// A function with variable arguments.
	c = Call{Fn: libc(t, "snprintf"), Args: [6]uintptr{addr(&b[0]), 64, addr(&format[0]), 1, 22, 333}}
	c.Do()
	require.EqualValues(t, 10, int32(c.Ret))
	require.Equal(t, "1, 22, 333", string(b[:10]))
}

func TestErrno(t *testing.T) {
	bad, good := Call{Fn: libc(t, "close"), Args: [6]uintptr{^uintptr(0)}}, Call{Fn: libc(t, "getpid")}
	require.Equal(t, syscall.EBADF, bad.DoErrno())
	require.EqualValues(t, -1, int32(bad.Ret))
	require.Zero(t, good.DoErrno(), "of the call before")
	require.Equal(t, os.Getpid(), int(good.Ret))
}

// TestErrnoOfThread: each call gets its own errno, whatever others have failed with.
func TestErrnoOfThread(t *testing.T) {
	fail := calls(t)("fail")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 500 {
				want := syscall.Errno(1 + (i+j)%100)
				c := Call{Fn: fail, Args: [6]uintptr{uintptr(want)}}
				if got := c.DoErrno(); got != want || int32(c.Ret) != -1 {
					t.Errorf("errno %d, result %d, want %d and -1", got, int32(c.Ret), want)
				}
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
}

func TestArguments(t *testing.T) {
	fn := calls(t)
	c := Call{Fn: fn("six"), Args: [6]uintptr{1, 2, 3, 4, 5, 6}}
	c.Do()
	require.EqualValues(t, 654321, c.Ret)
	c.Ret = 0
	require.Zero(t, c.DoErrno())
	require.EqualValues(t, 654321, c.Ret)
	require.Equal(t, [6]uintptr{1, 2, 3, 4, 5, 6}, c.Args, "they are there for the next call")
}

// TestStack: C has an aligned stack of its own, which is large.
func TestStack(t *testing.T) {
	fn := calls(t)
	c := Call{Fn: fn("misaligned")}
	c.Do()
	require.Zero(t, c.Ret)
	require.Zero(t, c.DoErrno())
	require.Zero(t, c.Ret)
	steps := []Step{{Addr: c.Fn}, {Addr: c.Fn}}
	require.Equal(t, 2, Run(steps, nil))
	require.Zero(t, steps[0].Ret|steps[1].Ret)

	c = Call{Fn: fn("deep"), Args: [6]uintptr{40}}
	c.Do()
	require.EqualValues(t, 40*41/2, c.Ret)
}

func TestRun(t *testing.T) {
	fn := calls(t)
	b := foreign(t, 64)
	queue, tag := (*[2]uint64)(unsafe.Pointer(&b[0])), (*uint64)(unsafe.Pointer(&b[32]))
	next := Step{Kind: StepCheck, Addr: fn("next"), Args: [3]uintptr{addr(queue)}}
	one := []Step{
		next,
		{Kind: StepLoad, Addr: addr(&queue[1])},
		{Kind: StepCall, Addr: fn("clobber")},
		{Kind: StepCall, Addr: fn("read_tag"), Args: [3]uintptr{addr(queue), addr(tag)}},
		{Kind: StepLoad, Addr: addr(tag)},
	}
	const unset = 0xdeadbeef
	for i := range one {
		one[i].Ret = unset
	}
	steps := append(append(append([]Step{}, one...), one...), one...)

	queue[0] = 2
	require.Equal(t, 11, Run(steps, nil), "the first step of the third round ends the list")
	for i, s := range steps[:10] {
		left := uint64(1 - i/5)
		require.EqualValues(t, []uint64{0, 1000 + left, 0, left, 7 * (1000 + left)}[i%5], uint32(s.Ret), "step %d", i)
	}
	require.Equal(t, syscall.ENOENT, syscall.Errno(int32(steps[10].Ret)))
	for i, s := range steps[11:] {
		require.EqualValues(t, unset, s.Ret, "step %d was not made", 11+i)
	}

	queue[0] = 3
	require.Equal(t, 15, Run(steps, nil), "all")
	queue[0] = 1
	require.Equal(t, 1, Run(steps[:1], nil), "the last step succeeds")
	require.Equal(t, 1, Run(steps[:1], nil), "the last step ends the list")
	require.EqualValues(t, syscall.ENOENT, int32(steps[0].Ret))
	require.Zero(t, Run(nil, nil))

	other := []Step{{Addr: fn("minus_one")}, {Kind: StepCheck, Addr: fn("upper")}, {Kind: StepCheck, Addr: fn("minus_one")}, {Addr: fn("upper")}}
	require.Equal(t, 3, Run(other, nil), "a result is checked as an int, and only where that is asked for")
}

// TestLast: the last step is made behind the list, whole or ended, but not where the first step has
// ended it.
func TestLast(t *testing.T) {
	fn := calls(t)
	b := foreign(t, 16)
	queue := (*[2]uint64)(unsafe.Pointer(&b[0]))
	next := Step{Kind: StepCheck, Addr: fn("next"), Args: [3]uintptr{addr(queue)}}
	const unset = 0xdeadbeef
	for left, want := range []struct{ steps, last int }{{1, unset}, {3, 0}, {4, 0}} {
		queue[0] = uint64(left)
		last := Step{Addr: fn("misaligned"), Ret: unset}
		require.Equal(t, want.steps, Run([]Step{next, {Addr: fn("clobber")}, next, {Kind: StepLoad, Addr: addr(queue)}}, &last))
		require.EqualValues(t, want.last, last.Ret, "%d in the queue", left)
		require.Zero(t, queue[0])
	}
	last := Step{Addr: fn("six"), Args: [3]uintptr{1, 2, 3}}
	require.Equal(t, 1, Run([]Step{{Addr: fn("minus_one")}}, &last), "only a check ends a list")
	require.EqualValues(t, 321, last.Ret%1000)
}

// TestBlocks: a call that blocks holds up neither other goroutines nor the collector, with one
// processor too.
func TestBlocks(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var ends [2]int
	require.NoError(t, unix.Pipe(ends[:]))
	defer unix.Close(ends[0])
	b := foreign(t, 8)
	c := Call{Fn: libc(t, "read"), Args: [6]uintptr{uintptr(ends[0]), addr(&b[0]), 8}}
	done := make(chan error)
	go func() {
		runtime.GC()
		_, err := unix.Write(ends[1], []byte("hello"))
		unix.Close(ends[1])
		done <- err
	}()
	require.Zero(t, c.DoErrno())
	require.NoError(t, <-done)
	require.EqualValues(t, 5, c.Ret)
	require.Equal(t, "hello", string(b[:5]))
}

// TestMemory: while C works, the collector neither frees pinned memory nor moves a stack that the
// call, or its steps, lie on, though much of that stack is not used any more.
func TestMemory(t *testing.T) {
	sum := calls(t)("sum")
	var begun, goOn [2]int
	for _, ends := range []*[2]int{&begun, &goOn} {
		require.NoError(t, unix.Pipe(ends[:]))
		defer unix.Close(ends[0])
		defer unix.Close(ends[1])
	}
	ends := uintptr(begun[1])<<32 | uintptr(goOn[0])
	const goroutines = 8
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			grow(64)
			b := make([]byte, 4096)
			for k := range b {
				b[k] = byte(i + 1)
			}
			var pin runtime.Pinner
			pin.Pin(&b[0])
			defer pin.Unpin()
			got := uintptr(0)
			if i%2 == 0 {
				c := Call{Fn: sum, Args: [6]uintptr{addr(&b[0]), 4096, ends}}
				c.Do()
				got = c.Ret
			} else {
				steps := [...]Step{{Addr: sum, Args: [3]uintptr{addr(&b[0]), 4096, ends}}}
				Run(steps[:], nil)
				got = steps[0].Ret
			}
			if got != uintptr(i+1)*4096 {
				t.Errorf("sum %d of 4096 times %d", got, i+1)
			}
		})
	}
	var one [1]byte
	for range goroutines {
		_, err := unix.Read(begun[0], one[:])
		require.NoError(t, err)
	}
	runtime.GC()
	runtime.GC()
	for range goroutines {
		_, err := unix.Write(goOn[1], one[:])
		require.NoError(t, err)
	}
	wg.Wait()
}

// grow has the stack grow to n KiB.
func grow(n int) byte {
	var frame [1024]byte
	if n > 0 {
		frame[n] = grow(n - 1)
	}
	return frame[n/2]
}

func TestAllocs(t *testing.T) {
	abs := libc(t, "abs")
	for name, f := range map[string]func(){
		"Do":      func() { c := Call{Fn: abs}; c.Do() },
		"DoErrno": func() { c := Call{Fn: abs}; _ = c.DoErrno() },
		"Run":     func() { steps := [8]Step{{Addr: abs}, {Addr: abs}}; Run(steps[:2], nil) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, f), name)
	}
}
