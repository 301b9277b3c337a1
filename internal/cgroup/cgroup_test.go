package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree writes files below a directory, which it returns.
func tree(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	return root
}

const (
	mount2  = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	above2  = "30 23 0:26 /.. /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mounts1 = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" +
		"35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw master:9 - cgroup cgroup rw,memory\n"
)

func TestMemory(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  Limit // zero: none
	}{
		{"no cgroups", map[string]string{"proc/self/mountinfo": "1 0 0:1 / / rw - ext4 /dev/sda rw\n"}, Limit{}},
		{"no proc", nil, Limit{}},
		{"v2 without a limit", map[string]string{"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": mount2,
			"sys/fs/cgroup/a/memory.max": "max\n"}, Limit{}},
		{"v2, the group's own", map[string]string{"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": mount2,
			"sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/memory.max": "2000\n"},
			Limit{1000, 1000, "/sys/fs/cgroup/a/b/memory.max"}},
		{"v2, one above", map[string]string{"proc/self/cgroup": "0::/a/b/c\n", "proc/self/mountinfo": mount2,
			"sys/fs/cgroup/a/b/c/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2000\n", "sys/fs/cgroup/a/memory.current": "500\n",
			"sys/fs/cgroup/a/memory.stat": "anon 7\nfile 450\nactive_file 100\ninactive_file 200\nshmem 150\n"},
			Limit{2000, 1800, "/sys/fs/cgroup/a/memory.max"}},
		{"v2, one above that is fuller", map[string]string{"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": mount2,
			"sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/memory.max": "2000\n", "sys/fs/cgroup/a/memory.current": "1990\n"},
			Limit{2000, 10, "/sys/fs/cgroup/a/memory.max"}},
		{"v2, over its limit", map[string]string{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mount2,
			"sys/fs/cgroup/memory.max": "10\n", "sys/fs/cgroup/memory.current": "11\n"}, Limit{10, 0, "/sys/fs/cgroup/memory.max"}},
		{"v2, a group that the mount does not show", map[string]string{"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": mount2,
			"sys/fs/cgroup/memory.max": "10\n", "sys/fs/other/memory.max": "1\n"}, Limit{}},
		{"v2, mounted from above", map[string]string{"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": above2,
			"sys/fs/cgroup/memory.max": "10\n", "sys/fs/cgroup/other/memory.max": "1\n"}, Limit{1, 1, "/sys/fs/cgroup/other/memory.max"}},
		{"v2, mounted from above, whose names are hidden", map[string]string{"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": above2,
			"sys/fs/cgroup/memory.max": "10\n", "sys/fs/cgroup/a/memory.max": "1\n"}, Limit{10, 10, "/sys/fs/cgroup/memory.max"}},
		{"v2, mounted from above, but not far enough", map[string]string{"proc/self/cgroup": "0::/../../other\n", "proc/self/mountinfo": above2,
			"sys/fs/cgroup/memory.max": "10\n"}, Limit{}},
		{"v1 in a container", map[string]string{"proc/self/cgroup": "9:name=systemd:/\n4:memory:/docker/abc\n1:cpu:/\n0::/\n",
			"proc/self/mountinfo": mounts1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "4096\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n", "sys/fs/cgroup/memory/memory.stat": "active_file 1\ntotal_active_file 600\n"},
			Limit{4096, 3696, "/sys/fs/cgroup/memory/memory.limit_in_bytes"}},
		{"v1, a group below", map[string]string{"proc/self/cgroup": "4:cpuset,memory:/docker/abc/job\n",
			"proc/self/mountinfo": mounts1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "77\n"}, Limit{77, 77, "/sys/fs/cgroup/memory/job/memory.limit_in_bytes"}},
		{"v1, a group beside", map[string]string{"proc/self/cgroup": "4:memory:/docker/abcdef\n",
			"proc/self/mountinfo": mounts1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "88\n",
			"sys/fs/cgroup/memory/def/memory.limit_in_bytes": "1\n"}, Limit{}},
		{"both versions", map[string]string{"proc/self/cgroup": "4:memory:/docker/abc\n0::/x\n",
			"proc/self/mountinfo":                        mounts1 + "40 31 0:40 / /sys/fs/cgroup/unified\\040here rw - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "99\n", "sys/fs/cgroup/unified here/x/memory.max": "98\n"},
			Limit{98, 98, "/sys/fs/cgroup/unified here/x/memory.max"}},
		{"nonsense", map[string]string{"proc/self/cgroup": "x\n:\n::\n0::/\n", "proc/self/mountinfo": "\n - \na b c d e f - cgroup2\n" + mount2,
			"sys/fs/cgroup/memory.max": "many\n"}, Limit{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := Memory(tree(t, c.files))
			require.Equal(t, c.want != Limit{}, ok)
			if ok {
				require.Equal(t, c.want, got)
			}
		})
	}
}
