package jobtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/ports"
	"github.com/tagmatch/tagmatch/internal/ports/portstest"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() { roles["ports"] = portsRole }

// portsRole has each rank look at which ports it listens.
func portsRole(ctx context.Context, w *p2p.World) error {
	within, err := ports.Parse(os.Getenv("TAGMATCH_PORTS"))
	if err != nil {
		return err
	}
	list, err := listening()
	if err != nil {
		return err
	}
	want := 1 // for data
	if w.Rank() == 0 {
		want++ // the rendezvous, from the launcher
	}
	if len(list) != want || slices.Min(list) < within[0] || slices.Max(list) > within[1] {
		return fmt.Errorf("listens at %v: want %d ports within %v", list, want, within)
	}
	_, err = exchange(ctx, w, 1, make([]uint64, w.Size()))
	return err
}

// listening lists the TCP ports at which this process listens.
func listening() ([]int, error) {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return nil, err
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return nil, err
	}
	sockets := map[string]bool{}
	for _, fd := range fds {
		to, _ := os.Readlink(fd) // Glob's own is closed
		sockets[to] = true
	}
	var list []int
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != "0A" || !sockets["socket:["+f[9]+"]"] {
			continue
		}
		_, port, _ := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(port, 16, 16)
		if err != nil {
			return nil, err
		}
		list = append(list, int(n))
	}
	return list, nil
}

// TestPorts: all listeners of a job are in the range that it is given, if that has just as many
// ports as are needed; where it has too few, each rank says how many.
func TestPorts(t *testing.T) {
	const n = 4
	job{n: n, role: "ports", device: "tcp", env: []string{"TAGMATCH_PORTS=" + portstest.Free(t, n+1).String()}}.succeed(t)
	r := job{n: n, role: "ports", device: "auto", env: []string{"TAGMATCH_PORTS=" + portstest.Free(t, n-1).String()}}.run(t)
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "none of the 3 ports")
	require.Contains(t, r.err, "a host with 4 ranks needs 5 ports (TAGMATCH_PORTS): one for the data of each rank, one for the rendezvous at rank 0")
}
