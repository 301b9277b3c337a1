package jobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	for name, role := range map[string]func(context.Context, *p2p.World) error{
		"chunks": chunksRole, "slowly": slowlyRole, "reversed": reversedRole, "emptyflood": emptyFloodRole,
		"beside": besideRole, "stop": stopRole, "ahead": aheadRole,
	} {
		roles[name] = role
	}
}

// Comm tags for the synchronisation of ranks.
const (
	tagReady p2p.Tag = 100 + iota
	tagBegin
	tagRoll
)

const tagStop p2p.Tag = 1 << 61 // raw; larger than the tag of any numbered message

// book has the contents of many messages of one size, all parts of one buffer: message i differs
// from the 4,092 before it.
type book struct {
	all  []byte
	size int
}

const pages = 4093

func newBook(src, size int) *book {
	k := &book{make([]byte, size+pages), size}
	fill(k.all, uint64(src)+1)
	return k
}

func (k *book) page(i int) []byte { return k.all[i%pages:][:k.size] }

// check compares a receive with message i of src.
func (k *book) check(src, i int, tag p2p.Tag, buf []byte, st p2p.Status, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("message %d: %w", i, err)
	case st.Source != src || st.Tag != tag || st.Len != int64(k.size):
		return fmt.Errorf("message %d: got %d bytes with tag %#x from rank %d, want %d bytes with tag %#x from rank %d",
			i, st.Len, st.Tag, st.Source, k.size, tag, src)
	case !bytes.Equal(buf[:st.Len], k.page(i)):
		return fmt.Errorf("message %d: not what was sent", i)
	}
	return nil
}

// isends starts n numbered sends.
func (k *book) isends(w *p2p.World, dst, n int) []p2p.Request {
	reqs := make([]p2p.Request, n)
	for i := range reqs {
		reqs[i] = w.Isend(dst, p2p.Tag(i), k.page(i))
	}
	return reqs
}

// recvInOrder receives messages from the first to the last, each by its number.
func (k *book) recvInOrder(ctx context.Context, w *p2p.World, src, n int) error {
	buf := make([]byte, k.size)
	for i := range n {
		st, err := w.Recv(ctx, p2p.Tag(i), p2p.MaskExact, buf)
		if err := k.check(src, i, p2p.Tag(i), buf, st, err); err != nil {
			return err
		}
	}
	return nil
}

// pass waits for an empty Comm message with this tag from src and forwards it to dst.
func pass(ctx context.Context, w *p2p.World, src, dst int, tag p2p.Tag) error {
	if _, err := w.Comm().Recv(ctx, src, tag, nil); err != nil {
		return err
	}
	return w.Comm().Send(ctx, dst, tag, nil)
}

// compute stays outside of the library until the message of pass is there. No message of a flood
// can match its receive.
func compute(ctx context.Context, w *p2p.World, src int, tag p2p.Tag) error {
	told := w.Comm().Irecv(src, tag, nil)
	select {
	case <-told.Done():
	case <-ctx.Done():
	}
	_, err := told.Wait(ctx)
	return err
}

