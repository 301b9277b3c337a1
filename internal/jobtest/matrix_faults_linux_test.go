package jobtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/refuse"
)

// fault is something that happens to the victim.
type fault struct {
	name    string
	outcome outcome
	bound   time.Duration // see cell.bound; 0: that of a process which has ended
	network bool          // the ranks are on hosts of their own
	lasts   time.Duration // how long inject takes
	// shortage: what the process lacks it needs to join and to connect, and for nothing else.
	shortage bool

	inject  func(t *testing.T, j *trial) // what the test does
	inflict func(p *player) error        // what the victim does when the test says so; nil: nothing
}

// faults is the other side of the matrix.
var faults = []*fault{
	{name: "kill -9", outcome: ended, inject: func(t *testing.T, j *trial) { j.signal(t, syscall.SIGKILL) }},
	{name: "exit 0", outcome: ended, inject: tellVictim, inflict: func(*player) error { os.Exit(0); return nil }},
	{name: "panic", outcome: ended, inject: tellVictim, inflict: func(*player) error { panic("a fault of the matrix") }},
	{name: "Close", outcome: closed, inject: tellVictim, inflict: closeWorld},
	{name: "SIGSTOP 5 s", lasts: 5 * time.Second, inject: stopVictim(5 * time.Second)},
	{name: "SIGSTOP 60 s", lasts: time.Minute, inject: stopVictim(time.Minute)},
	{name: "RST", outcome: reset, network: true, inject: resetConnection},
	{name: "link cut", outcome: apart, network: true, bound: matrixPeerTimeout, inject: cutLink},
	{name: "one-way cut", outcome: apart, network: true, bound: matrixPeerTimeout, inject: muteVictim},
	{name: "half-open", outcome: ended, network: true, bound: matrixPeerTimeout, inject: endUnheard},
	{name: "host back", outcome: ended, network: true, bound: matrixPeerTimeout, lasts: time.Second, inject: func(t *testing.T, j *trial) {
		endUnheard(t, j)
		time.Sleep(time.Second) // the host starts
		j.net.port(victim, true)
	}},
	{name: "no descriptors", shortage: true, bound: matrixPeerTimeout, lasts: time.Second, inject: tellVictimAndWait, inflict: func(p *player) error {
		free, err := refuse.Descriptors()
		p.undo = free
		return err
	}},
	{name: "memory cgroup", outcome: ended, inject: limitMemory, inflict: fillMemory},
	{name: "calls refused", shortage: true, lasts: time.Second, inject: tellVictimAndWait, inflict: func(*player) error {
		return refuse.Calls(unix.EPERM, unix.SYS_PIDFD_OPEN, unix.SYS_MEMFD_CREATE, unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_ACCEPT4)
	}},
	{name: "starved", lasts: 2 * time.Second, inject: starveVictim, inflict: starveOfProcessor},
}

// tellVictim has the victim do it itself.
func tellVictim(t *testing.T, j *trial) { j.tell(t, victim, "fault") }

// tellVictimAndWait has it live with it for a while, in which the phase goes on.
func tellVictimAndWait(t *testing.T, j *trial) {
	j.tell(t, victim, "fault")
	j.await(t, "inflicted", []int{victim}, time.Minute)
	time.Sleep(j.cell.fault.lasts)
}

func closeWorld(p *player) error {
	p.closing.Store(true)
	if w := p.w.Load(); w != nil {
		return w.Close()
	}
	return errors.New("there is no World yet")
}

// starving bounds how many jobs at once have busy loops.
var starving = make(chan struct{}, 3)

// starveVictim leaves the victim next to no processor time.
func starveVictim(t *testing.T, j *trial) {
	starving <- struct{}{}
	defer func() { <-starving }()
	j.injected = time.Now()
	tellVictimAndWait(t, j)
	j.await(t, "fed", []int{victim}, time.Minute)
}

// starveOfProcessor does that to this process, until the fault is over.
func starveOfProcessor(p *player) error {
	end, err := besideLoops(8, p.cell.fault.lasts)
	go func() {
		time.Sleep(p.cell.fault.lasts)
		end()
		p.say("fed")
	}()
	return err
}

func stopVictim(d time.Duration) func(t *testing.T, j *trial) {
	return func(t *testing.T, j *trial) {
		j.signal(t, syscall.SIGSTOP)
		time.Sleep(d)
		j.signal(t, syscall.SIGCONT)
	}
}

