package jobtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["cut"] = cutRole
	roles["gap"] = gapRole
	roles["noroute"] = noRouteRole
}

// network is a bridge with one namespace for each rank, connected to a port of the bridge.
type network struct {
	t     *testing.T
	name  string
	what  string // what it is for
	n     int
	ranks []*rankProcess
}

// networks counts the networks of this process.
var networks atomic.Int64

func newNetwork(t *testing.T, n int) *network {
	t.Helper()
	needs(t, "it makes network namespaces", unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN)
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip, of Debian's iproute2")
	}
	w := &network{t: t, name: fmt.Sprintf("tm%d-%d", os.Getpid(), networks.Add(1)), n: n}
	hub := w.name + "-hub"
	w.add(hub)
	w.ip("-n", hub, "link", "add", "br0", "type", "bridge")
	w.ip("-n", hub, "link", "set", "br0", "up")
	for r := range n {
		w.add(w.ns(r))
		port := fmt.Sprint("p", r)
		w.ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", w.ns(r))
		w.ip("-n", hub, "link", "set", port, "master", "br0", "up")
		w.ip("-n", w.ns(r), "addr", "add", w.addr(r)+"/24", "dev", "eth0")
		w.ip("-n", w.ns(r), "link", "set", "eth0", "up")
		w.ip("-n", w.ns(r), "link", "set", "lo", "up")
	}
	return w
}

// add creates a namespace. Its contents end with it.
func (w *network) add(ns string) {
	w.ip("netns", "add", ns)
	w.t.Cleanup(func() { w.ip("netns", "del", ns) })
}

func (w *network) ns(rank int) string   { return fmt.Sprint(w.name, "-", rank) }
func (w *network) addr(rank int) string { return fmt.Sprint("10.77.0.", rank+1) }

func (w *network) ip(args ...string) {
	w.t.Helper()
	require.NoError(w.t, runIP(args...))
}

func runIP(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}

// port takes the bridge's port of a rank up or down. Any goroutine may call it. It starts no
// process, which would take its time where processors are short.
func (w *network) port(rank int, up bool) {
	w.t.Helper()
	assert.NoError(w.t, onThread(func() error { return setLink(w.name+"-hub", fmt.Sprint("p", rank), up) }))
}

// onThread runs f on a thread that ends with it, as f enters a namespace. That is not the main
// thread, which does not end, and whose namespaces are those of /proc/self.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onThread(f)
			return
		}
		done <- f()
	}()
	return <-done
}

// setLink enters a namespace and takes a device there up or down.
func setLink(ns, device string, up bool) error {
	f, err := os.Open("/var/run/netns/" + ns) // where ip keeps them
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Setns(int(f.Fd()), unix.CLONE_NEWNET), f.Close()); err != nil {
		return fmt.Errorf("setns: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	link, err := unix.NewIfreq(device)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, link)
	}
	if err == nil {
		flags := link.Uint16() &^ unix.IFF_UP
		if up {
			flags |= unix.IFF_UP
		}
		link.SetUint16(flags)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, link)
	}
	return errors.Join(err, unix.Close(fd))
}

// rankProcess is a rank in its namespace; the test and the rank exchange lines.
type rankProcess struct {
	rank int
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	err  bytes.Buffer
}

// start starts a role on all ranks.
func (w *network) start(role string, env ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	w.t.Cleanup(cancel)
	for r := range w.n {
		p := &rankProcess{rank: r, cmd: exec.CommandContext(ctx, "ip", "netns", "exec", w.ns(r), os.Args[0])}
		p.cmd.Env = append(os.Environ(), roleVar+"="+role, "RANK="+strconv.Itoa(r), "WORLD_SIZE="+strconv.Itoa(w.n), "MASTER_ADDR="+w.addr(0),
			"MASTER_PORT=7077", "TAGMATCH_LISTEN="+w.addr(0), "TAGMATCH_SECRET="+strings.Repeat("c7", 32), "TAGMATCH_DEVICE=tcp")
		p.cmd.Env = append(p.cmd.Env, env...)
		w.ranks = append(w.ranks, p.start(w.t))
	}
}

