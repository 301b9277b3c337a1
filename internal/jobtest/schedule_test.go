package jobtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/tagmatch/tagmatch/internal/matchmodel"
	"github.com/tagmatch/tagmatch/p2p"
)

// A schedule is rounds of random sends, receives and cancels among all ranks, each checked by every
// rank against the model of MPI matching. All ranks compute the same plan from the seed, so each
// knows what was sent.
//
// A round: every rank posts its operations in a random order, with polling and cancels in between.
// It then sends each peer a message ("fence") with the numbers of its withdrawn sends. When a rank
// has every fence, all messages of the round have arrived: receives without a message are
// cancelled, and remaining messages are received by wildcards, which belong to the history too.
type schedule struct {
	w      *p2p.World
	seed   uint64
	useRaw bool // raw calls, else Comm
	big    bool // sizes above every eager limit
}

const (
	scheduleTags = 3          // few, so that many receives match a message
	fenceTag     = p2p.Tag(8) // not matched by the schedule's receives, because of fenceBits
	barrierTag   = p2p.Tag(9)
	fenceBits    = 0x8 // part of every mask
	sendHeader   = 16  // source, sequence number
)

// planned is one operation of a rank in a round.
type planned struct {
	send   bool
	peer   int // destination, or source of a receive, or p2p.AnySource
	tag    p2p.Tag
	mask   p2p.Mask
	size   int
	cancel bool // cancel it some time later
}

// plan gives rank's operations of a round.
func (s *schedule) plan(round, rank int) []planned {
	rng := rand.New(rand.NewPCG(s.seed, uint64(round)<<16|uint64(rank)))
	ops := make([]planned, 0, 12)
	for range 3 + rng.IntN(7) {
		op := planned{send: rng.IntN(2) == 0, tag: p2p.Tag(rng.IntN(scheduleTags)), cancel: rng.IntN(6) == 0}
		op.peer = rng.IntN(s.w.Size())
		if op.send {
			op.size = s.size(rng)
		} else {
			op.mask = p2p.MaskExact
			if rng.IntN(3) == 0 {
				op.mask = p2p.Mask(fenceBits | rng.IntN(4)) // never matches a fence
			}
			if s.useRaw || rng.IntN(3) == 0 {
				op.peer = p2p.AnySource
			}
			if !s.useRaw {
				op.mask = p2p.MaskExact
			}
		}
		ops = append(ops, op)
	}
	return ops
}

func (s *schedule) size(rng *rand.Rand) int {
	switch rng.IntN(4) {
	case 0:
		return sendHeader
	case 1:
		return sendHeader + rng.IntN(256)
	case 2:
		return sendHeader + rng.IntN(40<<10)
	default:
		if s.big {
			return sendHeader + rng.IntN(600<<10)
		}
		return sendHeader + rng.IntN(2<<10)
	}
}

// posted is an operation under way.
type posted struct {
	planned
	req  p2p.Request
	buf  []byte
	st   p2p.Status
	err  error
	done bool
	seq  int // sends: number among this rank's sends to that peer in the round
}

// run plays rounds and returns the first fault.
func (s *schedule) run(ctx context.Context, rounds int) error {
	for round := range rounds {
		if err := s.round(ctx, round); err != nil {
			return fmt.Errorf("seed %d round %d rank %d: %w", s.seed, round, s.w.Rank(), err)
		}
	}
	return nil
}