// resetConnection resets the connection between the victim and its partner, as a firewall does. One
// that is being made it waits for.
func resetConnection(t *testing.T, j *trial) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		from, to, ok := between(t, j.ranks[victim].cmd.Process.Pid, j.ranks[partner].cmd.Process.Pid)
		if ok {
			j.injected = time.Now()
			require.NoError(t, resetSocket(from, to))
			return
		}
	}
	require.Equal(t, connecting, j.cell.phase, "the victim and its partner have no connection")
}

// resetSocket resets a TCP connection of this machine, as its end at from sees it.
func resetSocket(from, to string) error {
	out, err := exec.Command("ss", "-K", "-tnH", "src", from, "dst", to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ss -K: %w: %s", err, out)
	}
	return nil
}

// between finds the TCP connection of two processes: its address at each end.
func between(t *testing.T, one, two int) (from, to string, ok bool) {
	ends, err := connections(one)
	require.NoError(t, err)
	others, err := connections(two)
	require.NoError(t, err)
	for _, c := range others {
		if slices.Contains(ends, [2]string{c[1], c[0]}) {
			return dotted(c[1]), dotted(c[0]), true
		}
	}
	return "", "", false
}

// connections lists the established connections of a process, ours and theirs, as
// /proc/net/tcp has addresses.
func connections(pid int) (list [][2]string, err error) {
	const established = "01"
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil, err
	}
	var sockets []string
	for _, f := range files {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, f.Name()))
		sockets = append(sockets, strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]"))
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) <= 9 || f[3] != established || !slices.Contains(sockets, f[9]) {
			continue
		}
		if c := [2]string{f[1], f[2]}; !slices.Contains(list, c) { // the table changes while it is read
			list = append(list, c)
		}
	}
	return list, nil
}

// dotted is such an address as package net has it.
func dotted(address string) string {
	var ip [4]byte // of a little-endian word
	var port int
	if _, err := fmt.Sscanf(address, "%02X%02X%02X%02X:%04X", &ip[3], &ip[2], &ip[1], &ip[0], &port); err != nil {
		panic(fmt.Sprintf("%q in /proc/net/tcp: %v", address, err))
	}
	return fmt.Sprintf("%d.%d.%d.%d:%d", ip[0], ip[1], ip[2], ip[3], port)
}

// muteVictim has what the victim sends go nowhere, while it hears the others.
func muteVictim(_ *testing.T, j *trial) {
	for _, other := range []int{server, partner} {
		j.net.ip("-n", j.net.ns(victim), "neigh", "replace", j.net.addr(other), "lladdr", "02:00:00:00:00:77", "dev", "eth0", "nud", "permanent")
	}
	j.injected = time.Now()
}

// cutLink cuts the victim's host off. It is injected when the kernel has done so: it may take long
// where many networks are made and taken down.
func cutLink(_ *testing.T, j *trial) {
	j.net.port(victim, false)
	j.injected = time.Now()
}

// endUnheard ends the victim's process so that no packet tells the others.
func endUnheard(t *testing.T, j *trial) {
	cutLink(t, j)
	j.signal(t, syscall.SIGKILL)
}

const (
	memoryLimit = 64 << 20 // bytes that the victim's control group may have
	memoryFill  = 4 * memoryLimit
)

// limitMemory puts the victim into a control group, of whose memory it uses too much.
func limitMemory(t *testing.T, j *trial) {
	dir, _, err := memoryGroup(memoryLimit)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
	pid := strconv.Itoa(j.ranks[victim].cmd.Process.Pid)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0o600))
	tellVictim(t, j)
	for stat := "/proc/" + pid + "/stat"; ; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(stat)
		require.NoError(t, err)
		if _, rest, _ := strings.Cut(string(b), ") "); strings.HasPrefix(rest, "Z") {
			break // it has filled the memory, and the kernel has ended it
		}
	}
	j.injected = time.Now()
}

// fillMemory uses memory until the kernel ends this process.
func fillMemory(*player) error {
	buf, err := unix.Mmap(-1, 0, memoryFill, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for i := 0; i < len(buf); i += 4096 {
		buf[i] = 1
	}
	return errors.New("the control group has no effect")
}
