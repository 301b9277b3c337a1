package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/tagmatch/tagmatch/p2p"
)

func init() { roles["killedheld"] = killedHeldRole }

// killedHeldRole has ranks 0 and 1 hold each other up, and kills rank 1. Rank 0 gets the outcomes
// of all its sends to it, room, the messages that rank 1 had sent, and then argVar messages of rank
// 2, which need the memory that rank 1 was granted.
func killedHeldRole(ctx context.Context, w *p2p.World) error {
	n, ours, theirs := int(number(argVar)), newBook(1, 1<<10), newBook(2, 1<<10)
	switch w.Rank() {
	case 1:
		ours.isends(w, 0, n)
		if err := untilHeldUp(ctx, w, 0); err != nil {
			return err
		}
		if err := w.Comm().Send(ctx, 2, tagReady, nil); err != nil {
			return err
		}
		if _, err := w.Comm().Recv(ctx, 2, tagBegin, nil); err != nil {
			return err
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case 2:
		for _, rank := range []int{0, 1} {
			if _, err := w.Comm().Recv(ctx, rank, tagReady, nil); err != nil {
				return err
			}
		}
		if err := w.Comm().Send(ctx, 1, tagBegin, nil); err != nil {
			return err
		}
		if err := lostRank1(w.Comm().Recv(ctx, 1, tagRoll, nil)); err != nil {
			return err
		}
		if _, err := w.Comm().Recv(ctx, 0, tagBegin, nil); err != nil {
			return err
		}
		if err := pump(ctx, w, theirs, n); err != nil {
			return err
		}
	default:
		if err := outlive(ctx, w, ours); err != nil {
			return err
		}
		if err := w.Comm().Send(ctx, 2, tagBegin, nil); err != nil {
			return err
		}
		if err := theirs.recvInOrder(ctx, w, 2, n); err != nil {
			return err
		}
	}
	if _, err := exchangeAmong(ctx, w, []int{0, 2}); err != nil {
		return err
	}
	fmt.Println("survived")
	return w.Close()
}

// pump sends n numbered messages to rank 0, and waits for room where there is none.
func pump(ctx context.Context, w *p2p.World, k *book, n int) error {
	var reqs []p2p.Request
	for i := range n {
		if err := w.Room(ctx); err != nil {
			return err
		}
		reqs = append(reqs, w.Isend(0, p2p.Tag(i), k.page(i)))
	}
	return p2p.WaitAll(ctx, reqs, nil)
}

// outlive runs rank 0 until nothing of rank 1 is left.
func outlive(ctx context.Context, w *p2p.World, k *book) error {
	var reqs []p2p.Request
	for {
		r := w.Isend(1, tagStop, k.page(0))
		if _, _, err := r.Test(); errors.Is(err, p2p.ErrFull) {
			break
		} else if err != nil {
			return err
		}
		reqs = append(reqs, r)
	}
	if err := w.Comm().Send(ctx, 2, tagReady, nil); err != nil {
		return err
	}
	if err := w.Room(ctx); err != nil { // only the loss makes room
		return fmt.Errorf("room: %w", err)
	}
	lost := 0
	for _, r := range reqs {
		_, err := r.Wait(ctx)
		if errors.Is(err, p2p.ErrInactive) { // Test has seen its end
			continue
		}
		if err != nil {
			lost++
			err = lostRank1(p2p.Status{}, err)
		}
		if err != nil {
			return err
		}
	}
	if m := w.Metrics(); lost == 0 || m.QueuedBytes != 0 || m.HeldNow != 0 {
		return fmt.Errorf("%d of %d sends are lost, %d bytes are queued, %d ranks hold sends up", lost, len(reqs), m.QueuedBytes, m.HeldNow)
	}
	w.AckFailures(1)
	return k.recvInOrder(ctx, w, 1, w.Metrics().UnexpectedNow)
}
