package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/p2p"
)

// groupVar names the files with which a rank 1 enters a control group, and that have its limit.
const groupVar = "JOBTEST_GROUP"

func init() { roles["limited"] = limitedRole }

const groupLimit = 200 << 20 // bytes

// limitedRole: rank 1 enters a group that limits its memory, allocates what there is room for, and
// is refused more than that.
func limitedRole(ctx context.Context, w *p2p.World) error {
	procs, limit, _ := strings.Cut(os.Getenv(groupVar), ":")
	if w.Rank() == 1 {
		if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return err
		}
		if _, err := w.Alloc(groupLimit / 4); err != nil {
			return err
		}
		for _, size := range []int{groupLimit + 1, groupLimit - groupLimit/8} {
			_, err := w.Alloc(size)
			if !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), fmt.Sprintf("alloc of %d bytes", size)) ||
				!strings.Contains(err.Error(), fmt.Sprintf("limits this process to %d bytes (%s)", groupLimit, limit)) {
				return fmt.Errorf("alloc of more than the group may use: %v", err)
			}
		}
	}
	_, err := exchange(ctx, w, 1, make([]uint64, w.Size()))
	return err
}

// memoryGroups counts the control groups that this process has made.
var memoryGroups atomic.Int64

// memoryGroup makes a control group of so many bytes of memory; dir is "" where it cannot be made.
func memoryGroup(size int) (dir, limit string, err error) {
	for top, name := range map[string]string{"/sys/fs/cgroup": "memory.max", "/sys/fs/cgroup/memory": "memory.limit_in_bytes"} {
		dir := filepath.Join(top, fmt.Sprintf("tagmatch-test-%d-%d", os.Getpid(), memoryGroups.Add(1)))
		limit := filepath.Join(dir, name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		f, err := os.OpenFile(limit, os.O_WRONLY, 0) // there, unless this is no group, or not of memory
		if err != nil {
			if err := os.Remove(dir); err != nil {
				return "", "", err
			}
			continue
		}
		_, err = f.WriteString(strconv.Itoa(size))
		return dir, limit, errors.Join(err, f.Close())
	}
	return "", "", nil
}

// TestAllocLimit: a rank in a container is refused memory that it would be killed for. Files stand
// in for a control group, since not everybody may make one; where one can be made it limits a rank
// too.
func TestAllocLimit(t *testing.T) {
	needs(t, "it mounts files in place of control groups", unix.CAP_SYS_ADMIN)
	limited := func(dir, limit string, within ...string) {
		job{n: 2, role: "limited", device: "shm", env: []string{groupVar + "=" + filepath.Join(dir, "cgroup.procs") + ":" + limit}, within: within}.succeed(t)
	}
	top, v2 := groupsTop(t)
	if top == "" {
		t.Skip("needs a file system of control groups")
	}
	names := []string{"memory.limit_in_bytes", "memory.usage_in_bytes"}
	if v2 {
		names = []string{"memory.max", "memory.current"}
	}
	files := t.TempDir()
	for i, bytes := range []int{groupLimit, groupLimit / 4} {
		require.NoError(t, os.WriteFile(filepath.Join(files, names[i]), []byte(strconv.Itoa(bytes)), 0o600))
	}
	limited(top, filepath.Join(top, names[0]), "unshare", "-m", "sh", "-c", `mount --bind "$0" "$1" && exec "$2"`, files, top)

	dir, limit, err := memoryGroup(groupLimit)
	require.NoError(t, err)
	if dir == "" {
		t.Log("no control group can be made")
		return
	}
	t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
	limited(dir, limit)
}

// groupsTop is where the control groups of memory are mounted, and whether they are those of
// version 2. Those of version 1 come first: where both are there they limit memory.
func groupsTop(t *testing.T) (dir string, v2 bool) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line) // device, directory, type, options
		switch {
		case f[2] == "cgroup" && slices.Contains(strings.Split(f[3], ","), "memory"):
			return f[1], false
		case f[2] == "cgroup2":
			dir, v2 = f[1], true
		}
	}
	return dir, v2
}
