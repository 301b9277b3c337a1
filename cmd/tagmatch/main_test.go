package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// envChild makes this test binary the program tagmatch, for tests of real exit codes.
const envChild = "TAGMATCH_TEST_CHILD"

func TestMain(m *testing.M) {
	if address := os.Getenv(envMoves); address != "" {
		if err := moves(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if s := os.Getenv(envChild); s != "" {
		fmt.Println("rank", os.Getenv("RANK"), strings.Join(os.Args[1:], " "))
		if s == "fail" {
			os.Exit(5)
		}
		os.Exit(0)
	}
	testlevel.ManyWait()
	goleak.VerifyTestMain(m)
}

func command(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = execute(args, nil, &o, &e)
	return code, o.String(), e.String()
}

func TestRun(t *testing.T) {
	t.Setenv(envChild, "ok")
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	code, out, errs := command("run", "-n", "2", "--", os.Args[0], "-n", "x", "--pin")
	require.Zero(t, code, errs)
	require.ElementsMatch(t, []string{"[0] rank 0 -n x --pin", "[1] rank 1 -n x --pin"}, strings.Split(strings.TrimSpace(out), "\n"))
	code, out, _ = command("run", "-n1", "--no-prefix", os.Args[0], "-json")
	require.Zero(t, code)
	require.Equal(t, "rank 0 -json\n", out)

	t.Setenv(envChild, "fail")
	code, _, errs = command("run", "-n", "1", os.Args[0])
	require.Equal(t, 5, code)
	require.Equal(t, "tagmatch: rank 0 exited with code 5\n", errs)
}

// TestNoGrace: a rank that ignores SIGTERM is killed long before it ends by itself.
func TestNoGrace(t *testing.T) {
	script := `[ $RANK = 0 ] && exit 3; trap "" TERM; sleep 3; echo late`
	code, out, errs := command("run", "-n", "2", "--grace", "0", "--", "sh", "-c", script)
	require.Equal(t, 3, code, errs)
	require.Empty(t, out)
}

func TestUsage(t *testing.T) {
	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"run"}, exitUsage, "the number of ranks and the program are missing: type tagmatch run -n 4 ./program\nRun 'tagmatch run -h' for usage.\n"},
		{[]string{"run", "prog"}, exitUsage, "the number of ranks is missing in front of the program: type tagmatch run -n 4 prog\n"},
		{[]string{"run", "8", "prog"}, exitUsage, "the number of ranks is missing in front of the program: type tagmatch run -n 8 prog\n"},
		{[]string{"run", "prog", "-n", "2"}, exitUsage, "the number of ranks is missing in front of the program: type"},
		{[]string{"run", "-n", "2"}, exitUsage, "the program is missing: type tagmatch run -n 2 ./program\n"},
		{[]string{"run", "-np", "2", "prog"}, exitUsage, "tagmatch: -np is -n here: type tagmatch run -n 4 ./program\n"},
		{[]string{"run", "--np", "2", "prog"}, exitUsage, "tagmatch: -np is -n here: type tagmatch run -n 4 ./program\n"},
		{[]string{"run", "-n", "two", "prog"}, exitUsage, "tagmatch: -n two: give the number of ranks: type tagmatch run -n 4 ./program\n"},
		{[]string{"run", "--no-such", "prog"}, exitUsage, "tagmatch: tagmatch run has no flag --no-such: tagmatch run -h lists those that it has\n"},
		{[]string{"trace", "-q"}, exitUsage, "tagmatch: tagmatch trace has no flag -q: tagmatch trace -h lists"},
		{[]string{"trace", "--for", "soon"}, exitUsage, "tagmatch: --for soon: it cannot be that: type for example --for 5s\n"},
		{[]string{"dump", "--rank", "x"}, exitUsage, "tagmatch: --rank x: it cannot be that: type for example --rank 0\n"},
		{[]string{"dump", "--json=x"}, exitUsage, "tagmatch: --json x: it cannot be that: type for example --json\n"},
		{[]string{"run", "--hosts"}, exitUsage, "tagmatch: --hosts: its value is missing: hosts to run on"},
		{[]string{"run", "-n"}, exitUsage, "tagmatch: -n: its value is missing: number of ranks (required)\n"},
		{[]string{"completion"}, exitUsage, "name one shell: tagmatch completion bash, zsh, fish or powershell\nRun 'tagmatch completion -h' for usage.\n"},
		{[]string{"completion", "tcsh"}, exitUsage, `unknown command "tcsh" for "tagmatch completion"`},
		{[]string{"help", "man"}, exitUsage, "name one directory: tagmatch help man DIR\nRun 'tagmatch help man -h' for usage.\n"},
		{[]string{"help", "man", "/dev/null/man"}, exitFailed, "/dev/null: not a directory"},
		{[]string{"version", "more"}, exitUsage, "tagmatch version takes no arguments: leave out more\n"},
		{[]string{"ps", "a", "b"}, exitUsage, "tagmatch ps takes no arguments: leave out a b\n"},
		{[]string{"top", "a", "b"}, exitUsage, "tagmatch top takes one job: leave out b\n"},
		{[]string{"metrics", "--listen", "9400"}, exitFailed, "--listen 9400: listen tcp: address 9400: missing port in address: give an address that is free, such as :9400\n"},
		{[]string{"run", "-n", "0", "prog"}, exitUsage, "0 ranks: give a number from 1"},
		{[]string{"run", "-n", "1", "/nonexistent"}, exitFailed, "no such file"},
		{[]string{"run", "-n", "1", "--grace", "-1s", "prog"}, exitUsage, "grace period of -1s: give no less than 0"},
		{[]string{"run", "-n", "1", "-x", "NOSUCH", "prog"}, exitUsage, "NOSUCH=value sets it"},
		{[]string{"run", "-n", "1", "--pin", "--hosts", "a:2", "prog"}, exitUsage, "--bind-to core binds them"},
		{[]string{"run", "-n", "1", "--pin", "--bind-to", "core", "prog"}, exitUsage, "--bind-to core binds them"},
		{[]string{"sing"}, exitUsage, `unknown command "sing"`},
		{[]string{"info", "more"}, exitUsage, "leave out more\n"},
	}
	for _, tt := range tests {
		code, _, errs := command(tt.args...)
		require.Equal(t, tt.code, code, "%v: %s", tt.args, errs)
		require.Contains(t, errs, tt.want)
	}
	for _, args := range [][]string{{"-h"}, {"run", "-h"}, {"info", "-h"}, {"version", "-h"}, {"completion", "-h"}} {
		code, out, _ := command(args...)
		require.Zero(t, code)
		require.Contains(t, out, "Usage:")
	}
}

