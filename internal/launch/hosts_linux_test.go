package launch

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/cpus"
	"github.com/tagmatch/tagmatch/internal/ports/portstest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

func TestParseHosts(t *testing.T) {
	got, err := ParseHosts("a:2,b,[fe80::1]:3,[fe80::2],10.0.0.1:4,me@a:5,me@[fe80::1]:6,me@[fe80::1%eth0],me@w@a")
	require.NoError(t, err)
	require.Equal(t, []Host{{"a", 2}, {"b", 1}, {"fe80::1", 3}, {"fe80::2", 1}, {"10.0.0.1", 4},
		{"me@a", 5}, {"me@fe80::1", 6}, {"me@fe80::1%eth0", 1}, {"me@w@a", 1}}, got)
	for list, want := range map[string]string{
		"": "is no name of a host", "a:0": "from 1 to 4096", "a:x": "from 1 to 4096", "a,,b": "is no name", "-oProxyCommand=x": "is no name", "a b": "is no name", "$(x)": "is no name",
		"fe80::1": "put an IPv6 address in brackets", "me@fe80::1:2": "put an IPv6 address in brackets", "[]": "is no name", "me@": "is no name",
		"[fe80::1": "in brackets", "fe80]": "is no name", "n[1-4]:2": "is no name", "[a]2": "is no name", "a:": "from 1 to 4096",
	} {
		_, err := ParseHosts(list)
		require.ErrorContains(t, err, want, list)
	}
}

func TestPlace(t *testing.T) {
	got, err := place([]Host{{"a", 2}, {"b", 3}}, 4)
	require.NoError(t, err)
	require.Equal(t, []placed{{"a", 0, 2}, {"a", 1, 2}, {"b", 0, 2}, {"b", 1, 2}}, got)
	_, err = place([]Host{{"a", 2}, {"b", 3}}, 6)
	require.ErrorContains(t, err, "6 ranks on hosts with 5 slots")
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		_, err = place([]Host{{name, 2}, {"b", 3}}, 4)
		require.ErrorContains(t, err, "name it as the others reach it")
		_, err = place([]Host{{name, 2}, {"b", 3}}, 2)
		require.NoError(t, err)
	}
}

// remoteJob runs a script as ranks on hosts that are all this one.
func remoteJob(t *testing.T, ctx context.Context, opt Options, script string) (code int, out string) {
	t.Helper()
	return remoteJobBy(t, ctx, "", opt, script)
}

// remoteJobBy is remoteJob with a command in front of the shell.
func remoteJobBy(t *testing.T, ctx context.Context, front string, opt Options, script string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	opt.Agent, opt.Command, opt.Stdout, opt.Stderr = []string{fakeSSH(t, front)}, []string{"sh", "-c", script, "it's", "a \"$HOME\" b"}, &b, &b
	if opt.Hosts == nil {
		opt.Hosts = []Host{{"here", 2}, {"there", 1}}
	}
	code, err := Run(ctx, opt)
	if ctx.Err() == nil {
		require.NoError(t, err, b.String())
	}
	return code, b.String()
}

func TestRemoteEnvironment(t *testing.T) {
	env := append(os.Environ(), "TAGMATCH_DEVICE=it's tcp", "MINE=1", "OTHER=2", "RANK=77", "GOGC=50")
	code, out := remoteJob(t, t.Context(), Options{N: 3, Env: env, Pass: []string{"MINE"}, NoPrefix: true},
		`echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR dev=$TAGMATCH_DEVICE mine=$MINE other=$OTHER gc=$GOGC $0 $1 $TAGMATCH_SECRET $TAGMATCH_BOOTSTRAP"`)
	require.Zero(t, code, out)
	for _, want := range []string{"0/3 0/2 ", "1/3 1/2 ", "2/3 0/1 "} {
		require.Regexp(t, `(?m)^`+want+`here dev=it's tcp mine=1 other= gc=50 it's a "\$HOME" b [0-9a-f]{64} env$`, out)
	}
	require.Len(t, regexp.MustCompile(`[0-9a-f]{64}`).FindAllString(out, -1), 3)
}

func TestRemoteValue(t *testing.T) {
	env := append(os.Environ(), "MINE=1", "GOGC=50")
	agent := `sh -c 'echo agent $MINE; exec "$@"' sh `
	code, out := remoteJobBy(t, t.Context(), agent, Options{N: 1, Env: env, Pass: []string{"MINE=it's 2", "GOGC=60", "MORE="}, NoPrefix: true},
		`echo "$MINE $GOGC ${MORE-unset}"`)
	require.Zero(t, code, out)
	require.Equal(t, "agent 1\nit's 2 60 \n", out)
}

// TestRemoteScripts: whatever part of its script the shell has read when it starts the rank, all of
// it runs.
func TestRemoteScripts(t *testing.T) {
	for n := 7400; n < 8400; n += 37 {
		ctx, cancel := context.WithTimeout(t.Context(), testlevel.Patience(20*time.Second))
		env := append(os.Environ(), "PADDING="+strings.Repeat("x", n))
		code, out := remoteJob(t, ctx, Options{N: 1, Env: env, Pass: []string{"PADDING"}, NoPrefix: true}, `echo ${#PADDING}`)
		require.NoError(t, ctx.Err(), "%d bytes", n)
		cancel()
		require.Zero(t, code, out)
		require.Equal(t, strconv.Itoa(n)+"\n", out)
	}
}

