package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tagmatch/tagmatch/bootstrap"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/internal/buffertest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// envRole makes this test binary a program for the ranks of a test.
const envRole = "LAUNCH_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		os.Exit(roles[role](os.Getenv("RANK")))
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // launchers of tests do not inherit that it is ignored
	testlevel.ManyWait()
	goleak.VerifyTestMain(m)
}

// roles are programs; they get their rank and return their exit code.
var roles = map[string]func(rank string) int{
	"env": func(string) int {
		for _, v := range []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"} {
			fmt.Printf("%s=%s\n", v, os.Getenv(v))
		}
		fmt.Printf("secret of %d digits, PMI_FD=%q\n", len(os.Getenv("TAGMATCH_SECRET")), os.Getenv("PMI_FD"))
		return 0
	},
	"lines": func(string) int {
		for i := range 200 {
			fmt.Print("line ")
			fmt.Fprint(os.Stderr, "err")
			fmt.Println(i, strings.Repeat("x", i))
			fmt.Fprintln(os.Stderr, "or", i)
		}
		fmt.Print("no newline")
		return 0
	},
	"survive": func(rank string) int { // until the launcher has said that rank 1 has failed
		if rank == "1" {
			return 6
		}
		for {
			if _, err := os.Stat(os.Getenv(envSaid)); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		fmt.Println("survived")
		return 0
	},
	"linger": func(rank string) int {
		b, err := bootstrap.Detect(context.Background(), bootstrap.Options{})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		if rank == "1" {
			<-b.Losses()
			return 5
		}
		b.Leave(false)
		_ = b.Close()
		time.Sleep(10 * time.Minute)
		return 0
	},
	"fail": func(rank string) int { // rank 1 fails, the others wait
		if rank == "1" {
			return 7
		}
		fmt.Printf("pid %d\n", os.Getpid())
		time.Sleep(10 * time.Minute)
		return 0
	},
	"panic": func(rank string) int {
		if rank == "0" {
			p, _ := os.FindProcess(os.Getpid())
			_ = p.Kill()
		}
		time.Sleep(10 * time.Minute)
		return 0
	},
	"stubborn": func(rank string) int {
		ignoreTerm()
		if rank == "1" {
			return 3
		}
		time.Sleep(10 * time.Minute)
		return 0
	},
	"exchange": exchange,
	"abort": func(rank string) int { // ends when it is told to, and once it has heard of the Abort
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		b, err := bootstrap.Detect(context.Background(), bootstrap.Options{})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		if rank == "1" {
			b.Abort(9, "out of paper")
		}
		info := <-b.Aborted()
		if rank != "1" {
			fmt.Printf("told: %+v\n", info)
		}
		<-term
		_ = b.Close()
		return 0
	},
	"stdin": func(rank string) int {
		b := make([]byte, 100)
		n, err := os.Stdin.Read(b)
		fmt.Printf("%s %v\n", b[:n], err)
		return 0
	},
	"wait": func(string) int {
		fmt.Printf("pid %d\n", os.Getpid())
		time.Sleep(10 * time.Minute)
		return 0
	},
	"procs": func(string) int {
		fmt.Println("GOMAXPROCS is", gomaxprocs())
		return 0
	},
	"nested": nested,
}