// TestVersion: the commit is that of the build, with a word where files were changed since.
func TestVersion(t *testing.T) {
	want := "tagmatch " + readStamp().String() + "\n"
	for _, args := range [][]string{{"version"}, {"--version"}} {
		code, out, errs := command(args...)
		require.Zero(t, code, errs)
		require.Equal(t, want, out)
		require.Contains(t, out, platform())
	}
	built := func(settings ...debug.BuildSetting) string {
		s := stampOf(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: settings})
		return s.version + " " + s.commit
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "e3ad84e0"}
	require.Equal(t, "v1.2.3 not recorded", built())
	require.Equal(t, "v1.2.3 e3ad84e0", built(revision, debug.BuildSetting{Key: "vcs.modified", Value: "false"}))
	require.Equal(t, "v1.2.3 e3ad84e0 with changes", built(revision, debug.BuildSetting{Key: "vcs.modified", Value: "true"}))
}

// TestCompletion: the scripts ask tagmatch itself what it takes.
func TestCompletion(t *testing.T) {
	for shell, want := range map[string]string{"bash": "__start_tagmatch", "zsh": "#compdef tagmatch", "fish": "complete -c tagmatch"} {
		code, out, errs := command("completion", shell)
		require.Zero(t, code, errs)
		require.Contains(t, out, want)
		require.Contains(t, out, "__complete")
	}
	for typed, want := range map[string]string{"run --bind-to ": "core\nnone\n:4\n", "completion ": "\nzsh\t", "run --keep-": "--keep-going\t", "ver": "version\t"} {
		_, out, _ := command(append([]string{"__complete"}, strings.Split(typed, " ")...)...)
		require.Contains(t, out, want, typed)
	}
}

