//go:build linux && launchers

package launchertest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/tcpstore/tcpstoretest"
)

// TestTorchrun starts ranks by PyTorch's torchrun, which in one of its modes has a store at the
// address that it gives for rank 0.
func TestTorchrun(t *testing.T) {
	t.Parallel() // its agents look for ended ranks every five seconds
	for name, args := range map[string][]string{
		"standalone": {"--standalone"},
		"static":     {"--master_addr=127.0.0.1", "--master_port=" + freePort(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := append([]string{"/usr/bin/python3", "/usr/bin/torchrun"}, args...)
			command = append(command, "--nproc_per_node=4", "-r", "1", "-t", "1", "--no_python")
			r := play(t, "exchange", nil, command...)
			require.Zero(t, r.code, r.out)
			for rank := range 4 {
				require.Contains(t, r.out, fmt.Sprintf("rank %d of 4,", rank))
			}
		})
	}
}

// TestAgent starts ranks with the variables of torchrun of PyTorch 2 and a store of its dialect,
// and with those of 1.x.
func TestAgent(t *testing.T) {
	for name, old := range map[string]bool{"2.x": false, "1.x": true} {
		t.Run(name, func(t *testing.T) {
			agent, err := tcpstoretest.Start("127.0.0.1:0", old)
			require.NoError(t, err)
			defer agent.Close()
			_, port, _ := net.SplitHostPort(agent.Addr())
			self, err := os.Executable()
			require.NoError(t, err)
			outs, errs := make([][]byte, 4), make([]error, 4)
			var wg sync.WaitGroup
			for r := range 4 {
				wg.Go(func() {
					cmd := exec.Command(self)
					rank := strconv.Itoa(r)
					cmd.Env = append(clean(os.Environ()), roleVar+"=exchange", "RANK="+rank, "WORLD_SIZE=4", "LOCAL_RANK="+rank, "LOCAL_WORLD_SIZE=4",
						"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, "TORCHELASTIC_RUN_ID=x", "TORCHELASTIC_RESTART_COUNT=0",
						"TORCHELASTIC_USE_AGENT_STORE=True")
					outs[r], errs[r] = cmd.CombinedOutput()
				})
			}
			wg.Wait()
			for r := range 4 {
				require.NoError(t, errs[r], "%s", outs[r])
				require.Contains(t, string(outs[r]), fmt.Sprintf("rank %d of 4, local %d of 4", r, r))
			}
			require.Equal(t, []string{"/tagmatch/x/0/rendezvous"}, agent.Keys())
		})
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}
