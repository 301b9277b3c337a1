package jobtest

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/p2p"
)

// faultVar is the fault of a broken program.
const faultVar = "JOBTEST_FAULT"

func init() { programs["broken"] = brokenProgram }

// brokenProgram has one of the faults of docs/debugging.md, which quotes these lines and numbers:
// `go test ./internal/jobtest -run TestDiagnosed -update` renews the answers there. No call has a
// deadline.
func brokenProgram(context.Context) error {
	ctx := context.Background()
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		return err
	}
	defer w.Close()
	fault := os.Getenv(faultVar)
	broken, known := brokenPrograms[fault]
	if !known {
		return fmt.Errorf("no fault %q", fault)
	}
	if err := broken(ctx, w.Comm()); err != nil {
		return err
	}
	return w.Shutdown(ctx)
}

// brokenPrograms is the programs by their faults.
var brokenPrograms = map[string]func(context.Context, *p2p.Comm) error{
	"wrongTag": wrongTag, "wrongLargeTag": wrongLargeTag, "wrongSource": wrongSource, "wrongComm": wrongComm,
	"receiveCycle": receiveCycle, "sendCycle": sendCycle, "unacknowledged": unacknowledged,
	"missedDup": missedDup, "missedAllReduce": missedAllReduce, "endlessLoop": endlessLoop, "slowRank": slowRank,
	"senderHeldUp": senderHeldUp, "leak": leak, "noShutdown": noShutdown, "stopped": stopped, "firstStopped": firstStopped,
}

func wrongTag(ctx context.Context, c *p2p.Comm) error {
	switch buf := make([]byte, 64); c.Rank() {
	case 0:
		return c.Send(ctx, 1, 8, []byte("x"))
	case 1:
		_, err := c.Recv(ctx, 0, 9, buf)
		return err
	}
	return nil
}

func wrongLargeTag(ctx context.Context, c *p2p.Comm) error {
	switch large := make([]byte, 1<<20); c.Rank() {
	case 0:
		return c.Send(ctx, 1, 8, large)
	case 1:
		_, err := c.Recv(ctx, 0, 9, large)
		return err
	}
	return nil
}

func wrongSource(ctx context.Context, c *p2p.Comm) error {
	switch buf := make([]byte, 64); c.Rank() {
	case 2:
		return c.Send(ctx, 1, 7, []byte("x"))
	case 1:
		_, err := c.Recv(ctx, 0, 7, buf)
		return err
	}
	return nil
}

func wrongComm(ctx context.Context, c *p2p.Comm) error {
	dup, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	switch buf := make([]byte, 64); c.Rank() {
	case 0:
		return c.Send(ctx, 1, 7, []byte("x"))
	case 1:
		_, err := dup.Recv(ctx, 0, 7, buf)
		return err
	}
	return nil
}

// neighbours are those of a rank in a ring.
func neighbours(c *p2p.Comm) (next, prev int) {
	return (c.Rank() + 1) % c.Size(), (c.Rank() + c.Size() - 1) % c.Size()
}

func receiveCycle(ctx context.Context, c *p2p.Comm) error {
	next, prev := neighbours(c)
	buf := make([]byte, 64)
	if _, err := c.Recv(ctx, prev, 7, buf); err != nil {
		return err
	}
	return c.Send(ctx, next, 7, buf)
}

func sendCycle(ctx context.Context, c *p2p.Comm) error {
	next, prev := neighbours(c)
	large, other := make([]byte, 1<<20), make([]byte, 1<<20)
	if err := c.Send(ctx, next, 7, large); err != nil {
		return err
	}
	_, err := c.Recv(ctx, prev, 7, other)
	return err
}

func unacknowledged(ctx context.Context, c *p2p.Comm) error {
	if c.Rank() == 3 {
		os.Exit(1)
	}
	for buf := make([]byte, 64); ; {
		if _, err := c.Recv(ctx, p2p.AnySource, 7, buf); err != nil {
			time.Sleep(time.Second) // and try again
		}
	}
}

func missedDup(ctx context.Context, c *p2p.Comm) error {
	if c.Rank() != 1 {
		_, err := c.Dup(ctx)
		return err
	}
	_, err := c.Recv(ctx, 0, 7, make([]byte, 64))
	return err
}

func missedAllReduce(ctx context.Context, c *p2p.Comm) error {
	g, err := coll.New(ctx, c)
	if err != nil {
		return err
	}
	if c.Rank() == 1 {
		return nil
	}
	return coll.AllReduce(ctx, g, coll.Sum[int64](), []int64{1})
}

func endlessLoop(ctx context.Context, c *p2p.Comm) error {
	x, me := 1, c.Rank()
	for ; me == 1 && x > 0; x ^= 2 {
	}
	_, err := c.Recv(ctx, 1, 7, make([]byte, 64))
	return err
}

func slowRank(ctx context.Context, c *p2p.Comm) error {
	next, prev := neighbours(c)
	out, in := make([]byte, 64), make([]byte, 64)
	for {
		if c.Rank() == 2 {
			time.Sleep(20 * time.Millisecond)
		}
		if _, err := c.Sendrecv(ctx, next, 7, out, prev, 7, in); err != nil {
			return err
		}
	}
}

func senderHeldUp(ctx context.Context, c *p2p.Comm) error {
	switch buf := make([]byte, 16<<10); c.Rank() {
	case 0:
		for range 1 << 20 {
			if err := c.Send(ctx, 1, 7, buf); err != nil {
				return err
			}
		}
	case 1:
		_, err := c.Recv(ctx, 2, 1, buf)
		return err
	}
	return nil
}

func leak(ctx context.Context, c *p2p.Comm) error {
	buf := make([]byte, 64)
	for step := range 1 << 20 {
		switch c.Rank() {
		case 0:
			c.Isend(1, 7, []byte("x"))
		case 1:
			if _, err := c.Recv(ctx, 0, 7, buf); err != nil {
				return err
			}
		}
		if step%1000 == 0 { // neither memory nor the receiver is to be overrun before somebody looks
			time.Sleep(10 * time.Millisecond)
			if err := c.Barrier(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func noShutdown(ctx context.Context, c *p2p.Comm) error {
	if c.Rank() == 1 {
		os.Exit(0) // as main does that returns
	}
	_, err := c.Recv(ctx, 1, 7, make([]byte, 64))
	return err
}

// stopped stops rank 2 again whenever somebody continues it, as one does that had stopped more
// processes than this one.
func stopped(ctx context.Context, c *p2p.Comm) error {
	for c.Rank() == 2 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	_, err := c.Recv(ctx, 2, 7, make([]byte, 64))
	return err
}

func firstStopped(_ context.Context, c *p2p.Comm) error {
	for c.Rank() == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	return nil
}
