package jobtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	for name, role := range map[string]func(context.Context, *p2p.World) error{
		"cancelheld": cancelHeldRole, "cancelall": cancelAllRole, "cancelwants": cancelWantsRole, "room": roomRole,
	} {
		roles[name] = role
	}
}

// cancelHeldRole cancels every third of argVar sends, most of them held up, and a Send behind them
// by its context. Rank 1 receives a list of the remaining messages, which was sent last, then all
// of them in order, and nothing else.
func cancelHeldRole(ctx context.Context, w *p2p.World) error {
	n, k := int(number(argVar)), newBook(0, 1<<10)
	if w.Rank() == 1 {
		return receiveRest(ctx, w, k, n)
	}
	reqs := k.isends(w, 1, n)
	if err := untilHeldUp(ctx, w, 0); err != nil {
		return err
	}
	if err := cancelSend(ctx, w, tagStop, k.page(0)); err != nil {
		return err
	}
	var left []int
	canceled := 0
	for i := n - 1; i >= 0; i-- {
		if i%3 == 0 {
			reqs[i].Cancel()
			_, err := reqs[i].Wait(ctx)
			if errors.Is(err, p2p.ErrCanceled) {
				canceled++
				continue
			}
			if err != nil {
				return err
			}
		}
		left = append(left, i)
	}
	if canceled == 0 {
		return errors.New("no send could be cancelled")
	}
	slices.Reverse(left)
	if err := w.Comm().Send(ctx, 1, tagRoll, roll(left)); err != nil {
		return err
	}
	return p2p.WaitAll(ctx, reqs, nil)
}

