package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// TestAllocLimit: a rank in a container is refused memory that it would be killed for.
func TestAllocLimit(t *testing.T) {
	dir, limit, err := memoryGroup(groupLimit)
	require.NoError(t, err)
	if dir == "" {
		t.Skip("needs root, and a file system of control groups that it may write to")
	}
	t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
	procs := filepath.Join(dir, "cgroup.procs")
	job{n: 2, role: "limited", device: "shm", env: []string{groupVar + "=" + procs + ":" + limit}}.succeed(t)
}
