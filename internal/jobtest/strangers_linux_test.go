package jobtest

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/ports/portstest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() { roles["flooded"] = floodedRole }

// floodedRole joins, exchanges first messages and then more, each when the test says so. The
// messages do not take minutes.
func floodedRole(ctx context.Context, w *p2p.World) error {
	if err := sayAndHear("joined", "meet"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := everybodyTalks(ctx, w, 10); err != nil {
		return fmt.Errorf("first messages: %w", err)
	}
	if err := sayAndHear("met", "go on"); err != nil {
		return err
	}
	laps := 20 / effort
	if testlevel.Quick() {
		laps = 2
	}
	for lap := range laps {
		if err := everybodyTalks(ctx, w, p2p.Tag(11+lap)); err != nil {
			return fmt.Errorf("lap %d: %w", lap, err)
		}
	}
	if f := w.Failed(); len(f) != 0 {
		return fmt.Errorf("failed: %v", f)
	}
	return nil
}

// TestStrangers floods the listeners of a job in all ways while it joins, while its ranks connect
// to each other and while they exchange messages. Neither takes more than some seconds.
func TestStrangers(t *testing.T) {
	ways := []string{"idle", "slow", "garbage", "half", "huge", "recorded", "connects"}
	if !testlevel.CI() { // what other builds look for shows with few of them
		ways = []string{"slow", "garbage", "recorded", "connects"}
	}
	for _, how := range ways {
		t.Run(how, func(t *testing.T) {
			eachDevice(t, func(t *testing.T, device string) { testStrangers(t, how, device, "") })
		})
	}
}

// TestStrangersOfAnotherUser: the names of Unix sockets are no secret on a host.
func TestStrangersOfAnotherUser(t *testing.T) {
	needs(t, "it floods as another user", unix.CAP_SETUID)
	eachDevice(t, func(t *testing.T, device string) { testStrangers(t, "idle", device, "65534") })
}

func testStrangers(t *testing.T, how, device, user string) {
	// Where fewer wait to be accepted the kernel turns ranks away, whatever the listener does.
	require.GreaterOrEqual(t, somaxconn(t), 4096, "net.core.somaxconn of this host")
	w := &network{t: t, what: how, n: 3}
	port := portstest.Free(t, 1)[0]
	n := 2400 // who is told no dials again at once; so many do not fill what waits to be accepted
	if how == "idle" || how == "connects" {
		n = 5000
	}
	env := []string{floodVar + "=" + how, floodersVar + "=" + strconv.Itoa(n/fewer()), floodUserVar + "=" + user}
	if how == "recorded" {
		env = append(env, floodRecordVar+"="+hex.EncodeToString(record(w)))
	}
	flood := &rankProcess{rank: -1, cmd: exec.Command(os.Args[0])}
	flood.cmd.Env = append(os.Environ(), env...)
	flood.start(t)
	aim := func(at []string) {
		_, err := io.WriteString(flood.in, strings.Join(at, " ")+"\n")
		require.NoError(t, err)
		flood.hear(t, "the flood", "flooding")
	}
	env = []string{"TAGMATCH_DEVICE=" + device, "TAGMATCH_JOIN_TIMEOUT=1m"}
	w.ranks = append(w.ranks, floodedRank(0, port, env).start(t))
	aim([]string{fmt.Sprint("tcp/127.0.0.1:", port)})
	began := time.Now()
	for rank := 1; rank < w.n; rank++ {
		w.ranks = append(w.ranks, floodedRank(rank, port, env).start(t))
	}
	w.hear("joined")
	t.Logf("joined after %v", time.Since(began))
	var targets []string
	for _, p := range w.ranks {
		own := listeners(t, p.cmd.Process.Pid)
		require.NotEmpty(t, own, "rank %d", p.rank)
		targets = append(targets, own...)
	}
	aim(targets)
	began = time.Now()
	w.tell("meet")
	w.hear("met")
	t.Logf("first messages took %v", time.Since(began))
	w.tell("go on")
	w.end()
	require.NoError(t, flood.in.Close())
	require.NoError(t, flood.cmd.Wait(), &flood.err)
}

func somaxconn(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	require.NoError(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	require.NoError(t, err)
	return n
}

// floodedRank is a rank of a job whose rank 0 serves at a port of this host.
func floodedRank(rank, port int, env []string) *rankProcess {
	p := &rankProcess{rank: rank, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), roleVar+"=flooded", "RANK="+strconv.Itoa(rank), "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1",
		"MASTER_PORT="+strconv.Itoa(port), "TAGMATCH_SECRET="+strings.Repeat("c7", 32))
	p.cmd.Env = append(p.cmd.Env, env...)
	return p
}

// record is what a rank of such a job says first to rank 0.
func record(w *network) []byte {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	defer ln.Close()
	p := floodedRank(1, ln.Addr().(*net.TCPAddr).Port, nil).start(w.t)
	conn, err := ln.Accept()
	require.NoError(w.t, err)
	defer conn.Close()
	b := make([]byte, 1000)
	n, err := conn.Read(b)
	require.NoError(w.t, err)
	require.NoError(w.t, p.cmd.Process.Kill())
	require.Error(w.t, p.cmd.Wait())
	return b[:n]
}

// listeners are those of a process, as network/address.
func listeners(t *testing.T, pid int) (list []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	sockets := map[string]bool{}
	for _, fd := range names(t, dir) {
		if link, err := os.Readlink(dir + "/" + fd); err == nil {
			sockets[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] = true
		}
	}
	each := func(file string, f func(col []string)) {
		b, err := os.ReadFile("/proc/net/" + file)
		require.NoError(t, err)
		for _, line := range strings.Split(string(b), "\n") {
			f(strings.Fields(line))
		}
	}
	for _, file := range []string{"tcp", "tcp6"} {
		each(file, func(col []string) { // local address in hexadecimal digits, state, inode
			if len(col) > 9 && col[3] == "0A" && sockets[col[9]] {
				_, port, _ := strings.Cut(col[1], ":")
				n, err := strconv.ParseUint(port, 16, 16)
				require.NoError(t, err)
				list = append(list, fmt.Sprint("tcp/127.0.0.1:", n))
			}
		})
	}
	each("unix", func(col []string) { // flags, inode, name
		if len(col) > 7 && col[3] == "00010000" && sockets[col[6]] {
			if _, door := doors.ParseName(col[7]); !door { // which package doors floods
				list = append(list, "unix/"+col[7])
			}
		}
	})
	return list
}
