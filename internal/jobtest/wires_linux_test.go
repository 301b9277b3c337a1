package jobtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/refuse"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// What prevents shared memory.
const (
	refuseVar = "JOBTEST_REFUSE" // system calls that the kernel refuses, with commas
	apartVar  = "JOBTEST_APART"  // "user": another user, "pid": another namespace of processes
	whoVar    = "JOBTEST_WHO"    // a rank, or all
	whenVar   = "JOBTEST_WHEN"   // refusal begins at once, or "joined": before the first connection
	wiresVar  = "JOBTEST_WIRES"  // the wire expected for the ranks in whoVar; others: shm
)

var refusable = map[string]uintptr{
	"memfd_create": unix.SYS_MEMFD_CREATE, "pidfd_open": unix.SYS_PIDFD_OPEN, "connect": unix.SYS_CONNECT,
	"madvise":          unix.SYS_MADVISE,
	"process_vm_readv": unix.SYS_PROCESS_VM_READV, "process_vm_writev": unix.SYS_PROCESS_VM_WRITEV,
}

func init() {
	roles["wires"] = wiresRole
	if os.Getenv(roleVar) != "wires" {
		return
	}
	configure = wiresConfig
	if err := standApart(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		os.Exit(1)
	}
}

// concerned reports whether the environment concerns this rank.
func concerned(rank string) bool { return os.Getenv(whoVar) == "all" || os.Getenv(whoVar) == rank }

// standApart moves this process to the user or namespace that the environment says.
func standApart() error {
	const inside = "JOBTEST_INSIDE"
	if !concerned(os.Getenv("RANK")) {
		return nil
	}
	switch apart := os.Getenv(apartVar); {
	case apart == "user":
		return syscall.Setuid(65534)
	case apart == "pid" && os.Getenv(inside) == "":
		cmd := exec.Command(os.Args[0], os.Args[1:]...)
		cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdout, os.Stderr, append(os.Environ(), inside+"=1")
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "link")} // to the launcher
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
		err := cmd.Run()
		if code := new(exec.ExitError); err != nil && !errors.As(err, &code) {
			return err
		}
		os.Exit(cmd.ProcessState.ExitCode())
	case os.Getenv(refuseVar) != "" && os.Getenv(whenVar) == "":
		return refuseCalls()
	}
	return nil
}

func refuseCalls() error {
	for name := range strings.SplitSeq(os.Getenv(refuseVar), ",") {
		errno := unix.EPERM
		switch name { // as on an old kernel, or another system
		case "pidfd_open":
			errno = unix.ENOSYS
		case "madvise":
			errno = unix.EINVAL
		}
		if err := refuse.Calls(errno, refusable[name]); err != nil {
			return err
		}
	}
	return nil
}

// wiresConfig logs, and refuses system calls once the rank has joined.
func wiresConfig(ctx context.Context, c *p2p.Config) error {
	c.Logger = slog.New(slog.NewTextHandler(os.Stdout, nil))
	if os.Getenv(whenVar) == "" || !concerned(os.Getenv("RANK")) {
		return nil
	}
	b, err := bootstrap.Detect(ctx, bootstrap.Options{})
	if err != nil {
		return err
	}
	c.Bootstrap = &refusing{b}
	return nil
}

// refusing is a Bootstrap that refuses system calls before this rank publishes its card.
type refusing struct {
	bootstrap.Bootstrap
}

func (r *refusing) Put(ctx context.Context, key string, value []byte) error {
	if err := refuseCalls(); err != nil {
		return err
	}
	return r.Bootstrap.Put(ctx, key, value)
}

// wiresRole exchanges small and large messages between all ranks and checks the wires.
func wiresRole(ctx context.Context, w *p2p.World) error {
	if err := streamRole(ctx, w); err != nil {
		return err
	}
	if _, err := exchange(ctx, w, 1<<60|barrierTag, make([]uint64, w.Size())); err != nil {
		return err
	}
	if err := allToAllRole(ctx, w); err != nil {
		return err
	}
	if err := allocated(ctx, w); err != nil {
		return err
	}
	wires := w.Metrics().Wires
	var dump strings.Builder
	if err := w.Dump(&dump); err != nil {
		return err
	}
	used := map[string]bool{}
	for peer, wire := range wires {
		want := "shm"
		if concerned(fmt.Sprint(w.Rank())) || concerned(fmt.Sprint(peer)) {
			want = os.Getenv(wiresVar)
		}
		if peer == w.Rank() {
			continue
		}
		used[want] = true
		if wire != want || !strings.Contains(dump.String(), "by "+want+": rank") {
			return fmt.Errorf("messages to rank %d go by %s, want %s (all: %v)\n%s", peer, wire, want, wires, &dump)
		}
	}
	device := "shm+tcp"
	for wire := range used {
		if len(used) == 1 {
			device = wire
		}
	}
	if got := w.Metrics().Device; got != device {
		return fmt.Errorf("device %s, want %s", got, device)
	}
	return nil
}

