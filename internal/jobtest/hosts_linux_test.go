package jobtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// hostsVar is the number of ranks on the first "host". Each further rank has an IPC namespace of
// its own, across which the device does not try shared memory.
const hostsVar = "JOBTEST_HOSTS"

// The namespace is that of the process's first thread, which init functions run on.
func init() {
	roles["hosts"] = hostsRole
	if os.Getenv(hostsVar) == "" {
		return
	}
	if rank, err := strconv.Atoi(os.Getenv("RANK")); err == nil && rank >= int(number(hostsVar)) {
		if err := unix.Unshare(unix.CLONE_NEWIPC); err != nil {
			fmt.Fprintf(os.Stderr, "unshare: %v\n", err)
			os.Exit(1)
		}
	}
}

// TestSeveralDevices has devices for shared memory and for TCP in one world; the first one matches.
func TestSeveralDevices(t *testing.T) {
	needs(t, "hosts are told apart by their IPC namespaces", unix.CAP_SYS_ADMIN)
	hosts := hostsVar + "=3"
	for _, env := range [][]string{{hosts}, append([]string{hosts}, tmsrqEnv...)} {
		for role, arg := range map[string]int{"schedule": 30, "stream": 1000 / fewer(), "alltoall": 10, "orderly": 0} {
			if testlevel.Quick() && (len(env) == 1) == (role == "stream" || role == "orderly") { // each over one of the transports
				continue
			}
			t.Run(fmt.Sprint(role, len(env)), func(t *testing.T) {
				job{n: 5, role: role, device: "shm,tcp", arg: arg, env: env, seed: 1}.succeed(t)
			})
		}
	}
	job{n: 5, role: "hosts", device: "shm,tcp", env: append([]string{hosts}, tmsrqEnv...)}.succeed(t)
	r := job{n: 5, role: "hosts", device: "shm", env: []string{hosts}}.run(t)
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "no wire reaches rank")
}

// hostsRole has rank 0 receive from its own host, from another, and from any rank: only the first
// receive may be offloaded.
func hostsRole(ctx context.Context, w *p2p.World) error {
	c := w.Comm()
	sources := []int{1, 4, p2p.AnySource}
	reqs, bufs := make([]p2p.Request, len(sources)), make([][]byte, len(sources))
	before := w.Metrics()
	if w.Rank() == 0 {
		for i, src := range sources {
			bufs[i] = make([]byte, 100_000)
			reqs[i] = c.Irecv(src, p2p.Tag(i), bufs[i])
		}
	}
	now := w.Metrics()
	if _, err := exchange(ctx, w, 1, make([]uint64, w.Size())); err != nil {
		return err
	}
	senders := []int{1, 4, 3}
	if i := slices.Index(senders, w.Rank()); i >= 0 {
		return c.Send(ctx, 0, p2p.Tag(i), bytes.Repeat([]byte{byte(i)}, 100_000))
	}
	if w.Rank() != 0 {
		return nil
	}
	for i, r := range reqs {
		st, err := r.Wait(ctx)
		if err != nil {
			return err
		}
		if st.Source != senders[i] || !bytes.Equal(bufs[i], bytes.Repeat([]byte{byte(i)}, 100_000)) {
			return fmt.Errorf("receive %d: from %d", i, st.Source)
		}
	}
	device, path := now.Offload.Offloaded-before.Offload.Offloaded, now.Offload.KeptPath-before.Offload.KeptPath
	if now.Device != "shm+tcp" || device != 1 || path != 2 {
		return fmt.Errorf("devices %s: %d receives offloaded, %d kept for their path", now.Device, device, path)
	}
	return nil
}
