//go:build linux && launchers

package launchertest

import (
	"strconv"
	"testing"

	"github.com/tagmatch/tagmatch/internal/ports/portstest"
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
					command = append(command, "--master_port="+strconv.Itoa(portstest.Free(t, 1)[0]))
				}
				return append(command, "--nproc_per_node="+strconv.Itoa(n), "-r", "1", "-t", "1", "--no_python")
			}})
		})
	}
}
