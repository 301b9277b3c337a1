package jobtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["lookedinto"] = lookedIntoRole
	roles["noinspect"] = noInspectRole
	roles["lookedintocoll"] = lookedIntoCollRole
}

// TestLookedInto looks into a job of 3 ranks, of which one is stopped, and then has others misuse
// the door of one while it works.
func TestLookedInto(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		job{n: 3, role: "lookedinto", device: device}.succeed(t)
	})
}

// TestInspectOff: a job may have no doors.
func TestInspectOff(t *testing.T) {
	job{n: 2, role: "noinspect", device: "shm", env: []string{"TAGMATCH_INSPECT=off"}}.succeed(t)
}

func noInspectRole(context.Context, *p2p.World) error {
	names, err := doors.Find()
	if slices.ContainsFunc(names, func(n doors.Name) bool { return n.PID == os.Getpid() }) {
		return fmt.Errorf("this rank has a door")
	}
	return err
}

// Tags of lookedIntoRole.
const (
	tagLookedFor p2p.Tag = 40 + iota // rank 1 receives it while others look
	tagHasAll                        // what comes next may come: all that was before is over
)

// lookedIntoRole: rank 0 looks at rank 1, which waits for a message, and at rank 2, which is
// stopped.
func lookedIntoRole(ctx context.Context, w *p2p.World) error {
	pid := uint64(os.Getpid())
	pids, err := exchange(ctx, w, 1, []uint64{pid, pid, pid})
	if err != nil {
		return err
	}
	switch w.Rank() {
	case 1:
		if err := w.Comm().Send(ctx, 0, tagHasAll, nil); err != nil {
			return err
		}
		if _, err := w.Comm().Recv(ctx, 0, tagLookedFor, make([]byte, 100)); err != nil {
			return err
		}
		return answerEach(ctx, w)
	case 2:
		if _, err := w.Comm().Recv(ctx, 0, tagHasAll, nil); err != nil {
			return err
		}
		return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	if _, err := w.Comm().Recv(ctx, 1, tagHasAll, nil); err != nil {
		return err
	}
	if err := w.Comm().Send(ctx, 2, tagHasAll, nil); err != nil {
		return err
	}
	if err := untilStopped(ctx, int(pids[2])); err != nil {
		return err
	}
	err = lookAtAll(ctx, pids)
	_ = syscall.Kill(int(pids[2]), syscall.SIGCONT)
	if err != nil {
		return err
	}
	if err := w.Comm().Send(ctx, 1, tagLookedFor, nil); err != nil {
		return err
	}
	return pesterDoor(ctx, w, int(pids[1]))
}

// doorOf is the door of a process.
func doorOf(pid int) (n doors.Name, err error) {
	names, err := doors.Find()
	if err != nil {
		return n, err
	}
	i := slices.IndexFunc(names, func(n doors.Name) bool { return n.PID == pid })
	if i < 0 {
		return n, fmt.Errorf("process %d has no door among %v", pid, names)
	}
	return names[i], nil
}

// lookAtAll looks until rank 1 waits: it may not have come to that yet.
func lookAtAll(ctx context.Context, pids []uint64) error {
	var names []doors.Name
	for _, pid := range pids {
		n, err := doorOf(int(pid))
		if err != nil {
			return err
		}
		names = append(names, n)
	}
	for {
		states := doors.States(ctx, names)
		err := judge(states)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func judge(states []inspect.State) error {
	wrong := func(what string, s inspect.State) error { return fmt.Errorf("rank %d: %s: %+v", s.Rank, what, s) }
	for rank, s := range states {
		if s.Rank != rank || s.Job != states[0].Job || s.PID == 0 || s.Host == "" {
			return wrong("who it is", s)
		}
	}
	if s := states[2]; s.Silent != doors.Stopped {
		return wrong("it is stopped", s)
	}
	if s := states[0]; s.Silent != "" || s.Size != 3 || s.Phase != "running" || s.Moved == 0 || s.Program == "" {
		return wrong("it looks at itself", s)
	}
	s := states[1]
	if len(s.Receives) != 1 || s.Receives[0].Awaited != 1 || s.Receives[0].Tag != uint64(tagLookedFor) || s.Receives[0].Peer != 0 || s.Receives[0].Comm != inspect.CommWorld {
		return wrong("it receives", s)
	}
	if len(s.Calls) != 1 || s.Calls[0].Name != "Comm.Recv" || !strings.HasSuffix(s.Calls[0].At, " jobtest.lookedIntoRole") {
		return wrong("it is in a call", s)
	}
	return nil
}

const pesters = 200 // messages that are answered while the door is misused

// answerEach sends each message of rank 0 back.
func answerEach(ctx context.Context, w *p2p.World) error {
	for range pesters {
		if _, err := w.Comm().Recv(ctx, 0, tagLookedFor, nil); err != nil {
			return err
		}
		if err := w.Comm().Send(ctx, 0, tagLookedFor, nil); err != nil {
			return err
		}
	}
	_, err := w.Comm().Recv(ctx, 0, tagHasAll, nil) // its door is looked at until then
	return err
}

// pesterDoor has askers that do not read, ask nothing, ask nonsense or go in the middle at rank 1,
// which answers messages meanwhile. At its end the door keeps no connection.
func pesterDoor(ctx context.Context, w *p2p.World, pid int) error {
	door, err := doorOf(pid)
	if err != nil {
		return err
	}
	for i := range pesters {
		conn, err := net.Dial("unix", door.String())
		if err != nil {
			return err
		}
		if i%4 == 3 {
			defer conn.Close()
		}
		_, _ = conn.Write([]byte([]string{"state\n", "sta", "", "\xff\n"}[i%4])) // fails where it was turned away
		if i%4 != 3 {
			conn.Close()
		}
		if err := w.Comm().Send(ctx, 1, tagLookedFor, nil); err != nil {
			return err
		}
		if _, err := w.Comm().Recv(ctx, 1, tagLookedFor, nil); err != nil {
			return err
		}
	}
	for {
		open, err := socketsOf(door)
		if err != nil {
			return err
		}
		if open == 1 { // that which listens
			return w.Comm().Send(ctx, 1, tagHasAll, nil)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the door of rank 1 has %d sockets", open)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// socketsOf is how many sockets a door has: that which listens, and those of askers.
func socketsOf(door doors.Name) (int, error) {
	table, err := os.ReadFile("/proc/net/unix")
	return strings.Count(string(table), " "+door.String()+"\n"), err
}

// TestLookedIntoCollectives looks at ranks that wait for another one in a collective call.
func TestLookedIntoCollectives(t *testing.T) {
	job{n: 3, role: "lookedintocoll", device: "shm"}.succeed(t)
}

// lookedIntoCollRole: rank 0 comes to an AllReduce when it has seen that the others wait for it.
func lookedIntoCollRole(ctx context.Context, w *p2p.World) error {
	pid := uint64(os.Getpid())
	pids, err := exchange(ctx, w, 1, []uint64{pid, pid, pid})
	if err != nil {
		return err
	}
	g, err := coll.New(ctx, w.Comm())
	if err != nil {
		return err
	}
	defer func() { _ = g.Close() }()
	if err := coll.Barrier(ctx, g); err != nil {
		return err
	}
	split := inspect.Meeting{Name: "Split", Comm: inspect.CommWorld, Number: 1, Size: 3}
	if w.Rank() == 0 {
		wants := [][]inspect.Meeting{
			{split, {Name: "coll.Barrier", Comm: "Comm 1", Number: 1, Size: 3}},
			{{Name: "coll.AllReduce", Comm: "Comm 1", Number: 2, Waiting: true, Size: 3}, split},
			{{Name: "coll.AllReduce", Comm: "Comm 1", Number: 2, Waiting: true, Size: 3}, split},
		}
		for rank, want := range wants {
			if err := lookForMeetings(ctx, int(pids[rank]), want); err != nil {
				return fmt.Errorf("rank %d: %w", rank, err)
			}
		}
	}
	return coll.AllReduce(ctx, g, coll.Sum[int64](), []int64{1})
}

// lookForMeetings looks until a rank is in these collective calls.
func lookForMeetings(ctx context.Context, pid int, want []inspect.Meeting) error {
	n, err := doorOf(pid)
	if err != nil {
		return err
	}
	for {
		s := doors.States(ctx, []doors.Name{n})[0]
		for i := range s.Meetings {
			s.Meetings[i].Members = nil // they are all
		}
		if reflect.DeepEqual(want, s.Meetings) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("it is in %+v, want %+v", s, want)
		}
		time.Sleep(time.Millisecond)
	}
}
