//go:build linux && launchers

package launchertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/tcpstore/tcpstoretest"
	"github.com/tagmatch/tagmatch/internal/ports/portstest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// byHand starts n processes of a program with the variables that a launcher would give them, which
// this test plays, and ends the others when one fails.
func byHand(t *testing.T, n int, env func(rank int) []string, program string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testlevel.Patience(time.Minute))
	defer cancel()
	var out output
	codes := make([]int, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, program, args...)
			cmd.Env = append(clean(os.Environ()), env(r)...)
			cmd.Stdout, cmd.Stderr = &out, &out
			_ = cmd.Run()
			codes[r] = cmd.ProcessState.ExitCode()
		})
	}
	wg.Wait()
	require.NoError(t, ctx.Err(), out.b.String())
	code := 0
	for _, c := range codes {
		if c != 0 {
			code = c
		}
	}
	return Result{out.b.String(), code}
}

// TestEnvironments has the pingpong example and four ranks meet in environments whose launchers are
// not here: torchrun of PyTorch 2 and its agent's store, an Indexed Job of Kubernetes, a directory
// that is named by hand.
func TestEnvironments(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	program, err := pingpong()
	require.NoError(t, err)
	for _, e := range []struct {
		name string
		env  func(t *testing.T) func(rank, n int) []string
	}{
		{"torchrun 2", agentEnv(false)},
		{"torchrun 1", agentEnv(true)},
		{"kubernetes", func(t *testing.T) func(rank, n int) []string {
			port := strconv.Itoa(portstest.Free(t, 1)[0])
			return func(rank, n int) []string {
				return []string{fmt.Sprint("JOB_COMPLETION_INDEX=", rank), fmt.Sprint("WORLD_SIZE=", n), "MASTER_ADDR=localhost", "MASTER_PORT=" + port}
			}
		}},
		{"file", func(t *testing.T) func(rank, n int) []string {
			dir := t.TempDir() + "/shared"
			return func(rank, n int) []string {
				return []string{fmt.Sprint("RANK=", rank), fmt.Sprint("WORLD_SIZE=", n), "TAGMATCH_STORE=" + dir, "TAGMATCH_JOB_ID=" + t.Name()}
			}
		}},
	} {
		t.Run(e.name, func(t *testing.T) {
			for _, part := range []struct {
				name, role string
				n          int
			}{{"pingpong", "", 2}, {"exchange", "exchange", 4}, {"abort", "abort", 4}, {"killed", "killed", 4}} {
				t.Run(part.name, func(t *testing.T) {
					env := e.env(t)
					with := func(rank int) []string { return append(env(rank, part.n), roleVar+"="+part.role) }
					switch part.name {
					case "pingpong":
						r := byHand(t, 2, with, program, "-sizes", "8,65536", "-iters", "100", "-check")
						require.Zero(t, r.Code, r.Out)
						require.Contains(t, r.Out, " 65536 bytes ", r.Out)
					case "exchange":
						requireWell(t, byHand(t, 4, with, self), 4)
					default:
						r := byHand(t, 4, with, self)
						require.NotZero(t, r.Code, r.Out)
						require.NotContains(t, r.Out, ": well")
					}
				})
			}
		})
	}
}

// agentEnv is torchrun's environment, with a store in place of its agent's.
func agentEnv(old bool) func(t *testing.T) func(rank, n int) []string {
	return func(t *testing.T) func(rank, n int) []string {
		agent, err := tcpstoretest.Start("127.0.0.1:0", old)
		require.NoError(t, err)
		t.Cleanup(func() {
			require.Empty(t, agent.Keys(), "rank 0 removes its key when all have joined")
			agent.Close()
		})
		port := agent.Addr()[len("127.0.0.1:"):]
		return func(rank, n int) []string {
			r, size := strconv.Itoa(rank), strconv.Itoa(n)
			return []string{"RANK=" + r, "WORLD_SIZE=" + size, "LOCAL_RANK=" + r, "LOCAL_WORLD_SIZE=" + size, "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
				"TORCHELASTIC_RUN_ID=x", "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_USE_AGENT_STORE=True"}
		}
	}
}