// TestMan: each command has a manual page.
func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	code, out, errs := command("help", "man", dir)
	require.Zero(t, code, errs)
	require.Empty(t, out)
	for _, c := range newRoot(nil).Commands() {
		if c.Name() == "help" {
			continue
		}
		page, err := os.ReadFile(filepath.Join(dir, "tagmatch-"+c.Name()+".1"))
		require.NoError(t, err)
		require.Contains(t, string(page), "tagmatch-"+c.Name()+" - "+c.Short)
	}
	code, out, _ = command("help", "run")
	require.Zero(t, code)
	require.Contains(t, out, "Exit code: 0 if all ranks exited with 0")
}

func TestInfo(t *testing.T) {
	for _, v := range []string{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TAGMATCH_BOOTSTRAP"} {
		t.Setenv(v, "")
	}
	secret := strings.Repeat("ab", 32)
	t.Setenv("TAGMATCH_SECRET", secret)
	code, out, errs := command("info")
	require.Zero(t, code, errs)
	require.Contains(t, out, "singleton")
	require.NotContains(t, out, secret)
	require.Regexp(t, `job secret +32 bytes, not shown +\(TAGMATCH_SECRET\)`, out)
	require.Regexp(t, `longest message +any that the memory of its sender and its receiver\s+holds`, out)
	require.Regexp(t, `most bytes at a time +2147483648\n +\(a longer message is read piece by piece\)\n`, out)
	for line := range strings.Lines(out) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), columns+1, line)
	}
	t.Setenv("TAGMATCH_SECRET_FILE", secret) // misplaced
	_, out, _ = command("info")
	require.NotContains(t, out, secret)
	require.Regexp(t, `JoinTimeout +5m0s +\(default; TAGMATCH_JOIN_TIMEOUT\)`, out)

	for _, flag := range []string{"-json", "--json"} {
		code, out, _ = command("info", flag)
		require.Zero(t, code)
		sections := map[string]int{}
		for line := range strings.Lines(out) {
			var r row
			require.NoError(t, json.Unmarshal([]byte(line), &r), line)
			require.NotEmpty(t, r.Name)
			sections[r.Section]++
		}
		for _, s := range []string{"build", "host", "launcher", "launcher variables", "device auto", "device shm", "device tcp", "configuration"} {
			require.NotZero(t, sections[s], s)
		}
	}
}

func TestInfoOfLaunchers(t *testing.T) {
	t.Setenv("PMI_RANK", "1")
	t.Setenv("PMI_SIZE", "4")
	code, out, errs := command("info")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "rank 1 of 4 by mpiexec")
	require.Regexp(t, `(?s)launcher +none: .*its\s+PMI_FD\s+is\s+no\s+open\s+socket`, out)
	t.Setenv("TAGMATCH_BOOTSTRAP", "singleton")
	code, out, errs = command("info")
	require.Zero(t, code, errs)
	require.Regexp(t, `launcher +singleton +\(TAGMATCH_BOOTSTRAP\)`, out)
	t.Setenv("TAGMATCH_BOOTSTRAP", "")
	t.Setenv("OMPI_COMM_WORLD_RANK", "1")
	t.Setenv("OMPI_COMM_WORLD_SIZE", "2")
	t.Setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
	t.Setenv("PMIX_NAMESPACE", "1489305601")
	t.Setenv("JOB_COMPLETION_INDEX", "3")
	code, out, errs = command("info")
	require.Zero(t, code, errs)
	require.Regexp(t, `launcher +openmpi +\(environment\)`, out)
	require.Regexp(t, `in the environment +openmpi, kubernetes\s+\(the first is taken`, out)
	require.Regexp(t, `rendezvous +published by rank 0\s+\(directory\s+/`, out)
	t.Setenv("TAGMATCH_BOOTSTRP", "singleton")
	code, out, errs = command("info")
	require.Equal(t, exitFailed, code)
	require.Regexp(t, `did\s+you\s+mean\s+TAGMATCH_BOOTSTRAP\?`, out)
	require.Contains(t, errs, "did you mean TAGMATCH_BOOTSTRAP?")
}

func TestInfoWithWrongSettings(t *testing.T) {
	t.Setenv("RANK", "3")
	code, out, errs := command("info")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "RANK set but not WORLD_SIZE, MASTER_ADDR, MASTER_PORT")
	require.Contains(t, out, "GOMAXPROCS")
}
