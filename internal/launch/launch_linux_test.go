package launch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tagmatch/tagmatch/internal/buffertest"
	"github.com/tagmatch/tagmatch/internal/cpus"
	"github.com/tagmatch/tagmatch/internal/launch/link"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"golang.org/x/sys/unix"
)

func ignoreTerm() { signal.Ignore(syscall.SIGTERM) }

// alive reports whether pid runs; an unreaped zombie does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// requireGone waits for the end of processes that do not end by themselves, and leaves none behind.
func requireGone(t *testing.T, pids []int) {
	t.Helper()
	defer func() {
		for _, pid := range pids {
			if t.Failed() && alive(pid) {
				_ = syscall.Kill(-pid, syscall.SIGKILL) // the group that timeout(1) or setsid(1) has made
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}()
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !alive(pid) }, testlevel.Patience(20*time.Second), 5*time.Millisecond, "process %d is left", pid)
	}
}

// nested is a launcher for tests that kill it. Its ranks run a shell that starts a child.
func nested(string) int {
	opt := Options{N: 2, Env: append(os.Environ(), envRole+"="), NoPrefix: true, Grace: 300 * time.Millisecond,
		Command: []string{"sh", "-c", os.Getenv("NESTED_COMMAND")}}
	if agent := os.Getenv("NESTED_AGENT"); agent != "" {
		opt.Hosts, opt.Agent = []Host{{"here", 1}, {"there", 1}}, []string{agent}
	}
	code, err := Run(context.Background(), opt)
	if err != nil {
		fmt.Println(err)
	}
	return code
}

// startNested starts a launcher as a process and waits until its ranks have written n pids.
func startNested(t *testing.T, command string, n int) (*exec.Cmd, *buffertest.Buffer) {
	t.Helper()
	return startNestedBy(t, exec.Command(os.Args[0]), command, n)
}

// startNestedBy is startNested by a command that runs this binary.
func startNestedBy(t *testing.T, c *exec.Cmd, command string, n int) (*exec.Cmd, *buffertest.Buffer) {
	t.Helper()
	var out buffertest.Buffer
	c.Env = append(os.Environ(), envRole+"=nested", "NESTED_COMMAND="+command)
	c.Stdout, c.Stderr = &out, &out
	c.WaitDelay = time.Second
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() })
	require.Eventually(t, func() bool { return len(pids(out.String())) == n }, testlevel.Patience(30*time.Second), 5*time.Millisecond, "%v", &out)
	return c, &out
}

func TestLauncherKilled(t *testing.T) {
	c, out := startNested(t, "echo pid $$; exec sleep 600", 2)
	require.NoError(t, c.Process.Kill())
	_ = c.Wait() // says that it was killed
	requireGone(t, pids(out.String()))
}

// TestLauncherKilledReachesDescendants runs a program behind a shell, which the parent-death signal
// does not reach.
func TestLauncherKilledReachesDescendants(t *testing.T) {
	program := envRole + "=watcher " + os.Args[0]
	c, out := startNested(t, program+" & "+"wait; true", 2)
	require.NoError(t, c.Process.Kill())
	_ = c.Wait() // says that it was killed
	requireGone(t, pids(out.String()))
}

func init() {
	roles["watcher"] = func(string) int {
		WatchParent()
		fmt.Printf("pid %d\n", os.Getpid())
		time.Sleep(10 * time.Minute)
		return 0
	}
	roles["pinned"] = pinned
}

func TestLauncherInterrupted(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		c, out := startNested(t, "sleep 600 & echo pid $!; echo pid $$; wait", 4)
		require.NoError(t, c.Process.Signal(sig))
		_ = c.Wait() // says with which code it ended
		require.Equal(t, 128+int(sig), c.ProcessState.ExitCode(), "%v", out)
		require.Contains(t, out.String(), "tagmatch: got "+sig.String())
		requireGone(t, pids(out.String()))
	}
}

