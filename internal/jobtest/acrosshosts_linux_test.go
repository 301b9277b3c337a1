package jobtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/diagnose"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	programs["looker"] = lookerProgram
	roles["ringwithout"] = ringWithoutRole
}

// looked is what a program on one host sees of the job there, on all hosts.
type looked struct {
	States   []inspect.State
	Verdicts []diagnose.Verdict
	Metrics  []inspect.Metrics
}

// lookerProgram looks twice at the only job that has doors here, and prints what it has seen.
func lookerProgram(ctx context.Context) error {
	names, err := doors.Find()
	if err != nil {
		return err
	}
	before := doors.Jobs(ctx, names)
	time.Sleep(50 * time.Millisecond)
	now := doors.Jobs(ctx, names)
	return json.NewEncoder(os.Stdout).Encode(looked{now, diagnose.Diagnose(doors.Look(now), doors.Look(before)), doors.JobsMetrics(ctx, names)})
}

// perHost is how many ranks of startOnHosts are on each host.
const perHost = 2

// onHost is this program, as it runs on a host: in its network, and with a name of its own.
func (w *network) onHost(host int, role string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.t.Context(), "sh", "-c", `hostname "$0" && exec "$@"`, fmt.Sprint("host", host), "ip", "netns", "exec", w.ns(host), os.Args[0])
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS}
	cmd.Env = append(append(os.Environ(), roleVar+"="+role), env...)
	return cmd
}

// startOnHosts starts a role, with perHost ranks on each host.
func (w *network) startOnHosts(role string, env ...string) {
	w.t.Helper()
	for r := range w.n * perHost {
		p := &rankProcess{rank: r, cmd: w.onHost(r/perHost, role, append([]string{"RANK=" + strconv.Itoa(r), "WORLD_SIZE=" + strconv.Itoa(w.n*perHost),
			"MASTER_ADDR=" + w.addr(0), "MASTER_PORT=7077", "TAGMATCH_LISTEN=" + w.addr(0), "TAGMATCH_SECRET=" + strings.Repeat("c7", 32), "TAGMATCH_DEVICE=tcp"}, env...)...)}
		w.ranks = append(w.ranks, p.start(w.t))
	}
}