// cancelSend cancels a blocking Send to rank 1 that waits behind others.
func cancelSend(ctx context.Context, w *p2p.World, tag p2p.Tag, buf []byte) error {
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	before := w.Metrics().QueuedBytes
	go func() {
		// It mostly waits by the end of this, which credit on its way may hide.
		for start := time.Now(); w.Metrics().QueuedBytes == before && time.Since(start) < time.Second; {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if err := w.Send(short, 1, tag, buf); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("a Send whose context ended while it was held up: %w", err)
	}
	if now := w.Metrics().QueuedBytes; now > before {
		return fmt.Errorf("%d bytes are queued after a Send was given up, %d before", now, before)
	}
	return nil
}

func receiveRest(ctx context.Context, w *p2p.World, k *book, n int) error {
	b := make([]byte, 4*n)
	st, err := w.Comm().Recv(ctx, 0, tagRoll, b)
	if err != nil {
		return err
	}
	buf := make([]byte, k.size)
	for _, i := range readRoll(b[:st.Len]) {
		st, err := w.Recv(ctx, 0, p2p.MaskAny, buf)
		if err := k.check(0, i, p2p.Tag(i), buf, st, err); err != nil {
			return err
		}
	}
	if m := w.Metrics(); m.UnexpectedNow != 0 || m.UnexpectedBytes != 0 {
		return fmt.Errorf("%d messages, %d bytes are left", m.UnexpectedNow, m.UnexpectedBytes)
	}
	return nil
}

// cancelAllRole cancels all of argVar sends, twice: a prefix was sent, and later messages arrive
// behind it. Rank 1 does not receive before rank 2 has sent it the number of messages.
func cancelAllRole(ctx context.Context, w *p2p.World) error {
	n, k := int(number(argVar)), newBook(0, 1<<10)
	for round := range 2 {
		tag := tagRoll + p2p.Tag(round)
		var err error
		switch w.Rank() {
		case 0:
			err = cancelAll(ctx, w, k, n, tag)
		case 1:
			err = receiveBeginning(ctx, w, k, tag)
		case 2:
			b := make([]byte, 4)
			if _, err = w.Comm().Recv(ctx, 0, tag, b); err == nil {
				err = w.Comm().Send(ctx, 1, tag, b)
			}
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

func cancelAll(ctx context.Context, w *p2p.World, k *book, n int, tag p2p.Tag) error {
	before := w.Metrics().HeldUp
	reqs := k.isends(w, 1, n)
	if err := untilHeldUp(ctx, w, before); err != nil {
		return err
	}
	sent := 0
	// Backward: credit on its way may let the first ones go.
	for _, r := range slices.Backward(reqs) {
		r.Cancel()
	}
	for i, r := range reqs {
		switch _, err := r.Wait(ctx); {
		case err == nil && sent == i:
			sent++
		case err == nil:
			return fmt.Errorf("message %d was sent, message %d was not", i, sent)
		case !errors.Is(err, p2p.ErrCanceled):
			return err
		}
	}
	if sent == n {
		return errors.New("no send could be cancelled")
	}
	if m := w.Metrics(); m.QueuedBytes != 0 || m.HeldNow != 0 {
		return fmt.Errorf("%d bytes are queued, %d peers hold sends up after all were cancelled", m.QueuedBytes, m.HeldNow)
	}
	later := w.Isend(1, tagStop, k.page(sent)) // held up again
	if err := w.Comm().Send(ctx, 2, tag, roll([]int{sent})); err != nil {
		return err
	}
	_, err := later.Wait(ctx)
	return err
}

func receiveBeginning(ctx context.Context, w *p2p.World, k *book, tag p2p.Tag) error {
	b := make([]byte, 4)
	if _, err := w.Comm().Recv(ctx, 2, tag, b); err != nil {
		return err
	}
	sent := readRoll(b)[0]
	if err := k.recvInOrder(ctx, w, 0, sent); err != nil {
		return err
	}
	buf := make([]byte, k.size)
	st, err := w.Recv(ctx, 0, p2p.MaskAny, buf)
	return k.check(0, sent, tagStop, buf, st, err)
}

// cancelWantsRole has rank 1 post more receives than there are WANTs, for messages that held-up
// rank 0 has not sent, and cancel them. When those messages are sent after all they match other
// receives, from the last to the first.
func cancelWantsRole(ctx context.Context, w *p2p.World) error {
	const rare, many = p2p.Tag(1 << 40), 20
	n, k := int(number(argVar)), newBook(0, 1<<10)
	switch w.Rank() {
	case 0:
		reqs := k.isends(w, 1, n)
		if err := untilHeldUp(ctx, w, 0); err != nil {
			return err
		}
		if err := w.Comm().Send(ctx, 2, tagReady, nil); err != nil {
			return err
		}
		if _, err := w.Comm().Recv(ctx, 2, tagBegin, nil); err != nil {
			return err
		}
		for i := range many {
			reqs = append(reqs, w.Isend(1, rare+p2p.Tag(i), k.page(i)))
		}
		return p2p.WaitAll(ctx, reqs, nil)
	case 2:
		return errors.Join(pass(ctx, w, 0, 1, tagReady), pass(ctx, w, 1, 0, tagBegin))
	}
	if err := compute(ctx, w, 2, tagReady); err != nil {
		return err
	}
	reqs, bufs := make([]p2p.Request, many), make([]byte, many*k.size)
	for i := range reqs {
		reqs[i] = w.Irecv(rare+p2p.Tag(i), p2p.MaskExact, bufs[i*k.size:][:k.size])
	}
	for _, r := range reqs {
		r.Cancel()
		if _, err := r.Wait(ctx); !errors.Is(err, p2p.ErrCanceled) {
			return fmt.Errorf("a cancelled receive for which there is nothing: %w", err)
		}
	}
	if err := w.Comm().Send(ctx, 2, tagBegin, nil); err != nil {
		return err
	}
	buf := make([]byte, k.size)
	for i := many - 1; i >= 0; i-- {
		st, err := w.Recv(ctx, rare+p2p.Tag(i), p2p.MaskExact, buf)
		if err := k.check(0, i, rare+p2p.Tag(i), buf, st, err); err != nil {
			return err
		}
	}
	return k.recvInOrder(ctx, w, 0, n)
}

// roomRole sends argVar messages from each of several goroutines, with a small SendLimit, to a rank
// that does not receive at first.
func roomRole(ctx context.Context, w *p2p.World) error {
	const goroutines = 4
	n, k := int(number(argVar)), newBook(0, 1<<10)
	switch w.Rank() {
	case 1:
		if err := compute(ctx, w, 2, tagBegin); err != nil {
			return err
		}
		buf, next := make([]byte, k.size), [goroutines]int{}
		for range n * goroutines {
			st, err := w.Recv(ctx, 0, p2p.MaskAny, buf)
			g := int(st.Tag>>32) % goroutines
			if err := k.check(0, next[g], p2p.Tag(g<<32|next[g]), buf, st, err); err != nil {
				return err
			}
			next[g]++
		}
		return nil
	case 2:
		return pass(ctx, w, 0, 1, tagBegin)
	}
	f := &filler{w, k}
	group, ctx := errgroup.WithContext(ctx)
	for g := range goroutines {
		group.Go(func() error { return f.pump(ctx, g, n) })
	}
	if err := f.full(ctx); err != nil {
		return err
	}
	if err := w.Comm().Send(ctx, 2, tagBegin, nil); err != nil {
		return err
	}
	return group.Wait()
}

// filler sends while there is room, waits for room, and continues.
type filler struct {
	w *p2p.World
	k *book
}

func (f *filler) pump(ctx context.Context, g, n int) error {
	reqs := make([]p2p.Request, 0, n)
	for len(reqs) < n {
		i := len(reqs)
		r := f.w.Isend(1, p2p.Tag(g<<32|i), f.k.page(i))
		if _, done, err := r.Test(); !done {
			reqs = append(reqs, r)
			continue
		} else if err == nil {
			reqs = append(reqs, p2p.Request{})
			continue
		} else if !errors.Is(err, p2p.ErrFull) || !strings.Contains(err.Error(), "Room") {
			return fmt.Errorf("want an ErrFull that names Room, got %w", err)
		}
		if err := f.w.Room(ctx); err != nil {
			return fmt.Errorf("waiting for room: %w", err)
		}
	}
	return p2p.WaitAll(ctx, reqs, nil)
}

// full returns when there is no room, as the end of a Room by its context proves.
func (f *filler) full(ctx context.Context) error {
	for {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		err := f.w.Room(short)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("room: %w", err)
		}
	}
}

// roll encodes a list of numbers.
func roll(list []int) []byte {
	b := []byte{}
	for _, i := range list {
		b = binary.LittleEndian.AppendUint32(b, uint32(i))
	}
	return b
}

func readRoll(b []byte) []int {
	list := []int{}
	for ; len(b) >= 4; b = b[4:] {
		list = append(list, int(binary.LittleEndian.Uint32(b)))
	}
	return list
}
