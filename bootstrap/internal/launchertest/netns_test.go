//go:build linux && launchers

package launchertest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// hosts are network namespaces, each with an address on one network, as three machines would be.
type hosts struct {
	name string // of the namespaces, with a number behind it
	n    int
}

func newHosts(t *testing.T, name string, n int) *hosts {
	t.Helper()
	h := &hosts{name, n}
	h.remove()
	t.Cleanup(h.remove)
	ip(t, "link add %sbr type bridge", name)
	ip(t, "link set %sbr up", name)
	for i := range n {
		ns := h.namespace(i)
		ip(t, "netns add %s", ns)
		ip(t, "link add %sv%d type veth peer name eth0 netns %s", name, i, ns)
		ip(t, "link set %sv%d master %sbr up", name, i, name)
		ip(t, "-n %s addr add 10.77.0.%d/24 dev eth0", ns, i+1)
		ip(t, "-n %s addr add 10.78.0.%d/24 dev eth0", ns, i+1)
		ip(t, "-n %s addr add fd77::%d/64 dev eth0 nodad", ns, i+1)
		ip(t, "-n %s link set eth0 up", ns)
		ip(t, "-n %s link set lo up", ns)
		// A bridge for containers, with the same address on every host.
		ip(t, "-n %s link add docker0 type bridge", ns)
		ip(t, "-n %s addr add 172.17.0.1/16 dev docker0", ns)
		ip(t, "-n %s link set docker0 up", ns)
	}
	return h
}

func (h *hosts) namespace(i int) string { return fmt.Sprint(h.name, i) }

func (h *hosts) remove() {
	for i := range h.n {
		_ = exec.Command("ip", "netns", "del", h.namespace(i)).Run()
		_ = exec.Command("ip", "link", "del", fmt.Sprintf("%sv%d", h.name, i)).Run()
	}
	_ = exec.Command("ip", "link", "del", h.name+"br").Run()
}

func ip(t *testing.T, format string, args ...any) {
	t.Helper()
	words := strings.Fields(fmt.Sprintf(format, args...))
	out, err := exec.Command("ip", words...).CombinedOutput()
	require.NoError(t, err, "ip %s: %s", words, out)
}

// job starts a rank on each host. said is called with what they print, as it comes.
func (h *hosts) job(t *testing.T, role string, env []string, said func(text string)) (out string, codes []int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), testlevel.Patience(time.Minute))
	defer cancel()
	all := &output{said: said}
	codes = make([]int, h.n)
	var wg sync.WaitGroup
	for r := range h.n {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, "ip", "netns", "exec", h.namespace(r), self)
			cmd.Env = append(clean(os.Environ()), roleVar+"="+role, fmt.Sprintf("RANK=%d", r), fmt.Sprintf("WORLD_SIZE=%d", h.n),
				"MASTER_ADDR=10.77.0.1", "MASTER_PORT=29500")
			cmd.Env = append(append(cmd.Env, secretEnv...), env...)
			cmd.Stdout, cmd.Stderr = all, all
			_ = cmd.Run()
			codes[r] = cmd.ProcessState.ExitCode()
		})
	}
	wg.Wait()
	return all.b.String(), codes
}

// output collects what several processes print.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	said func(string)
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(p)
	if o.said != nil {
		o.said(o.b.String())
	}
	return len(p), nil
}

// TestHosts: three hosts find each other by each way that tells rank 0's address.
func TestHosts(t *testing.T) {
	t.Parallel()
	h := newHosts(t, "tma", 3)
	shared := t.TempDir() + "/shared"
	for name, env := range map[string][]string{
		"IPv4":               nil,
		"IPv6":               {"MASTER_ADDR=fd77::1"},
		"a directory":        {"MASTER_ADDR=", "MASTER_PORT=", "TAGMATCH_STORE=" + shared, "TAGMATCH_JOB_ID=1"},
		"a chosen interface": {"MASTER_ADDR=", "MASTER_PORT=", "TAGMATCH_STORE=" + shared, "TAGMATCH_JOB_ID=2", "TAGMATCH_NETDEV=fd77::/64"},
		"the second network": {"TAGMATCH_NETDEV=10.78.0.0/16"}, // dialed from there, though rank 0 is in the first
	} {
		t.Run(name, func(t *testing.T) {
			out, codes := h.job(t, "exchange", env, nil)
			require.Equal(t, []int{0, 0, 0}, codes, out)
			require.Equal(t, 3, strings.Count(out, " of 3, by tcp: well\n"), out)
		})
	}
}

// TestRemoteRanks has tagmatch run start ranks on other hosts, by a shell in their namespaces where
// ssh would be.
func TestRemoteRanks(t *testing.T) {
	t.Parallel()
	newHosts(t, "tmb", 3)
	dir := t.TempDir()
	launcher, agent := dir+"/tagmatch", dir+"/agent"
	out, err := exec.Command("go", "build", "-o", launcher, "../../../cmd/tagmatch").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.WriteFile(agent, []byte("#!/bin/sh\nhost=$1\nshift\nexec ip netns exec tmb$((${host##*.} - 1)) env -i PATH=$PATH HOME=/root \"$@\"\n"), 0o700))
	run := func(role string, more ...string) Result {
		command := append([]string{launcher, "run", "-n", "6", "--hosts", "10.77.0.1:2,10.77.0.2:2,10.77.0.3:2", "--ssh", agent, "-x", roleVar}, more...)
		return play(t, role, nil, command...)
	}
	requireWell(t, run("exchange"), 6)
	requireWell(t, run("exchange", "--bind-to", "core"), 6)
	r := run("killed")
	// The shell that stands in for ssh tells of the killed rank as late as the others, which fail.
	require.Contains(t, []int{137, 3}, r.Code, r.Out)
	require.Contains(t, r.Out, "rank 0 has seen it")
	require.NotZero(t, run("abort").Code)
}

// TestLinkCut: the link of one host is cut, and the two others learn which rank they have lost.
func TestLinkCut(t *testing.T) {
	t.Parallel()
	h := newHosts(t, "tmc", 3)
	var once sync.Once
	out, codes := h.job(t, "cut", []string{"TAGMATCH_PEER_TIMEOUT=6s"}, func(text string) {
		if strings.Count(text, "is ready") == 3 {
			once.Do(func() { ip(t, "link set tmcv2 down") })
		}
	})
	require.Contains(t, out, "rank 0 has lost [2]\n", "%v", codes)
	require.Contains(t, out, "rank 1 has lost [2]\n")
}
