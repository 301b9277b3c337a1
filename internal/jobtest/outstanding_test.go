package jobtest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

func init() { roles["outstanding"] = outstandingRole }

// TestOutstanding has 100,000 rendezvous requests wait at a rank that does not receive, during an
// exchange of large messages with another. Then all of them are received.
func TestOutstanding(t *testing.T) {
	env := []string{"TAGMATCH_EAGER_LIMIT=1k", "TAGMATCH_SEND_LIMIT=1G", "TAGMATCH_UNEXPECTED_LIMIT=512M"}
	eachDevice(t, func(t *testing.T, device string) {
		for name, more := range map[string][]string{"rc": nil, "tmsrq": tmsrqEnv} {
			t.Run(name, func(t *testing.T) {
				job{n: 3, role: "outstanding", device: device, arg: 100_000 / fewer(), env: slices.Concat(env, more)}.succeed(t)
			})
		}
	})
}

const (
	outstandingTag = p2p.Tag(1)
	hugeTag        = p2p.Tag(2)
	goTag          = p2p.Tag(3)

	outstandingSize = 1100 // above the eager limit
	hugeSize        = 4 << 20
	huges           = 20
)

// outstandingRole: rank 0 sends argVar requests to rank 1, half of them raw and half by the Comm,
// and exchanges large messages with rank 2, which then lets rank 1 receive.
func outstandingRole(ctx context.Context, w *p2p.World) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	count := int(number(argVar))
	switch w.Rank() {
	case 0:
		return outstandingFrom(ctx, w, count)
	case 1:
		if _, err := w.Comm().Recv(ctx, 2, goTag, nil); err != nil {
			return fmt.Errorf("waiting to be let go: %w", err)
		}
		for n := 0; n < count; n = w.Metrics().UnexpectedNow {
			if ctx.Err() != nil {
				return fmt.Errorf("%d of %d requests have come: %w", n, count, ctx.Err())
			}
			time.Sleep(time.Millisecond)
		}
		return outstandingTo(ctx, w, count)
	default:
		if err := exchangeHuge(ctx, w, 0); err != nil {
			return err
		}
		return w.Comm().Send(ctx, 1, goTag, nil)
	}
}

func outstandingFrom(ctx context.Context, w *p2p.World, count int) error {
	// Two contents alternate, so that swapped messages are detected.
	bufs := [2][]byte{bytes.Repeat([]byte{1}, outstandingSize), bytes.Repeat([]byte{2}, outstandingSize)}
	before := w.Metrics().RndvSent
	reqs := make([]p2p.Request, count)
	for i := range reqs {
		if i < count/2 {
			reqs[i] = w.Isend(1, outstandingTag, bufs[i%2])
		} else {
			reqs[i] = w.Comm().Isend(1, outstandingTag, bufs[i%2])
		}
	}
	if err := exchangeHuge(ctx, w, 2); err != nil {
		return fmt.Errorf("with %d requests outstanding, %d sent: %w", count, w.Metrics().RndvSent-before, err)
	}
	return p2p.WaitAll(ctx, reqs, nil)
}

// exchangeHuge sends large messages to a rank and receives as many.
func exchangeHuge(ctx context.Context, w *p2p.World, peer int) error {
	in, out := make([]byte, hugeSize), make([]byte, hugeSize)
	for i := range huges {
		fill(out, uint64(i))
		req := w.Comm().Irecv(peer, hugeTag, in)
		if err := w.Comm().Send(ctx, peer, hugeTag, out); err != nil {
			return fmt.Errorf("large message %d to rank %d: %w", i, peer, err)
		}
		if _, err := req.Wait(ctx); err != nil {
			return fmt.Errorf("large message %d from rank %d: %w", i, peer, err)
		}
		if !bytes.Equal(in, out) {
			return fmt.Errorf("large message %d from rank %d: it is another", i, peer)
		}
	}
	return nil
}

// outstandingTo receives the requests, a thousand at a time.
func outstandingTo(ctx context.Context, w *p2p.World, count int) error {
	const batch = 1000
	bufs, reqs := make([][]byte, batch), make([]p2p.Request, batch)
	for i := range bufs {
		bufs[i] = make([]byte, outstandingSize)
	}
	stats := make([]p2p.Completion, batch)
	for first := 0; first < count; first += batch {
		n := min(batch, count-first)
		for i := range n {
			if first+i < count/2 {
				reqs[i] = w.Irecv(outstandingTag, p2p.MaskExact, bufs[i])
			} else {
				reqs[i] = w.Comm().Irecv(0, outstandingTag, bufs[i])
			}
		}
		if err := p2p.WaitAll(ctx, reqs[:n], stats[:n]); err != nil {
			return fmt.Errorf("messages %d to %d: %w", first, first+n, err)
		}
		for i := range n {
			if want := byte((first+i)%2 + 1); stats[i].Status.Len != outstandingSize || bufs[i][0] != want || bufs[i][outstandingSize-1] != want {
				return fmt.Errorf("message %d has %d bytes and begins with %d, want %d", first+i, stats[i].Status.Len, bufs[i][0], want)
			}
		}
	}
	return nil
}