// allocated passes messages out of memory of Alloc around a ring. A rank that shares memory with
// the one before it maps that, whatever system calls the kernel refuses: not for the first message
// perhaps, which goes by packets where a write of credit to that rank is still under way.
func allocated(ctx context.Context, w *p2p.World) error {
	const size = 1 << 20
	memory, err := w.Alloc(2 * size)
	if err != nil {
		return err
	}
	out, in := memory.Bytes()[:size], memory.Bytes()[size:]
	for i := range out {
		out[i] = byte(i*5 + w.Rank())
	}
	from := (w.Rank() + w.Size() - 1) % w.Size()
	for range 8 {
		clear(in)
		r := w.Comm().Irecv(from, 3, in)
		if err := w.Comm().Send(ctx, (w.Rank()+1)%w.Size(), 3, out); err != nil {
			return err
		}
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
		for i := range in {
			if in[i] != byte(i*5+from) {
				return fmt.Errorf("byte %d from rank %d is %d", i, from, in[i])
			}
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	if n := strings.Count(string(maps), "memfd:tagmatch-memory"); n < 2 && w.Metrics().Wires[from] == "shm" {
		return fmt.Errorf("the memory of rank %d is not mapped", from)
	}
	return memory.Close()
}

// logged counts the lines that name the reason against shared memory.
func logged(r result) int {
	return strings.Count(r.out, "they cannot share memory") + strings.Count(r.out, "shared memory does not work")
}

// TestRefusedCalls runs jobs where the kernel refuses the system calls of shared memory, to one
// rank or to all, before or after it was found to work.
func TestRefusedCalls(t *testing.T) {
	t.Parallel()
	eachTransport(t, []string{"auto"}, func(t *testing.T, device string, env []string) {
		for i, c := range []struct{ calls, who, when, wires, why string }{
			{"memfd_create", "1", "", "tcp", "memfd_create: operation not permitted"},
			{"memfd_create", "all", "", "tcp", "memfd_create: operation not permitted"},
			{"pidfd_open", "1", "", "tcp", "pidfd_open: function not implemented"},
			{"pidfd_open", "all", "", "tcp", "pidfd_open: function not implemented"},
			{"memfd_create", "1", "joined", "tcp", "memfd_create: operation not permitted"},
			{"memfd_create", "all", "joined", "tcp", "memfd_create: operation not permitted"},
			{"pidfd_open", "0", "joined", "tcp", "pidfd_open: function not implemented"},
			{"pidfd_open", "all", "joined", "tcp", "pidfd_open: function not implemented"},
			{"process_vm_readv,process_vm_writev", "1", "", "shm", ""},
			{"process_vm_readv,process_vm_writev", "all", "", "shm", ""},
			{"process_vm_readv", "1", "", "shm", ""},
			{"process_vm_writev", "0", "", "shm", ""},
			{"madvise", "all", "", "shm", ""}, // rings have all their memory at once, as before Linux 5.14
			{"madvise", "1", "", "shm", ""},   // those of the others, too
		} {
			if testlevel.Quick() && (i%2 == 0) != (env == nil) { // each over one of the transports
				continue
			}
			t.Run(fmt.Sprintln(c.calls, c.who, c.when), func(t *testing.T) {
				r := job{n: 3, role: "wires", device: device, arg: 12, env: append([]string{
					refuseVar + "=" + c.calls, whoVar + "=" + c.who, whenVar + "=" + c.when, wiresVar + "=" + c.wires}, env...)}.run(t)
				require.Zero(t, r.code, "%s%s", r.out, r.err)
				require.Contains(t, r.out, c.why)
				// One line on each rank; or one at each end of the pairs concerned.
				lines := map[string]int{"": 3, "joined": 4}[c.when]
				switch {
				case c.why == "":
					lines = 0
				case c.when != "" && c.who == "all":
					lines = 6
				}
				require.Equal(t, lines, logged(r), r.out)
			})
		}
	})
}

// TestApart runs jobs whose rank 1 is another user, or in another PID namespace.
func TestApart(t *testing.T) {
	needs(t, "a rank becomes another user, or gets its own namespace", unix.CAP_SETUID, unix.CAP_SYS_ADMIN)
	eachTransport(t, []string{"auto", "shm,tcp"}, func(t *testing.T, device string, env []string) {
		for _, apart := range []string{"user", "pid"} {
			t.Run(apart, func(t *testing.T) {
				r := job{n: 3, role: "wires", device: device, arg: 12,
					env: append([]string{apartVar + "=" + apart, whoVar + "=1", wiresVar + "=tcp"}, env...)}.run(t)
				require.Zero(t, r.code, "%s%s", r.out, r.err)
				require.Equal(t, 3, logged(r), r.out)
				require.Contains(t, r.out, "another user, or in another namespace")
			})
		}
	})
}

// TestInsisting requests a device for shared memory, where it is impossible: the error names the
// reason, and what to do.
func TestInsisting(t *testing.T) {
	t.Parallel()
	cases := [][]string{
		{"shm", "memfd_create: operation not permitted", refuseVar + "=memfd_create", whoVar + "=1"},
		{"shm,tcp", "memfd_create: operation not permitted", refuseVar + "=memfd_create", whoVar + "=1"},
		{"shm,tcp", "memfd_create: operation not permitted", refuseVar + "=memfd_create", whoVar + "=1", whenVar + "=joined"},
		{"shm", "pidfd_open: function not implemented", refuseVar + "=pidfd_open", whoVar + "=all"},
	}
	if has(unix.CAP_SETUID) {
		cases = append(cases, []string{"shm", "of another user", apartVar + "=user", whoVar + "=1"})
	}
	for _, c := range cases {
		for _, env := range [][]string{nil, tmsrqEnv} {
			r := job{n: 3, role: "wires", device: c[0], arg: 12, env: slices.Concat(c[2:], env)}.run(t)
			require.NotZero(t, r.code, "%s%s", r.out, r.err)
			require.Contains(t, r.err, c[1])
			if !slices.Contains(c, whenVar+"=joined") {
				require.Contains(t, r.err, "device auto instead of "+c[0])
			}
		}
	}
}