func (s *schedule) round(ctx context.Context, round int) error {
	// Seeded, but independent of the plan: the interleaving is separate from what is sent.
	rng := rand.New(rand.NewPCG(s.seed^0x9e3779b97f4a7c15, uint64(round)<<16|uint64(s.w.Rank())))
	ops := make([]*posted, 0, 16)
	seqs := make([]int, s.w.Size())
	for _, p := range s.plan(round, s.w.Rank()) {
		op := &posted{planned: p}
		if p.send {
			op.seq = seqs[p.peer]
			seqs[p.peer]++
		}
		s.post(op)
		ops = append(ops, op)
		for range rng.IntN(3) {
			if err := ops[rng.IntN(len(ops))].poke(rng); err != nil {
				return err
			}
		}
	}
	if err := s.settleCancelledSends(ctx, ops); err != nil {
		return err
	}
	withdrawn, err := s.fence(ctx, round, ops)
	if err != nil {
		return err
	}
	if err := s.settleReceives(ctx, ops); err != nil {
		return err
	}
	h := s.history(round, ops, withdrawn)
	if err := s.drain(ctx, h); err != nil {
		return err
	}
	for _, op := range ops { // every message was received, so every send ends
		if err := op.finish(ctx); err != nil {
			return err
		}
	}
	if err := matchmodel.Check(h); err != nil && (h.Returns == 0 || !errors.Is(err, matchmodel.ErrUndecided)) {
		return err
	}
	// A barrier: no message of the next round may match receives of this one.
	_, err = exchange(ctx, s.w, p2p.Tag(round)<<32|barrierTag, make([]uint64, s.w.Size()))
	return err
}

// maxSize is the largest message of the schedule.
func (s *schedule) maxSize() int {
	if s.big {
		return sendHeader + 600<<10
	}
	return sendHeader + 40<<10
}

func (s *schedule) post(op *posted) {
	if op.send {
		op.buf = message(s.w.Rank(), op.seq, op.size)
		if s.useRaw {
			op.req = s.w.Isend(op.peer, op.tag, op.buf)
		} else {
			op.req = s.w.Comm().Isend(op.peer, op.tag, op.buf)
		}
		return
	}
	op.buf = make([]byte, s.maxSize())
	switch {
	case s.useRaw:
		op.req = s.w.Irecv(op.tag, op.mask, op.buf)
	case op.mask != p2p.MaskExact:
		op.req = s.w.Comm().Irecv(op.peer, p2p.AnyTag, op.buf)
	default:
		op.req = s.w.Comm().Irecv(op.peer, op.tag, op.buf)
	}
}

// poke tests the operation, or cancels it if the plan says so.
func (op *posted) poke(rng *rand.Rand) error {
	if op.done {
		return nil
	}
	if op.cancel && rng.IntN(2) == 0 {
		op.req.Cancel()
	}
	st, done, err := op.req.Test()
	if !done {
		return nil
	}
	return op.ended(st, err)
}

func (op *posted) finish(ctx context.Context) error {
	if op.done {
		return nil
	}
	st, err := op.req.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("operation %+v did not end: %w", op.planned, err)
	}
	return op.ended(st, err)
}

func (op *posted) ended(st p2p.Status, err error) error {
	op.st, op.err, op.done = st, err, true
	if err != nil && !errors.Is(err, p2p.ErrCanceled) {
		return fmt.Errorf("operation %+v: %w", op.planned, err)
	}
	return nil
}

