package jobtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// needs skips a test that does what only root may do, with those capabilities, see capabilities(7).
func needs(t *testing.T, what string, capabilities ...int) {
	t.Helper()
	for _, c := range capabilities {
		if !has(c) {
			t.Skipf("needs root with capability %d of capabilities(7): %s", c, what)
		}
	}
}

// has reports whether this process is root's, with a capability, which root of a container may
// lack.
func has(capability int) bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nCapEff:")
	var set uint64
	if _, err := fmt.Sscanf(rest, "%x", &set); err != nil {
		panic(fmt.Sprintf("/proc/self/status: CapEff: %v", err))
	}
	return os.Geteuid() == 0 && set&(1<<capability) != 0
}
