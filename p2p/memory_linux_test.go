package p2p

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestEnough: memory that the host, or a container, does not have is refused.
func TestEnough(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	require.NoError(t, enough(1<<40, root))
	write("proc/meminfo", "MemTotal: 40 kB\nMemAvailable:      30 kB\n")
	require.NoError(t, enough(30<<10, root))
	require.ErrorIs(t, enough(30<<10+1, root), unix.ENOMEM)
	write("proc/self/cgroup", "0::/pod\n")
	write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	write("sys/fs/cgroup/pod/memory.max", "20000\n")
	write("sys/fs/cgroup/pod/memory.current", "5000\n")
	require.NoError(t, enough(15_000, root))
	require.EqualError(t, enough(15_001, root), "cannot allocate memory: a container or control group limits this process to 20000 bytes "+
		"(/sys/fs/cgroup/pod/memory.max), of which 15000 are free")
}