// untilHeldUp waits until this rank was held up more often than before.
func untilHeldUp(ctx context.Context, w *p2p.World, before uint64) error {
	for w.Metrics().HeldUp == before {
		if ctx.Err() != nil {
			return fmt.Errorf("nothing holds the sends of this rank up: %w", ctx.Err())
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// scale divides the numbers of messages in builds with expensive checks.
var scale = map[bool]int{true: 8, false: 1}[effort > 1 || invariant.Enabled]

// fewer is by how much this run divides them.
func fewer() int {
	if testlevel.Quick() {
		return 32
	}
	if !testlevel.CI() {
		return 8 * scale
	}
	return scale
}

// limitVar is the UnexpectedLimit of all ranks, in bytes.
const limitVar = "TAGMATCH_UNEXPECTED_LIMIT"

// unexpectedLimit is the limit in effect.
func unexpectedLimit() int64 {
	if os.Getenv(limitVar) == "" {
		return 64 << 20 // the default
	}
	return int64(number(limitVar))
}

// released bounds the bytes beyond the limit that in-order receives of a role may cause: few
// messages, one for each WANT.
const released = 1 << 20

// residentConstant is the resident memory beyond the limit: the program, Go's heap and the rings.
const residentConstant = 64 << 20

// bounded checks the peak memory of unexpected messages. The race detector and the invariants build
// use more memory.
func bounded(w *p2p.World) error {
	limit := unexpectedLimit()
	if peak := w.Metrics().UnexpectedPeak; peak > limit+released {
		return fmt.Errorf("%d bytes of messages without a receive, the limit is %d", peak, limit)
	}
	peak, err := memory("VmHWM")
	if err == nil && scale == 1 && peak > limit+residentConstant {
		err = fmt.Errorf("%d MiB were resident, the bound is %d MiB", peak>>20, (limit+residentConstant)>>20)
	}
	return err
}

// memory reads a line of this process's status, in bytes. Only Linux has it.
func memory(name string) (int64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), name+":")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("/proc/self/status has no %s", name)
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10, err
}

// chunksRole sends argVar chunks at once, whose receives are all posted.
func chunksRole(ctx context.Context, w *p2p.World) error {
	n, k := int(number(argVar)), newBook(0, 256<<10)
	if w.Rank() == 0 {
		if _, err := w.Comm().Recv(ctx, 1, tagReady, nil); err != nil {
			return err
		}
		return p2p.WaitAll(ctx, k.isends(w, 1, n), nil)
	}
	all, reqs := make([]byte, n*k.size), make([]p2p.Request, n)
	for i := range reqs {
		reqs[i] = w.Irecv(p2p.Tag(i), p2p.MaskExact, all[i*k.size:][:k.size])
	}
	if err := w.Comm().Send(ctx, 0, tagReady, nil); err != nil {
		return err
	}
	for i, r := range reqs {
		st, err := r.Wait(ctx)
		if err := k.check(0, i, p2p.Tag(i), all[i*k.size:][:k.size], st, err); err != nil {
			return err
		}
	}
	return nil
}

// slowlyRole sends argVar messages of 1 MiB at once to a rank that computes between the first
// receives.
func slowlyRole(ctx context.Context, w *p2p.World) error {
	n, k := int(number(argVar)), newBook(0, 1<<20)
	if w.Rank() == 0 {
		return p2p.WaitAll(ctx, k.isends(w, 1, n), nil)
	}
	buf := make([]byte, k.size)
	for i := range n {
		if i < 10 {
			time.Sleep(5 * time.Millisecond)
		}
		st, err := w.Recv(ctx, p2p.Tag(i), p2p.MaskExact, buf)
		if err := k.check(0, i, p2p.Tag(i), buf, st, err); err != nil {
			return err
		}
	}
	return nil
}

// reversedRole receives argVar small messages from the last to the first.
func reversedRole(ctx context.Context, w *p2p.World) error {
	n, k := int(number(argVar)), newBook(0, 64)
	if w.Rank() == 0 {
		return p2p.WaitAll(ctx, k.isends(w, 1, n), nil)
	}
	buf := make([]byte, k.size)
	for i := n - 1; i >= 0; i-- {
		st, err := w.Recv(ctx, p2p.Tag(i), p2p.MaskExact, buf)
		if err := k.check(0, i, p2p.Tag(i), buf, st, err); err != nil {
			return err
		}
	}
	return nil
}

// emptyFloodRole sends argVar empty messages to rank 0, which computes until rank 1 is held up, and
// then receives them.
func emptyFloodRole(ctx context.Context, w *p2p.World) error {
	n := int(number(argVar))
	switch w.Rank() {
	case 1:
		reqs := newBook(1, 0).isends(w, 0, n)
		if err := untilHeldUp(ctx, w, 0); err != nil {
			return err
		}
		if err := w.Comm().Send(ctx, 2, tagBegin, nil); err != nil {
			return err
		}
		return p2p.WaitAll(ctx, reqs, nil)
	case 2:
		return pass(ctx, w, 1, 0, tagBegin)
	}
	if err := compute(ctx, w, 2, tagBegin); err != nil {
		return err
	}
	for i := range n {
		st, err := w.Recv(ctx, 0, p2p.MaskAny, nil)
		if err != nil || st != (p2p.Status{Source: 1, Tag: p2p.Tag(i)}) {
			return fmt.Errorf("message %d: %+v %w", i, st, err)
		}
	}
	return bounded(w)
}

// besideRole sends argVar large messages from rank 0 to rank 1, which computes until rank 2 has
// received all of its own.
func besideRole(ctx context.Context, w *p2p.World) error {
	n, slow, fast, fasts := int(number(argVar)), newBook(0, 40<<10), newBook(7, 1<<20), 50
	switch w.Rank() {
	case 0:
		reqs := slow.isends(w, 1, n)
		for i := range fasts {
			if err := w.Send(ctx, 2, p2p.Tag(i), fast.page(i)); err != nil {
				return fmt.Errorf("message %d to the fast rank: %w", i, err)
			}
		}
		return p2p.WaitAll(ctx, reqs, nil)
	case 1:
		if err := compute(ctx, w, 2, tagBegin); err != nil {
			return err
		}
		return errors.Join(slow.recvInOrder(ctx, w, 0, n), bounded(w))
	}
	if err := fast.recvInOrder(ctx, w, 0, fasts); err != nil {
		return err
	}
	return w.Comm().Send(ctx, 1, tagBegin, nil)
}

// stopRole has rank 0 wait for rank 2 while rank 1 floods it: rank 2 sends when rank 1 is held up.
func stopRole(ctx context.Context, w *p2p.World) error {
	n, k := int(number(argVar)), newBook(1, 1<<10)
	switch w.Rank() {
	case 1:
		reqs := k.isends(w, 0, n)
		if err := untilHeldUp(ctx, w, 0); err != nil {
			return err
		}
		if err := w.Comm().Send(ctx, 2, tagReady, nil); err != nil {
			return err
		}
		return p2p.WaitAll(ctx, reqs, nil)
	case 2:
		if _, err := w.Comm().Recv(ctx, 1, tagReady, nil); err != nil {
			return err
		}
		return w.Send(ctx, 0, tagStop, nil)
	}
	if _, err := w.Recv(ctx, tagStop, p2p.MaskExact, nil); err != nil {
		return err
	}
	return errors.Join(k.recvInOrder(ctx, w, 1, n), bounded(w))
}

// sizeVar is the size of a role's messages.
const sizeVar = "JOBTEST_SIZE"

// aheadRole sends argVar messages of one tag, and behind them the one that rank 1 receives first.
func aheadRole(ctx context.Context, w *p2p.World) error {
	const unwanted, wanted = 1, 2
	n, k := int(number(argVar)), newBook(0, int(number(sizeVar)))
	if w.Rank() == 0 {
		reqs := make([]p2p.Request, 0, n+1)
		for i := range n {
			reqs = append(reqs, w.Isend(1, unwanted, k.page(i)))
		}
		return p2p.WaitAll(ctx, append(reqs, w.Isend(1, wanted, k.page(n))), nil)
	}
	buf := make([]byte, k.size)
	st, err := w.Recv(ctx, wanted, p2p.MaskExact, buf)
	if err := k.check(0, n, wanted, buf, st, err); err != nil {
		return err
	}
	for i := range n {
		st, err := w.Recv(ctx, unwanted, p2p.MaskExact, buf)
		if err := k.check(0, i, unwanted, buf, st, err); err != nil {
			return err
		}
	}
	return nil
}