// TestRemotePorts: the rendezvous of a job on other hosts takes a port of the range there, and the
// launcher none here.
func TestRemotePorts(t *testing.T) {
	within := portstest.Free(t, 1)
	ln, err := within.Listen(t.Context(), "127.0.0.1")
	require.NoError(t, err)
	defer ln.Close()
	code, out := remoteJob(t, t.Context(), Options{N: 2, Env: append(os.Environ(), "TAGMATCH_PORTS="+within.String()), NoPrefix: true}, `echo $MASTER_PORT`)
	require.Zero(t, code, out)
	require.Equal(t, strings.Repeat(strconv.Itoa(within[0])+"\n", 2), out)
}

// TestRemoteBind: the ranks share the processors that the other host gives them.
func TestRemoteBind(t *testing.T) {
	list, err := cpus.Allowed()
	if err != nil {
		t.Skip(err)
	}
	last := strconv.Itoa(list[len(list)-1])
	for _, agent := range []string{"", "taskset -c " + last + " "} {
		opt := Options{N: 3, Bind: true, NoPrefix: true, Hosts: []Host{{"root@here", 3}}}
		code, out := remoteJobBy(t, t.Context(), agent, opt, `sed -n "s/^Cpus_allowed_list:/$RANK $MASTER_ADDR/p" /proc/self/status`)
		require.Zero(t, code, out)
		for r := range 3 {
			want := strconv.Itoa(list[r%len(list)])
			if agent != "" {
				want = last
			}
			require.Regexp(t, `(?m)^`+strconv.Itoa(r)+` here\s+`+want+`$`, out)
		}
	}
}

// TestRemoteDir: a relative directory is one of the launcher's.
func TestRemoteDir(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("sub", 0o700))
	code, out := remoteJob(t, t.Context(), Options{N: 1, Dir: "sub", NoPrefix: true}, `basename $(pwd)`)
	require.Zero(t, code, out)
	require.Equal(t, "sub\n", out)
}

func TestRemoteExitCode(t *testing.T) {
	code, out := remoteJob(t, t.Context(), Options{N: 3, Grace: time.Second}, `[ $RANK = 2 ] && exit 9; exec sleep 30`)
	require.Equal(t, 9, code, out)
	require.Contains(t, out, "tagmatch: rank 2 on there exited with code 9")
}

// TestRemoteKeepGoing: the exit code shows that a rank on another host was lost.
func TestRemoteKeepGoing(t *testing.T) {
	for end, want := range map[string]int{"kill -s KILL $$": 0, "exit 255": 0, "exit 9": 9} {
		code, out := remoteJob(t, t.Context(), Options{N: 3, KeepGoing: true}, `[ $RANK = 2 ] || exit 0; `+end)
		require.Equal(t, want, code, out)
		require.Regexp(t, `tagmatch: rank 2 on there exited with code .*\ntagmatch: rank 2 on there (lost|failed), 2 of 3 ended well\n$`, out)
	}
}

// TestRemoteCanceled: the ranks end with the launcher, also those of an agent that was killed.
func TestRemoteCanceled(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	ctx, cancel := context.WithTimeout(t.Context(), testlevel.Patience(20*time.Second))
	defer cancel()
	go func() { // cancels once all ranks run
		for ctx.Err() == nil {
			if marks, _ := os.ReadFile(mark); len(pids(string(marks))) == 3 {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	code, out := remoteJob(t, ctx, Options{N: 3, Grace: 200 * time.Millisecond}, `echo pid $$ >>`+mark+`; exec sleep 600`)
	require.NotZero(t, code, out)
	marks, err := os.ReadFile(mark)
	require.NoError(t, err)
	require.Len(t, pids(string(marks)), 3)
	requireGone(t, pids(string(marks)))
}

func TestBind(t *testing.T) {
	list, err := cpus.Allowed()
	if err != nil {
		t.Skip(err)
	}
	var b bytes.Buffer
	code, err := Run(t.Context(), Options{N: 3, Bind: true, Command: []string{"sh", "-c", `grep Cpus_allowed_list /proc/self/status`}, Stdout: &b, Stderr: &b})
	require.NoError(t, err)
	require.Zero(t, code, b.String())
	for r := range 3 {
		require.Regexp(t, `(?m)^\[`+strconv.Itoa(r)+`\] Cpus_allowed_list:\s+`+strconv.Itoa(list[r%len(list)])+`$`, b.String())
	}
	now, err := cpus.Allowed()
	require.NoError(t, err)
	require.Equal(t, list, now)
	_, err = Run(t.Context(), Options{N: 1, Bind: true, Pin: true, Command: []string{"true"}})
	require.ErrorContains(t, err, "use Bind")
}

// TestRemoteLeftovers: what a rank leaves running ends with it, as on this host, also in a group of
// its own, which timeout(1) makes.
func TestRemoteLeftovers(t *testing.T) {
	for _, what := range []string{"sleep 600", "timeout 600 sleep 600"} {
		mark := filepath.Join(t.TempDir(), "mark")
		code, out := remoteJob(t, t.Context(), Options{N: 1}, what+` >/dev/null 2>&1 & echo pid $! >`+mark+`; kill -s KILL $$`)
		require.Equal(t, 128+9, code, out)
		pid, err := os.ReadFile(mark)
		require.NoError(t, err)
		require.Len(t, pids(string(pid)), 1)
		requireGone(t, pids(string(pid)))
	}
}

// TestRemoteNames: variables whose names no shell takes stay here.
func TestRemoteNames(t *testing.T) {
	env := append(os.Environ(), "GO.X=1", "GO;touch=x", "GOGC=50")
	code, out := remoteJob(t, t.Context(), Options{N: 1, Env: env, NoPrefix: true}, `echo $GOGC`)
	require.Zero(t, code, out)
	require.Equal(t, "50\n", out)
}
