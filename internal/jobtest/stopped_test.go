package jobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

const (
	tagAwaited p2p.Tag = 5 + iota // an Irecv waits for it
	tagSurprise
	tagBlocked // a Recv waits for it
	tagReceived
)

// stoppedRole: the Sends return while the receiver is still stopped; it then finds the messages
// withdrawn, and its receives take later ones.
func stoppedRole(ctx context.Context, w *p2p.World) error {
	pid := uint64(os.Getpid())
	pids, err := exchange(ctx, w, 1, []uint64{pid, pid})
	if err != nil {
		return err
	}
	if err := received(ctx, w); err != nil {
		return err
	}
	if w.Rank() == 0 {
		if err := sendToStopped(ctx, w, int(pids[1])); err != nil {
			return err
		}
		return receiveFromStopped(ctx, w, int(pids[1]))
	}
	if err := stopAndReceive(ctx, w); err != nil {
		return err
	}
	return sendAndStop(ctx, w)
}

// received returns at rank 1 once rank 0 has received its messages, which a rank that is stopped or
// killed may not have passed to the network yet.
func received(ctx context.Context, w *p2p.World) error {
	switch w.Rank() {
	case 0:
		return w.Comm().Send(ctx, 1, tagReceived, nil)
	case 1:
		_, err := w.Comm().Recv(ctx, 0, tagReceived, nil)
		return err
	}
	return nil
}

func sendToStopped(ctx context.Context, w *p2p.World, pid int) error {
	if err := untilStopped(ctx, pid); err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	buf := make([]byte, 1<<20)
	for _, tag := range []p2p.Tag{tagAwaited, tagSurprise, tagBlocked} {
		fill(buf, uint64(tag))
		err := sendBriefly(ctx, w, tag, buf)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, p2p.ErrMaybeDelivered) {
			return fmt.Errorf("send of tag %d to a stopped rank: %w", tag, err)
		}
		clear(buf) // this rank owns the buffer again
		if err := w.Comm().Send(ctx, 1, tag, fmt.Append(nil, "after ", tag)); err != nil {
			return err
		}
	}
	return nil
}

// sendBriefly cancels a Send of a large message to rank 1 once its request was sent.
func sendBriefly(ctx context.Context, w *p2p.World, tag p2p.Tag, buf []byte) error {
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	before := w.Metrics().RndvSent
	go func() {
		for short.Err() == nil && w.Metrics().RndvSent == before {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	return w.Comm().Send(short, 1, tag, buf)
}

// untilStopped waits until the kernel says that process pid is stopped.
func untilStopped(ctx context.Context, pid int) error {
	for ctx.Err() == nil {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return err
		}
		if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "T") {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return ctx.Err()
}

func stopAndReceive(ctx context.Context, w *p2p.World) error {
	c := w.Comm()
	bufs := [][]byte{make([]byte, 1<<20), make([]byte, 100)}
	reqs := []p2p.Request{c.Irecv(0, tagAwaited, bufs[0]), c.Irecv(0, tagAwaited, bufs[1])}
	blocked := make(chan error, 1)
	go func() { blocked <- receiveAfter(ctx, w, tagBlocked) }()
	for w.Metrics().PostedNow < 3 {
		time.Sleep(time.Millisecond)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	// The first receive has its message withdrawn, and is back before the next one comes, unless
	// its device was reading.
	got, st, err := p2p.WaitAny(ctx, reqs)
	if err != nil {
		return err
	}
	if err := checkAfter(tagAwaited, bufs[got][:st.Len]); err != nil {
		return err
	}
	reqs[1-got].Cancel()
	if st, err := reqs[1-got].Wait(ctx); !errors.Is(err, p2p.ErrCanceled) {
		return fmt.Errorf("receive %d had nothing to wait for but its Cancel, and got %d bytes, error %v", 1-got, st.Len, err)
	}
	if err := receiveAfter(ctx, w, tagSurprise); err != nil {
		return err
	}
	return <-blocked
}

func receiveAfter(ctx context.Context, w *p2p.World, tag p2p.Tag) error {
	buf := make([]byte, 1<<20)
	st, err := w.Comm().Recv(ctx, 0, tag, buf)
	if err != nil {
		return err
	}
	return checkAfter(tag, buf[:st.Len])
}

func checkAfter(tag p2p.Tag, got []byte) error {
	if want := fmt.Append(nil, "after ", tag); !bytes.Equal(got, want) {
		return fmt.Errorf("tag %d: got %d bytes, want %q", tag, len(got), want)
	}
	return nil
}

const (
	tagLarge p2p.Tag = 20 + iota // raw: a message whose data a stopped rank does not send
	tagGo
	largeSize = 8 << 20
)

func sendAndStop(ctx context.Context, w *p2p.World) error {
	buf := make([]byte, largeSize)
	fill(buf, 1)
	large := w.Isend(0, tagLarge, buf)
	if _, err := w.Recv(ctx, tagGo, p2p.MaskExact, nil); err != nil {
		return err
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	_, err := large.Wait(ctx)
	return err
}

// receiveFromStopped: the receive returns although its message cannot arrive, and the message is
// there for the next receive. Over shared memory it arrives without its sender's help.
func receiveFromStopped(ctx context.Context, w *p2p.World, pid int) error {
	for w.Metrics().UnexpectedNow == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := w.Send(ctx, 1, tagGo, nil); err != nil {
		return err
	}
	if err := untilStopped(ctx, pid); err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	buf, want := make([]byte, largeSize), make([]byte, largeSize)
	fill(want, 1)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err := w.Recv(short, tagLarge, p2p.MaskExact, buf)
	switch tcp := w.Metrics().Device == "tcp"; {
	case tcp && !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("receive from a stopped rank: %w", err)
	case err != nil:
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			return err
		}
		clear(buf)
		if _, err := w.Recv(ctx, tagLarge, p2p.MaskExact, buf); err != nil {
			return err
		}
	}
	if !bytes.Equal(buf, want) {
		return errors.New("the message is not what was sent")
	}
	return nil
}
