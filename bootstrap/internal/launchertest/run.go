//go:build linux && launchers

package launchertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Result is what a job has printed, both streams, and its exit code.
type Result struct {
	Out  string
	Code int
}

// tries is how often Run starts one command.
const tries = 10

// Run starts a command with additional variables and waits for it, for a minute at most. It starts
// the command again where mpirun of Open MPI 4.1 does not survive its own end: while it finalizes
// its PMIx server, another of its threads still uses what is freed there. It then crashes, or waits
// for ever with all ranks gone: on a busy machine at times in most aborted jobs.
func Run(t *testing.T, env []string, command ...string) Result {
	t.Helper()
	for try := 1; ; try++ {
		r, err := start(env, command)
		switch {
		case try < tries && (errors.Is(err, errStuck) || strings.Contains(r.Out, "PMIx_server_finalize")):
			t.Logf("again: %s: %v, exit code %d", command, err, r.Code)
		default:
			require.NoError(t, err, "%s: %s", command, r.Out)
			return r
		}
	}
}

// errStuck tells that only Open MPI's own processes were left of a job that did not end.
var errStuck = errors.New("the ranks have ended, mpirun has not")

func start(env, command []string) (Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(clean(os.Environ()), env...)
	cmd.WaitDelay = time.Second
	late := context.DeadlineExceeded
	cmd.Cancel = func() error {
		if endStuck(cmd.Process.Pid) {
			late = errStuck
		}
		return cmd.Process.Kill()
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	if ctx.Err() != nil {
		err = late
	}
	return Result{string(out), cmd.ProcessState.ExitCode()}, err
}

// endStuck kills the daemons below mpirun and reports true, if nothing else below it is alive.
func endStuck(mpirun int) bool {
	if name, alive := process(mpirun); !alive || name != "mpirun.openmpi" {
		return false
	}
	var daemons []int
	for below := children(mpirun); len(below) > 0; below = below[1:] {
		name, alive := process(below[0])
		if alive && name != "sh" && !strings.HasPrefix(name, "orted") {
			return false
		}
		daemons = append(daemons, below[0])
		below = append(below, children(below[0])...)
	}
	for _, pid := range daemons {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return true
}

// process tells the name of a process, and that it has not ended.
func process(pid int) (name string, alive bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	_, rest, _ := strings.Cut(string(b), "(")
	name, state, _ := strings.Cut(rest, ") ")
	return name, !strings.HasPrefix(state, "Z")
}

func children(pid int) (list []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}

// clean drops what this process may have of another job.
func clean(env []string) (list []string) {
	for _, v := range env {
		if !strings.HasPrefix(v, "TAGMATCH_") {
			list = append(list, v)
		}
	}
	return list
}

// TwoHosts is mpirun with a daemon for each of two hosts, which are both this one: what stands in
// for ssh runs the command here, whatever host it is for.
func TwoHosts(t *testing.T) []string {
	t.Helper()
	ssh := filepath.Join(t.TempDir(), "agent.sh")
	const agent = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nshift\nexec sh -c \"$*\"\n"
	require.NoError(t, os.WriteFile(ssh, []byte(agent), 0o700))
	return append(strings.Fields(OpenMPI), "--mca", "plm_rsh_agent", ssh, "--mca", "plm_rsh_no_tree_spawn", "1",
		"--mca", "oob_tcp_if_include", "lo", "--host", "fakea:2,fakeb:2")
}

// OpenMPI starts ranks as Open MPI's own mpirun does.
const OpenMPI = "mpirun.openmpi --allow-run-as-root --oversubscribe"