func exchange(string) int {
	ctx, cancel := context.WithTimeout(context.Background(), testlevel.Patience(10*time.Second))
	defer cancel()
	b, err := bootstrap.Detect(ctx, bootstrap.Options{})
	if err == nil {
		defer func() { _ = b.Close() }()
		err = b.Put(ctx, "k", []byte(strconv.Itoa(b.Rank()*b.Rank())))
	}
	if err == nil {
		err = b.Fence(ctx)
	}
	sum := 0
	for r := 0; err == nil && r < b.Size(); r++ {
		var v []byte
		v, err = b.Get(ctx, r, "k")
		n, _ := strconv.Atoi(string(v))
		sum += n
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Printf("sum %d secret %s fd %q\n", sum, b.Info().SecretOrigin, os.Getenv(bootstrap.EnvRendezvousFD))
	return 0
}

func gomaxprocs() int { return runtime.GOMAXPROCS(0) }

// play runs n ranks in a role.
func play(t *testing.T, n int, role string, change func(*Options)) (code int, out, errs string) {
	t.Helper()
	var o, e buffertest.Buffer
	opt := roleOptions(n, role, &o, &e)
	if change != nil {
		change(&opt)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testlevel.Patience(20*time.Second))
	defer cancel()
	code, err := Run(ctx, opt)
	require.NoError(t, err)
	return code, o.String(), e.String()
}

func roleOptions(n int, role string, out, errs *buffertest.Buffer) Options {
	// By default the race detector sleeps a second at exit.
	return Options{N: n, Command: []string{os.Args[0]}, Env: append(os.Environ(), envRole+"="+role, "GORACE=atexit_sleep_ms=0"),
		Stdout: out, Stderr: errs, Grace: 20 * time.Second}
}

func shortGrace(o *Options) { o.Grace = 300 * time.Millisecond }

func TestEnvironment(t *testing.T) {
	code, out, errs := play(t, 3, "env", func(o *Options) { o.Env = append(o.Env, "PMI_FD=5", "RANK=77") })
	require.Zero(t, code, errs)
	for r := range 3 {
		for _, want := range []string{"RANK=%d", "WORLD_SIZE=3", "LOCAL_RANK=%d", "LOCAL_WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1"} {
			require.Contains(t, out, fmt.Sprintf("[%d] %s\n", r, strings.ReplaceAll(want, "%d", fmt.Sprint(r))))
		}
	}
	require.Contains(t, out, "[2] secret of 64 digits, PMI_FD=\"\"\n")
}

// TestPassValue: a variable with a value takes the place of one in the environment.
func TestPassValue(t *testing.T) {
	code, out, errs := play(t, 1, "procs", func(o *Options) {
		o.Env, o.Pass = append(o.Env, "GOMAXPROCS=4"), []string{"GOMAXPROCS=3"}
	})
	require.Zero(t, code, errs)
	require.Equal(t, "[0] GOMAXPROCS is 3\n", out)
}

// TestShares: the ranks share the processors that the launcher uses, unless they are told.
func TestShares(t *testing.T) {
	defer runtime.GOMAXPROCS(gomaxprocs())
	runtime.SetDefaultGOMAXPROCS() // that of a rank which is told nothing
	all := gomaxprocs()
	runtime.GOMAXPROCS(7)
	t.Setenv("GOMAXPROCS", "")
	require.NoError(t, os.Unsetenv("GOMAXPROCS"))
	for _, c := range []struct {
		ranks int
		env   string
		pin   bool
		want  int
	}{
		{1, "", false, 7},
		{3, "", false, 2},
		{8, "", false, 1},
		{3, "", true, 1},
		{3, "GOMAXPROCS=5", true, 5},
		{3, "TAGMATCH_ASYNC=on", true, all},
		{3, "TAGMATCH_ASYNC=off", false, 2},
	} {
		code, out, errs := play(t, c.ranks, "procs", func(o *Options) { o.Env, o.Pin = append(o.Env, c.env), c.pin })
		require.Zero(t, code, errs)
		require.Equal(t, c.ranks, strings.Count(out, fmt.Sprintf("GOMAXPROCS is %d\n", c.want)), "%+v: %s", c, out)
	}
}

func TestLinesAreWhole(t *testing.T) {
	for _, plain := range []bool{false, true} {
		code, out, errs := play(t, 3, "lines", func(o *Options) { o.NoPrefix = plain })
		require.Zero(t, code)
		var want []string
		for r := range 3 {
			prefix := ""
			if !plain {
				prefix = fmt.Sprintf("[%d] ", r)
			}
			for i := range 200 {
				want = append(want, fmt.Sprintf("%sline %d %s", prefix, i, strings.Repeat("x", i)))
			}
			want = append(want, prefix+"no newline")
		}
		got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		slices.Sort(got)
		slices.Sort(want)
		require.Equal(t, want, got)
		require.Equal(t, 600, strings.Count(errs, "error "))
		require.Equal(t, 600, strings.Count(errs, "\n"))
	}
}

func TestLongLineIsCut(t *testing.T) {
	var out bytes.Buffer
	l := &lineWriter{mu: new(sync.Mutex), w: &out, prefix: "[0] "}
	for range 3 {
		n, err := l.Write(bytes.Repeat([]byte("x"), maxLine))
		require.NoError(t, err)
		require.Equal(t, maxLine, n)
	}
	require.NoError(t, l.flush())
	require.Equal(t, 2, bytes.Count(out.Bytes(), []byte("\n")))
	require.LessOrEqual(t, cap(l.buf), 3*maxLine)
}

func TestFailureEndsTheRest(t *testing.T) {
	code, out, errs := play(t, 3, "fail", nil) // which bounds the time
	require.Equal(t, 7, code)
	require.Contains(t, errs, "tagmatch: rank 1 exited with code 7\n")
	requireGone(t, pids(out))
}

const envSaid = "LAUNCH_TEST_SAID"

// saying is an output that makes a file once something was written.
type saying struct {
	path string
	buffertest.Buffer
}

func (s *saying) Write(b []byte) (int, error) {
	n, err := s.Buffer.Write(b)
	return n, errors.Join(err, os.WriteFile(s.path, nil, 0o600))
}

// TestKeepGoing: a rank that fails does not end the others; an Abort does.
func TestKeepGoing(t *testing.T) {
	t.Parallel()
	keep := func(o *Options) { o.KeepGoing = true }
	var said saying
	code, out, _ := play(t, 3, "survive", func(o *Options) {
		keep(o)
		said.path, o.Stderr = filepath.Join(t.TempDir(), "said"), &said
		o.Env = append(o.Env, envSaid+"="+said.path)
	})
	require.Equal(t, 6, code)
	require.Equal(t, 2, strings.Count(out, "survived\n"), out)
	require.Equal(t, "tagmatch: rank 1 exited with code 6\ntagmatch: rank 1 failed, 2 of 3 ended well\n", said.String())
	code, _, errs := play(t, 3, "abort", keep)
	require.Equal(t, 9, code)
	require.Equal(t, "tagmatch: rank 1 aborted the job with code 9: out of paper\n", errs, "and nothing of those that it ends")
}

// TestLingersAfterClose: a rank that has left the job, and goes on, is not waited for for ever when
// another fails, nor blamed for being ended.
func TestLingersAfterClose(t *testing.T) {
	code, _, errs := play(t, 2, "linger", shortGrace)
	require.Equal(t, 5, code)
	require.Contains(t, errs, "tagmatch: rank 0 left the job without a complete Shutdown; rank 1 exited with code 5\n")
}

func TestSignalledRank(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	code, _, errs := play(t, 2, "panic", nil)
	require.Equal(t, 128+9, code)
	require.Contains(t, errs, "rank 0 was killed by a signal: killed")
}

func TestKillAfterGrace(t *testing.T) {
	t.Parallel()
	code, _, _ := play(t, 2, "stubborn", shortGrace)
	require.Equal(t, 3, code)
}

func TestExchange(t *testing.T) {
	code, out, errs := play(t, 4, "exchange", nil)
	require.Zero(t, code, "%s%s", out, errs)
	require.Equal(t, 4, strings.Count(out, "] sum 14 secret TAGMATCH_SECRET fd \"\"\n"), out)
}

func TestAbort(t *testing.T) {
	t.Parallel()
	code, out, errs := play(t, 3, "abort", nil)
	require.Equal(t, 9, code)
	require.Contains(t, errs, "tagmatch: rank 1 aborted the job with code 9: out of paper\n")
	require.Equal(t, 2, strings.Count(out, "told: {Rank:1 Code:9 Reason:out of paper}"), out)
}

func TestStdinGoesToRankZero(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = r.Close() }()
	_, err = w.WriteString("hello")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	code, out, _ := play(t, 2, "stdin", func(o *Options) { o.Stdin = r })
	require.Zero(t, code)
	require.Contains(t, out, "[0] hello <nil>\n")
	require.Contains(t, out, "[1]  EOF\n")
}

