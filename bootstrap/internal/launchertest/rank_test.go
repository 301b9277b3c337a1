//go:build linux && launchers

package launchertest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	_ "github.com/tagmatch/tagmatch/bootstrap/pmix"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// roleVar has this binary be a rank, and says what it does.
const roleVar = "LAUNCHERTEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		if err := rank(role); err != nil {
			fmt.Fprintf(os.Stderr, "failed: %v\n", err)
			os.Exit(3)
		}
		return
	}
	code := m.Run()
	stopSlurm()
	if dir, err := built(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

var roles = map[string]func(ctx context.Context, w *p2p.World) error{
	"hello": func(context.Context, *p2p.World) error { return nil },

	"exchange": exchange, "abort": abort, "killed": killed, "cut": cut,
}

func rank(role string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testlevel.Patience(time.Minute))
	defer cancel()
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		return err
	}
	defer w.Close()
	if err := roles[role](ctx, w); err != nil {
		return err
	}
	if err := w.Shutdown(ctx); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d, local %d of %d, by %s: well\n", w.Rank(), w.Size(), w.LocalRank(), w.LocalSize(), w.Metrics().Device)
	return nil
}

// exchange has each rank send to all others, small and large, and compares what comes.
func exchange(ctx context.Context, w *p2p.World) error {
	c := w.Comm()
	message := func(from, to, size int) []byte { return bytes.Repeat([]byte{byte(3*from + to + 1)}, size) }
	for _, size := range []int{8, 20_000, 1 << 20} {
		var reqs []p2p.Request
		in := make([][]byte, c.Size())
		for r := range in {
			in[r] = make([]byte, size)
			reqs = append(reqs, c.Irecv(r, 1, in[r]), c.Isend(r, 1, message(c.Rank(), r, size)))
		}
		// One by one as they end: where a rank is lost another may never send what WaitAll would
		// wait for first.
		for done := make([]p2p.Completion, 1); ; {
			n, err := p2p.WaitSome(ctx, reqs, done)
			if err = cmp.Or(err, done[0].Err); err != nil {
				return err
			}
			if n == 0 {
				break
			}
		}
		for r := range in {
			if !bytes.Equal(in[r], message(r, c.Rank(), size)) {
				return fmt.Errorf("%d bytes of rank %d are not what it has sent", size, r)
			}
		}
	}
	return nil
}

// abort: the last rank ends the job while the others wait.
func abort(ctx context.Context, w *p2p.World) error {
	if err := exchange(ctx, w); err != nil {
		return err
	}
	if w.Rank() == w.Size()-1 {
		w.Abort(42, "as the test wants")
		time.Sleep(2 * time.Second) // most launchers end this process first
	}
	_, err := w.Comm().Recv(ctx, p2p.AnySource, 9, nil)
	return err
}

// killed: the last rank dies while the others wait for it.
func killed(ctx context.Context, w *p2p.World) error {
	if err := exchange(ctx, w); err != nil {
		return err
	}
	if w.Rank() == w.Size()-1 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	_, err := w.Comm().Recv(ctx, w.Size()-1, 9, nil)
	if errors.Is(err, p2p.ErrPeerLost) {
		fmt.Printf("rank %d has seen it\n", w.Rank())
	}
	return err
}

// cut: the ranks exchange until the link of rank 2 is cut, which those that can still reach rank 0
// notice. They end when both have: the end of one would be a loss for the other.
func cut(ctx context.Context, w *p2p.World) error {
	if err := exchange(ctx, w); err != nil {
		return err
	}
	fmt.Printf("rank %d is ready\n", w.Rank())
	for {
		err := exchange(ctx, w)
		var peer *p2p.PeerError
		if errors.As(err, &peer) {
			fmt.Printf("rank %d has lost %v\n", w.Rank(), peer.Ranks)
			if w.Rank() == 2 {
				return nil
			}
			_, err = w.Comm().Sendrecv(ctx, 1-w.Rank(), 9, nil, 1-w.Rank(), 9, nil)
			return err
		}
		if err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