// settleCancelledSends waits until each cancelled send has ended: withdrawn or not.
func (s *schedule) settleCancelledSends(ctx context.Context, ops []*posted) error {
	for _, op := range ops {
		if op.send && op.cancel && !op.done {
			op.req.Cancel()
			if err := op.finish(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleReceives ends the receives without a message.
func (s *schedule) settleReceives(ctx context.Context, ops []*posted) error {
	for _, op := range ops {
		if !op.send && !op.done {
			op.req.Cancel()
			if err := op.finish(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// fence exchanges the sets of withdrawn sends and returns, by source, those of the messages to this
// rank.
func (s *schedule) fence(ctx context.Context, round int, ops []*posted) ([]uint64, error) {
	mine := make([]uint64, s.w.Size())
	for _, op := range ops {
		if op.send && op.done && op.err != nil {
			mine[op.peer] |= 1 << op.seq
		}
	}
	return exchange(ctx, s.w, p2p.Tag(round)<<32|fenceTag, mine)
}

// exchange sends one number to every rank, own included, and returns theirs by source.
func exchange(ctx context.Context, w *p2p.World, tag p2p.Tag, mine []uint64) ([]uint64, error) {
	n := w.Size()
	reqs := make([]p2p.Request, 0, n)
	for peer := range n {
		b := binary.LittleEndian.AppendUint64(nil, uint64(w.Rank()))
		reqs = append(reqs, w.Isend(peer, tag, binary.LittleEndian.AppendUint64(b, mine[peer])))
	}
	theirs := make([]uint64, n)
	for range n {
		var b [16]byte
		if _, err := w.Recv(ctx, tag, p2p.MaskExact, b[:]); err != nil {
			return nil, fmt.Errorf("exchange with tag %#x: %w", tag, err)
		}
		src := binary.LittleEndian.Uint64(b[:])
		if src >= uint64(n) {
			return nil, fmt.Errorf("exchange with tag %#x: message of rank %d", tag, src)
		}
		theirs[src] = binary.LittleEndian.Uint64(b[8:])
	}
	return theirs, p2p.WaitAll(ctx, reqs, nil)
}

// history returns what this rank saw in the round so far, without cancelled receives. A receive may
// have had a withdrawn message for a time: nobody knows for how long.
func (s *schedule) history(round int, ops []*posted, withdrawn []uint64) *matchmodel.History {
	h := &matchmodel.History{Messages: make([][]uint64, s.w.Size()), Withdrawn: make([][]int, s.w.Size()), Behind: true}
	for src := range s.w.Size() {
		for _, p := range s.plan(round, src) {
			if p.send && p.peer == s.w.Rank() {
				h.Messages[src] = append(h.Messages[src], uint64(p.tag))
			}
		}
		sent := len(h.Messages[src])
		h.Withdrawn[src] = make([]int, sent)
		for seq := range sent {
			if withdrawn[src]>>seq&1 != 0 {
				h.Withdrawn[src][seq] = sent
				h.Returns++
			}
		}
	}
	for _, op := range ops {
		if op.send || op.err != nil {
			continue
		}
		h.Recvs = append(h.Recvs, s.observed(op))
	}
	return h
}

// observed converts a completed receive to the model's terms.
func (s *schedule) observed(op *posted) matchmodel.Recv {
	r := matchmodel.Recv{Source: op.peer, Tag: uint64(op.tag), Mask: uint64(op.mask), GotSource: -2}
	if !s.useRaw && op.mask != p2p.MaskExact {
		r.Mask = 0
	}
	if src, seq, ok := parseMessage(op.buf, op.st); ok {
		r.GotSource, r.Got = src, seq
	}
	return r
}

// drain receives the remaining messages, and adds these receives to the history.
func (s *schedule) drain(ctx context.Context, h *matchmodel.History) error {
	left := -len(h.Recvs) - h.Returns
	for _, m := range h.Messages {
		left += len(m)
	}
	for range left {
		op := &posted{planned: planned{peer: p2p.AnySource, mask: p2p.Mask(fenceBits)}, buf: make([]byte, s.maxSize())}
		var st p2p.Status
		var err error
		if s.useRaw {
			st, err = s.w.Recv(ctx, op.tag, op.mask, op.buf)
		} else {
			st, err = s.w.Comm().Recv(ctx, p2p.AnySource, p2p.AnyTag, op.buf)
		}
		if err != nil {
			return fmt.Errorf("draining one of %d messages: %w", left, err)
		}
		op.st = st
		h.Recvs = append(h.Recvs, s.observed(op))
	}
	return nil
}

// message returns a payload that identifies its message.
func message(src, seq, size int) []byte {
	b := make([]byte, size)
	fill(b, uint64(src)<<32|uint64(seq))
	binary.LittleEndian.PutUint64(b, uint64(src))
	binary.LittleEndian.PutUint64(b[8:], uint64(seq))
	return b
}

// parseMessage checks a payload and returns its source and number.
func parseMessage(buf []byte, st p2p.Status) (src, seq int, ok bool) {
	if st.Len < sendHeader || st.Len > int64(len(buf)) {
		return 0, 0, false
	}
	src, seq = int(binary.LittleEndian.Uint64(buf)), int(binary.LittleEndian.Uint64(buf[8:]))
	if src != st.Source {
		return 0, 0, false
	}
	want := message(src, seq, int(st.Len))
	return src, seq, string(want) == string(buf[:st.Len])
}

// fill writes a pattern that depends on seed and position.
func fill(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	for len(b) >= 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b, x)
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(x >> (8 * i))
	}
}