func TestCancel(t *testing.T) {
	var o, e buffertest.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), testlevel.Patience(20*time.Second))
	defer cancel()
	go func() { // the ranks are there
		for ctx.Err() == nil && len(pids(o.String())) < 2 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	code, err := Run(ctx, roleOptions(2, "wait", &o, &e))
	require.ErrorIs(t, err, context.Canceled)
	require.NotZero(t, code)
	requireGone(t, pids(o.String()))
}

func TestCannotStart(t *testing.T) {
	tests := []struct {
		opt  Options
		want string
	}{
		{Options{N: 2, Command: []string{"/nonexistent/program"}}, "rank 0: fork/exec /nonexistent/program: no such file"},
		{Options{N: 2, Command: []string{"no-such-program-anywhere"}}, "executable file not found"},
		{Options{N: 0, Command: []string{"x"}}, "0 ranks: give a number from 1 to 4096"},
		{Options{N: 5000, Command: []string{"x"}}, "5000 ranks"},
		{Options{N: 2}, "no command"},
		{Options{N: 2, Command: []string{"x"}, Grace: -1}, "grace period of -1ns"},
		{Options{N: 2, Command: []string{"x"}, Pass: []string{"NOSUCH"}, Env: []string{"NOSUCHER=1"}}, "variable NOSUCH to pass: it is not set here"},
		{Options{N: 2, Command: []string{"x"}, Pass: []string{"RANK=1"}}, "RANK to pass: the launcher sets or removes it"},
		{Options{N: 2, Command: []string{"x"}, Pass: []string{"=1"}}, `variable "=1" to pass: a name`},
		{Options{N: 2, Command: []string{"x"}, Pass: []string{"1A=1"}}, `variable "1A=1" to pass: a name`},
	}
	for i, tt := range tests {
		code, err := Run(context.Background(), tt.opt)
		require.ErrorContains(t, err, tt.want)
		want := 2 // the Options are wrong
		if i < 2 {
			want = 1
		}
		require.Equal(t, want, code, "%v", err)
	}
}

// pids finds the "pid N" lines of ranks.
func pids(out string) []int {
	var list []int
	for line := range strings.Lines(out) {
		if _, s, ok := strings.Cut(line, "pid "); ok {
			if n, err := strconv.Atoi(strings.TrimSpace(s)); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}
