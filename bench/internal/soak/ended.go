package soak

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

// cancel posts receives for which no message comes, and ends them.
func (x *exchange) cancel() error {
	for i := range x.rng.IntN(x.round.Count + 1) {
		tag, mask := x.tag(p2p.Tag(x.rng.IntN(subs))), p2p.MaskExact
		if x.rng.IntN(2) == 0 {
			mask = anyTag
		}
		buf := make([]byte, x.rng.IntN(x.round.Size+1))
		if x.rng.IntN(4) == 0 {
			buf = x.scratch // which the device's tag list gets, if any
		}
		err, want := x.canceled(i, tag, mask, buf)
		if !errors.Is(err, want) {
			return errors.Join(fmt.Errorf("receive %d of %d bytes has not ended with: %w", i, len(buf), want), err)
		}
		x.round.canceled.Add(1)
		x.pause()
	}
	return nil
}

// canceled is the error of a receive that was ended, and what it must be.
func (x *exchange) canceled(i int, tag p2p.Tag, mask p2p.Mask, buf []byte) (err, want error) {
	if i%2 == 0 {
		r := x.w.Irecv(tag, mask, buf)
		x.pause()
		r.Cancel()
		_, err = r.Wait(x.ctx)
		return err, p2p.ErrCanceled
	}
	ctx, stop := context.WithTimeout(x.ctx, x.brief())
	defer stop()
	_, err = x.w.Recv(ctx, tag, mask, buf)
	return err, context.DeadlineExceeded
}

// brief is some time in which a message may or may not get through.
func (x *exchange) brief() time.Duration { return time.Duration(x.rng.IntN(1000)) * time.Microsecond }

// The rank that each rank sends to, and gets from, where contexts end.
func (x *exchange) next() int { return (x.w.Rank() + 1) % x.w.Size() }
func (x *exchange) prev() int { return (x.w.Rank() + x.w.Size() - 1) % x.w.Size() }

// told is the tag of what a sender says at the end: what has become of its messages.
func (x *exchange) told() p2p.Tag { return x.tag(0xff) }

// briefs are the messages from one rank to the next, whose number is in front of their contents.
func (x *exchange) briefs(src int) []message {
	return x.plan(src, (src+1)%x.w.Size())
}

// What has become of a message whose Send had a context that may end.
const (
	taken   byte = iota // back: it must not be received
	sent                // it must be received
	unknown             // the receiver did not say in time: see p2p.World.Send
)

// sendBriefly sends with contexts that end.
func (x *exchange) sendBriefly() error {
	list := x.briefs(x.w.Rank())
	fate := make([]byte, len(list))
	buf := make([]byte, 8+x.round.Size)
	for i := range list {
		m := &list[i]
		binary.LittleEndian.PutUint64(buf, uint64(i))
		m.contents(buf[8:])
		ctx, stop := context.WithTimeout(x.ctx, x.brief())
		send := x.w.Send
		if x.rng.IntN(4) == 0 {
			send = x.w.Ssend
		}
		err := send(ctx, x.next(), x.tag(m.sub), buf[:8+m.size])
		stop()
		switch {
		case err == nil:
			fate[i] = sent
		case x.ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			if errors.Is(err, p2p.ErrMaybeDelivered) {
				fate[i] = unknown
			}
			x.round.withdrawn.Add(1)
		default:
			return err
		}
		x.pause()
	}
	return x.w.Send(x.ctx, x.next(), x.told(), fate)
}

// recvBriefly receives with contexts that end, until all is there that its sender says it has sent.
func (x *exchange) recvBriefly() error {
	list := x.briefs(x.prev())
	got, last := make([]bool, len(list)), -1
	told := make([]byte, len(list))
	word := x.w.Irecv(x.told(), p2p.MaskExact, told)
	for known := false; ; x.pause() {
		if !known {
			_, done, err := word.Test()
			if err != nil {
				return err
			}
			known = done
		}
		if known && x.complete(told, got) {
			break
		}
		n, err := x.recvBrief(list, last)
		if err != nil {
			return err
		}
		if n >= 0 {
			got[n], last = true, n
		}
	}
	for i := range got {
		if got[i] && told[i] == taken {
			return fmt.Errorf("message %d was received, and its Send has taken it back", i)
		}
	}
	// What was taken back must not be found.
	st, ok, err := x.w.Iprobe(x.tag(0), briefTag)
	if ok {
		return fmt.Errorf("%+v is left", st)
	}
	return err
}

// briefTag matches the tags of messages, but not told.
const briefTag = p2p.MaskExact &^ (subs - 1)

func (x *exchange) complete(told []byte, got []bool) bool {
	for i := range told {
		if told[i] == sent && !got[i] {
			return false
		}
	}
	return true
}

// recvBrief receives one message, which must be behind the last one, and returns its number, -1
// where the context ends first.
func (x *exchange) recvBrief(list []message, last int) (int, error) {
	buf := make([]byte, 8+x.round.Size)
	ctx, stop := context.WithTimeout(x.ctx, x.brief())
	defer stop()
	st, err := x.w.Recv(ctx, x.tag(0), briefTag, buf)
	switch {
	case x.ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		x.round.canceled.Add(1)
		return -1, nil
	case err != nil:
		return -1, err
	case st.Len < 8:
		return -1, fmt.Errorf("a message of %d bytes", st.Len)
	}
	n := int(binary.LittleEndian.Uint64(buf))
	if n <= last || n >= len(list) {
		return -1, fmt.Errorf("message %d of %d was received after message %d", n, len(list), last)
	}
	st.Len -= 8
	return n, x.check(&list[n], st, buf[8:])
}
