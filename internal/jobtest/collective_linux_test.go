package jobtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["duploop"] = dupLoopRole
	roles["libraries"] = librariesRole
	roles["orphandup"] = orphanDupRole
}

// TestDupLoops kills a rank at a random time while all make and close Comms, two at once, with
// contexts that do not end. Nobody waits: each call of the others ends, and they can make Comms
// among themselves.
func TestDupLoops(t *testing.T) {
	t.Parallel()
	times := 4
	if testlevel.CI() {
		times = 12
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var longest time.Duration
	for range times {
		j := anyJob(rng, "duploop")
		j.arg, j.seed = rng.IntN(60_000), uint64(rng.IntN(j.n))
		r := j.run(t)
		require.Equal(t, j.n-1, strings.Count(r.out, "survived"), "%+v\n%s%s", j, r.out, r.err)
		killed := momentsOf(t, "killed", r.out)
		require.Len(t, killed, 1)
		for _, ended := range momentsOf(t, "ended", r.out) {
			longest = max(longest, ended.Sub(killed[0]))
		}
	}
	t.Logf("after a kill the calls of the others have ended within %v", longest)
}

// anyJob is a job of 2 to 8 ranks, on any device and transport, for a role that survives losses.
func anyJob(rng *rand.Rand, role string) job {
	j := job{n: 2 + rng.IntN(7), role: role, device: []string{"shm", "tcp"}[rng.IntN(2)], grace: time.Minute}
	if rng.IntN(2) == 0 {
		j.env = tmsrqEnv
	}
	return j
}

// moment prints when something has happened, and momentsOf reads that.
func moment(what string) { fmt.Printf("%s at %d\n", what, time.Now().UnixNano()) }

func momentsOf(t *testing.T, what, out string) (list []time.Time) {
	for _, m := range regexp.MustCompile(what+` at (\d+)`).FindAllStringSubmatch(out, -1) {
		ns, err := strconv.ParseInt(m[1], 10, 64)
		require.NoError(t, err)
		list = append(list, time.Unix(0, ns))
	}
	return list
}

// dupLoopRole kills the rank that seedVar names, after argVar microseconds.
func dupLoopRole(ctx context.Context, w *p2p.World) error {
	victim := int(number(seedVar))
	color := 0
	if w.Rank() == victim {
		color = -1
	}
	left, err := w.Comm().Split(ctx, color, 0)
	if err != nil {
		return err
	}
	second, err := w.Comm().Dup(ctx)
	if err != nil {
		return err
	}
	if err := awaitAll(ctx, w, victim); err != nil {
		return err
	}
	if w.Rank() == victim {
		time.AfterFunc(time.Duration(number(argVar))*time.Microsecond, func() {
			moment("killed")
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		})
	}
	hangs := time.AfterFunc(time.Minute, func() {
		_ = w.Dump(os.Stderr)
		os.Exit(3)
	})
	defer hangs.Stop()
	var loops errgroup.Group
	for _, c := range []*p2p.Comm{w.Comm(), second} {
		loops.Go(func() error { return makeComms(c, victim) })
	}
	if err := loops.Wait(); err != nil {
		return err
	}
	moment("ended")
	for range 3 {
		if err := makesAComm(ctx, left); err != nil {
			return fmt.Errorf("among those that are left: %w", err)
		}
	}
	// Nobody leaves before all are here: who leaves first is lost to those that are still in it.
	if _, err := left.Dup(ctx); err != nil && !errors.Is(err, p2p.ErrPeerLost) {
		return err
	}
	fmt.Println("survived")
	return w.Close()
}

// awaitAll has a rank wait until all others have made what they make before: it ends soon.
func awaitAll(ctx context.Context, w *p2p.World, rank int) error {
	if w.Rank() != rank {
		return w.Comm().Send(ctx, rank, 3, nil)
	}
	for r := range w.Size() {
		if r == rank {
			continue
		}
		if _, err := w.Comm().Recv(ctx, r, 3, nil); err != nil {
			return err
		}
	}
	return nil
}

// makeComms makes Comms of c, and of those, until a rank is lost.
func makeComms(c *p2p.Comm, victim int) error {
	ctx := context.Background()
	for {
		d, err := c.Dup(ctx)
		if err == nil {
			var e *p2p.Comm
			e, err = d.Split(ctx, c.Rank()%2, -c.Rank())
			err = errors.Join(err, e.Close(), d.Close())
		}
		if err != nil {
			return lostTo(victim, err, "")
		}
	}
}

// makesAComm makes a Comm that works.
func makesAComm(ctx context.Context, c *p2p.Comm) error {
	d, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	in, out := make([]byte, 1), []byte{byte(d.Rank())}
	from := (d.Rank() + d.Size() - 1) % d.Size()
	if _, err := d.Sendrecv(ctx, (d.Rank()+1)%d.Size(), 1, out, p2p.AnySource, 1, in); err != nil {
		return err
	}
	if int(in[0]) != from {
		return fmt.Errorf("rank %d gets the message of %d", d.Rank(), in[0])
	}
	return d.Close()
}

// TestOrphanDup: when rank 0 is dead, which served the launcher's store, a Dup still hears of the
// end of a rank that this one was never connected to.
func TestOrphanDup(t *testing.T) {
	t.Parallel()
	eachTransport(t, []string{"shm", "tcp"}, func(t *testing.T, device string, env []string) {
		job{n: 8, role: "orphandup", device: device, env: env}.survives(t, 6)
	})
}

func orphanDupRole(ctx context.Context, w *p2p.World) error {
	c := w.Comm()
	color := 0
	if w.Rank() == 0 {
		color = -1
	}
	left, err := c.Split(ctx, color, 0) // connects ranks at distances of 1, 2 and 4
	if err != nil {
		return err
	}
	if err := awaitAll(ctx, w, 0); err != nil {
		return err
	}
	if w.Rank() == 0 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	_, err = c.Recv(ctx, 0, 1, nil)
	if err := lostTo(0, err, ""); err != nil {
		return err
	}
	switch w.Rank() {
	case 4:
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case 1:
		_, err := left.Dup(context.Background()) // waits for rank 7, which makes no call
		if err := lostTo(4, err, ""); err != nil {
			return err
		}
		for _, r := range []int{2, 3, 5, 6, 7} {
			if err := c.Send(ctx, r, 1, nil); err != nil {
				return err
			}
		}
	default:
		if _, err := c.Recv(ctx, 1, 1, nil); err != nil {
			return err
		}
	}
	fmt.Println("survived")
	return w.Close()
}

// TestLibraries: of several libraries of a rank, each with a Comm of its own, each hears of all
// losses of its members, whatever the others have acknowledged, where one is lost between any two
// of their calls.
func TestLibraries(t *testing.T) {
	eachTransport(t, []string{"shm", "tcp"}, func(t *testing.T, device string, env []string) {
		job{n: 8, role: "libraries", device: device, env: env}.survives(t, 1)
	})
}

// library is what receives from any source of a Comm.
type library struct {
	c    *p2p.Comm
	ack  func(...int)
	lost []int // members whose loss it has not heard of
}

func librariesRole(ctx context.Context, w *p2p.World) error {
	all, err := w.Comm().Dup(ctx)
	if err != nil {
		return err
	}
	color := 0
	if w.Rank()%3 == 1 {
		color = -1
	}
	some, err := w.Comm().Split(ctx, color, -w.Rank())
	if err != nil {
		return err
	}
	libs := []*library{{c: all, ack: all.AckFailures}, {c: some, ack: some.AckFailures}, {c: w.Comm(), ack: w.AckFailures}}
	if err := awaitAll(ctx, w, 0); err != nil {
		return err
	}
	if w.Rank() != 0 {
		return serveLibraries(ctx, w, libs)
	}
	for victim := w.Size() - 1; victim > 0; victim-- {
		if err := w.Comm().Send(ctx, victim, 7, []byte{dies}); err != nil {
			return err
		}
		_, err := w.Comm().Recv(ctx, victim, 8, nil)
		if err := lostTo(victim, err, ""); err != nil {
			return err
		}
		for _, l := range libs {
			if l.c.RankOf(victim) != p2p.ProcNull {
				l.lost = append(l.lost, victim)
			}
		}
		turn := victim % len(libs)
		if err := libs[turn].call(ctx, w, turn); err != nil {
			return fmt.Errorf("library %d after the loss of %d: %w", turn, victim, err)
		}
	}
	fmt.Println("survived")
	return w.Close()
}

// dies asks a rank to end; what is below asks for a message to one of the libraries.
const dies = 255

// call has a library receive from any source: it hears of all losses since its last call, and goes
// on with those who are left, at last with itself.
func (l *library) call(ctx context.Context, w *p2p.World, number int) error {
	if len(l.lost) != 0 {
		_, err := l.c.Recv(ctx, p2p.AnySource, 1, nil)
		lost, ok := errors.AsType[*p2p.PeerError](err)
		if slices.Sort(l.lost); !ok || !slices.Equal(lost.Ranks, l.lost) {
			return fmt.Errorf("%v are lost, the error is: %w", l.lost, err)
		}
		l.ack(lost.Ranks...)
		l.lost = nil
	}
	r := l.c.Irecv(p2p.AnySource, 1, nil)
	sender := 0
	for rank := range l.c.Size() {
		if world := l.c.WorldRank(rank); !slices.Contains(w.Failed(), world) {
			sender = max(sender, world)
		}
	}
	var err error
	if sender == w.Rank() {
		err = l.c.Send(ctx, l.c.Rank(), 1, nil)
	} else {
		err = w.Comm().Send(ctx, sender, 7, []byte{byte(number)})
	}
	if err != nil {
		return err
	}
	st, err := r.Wait(ctx)
	if err == nil && l.c.WorldRank(st.Source) != sender {
		return fmt.Errorf("a message of %d, where %d has sent one", st.Source, sender)
	}
	return err
}

func serveLibraries(ctx context.Context, w *p2p.World, libs []*library) error {
	for {
		var what [1]byte
		if _, err := w.Comm().Recv(ctx, 0, 7, what[:]); err != nil {
			return err
		}
		if what[0] == dies {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		c := libs[what[0]].c
		if err := c.Send(ctx, c.RankOf(0), 1, nil); err != nil {
			return err
		}
	}
}
