package jobtest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
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
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // of 32 capabilities each
	if err := unix.Capget(&head, &sets[0]); err != nil {
		panic(err)
	}
	return os.Geteuid() == 0 && sets[capability/32].Effective&(1<<(capability%32)) != 0
}