// kill ends all ranks, which go on otherwise.
func (w *network) kill() {
	for _, p := range w.ranks {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// lookFrom looks from inside of a host.
func (w *network) lookFrom(host int) (l looked) {
	w.t.Helper()
	out, err := w.onHost(host, "looker").Output()
	require.NoError(w.t, err)
	require.NoError(w.t, json.Unmarshal(out, &l), "%s", out)
	return l
}

// lookUntil looks from a host until see is content.
func (w *network) lookUntil(host int, see func(looked) bool) {
	w.t.Helper()
	for end := time.Now().Add(testlevel.Patience(time.Minute)); ; {
		l := w.lookFrom(host)
		if see(l) {
			return
		}
		require.False(w.t, time.Now().After(end), "what was seen last: %+v", &l)
	}
}

// TestLookAcrossHosts has a job on three hosts, with a fault on the first one. It is told on the
// third, with the line; and so is a rank that is stopped.
func TestLookAcrossHosts(t *testing.T) {
	t.Parallel()
	w := newNetwork(t, 3)
	w.what = "looks across hosts"
	w.startOnHosts("broken", faultVar+"=wrongTag")
	w.lookUntil(2, func(l looked) bool {
		i := slices.IndexFunc(l.Verdicts, func(v diagnose.Verdict) bool { return v.Class == diagnose.Mismatch && v.Certain })
		return i >= 0 && l.Verdicts[i].Ranks[0] == 1 && strings.Contains(l.Verdicts[i].Where, "broken_roles_test.go:") && l.States[1].Host == "host0"
	})
	w.lookUntil(2, func(l looked) bool {
		for rank, m := range l.Metrics {
			if m.Rank != rank || m.Silent != "" || len(m.Values) == 0 || m.Host != fmt.Sprint("host", rank/perHost) {
				return false
			}
		}
		return len(l.Metrics) == w.n*perHost
	})
	pid := w.lookFrom(2).States[3].PID
	stopped := func(rank int, host string) func(looked) bool {
		return func(l looked) bool {
			s := l.States[rank]
			return len(l.States) == w.n*perHost && s.Silent == doors.Stopped && s.Host == host && s.PID != 0 &&
				slices.ContainsFunc(l.Verdicts, func(v diagnose.Verdict) bool {
					return v.Class == diagnose.NoAnswer && v.Certain && v.Ranks[0] == rank && strings.Contains(v.What, "on "+host)
				})
		}
	}
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	for host := range w.n { // on its own host too
		w.lookUntil(host, stopped(3, "host1"))
	}
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	w.lookUntil(2, func(l looked) bool { return l.States[3].Silent == "" })

	root := w.lookFrom(0).States[0].PID
	require.NoError(t, syscall.Kill(root, syscall.SIGSTOP))
	w.lookUntil(0, stopped(0, "host0"))
	w.lookUntil(2, func(l looked) bool {
		return len(l.States) == w.n*perHost && l.States[0].Silent == "it has not answered within a second" && l.States[0].Host == "host0" &&
			l.States[2].Silent == "rank 0 does not answer, through which it is asked" && l.States[4].Silent == ""
	})
	for range 10 { // nothing fills the connections meanwhile
		w.lookFrom(2)
	}
	require.NoError(t, syscall.Kill(root, syscall.SIGCONT))
	w.lookUntil(2, func(l looked) bool {
		return !slices.ContainsFunc(l.States, func(s inspect.State) bool { return s.Silent != "" })
	})
	w.kill()
}

// TestKilledWhileLookedAt kills a rank while all are looked at through others, again and again. The
// others go on, and no look fails.
func TestKilledWhileLookedAt(t *testing.T) {
	kills := 5
	if testlevel.Quick() {
		kills = 2
	}
	for range kills {
		const n = 4
		j := newStarted(t, n)
		ranks := j.ring("killed while looked at")
		names := doorsOf(t, j.mark)
		require.Len(t, names, n)
		looks := func() (last string) { // what is known of the one that is killed
			for _, n := range names[:n-1] {
				states := doors.Jobs(t.Context(), []doors.Name{n}) // all others are asked through this one
				require.Len(t, states, 4)
				for _, s := range states[:3] {
					require.Empty(t, s.Silent, "%+v", s)
				}
				last = states[3].Silent
			}
			return last
		}
		looks()
		killed := make(chan error)
		go func() { killed <- ranks[n-1].cmd.Process.Kill() }()
		for range 5 {
			looks()
		}
		require.NoError(t, <-killed)
		require.Error(t, ranks[n-1].cmd.Wait())
		for end := time.Now().Add(testlevel.Patience(30 * time.Second)); ; {
			last := looks()
			if last == doors.Gone {
				break
			}
			require.False(t, time.Now().After(end), last)
		}
		endRing(t, "killed while looked at", ranks[:n-1])
	}
}

// ringWithoutRole: all ranks but the last one pass messages around until the test ends that.
func ringWithoutRole(ctx context.Context, w *p2p.World) error {
	fmt.Println("ready")
	ring := w.Size() - 1
	if w.Rank() == ring {
		<-testWords()
		return w.Close() // the others do not wait for it
	}
	c, next, prev := w.Comm(), (w.Rank()+1)%ring, (w.Rank()+ring-1)%ring
	lap := make([]byte, 2)
	for n := byte(0); lap[1] == 0; n++ {
		if w.Rank() == 0 {
			select {
			case <-testWords():
				lap[1] = 1 // the last one
			default:
			}
			lap[0] = n
			if err := c.Send(ctx, next, 7, lap); err != nil {
				return err
			}
		}
		if _, err := c.Recv(ctx, prev, 7, lap); err != nil {
			return err
		}
		if lap[0] != n {
			return fmt.Errorf("lap %d, want %d", lap[0], n)
		}
		if w.Rank() != 0 {
			if err := c.Send(ctx, next, 7, lap); err != nil {
				return err
			}
		}
	}
	fmt.Println("well")
	return w.Close()
}