// TestBackgroundProcesses leaves a process in the rank's group, and in one of its own, behind a
// rank that ends and one that is killed.
func TestBackgroundProcesses(t *testing.T) {
	t.Parallel()
	// It speaks when it has its own session: the end of the rank's group does not concern it.
	const apart = `{ setsid sh -c 'echo pid $$; exec sleep 600 >&2' & } | { read -r line; echo "$line"; }`
	for _, script := range []string{"sleep 600 & echo pid $!", apart, apart + "; kill -s KILL $$"} {
		var out, errs buffertest.Buffer
		code, err := Run(context.Background(), Options{N: 2, Command: []string{"sh", "-c", script}, Stdout: &out, Stderr: &errs, KeepGoing: true})
		require.NoError(t, err)
		require.Equal(t, strings.Contains(script, "kill"), code == 128+9, "%s: %v", script, &errs)
		require.Len(t, pids(out.String()), 2)
		requireGone(t, pids(out.String()))
	}
}

func pinnedTo() int {
	cpu, err := strconv.Atoi(os.Getenv(EnvPin))
	if err != nil {
		panic(err)
	}
	return cpu
}

// pinned prints its affinity, thread by thread, after some threads were started.
func pinned(string) int {
	before := fmt.Sprint(gomaxprocs())
	for range 4 {
		go func() { time.Sleep(time.Second) }()
	}
	all, _ := cpus.Allowed()
	others, err := PinSelf()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if len(others) != len(all)-1 || slices.Contains(others, pinnedTo()) {
		fmt.Println("others", others, "of", all)
		return 1
	}
	if !threadsOn(func(int) bool { return true }, []int{pinnedTo()}) {
		return 1
	}
	if len(others) > 0 {
		if err := PinOthers(others); err != nil {
			fmt.Println(err)
			return 1
		}
		for range 4 { // this goroutine keeps its thread, whoever runs meanwhile
			time.Sleep(time.Millisecond)
			me := unix.Gettid()
			if !threadsOn(func(tid int) bool { return tid == me }, []int{pinnedTo()}) || !threadsOn(func(tid int) bool { return tid != me }, others) {
				return 1
			}
		}
	}
	fmt.Printf("pinned to %s, GOMAXPROCS kept %v\n", os.Getenv(EnvPin), before == fmt.Sprint(gomaxprocs()))
	return 0
}

// threadsOn reports, and prints otherwise, whether these threads of the process may use just these
// CPUs.
func threadsOn(these func(tid int) bool, cpus []int) bool {
	var want unix.CPUSet
	for _, cpu := range cpus {
		want.Set(cpu)
	}
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		var set unix.CPUSet
		if !these(tid) || unix.SchedGetaffinity(tid, &set) != nil { // it has ended
			continue
		}
		if set != want {
			fmt.Printf("thread %d may use %d CPUs, not just %v\n", tid, set.Count(), cpus)
			return false
		}
	}
	return true
}

func TestPin(t *testing.T) {
	list, err := cpus.Allowed()
	require.NoError(t, err)
	code, out, errs := play(t, 3, "pinned", func(o *Options) { o.Pin = true })
	require.Zero(t, code, "%s%s", out, errs)
	for r := range 3 {
		require.Contains(t, out, fmt.Sprintf("[%d] pinned to %d, GOMAXPROCS kept true\n", r, list[r%len(list)]))
	}
	code, out, errs = play(t, 2, "pinned", func(o *Options) { o.Pin, o.OneCPU = true, true })
	require.Zero(t, code, "%s%s", out, errs)
	require.Equal(t, 2, strings.Count(out, fmt.Sprintf("pinned to %d, GOMAXPROCS kept true\n", list[0])), out)
}

