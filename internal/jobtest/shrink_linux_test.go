package jobtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["shrinkloop"], roles["newcommloop"] = shrinkLoopRole, newCommLoopRole
	surviving = append(surviving, "shrinkloop", "newcommloop")
}

// TestShrinkLoops kills ranks at random times, rank 0 too, while all send, make Comms and shrink.
// The survivors go on each time, and at the end have a Comm of the same members.
func TestShrinkLoops(t *testing.T) { killLoops(t, "shrinkloop") }

// TestNewCommLoops kills ranks while all that live make a Comm, again and again. All hear the same
// of each call, so that they go on with the same list, and at the end have a Comm of the survivors.
func TestNewCommLoops(t *testing.T) { killLoops(t, "newcommloop") }

func killLoops(t *testing.T, role string) {
	t.Parallel()
	times := 4
	if testlevel.CI() {
		times = 30
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var longest time.Duration
	kills := 0
	for range times {
		j := anyJob(rng, role)
		j.seed = rng.Uint64N(1 << 40)
		r := j.run(t)
		var left []int
		victims := victimsOf(j.seed, j.n)
		for rank := range j.n {
			if _, dies := victims[rank]; !dies {
				left = append(left, rank)
			}
		}
		ends := regexp.MustCompile(`survived with (.*)`).FindAllStringSubmatch(r.out, -1)
		require.Len(t, ends, len(left), "%+v\n%s%s", j, r.out, r.err)
		for _, end := range ends {
			require.Equal(t, fmt.Sprint(left), end[1], "%+v", j)
		}
		killed := momentsOf(t, "killed", r.out)
		kills += len(killed)
		require.Len(t, killed, len(victims))
		last := slices.MaxFunc(killed, time.Time.Compare)
		for _, ended := range momentsOf(t, "ended", r.out) {
			longest = max(longest, ended.Sub(last))
		}
	}
	t.Logf("%d kills; after the last one of a job the survivors have ended within %v", kills, longest)
}

// victimsOf says which ranks are killed, and when.
func victimsOf(seed uint64, n int) map[int]time.Duration {
	rng := rand.New(rand.NewPCG(seed, 1))
	victims := map[int]time.Duration{}
	for _, rank := range rng.Perm(n)[:1+rng.IntN(n-1)] {
		victims[rank] = time.Duration(rng.IntN(100_000)) * time.Microsecond
	}
	return victims
}

// fate begins a role in which ranks die: it returns how many do, and what ends the watch for hangs.
func fate(ctx context.Context, w *p2p.World) (victims int, over func() bool, err error) {
	all := victimsOf(number(seedVar), w.Size())
	// A rank that is past it may be killed already, and another one revoke the Comm.
	if err := w.Comm().Barrier(ctx); err != nil && !errors.Is(err, p2p.ErrPeerLost) && !errors.Is(err, p2p.ErrRevoked) {
		return 0, nil, err
	}
	if after, dies := all[w.Rank()]; dies {
		time.AfterFunc(after, func() {
			moment("killed")
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		})
	}
	hangs := time.AfterFunc(time.Minute, func() {
		_ = w.Dump(os.Stderr)
		os.Exit(3)
	})
	return len(all), hangs.Stop, nil
}

// survived ends such a role, with a Comm of the survivors.
func survived(ctx context.Context, w *p2p.World, c *p2p.Comm) error {
	moment("ended")
	var members []int
	for rank := range c.Size() {
		members = append(members, c.WorldRank(rank))
	}
	slices.Sort(members)
	fmt.Println("survived with", strings.TrimSpace(fmt.Sprint(members)))
	// Nobody leaves before all are here: who leaves first is lost to those that are still in it.
	if err := c.Barrier(ctx); err != nil && !errors.Is(err, p2p.ErrPeerLost) {
		return err
	}
	return w.Close()
}

// newCommLoopRole makes Comms of the ranks that are left, until those are the survivors.
func newCommLoopRole(ctx context.Context, w *p2p.World) error {
	victims, over, err := fate(ctx, w)
	if err != nil {
		return err
	}
	defer over()
	list := rand.New(rand.NewPCG(number(seedVar), 2)).Perm(w.Size())
	for {
		c, err := w.NewComm(ctx, list)
		if loss, ok := errors.AsType[*p2p.PeerError](err); ok {
			list = slices.DeleteFunc(list, func(rank int) bool { return slices.Contains(loss.Ranks, rank) })
			continue
		}
		if err == nil && len(list) == w.Size()-victims {
			return survived(ctx, w, c)
		}
		if err == nil {
			err = c.Barrier(ctx)
			_ = c.Close()
		}
		if err != nil && !errors.Is(err, p2p.ErrPeerLost) {
			return err
		}
	}
}

// shrinkLoopRole does steps until all ranks that are to die have, and all that are left know.
func shrinkLoopRole(ctx context.Context, w *p2p.World) error {
	victims, over, err := fate(ctx, w)
	if err != nil {
		return err
	}
	defer over()
	c := w.Comm()
	for step := int64(0); ; {
		last := int64(0)
		if len(w.Failed()) == victims {
			last = 1
		}
		err := shrinkStep(ctx, c, step)
		if err != nil && !errors.Is(err, p2p.ErrPeerLost) && !errors.Is(err, p2p.ErrRevoked) {
			return err
		}
		if err == nil && step%5 != 0 {
			step++
			continue
		}
		if err != nil {
			last = 0
			if err := c.Revoke(err.Error()); err != nil {
				return err
			}
		}
		n, least, err := c.Shrink(ctx, 2*step+last)
		if err != nil {
			return err
		}
		if c != w.Comm() {
			_ = c.Close()
		}
		c = n
		if step = least/2 + 1; least%2 != 0 {
			return survived(ctx, w, c)
		}
	}
}

// shrinkStep is what the ranks of a Comm do with each other.
func shrinkStep(ctx context.Context, c *p2p.Comm, step int64) error {
	switch step % 4 {
	case 0:
		return c.Barrier(ctx)
	case 1:
		n, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		defer n.Close()
		return n.Barrier(ctx)
	case 2:
		next, last := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		_, err := c.Sendrecv(ctx, next, 1, make([]byte, 100_000), last, 1, make([]byte, 100_000))
		return err
	}
	var recvs, sends []p2p.Request
	for rank := range c.Size() {
		recvs = append(recvs, c.Irecv(p2p.AnySource, 2, make([]byte, 300_000)))
		sends = append(sends, c.Isend(rank, 2, make([]byte, 300_000)))
	}
	err := p2p.WaitAll(ctx, recvs, nil)
	if err != nil { // a loss has ended the receives of all: nobody takes what is sent to those that live
		_ = c.Revoke(err.Error())
	}
	return errors.Join(err, p2p.WaitAll(ctx, sends, nil))
}