// start starts a process that exchanges lines with the test, and ends with it.
func (p *rankProcess) start(t *testing.T) *rankProcess {
	t.Helper()
	p.cmd.Stderr = &p.err
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil { // the test has failed
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

// hear waits until each rank has printed a line.
func (w *network) hear(line string) {
	w.t.Helper()
	for _, p := range w.ranks {
		p.hear(w.t, w.what, line)
	}
}

func (p *rankProcess) hear(t *testing.T, what, line string) {
	t.Helper()
	got, err := p.out.ReadString('\n')
	if err != nil {
		err = errors.Join(err, p.cmd.Wait())
	}
	require.NoError(t, err, "%s: rank %d: %s", what, p.rank, &p.err)
	require.Equal(t, line+"\n", got)
}

// tell writes a line to each rank. Any goroutine may call it.
func (w *network) tell(line string) {
	w.t.Helper()
	for _, p := range w.ranks {
		_, err := io.WriteString(p.in, line+"\n")
		assert.NoError(w.t, err, "%s: rank %d: %s", w.what, p.rank, &p.err)
	}
}

// end waits until all ranks have succeeded.
func (w *network) end() {
	w.t.Helper()
	for _, p := range w.ranks {
		_, err := io.Copy(io.Discard, p.out)
		require.NoError(w.t, err)
		require.NoError(w.t, p.cmd.Wait(), "%s: rank %d: %s", w.what, p.rank, &p.err)
	}
}

// everyWay runs a role on networks of three ranks each, all concurrently as they mostly wait: once
// for each of args and each of its transports. timeout is their PeerTimeout.
func everyWay(t *testing.T, role string, timeout time.Duration, args map[int][]string, play func(list []*network)) {
	t.Helper()
	t.Parallel()
	var all []*network
	for arg, transports := range args {
		for _, transport := range transports {
			w := newNetwork(t, 3)
			w.what = fmt.Sprintf("%s %d over %s", role, arg, transport)
			env := []string{argVar + "=" + strconv.Itoa(arg), "TAGMATCH_TRANSPORT=" + transport, "TAGMATCH_OFFLOAD_MIN=-1",
				fmt.Sprint("TAGMATCH_PEER_TIMEOUT=", timeout)}
			if role == "cut" && arg != cutStranger {
				env = append(env, noStoreVar+"=1")
			}
			w.start(role, env...)
			all = append(all, w)
		}
	}
	for _, w := range all {
		w.hear("ready")
	}
	play(all)
	for _, w := range all {
		w.end()
	}
}

// cutTimeout is PeerTimeout of ranks that must find a loss.
const cutTimeout = 8 * time.Second

var (
	onlyRC = []string{"rc"}
	both   = []string{"rc", "tmsrq"}
)

// What a rank of TestCut does while it is disconnected.
const (
	cutBusy     = iota // sends to unreachable ranks, and receives from them
	cutIdle            // receives from ranks that it was connected to
	cutStranger        // receives from a rank that it was never connected to
)

// TestCut disconnects rank 1 from the network: it and the others must detect each other's loss, the
// others continue. In cutBusy and cutIdle the store reports nothing, so that each connection has to
// detect it by itself.
func TestCut(t *testing.T) {
	everyWay(t, "cut", cutTimeout, map[int][]string{cutBusy: both, cutIdle: onlyRC, cutStranger: onlyRC}, func(list []*network) {
		for _, w := range list {
			w.port(1, false)
			w.tell("cut")
		}
		for _, w := range list {
			w.hear("survived")
		}
	})
}

// TestMute has what rank 1 sends go nowhere, while it hears the others: as TestCut. That none waits
// for the other's finding is for package tcp to test.
func TestMute(t *testing.T) {
	everyWay(t, "cut", cutTimeout, map[int][]string{cutBusy: both, cutIdle: onlyRC}, func(list []*network) {
		for _, w := range list {
			for _, other := range []int{0, 2} {
				w.ip("-n", w.ns(1), "neigh", "replace", w.addr(other), "lladdr", "02:00:00:00:00:77", "dev", "eth0", "nud", "permanent")
			}
			w.tell("cut")
		}
		for _, w := range list {
			w.hear("survived")
		}
	})
}

func cutRole(ctx context.Context, w *p2p.World) error {
	mode := int(number(argVar))
	peers := []int{1}
	if w.Rank() == 1 {
		peers = []int{0, 2}
	}
	if mode == cutStranger {
		peers = peers[:1]
	} else if _, err := exchange(ctx, w, 1, make([]uint64, w.Size())); err != nil {
		return err
	}
	if err := sayAndHear("ready", "cut"); err != nil {
		return err
	}
	var reqs []p2p.Request
	var of []int
	for _, peer := range peers {
		reqs = append(reqs, w.Comm().Irecv(peer, 5, make([]byte, 8)))
		of = append(of, peer)
		if mode == cutBusy {
			for range 100 { // the first ones are buffered and complete
				w.Comm().Isend(peer, 6, make([]byte, 8))
			}
			reqs = append(reqs, w.Comm().Isend(peer, 6, make([]byte, 4<<20)))
			of = append(of, peer)
		}
	}
	for i, r := range reqs {
		_, err := r.Wait(ctx)
		if err := lostTo(of[i], err, ""); err != nil {
			return err
		}
	}
	if w.Rank() != 1 {
		if err := survivorsTalk(ctx, w); err != nil {
			return err
		}
	}
	fmt.Println("survived")
	return w.Close()
}

// sayAndHear prints a line for the test and waits for its answer.
func sayAndHear(say, want string) error {
	fmt.Println(say)
	if got := <-testWords(); got != want {
		return fmt.Errorf("want %q from the test, got %q", want, got)
	}
	return nil
}

// testWords are the lines that the test writes. A rank ends with its test, however that ends.
var testWords = sync.OnceValue(func() <-chan string {
	words := make(chan string)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			words <- in.Text()
		}
		os.Exit(1)
	}()
	return words
})