// TestOneCPU: of the CPUs that Pin names to ranks only the first one is that of OneCPU.
func TestOneCPU(t *testing.T) {
	list, err := cpus.Allowed()
	require.NoError(t, err)
	require.False(t, OneCPU(), "TAGMATCH_PIN is not set")
	for i, cpu := range list {
		t.Setenv(EnvPin, strconv.Itoa(cpu))
		require.Equal(t, i == 0, OneCPU(), cpu)
	}
}

func TestLinkSurvivesNonsense(t *testing.T) {
	parent, child, env, err := link.Pair(3)
	require.NoError(t, err)
	defer func() { _ = parent.Close() }()
	_, inode, _ := strings.Cut(env, ":")
	get := func(v string) func(string) string { return func(string) string { return v } }
	for _, v := range []string{"", "3", "x:1", "3:x", "-1:5", "99999:" + inode, "0:" + inode} {
		require.Nil(t, link.Open(get(v)), "%q", v)
	}
	fd, err := unix.Dup(int(child.Fd()))
	require.NoError(t, err)
	l := link.Open(get(fmt.Sprintf("%d:%s", fd, inode)))
	require.NotNil(t, l)
	fmt.Fprintf(child, "hello\n%s\nabort 1\nabort x \"y\"\nstate 9\nstate\nlost\nlost x\n", strings.Repeat("long", 1000))
	l.Say(link.Joining)
	l.Say(link.Finished)
	l.Lost(3)
	l.Abort(5, "a \"quoted\"\nreason "+strings.Repeat("!", 5000))
	require.NoError(t, l.Close())
	// The last open descriptor of the link besides its own end: the launcher reads to the end.
	require.NoError(t, child.Close())
	require.NoError(t, unix.Close(fd))
	calls := 0
	var said []link.State
	var lost []int
	link.Read(parent, link.Reader{
		Abort: func(code int, reason string) {
			calls++
			require.Equal(t, 5, code)
			require.True(t, strings.HasPrefix(reason, "a \"quoted\"\nreason !!"), reason)
		},
		Say:  func(s link.State) { said = append(said, s) },
		Lost: func(rank int) { lost = append(lost, rank) },
	})
	require.Equal(t, 1, calls)
	require.Equal(t, []link.State{link.Joining, link.Finished}, said)
	require.Equal(t, []int{3}, lost)
}

// TestLostDoesNotBlock: a launcher that does not read misses a loss, and the rank continues, also
// while it writes an Abort.
func TestLostDoesNotBlock(t *testing.T) {
	for range 10 { // the Abort gives up after a second, for which this process may be stopped
		if lostBesideAbort(t) {
			return
		}
	}
	t.Error("the losses have waited for the abort")
}

// lostBesideAbort reports losses while an Abort waits for the launcher to read, and whether that
// still waited then.
func lostBesideAbort(t *testing.T) bool {
	parent, child, env, err := link.Pair(3)
	require.NoError(t, err)
	defer func() { _ = parent.Close() }()
	defer func() { _ = child.Close() }()
	_, inode, _ := strings.Cut(env, ":")
	l := link.Open(func(string) string { return fmt.Sprintf("%d:%s", child.Fd(), inode) })
	require.NotNil(t, l)
	for err == nil {
		_, err = unix.Write(int(child.Fd()), make([]byte, 1<<16))
	}
	require.ErrorIs(t, err, unix.EAGAIN)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Abort(1, "waits until its deadline")
	}()
	abortWaits := func() bool {
		stacks := make([]byte, 1<<20)
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "link.(*Link).Abort(") && strings.Contains(stack, "poll.runtime_pollWait(") {
				return true
			}
		}
		return false
	}
	for over := false; !over && !abortWaits(); {
		select {
		case <-done:
			over = true
		default:
			runtime.Gosched()
		}
	}
	for range 100 {
		l.Lost(1)
	}
	go func() {
		<-done
		_ = l.Close()
		_ = child.Close()
	}()
	written, err := io.ReadAll(parent) // an Abort that still waits goes through
	require.NoError(t, err)
	return bytes.Contains(written, []byte("abort 1 "))
}
