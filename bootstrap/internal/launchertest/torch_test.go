//go:build linux && launchers

package launchertest

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTorchrun starts ranks by PyTorch's torchrun, which in one of its modes has a store at the
// address that it gives for rank 0.
func TestTorchrun(t *testing.T) {
	t.Parallel() // its agents look for ended ranks every five seconds
	for name, args := range map[string][]string{
		"standalone": {"--standalone"},
		"static":     {"--master_addr=127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require := requireRow
			if name == "static" {
				require = requireStarts // each takes some 7 s, most of which the agent waits
			}
			require(t, row{command: func(n int) []string {
				command := append([]string{"/usr/bin/python3", "/usr/bin/torchrun"}, args...)
				if name == "static" {
					command = append(command, "--master_port="+freePort(t))
				}
				return append(command, "--nproc_per_node="+strconv.Itoa(n), "-r", "1", "-t", "1", "--no_python")
			}})
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