// gapTimeout is PeerTimeout of ranks that must survive an interruption. It leaves time for what is
// late on a busy machine.
const gapTimeout = 16 * time.Second

// gap is the longest interruption that package p2p promises to survive.
func gap(t *testing.T) time.Duration {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, int(gapTimeout/8/time.Millisecond))
	require.NoError(t, unix.Close(fd))
	if err != nil { // Linux before 6.15
		return gapTimeout / 3
	}
	return gapTimeout / 2
}

// What the ranks of TestGap do during the interruption.
const (
	gapNew  = iota // they send to ranks that they were not connected to
	gapBusy        // they send to ranks that they were connected to
	gapIdle        // nothing
)

// TestGap disconnects rank 1 from the network for as long as must be survived. No rank is lost, and
// every message arrives.
func TestGap(t *testing.T) {
	interruption := gap(t)
	everyWay(t, "gap", gapTimeout, map[int][]string{gapNew: onlyRC, gapBusy: both, gapIdle: onlyRC}, func(list []*network) {
		var interrupted sync.WaitGroup
		for _, w := range list {
			interrupted.Go(func() {
				began := time.Now()
				w.port(1, false)
				w.tell("cut")
				time.Sleep(interruption - time.Since(began))
				w.port(1, true)
				t.Logf("%s: interrupted for %v", w.what, time.Since(began))
			})
		}
		interrupted.Wait()
		for _, w := range list {
			w.hear("still here")
			w.tell("go on")
		}
	})
}

func gapRole(ctx context.Context, w *p2p.World) error {
	mode := number(argVar)
	if mode != gapNew {
		if err := everybodyTalks(ctx, w, 10); err != nil {
			return err
		}
	}
	if err := sayAndHear("ready", "cut"); err != nil {
		return err
	}
	if mode != gapIdle {
		if err := everybodyTalks(ctx, w, 11); err != nil {
			return err
		}
	}
	if err := sayAndHear("still here", "go on"); err != nil {
		return err
	}
	if err := everybodyTalks(ctx, w, 12); err != nil {
		return err
	}
	if f := w.Failed(); len(f) != 0 {
		return fmt.Errorf("failed: %v", f)
	}
	return nil
}

// everybodyTalks exchanges messages of many sizes among all ranks.
func everybodyTalks(ctx context.Context, w *p2p.World, tag p2p.Tag) error {
	const count = 60
	var reqs []p2p.Request
	for peer := range w.Size() {
		for i := range count {
			size := i * i * 50
			reqs = append(reqs, w.Comm().Irecv(peer, tag, make([]byte, size)), w.Comm().Isend(peer, tag, make([]byte, size)))
		}
	}
	return p2p.WaitAll(ctx, reqs, nil)
}

// TestNoRoute removes rank 1's route to rank 2: its Send fails, and both learn that they cannot
// reach each other. Rank 0 reaches both.
func TestNoRoute(t *testing.T) {
	everyWay(t, "noroute", cutTimeout, map[int][]string{0: both}, func(list []*network) {
		for _, w := range list {
			w.ip("-n", w.ns(1), "route", "add", "unreachable", w.addr(2)+"/32")
			w.tell("cut")
		}
	})
}

func noRouteRole(ctx context.Context, w *p2p.World) error {
	if err := sayAndHear("ready", "cut"); err != nil {
		return err
	}
	const why = "no route to host"
	c := w.Comm()
	if w.Rank() == 1 {
		if err := lostTo(2, c.Send(ctx, 2, 3, nil), why); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	if peer := 3 - w.Rank(); w.Rank() != 0 {
		_, err := c.Recv(ctx, peer, 4, nil)
		if err := lostTo(peer, err, why); err != nil {
			return err
		}
	}
	for _, r := range []int{1, 2} {
		if w.Rank() == r || w.Rank() == 0 {
			if _, err := exchangeAmong(ctx, w, []int{0, r}); err != nil {
				return err
			}
		}
	}
	if w.Rank() == 0 && len(w.Failed()) != 0 {
		return fmt.Errorf("rank 0 has lost %v", w.Failed())
	}
	return nil
}
