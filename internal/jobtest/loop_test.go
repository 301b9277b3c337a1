package jobtest

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/matchmodel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/mux"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

var loopSeed = flag.Uint64("seed", 0, "TestLoopSchedule: play this seed only")

// TestLoopSchedule plays random schedules on the loop wire: engines, transports and devices of 2 to 8 ranks, all stepped by one
// goroutine, so that a seed replays exactly. What every rank saw must agree with the model of MPI matching.
func TestLoopSchedule(t *testing.T) {
	for _, tags := range []int{-1, 0, 1, 2, 7, 127} { // -1: transport rc
		t.Run(fmt.Sprintf("tags=%d", tags), func(t *testing.T) {
			if *loopSeed != 0 {
				require.NoError(t, playLoop(*loopSeed, tags))
				return
			}
			count := uint64(300 / effort)
			if tags < 0 {
				count = 1000 / effort
			}
			start := uint64(time.Now().UnixNano())
			for seed := start; seed < start+count; seed++ {
				require.NoError(t, playLoop(seed, tags), "replay with: go test ./internal/jobtest -run %s -seed %d", t.Name(), seed)
			}
		})
	}
}

// TestLoopReplays checks that a seed decides everything.
func TestLoopReplays(t *testing.T) {
	for seed := range uint64(20) {
		tags := int(seed%2)*8 - 1
		a, b := newLoopJob(t.Context(), seed+1, tags), newLoopJob(t.Context(), seed+1, tags)
		require.NoError(t, a.play())
		require.NoError(t, b.play())
		require.Equal(t, a.trace, b.trace, "seed %d", seed+1)
	}
}

func playLoop(seed uint64, tags int) error {
	return newLoopJob(context.Background(), seed, tags).play()
}

// loopJob is ranks of one process on one goroutine.
type loopJob struct {
	ctx     context.Context
	tags    int // what the devices' lists hold; -1: transport rc
	rng     *rand.Rand
	fabric  *soft.Fabric
	near    []*soft.Fabric // of the two hosts, where ranks have two devices; else empty
	devices []*soft.Device
	engines []*progress.Engine
	ops     [][]*loopOp // by rank, in the order of posting
	sent    [][]int     // by source and destination: messages so far
	trace   []int       // decisions and outcomes
}

// loopOp is an operation of one rank.
type loopOp struct {
	send      bool
	peer      int // destination, or source
	tag, mask uint64
	seq       int
	buf       []byte
	req       progress.Request
	done      bool
	st        progress.Status
	err       error
}

const (
	loopTags  = 3
	loopRanks = 8
)

func newLoopJob(ctx context.Context, seed uint64, tags int) *loopJob {
	rng := rand.New(rand.NewPCG(seed, 7))
	opts := soft.FabricOptions{
		Seed: seed, MaxDelay: rng.IntN(6), MaxBurst: rng.IntN(4), MaxRefuse: rng.IntN(4), MaxPayload: 512 << rng.IntN(4),
		Queue: 1 + rng.IntN(64), Step: time.Microsecond, Direct: rng.IntN(2) == 0,
	}
	j := &loopJob{ctx: ctx, tags: tags, rng: rng, fabric: soft.NewFabric(opts)}
	if rng.IntN(3) == 0 {
		j.near = []*soft.Fabric{soft.NewFabric(opts), soft.NewFabric(opts)}
	}
	return j
}

func (j *loopJob) play() (err error) {
	defer func() { err = errors.Join(err, j.close()) }()
	if err := j.open(2 + j.rng.IntN(loopRanks-1)); err != nil {
		return err
	}
	j.act()
	if err := j.settle(); err != nil {
		return err
	}
	for rank := range j.engines {
		h, err := j.history(rank)
		if err == nil {
			err = matchmodel.Check(h)
		}
		if err != nil {
			return fmt.Errorf("rank %d of %d: %w", rank, len(j.engines), err)
		}
	}
	return nil
}

func (j *loopJob) open(n int) error {
	maxEager := []int{-1, 64, 1 << 10, 8 << 10}[j.rng.IntN(4)]
	limit := int64([]int{1 << 10, 64 << 20}[j.rng.IntN(2)]) // the small one leaves the least credit
	for rank := range n {
		e, err := progress.New(progress.Config{Rank: rank, Size: n, Manual: true, Seed: 1, UnexpectedLimit: limit, OffloadMin: -1},
			func(sink transport.Sink) (transport.Transport, error) {
				far := j.opener(j.fabric, rank, n, maxEager)
				if len(j.near) == 0 {
					return far(sink)
				}
				return mux.New(n, sink, j.opener(j.near[rank%2], rank, n, maxEager), far)
			})
		if err != nil {
			return err
		}
		j.engines = append(j.engines, e)
		j.sent = append(j.sent, make([]int, n))
		j.ops = append(j.ops, nil)
	}
	for _, e := range j.engines {
		for peer, p := range j.engines {
			if err := e.Connect(peer, p.Address()); err != nil {
				return err
			}
		}
		e.Start()
	}
	return nil
}

// opener opens a device of a rank and the transport on it.
func (j *loopJob) opener(fabric *soft.Fabric, rank, n, maxEager int) func(transport.Sink) (transport.Transport, error) {
	return func(sink transport.Sink) (transport.Transport, error) {
		dev, err := soft.Open(soft.Config{Fabric: fabric, Rank: rank, TM: soft.TMConfig{Strict: true}})
		if err != nil {
			return nil, err
		}
		j.devices = append(j.devices, dev)
		if j.tags < 0 {
			return rc.New(rc.Config{Device: dev, Rank: rank, Size: n, MaxEager: maxEager, SRQDepth: 16, SendDepth: 8}, sink)
		}
		cfg := tmsrq.Config{Device: dev, Rank: rank, Size: n, MaxEager: maxEager, SRQDepth: 16, SendDepth: 8, MaxTags: j.tags}
		if j.tags == 0 {
			cfg.MaxTags = -1
		}
		return tmsrq.New(cfg, sink)
	}
}

func (j *loopJob) close() error {
	var errs []error
	for _, e := range j.engines {
		errs = append(errs, e.Close(progress.ErrClosed))
	}
	for _, d := range j.devices {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// act posts, cancels and polls at random.
func (j *loopJob) act() {
	n := len(j.engines)
	for left := 5 * n; left > 0; {
		rank := j.rng.IntN(n)
		switch j.rng.IntN(6) {
		case 0, 1:
			j.post(rank)
			left--
		case 2:
			if ops := j.ops[rank]; len(ops) > 0 && j.rng.IntN(3) == 0 {
				ops[j.rng.IntN(len(ops))].req.Cancel()
			}
		default:
			j.poll(rank)
		}
	}
}

func (j *loopJob) poll(rank int) int {
	n := j.engines[rank].Poll()
	j.trace = append(j.trace, rank, n)
	return n
}

// A tag is source<<8 | number, so that masks can ask for a source, a number, both or neither, as a Comm does.
func (j *loopJob) post(rank int) {
	op := &loopOp{send: j.rng.IntN(2) == 0, peer: j.rng.IntN(len(j.engines))}
	number := j.rng.Uint64N(loopTags)
	e := j.engines[rank]
	if op.send {
		op.seq = j.sent[rank][op.peer]
		j.sent[rank][op.peer]++
		op.tag = uint64(rank)<<8 | number
		op.buf = message(rank, op.seq, sendHeader+j.size())
		op.req = e.Isend(op.peer, op.tag, op.buf)
	} else {
		op.buf = make([]byte, 20<<10)
		op.mask = []uint64{0xffff, 0xffff, 0xff00, 0x00ff, 0, 0xff01}[j.rng.IntN(6)]
		op.tag = (uint64(op.peer)<<8 | number) & op.mask
		if op.mask&0xff00 == 0 {
			op.peer = progress.AnySource
		}
		op.req = e.Irecv(op.peer, op.tag, op.mask, op.buf)
	}
	j.ops[rank] = append(j.ops[rank], op)
}

func (j *loopJob) size() int {
	if j.rng.IntN(3) == 0 {
		return j.rng.IntN(16 << 10)
	}
	return j.rng.IntN(100)
}

// quiet is how many polls in a row without an event mean that nothing is under way: more than the longest read takes, whose
// packets are no events of the engine.
const quiet = 400

// settle lets everything arrive, ends the receives that got nothing, and drains the messages that nobody took.
func (j *loopJob) settle() error {
	j.pollUntilQuiet()
	for rank := range j.ops {
		for _, op := range j.ops[rank] {
			if !op.send && op.req.Active() {
				op.req.Cancel()
			}
		}
	}
	j.pollUntilQuiet()
	for rank := range j.engines {
		if err := j.drain(rank); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return j.collect()
}

func (j *loopJob) pollUntilQuiet() {
	for idle := 0; idle < quiet; idle++ {
		for rank := range j.engines {
			if j.poll(rank) != 0 {
				idle = 0
			}
		}
	}
}

// drain posts a wildcard receive at a time until one stays without a message.
func (j *loopJob) drain(rank int) error {
	for {
		op := &loopOp{peer: progress.AnySource, buf: make([]byte, 20<<10)}
		op.req = j.engines[rank].Irecv(op.peer, 0, 0, op.buf)
		j.pollUntilQuiet()
		op.req.Cancel() // comes too late if there was a message, also one that is still being read
		j.pollUntilQuiet()
		if op.st, op.done, op.err = op.req.Test(); !op.done {
			return errors.New("a cancelled receive did not end")
		}
		if op.err != nil {
			return nil // it is not part of the history; collect has seen to the others
		}
		j.ops[rank] = append(j.ops[rank], op)
	}
}

// collect takes the outcome of every operation: all must have ended.
func (j *loopJob) collect() error {
	for rank := range j.ops {
		for i, op := range j.ops[rank] {
			if !op.done {
				op.st, op.done, op.err = op.req.Test()
			}
			if !op.done {
				return fmt.Errorf("rank %d operation %d did not end: send %v peer %d tag %#x", rank, i, op.send, op.peer, op.tag)
			}
			if op.err != nil && !errors.Is(op.err, progress.ErrCanceled) {
				return fmt.Errorf("rank %d operation %d: %w", rank, i, op.err)
			}
			j.trace = append(j.trace, op.st.Source, int(op.st.Tag), int(op.st.Len))
		}
	}
	return nil
}

// history is what rank saw, in the model's terms.
func (j *loopJob) history(rank int) (*matchmodel.History, error) {
	h := &matchmodel.History{Messages: make([][]uint64, len(j.engines))}
	place := make([]map[int]int, len(j.engines)) // by source: where message seq is in Messages
	for src := range j.ops {
		place[src] = map[int]int{}
		for _, op := range j.ops[src] {
			if op.send && op.peer == rank && op.err == nil {
				place[src][op.seq] = len(h.Messages[src])
				h.Messages[src] = append(h.Messages[src], op.tag)
			}
		}
	}
	for i, op := range j.ops[rank] {
		if op.send || op.err != nil {
			continue
		}
		src, seq := int(binary.LittleEndian.Uint64(op.buf)), int(binary.LittleEndian.Uint64(op.buf[8:]))
		if src != op.st.Source || src >= len(place) || op.st.Len > int64(len(op.buf)) ||
			string(message(src, seq, int(op.st.Len))) != string(op.buf[:op.st.Len]) {
			return nil, fmt.Errorf("operation %d got %d bytes of source %d that were never sent", i, op.st.Len, op.st.Source)
		}
		at, ok := place[src][seq]
		if !ok {
			return nil, fmt.Errorf("operation %d got message %d of source %d, which was withdrawn", i, seq, src)
		}
		h.Recvs = append(h.Recvs, matchmodel.Recv{Source: matchmodel.AnySource, Tag: op.tag, Mask: op.mask, GotSource: src, Got: at})
	}
	return h, nil
}

// TestLoopClosedMidway closes everything with operations of all kinds under way: nothing may stay behind in the devices.
func TestLoopClosedMidway(t *testing.T) {
	for seed := range uint64(300 / effort) {
		j := newLoopJob(t.Context(), seed+1, int(seed%2)*8-1)
		require.NoError(t, j.open(2+j.rng.IntN(loopRanks-1)))
		j.act()
		require.NoError(t, j.close(), "seed %d", seed+1)
		for rank := range j.ops {
			for _, op := range j.ops[rank] {
				_, done, err := op.req.Test()
				require.True(t, done, "seed %d", seed+1)
				if err != nil && !errors.Is(err, progress.ErrCanceled) && !errors.Is(err, progress.ErrClosed) {
					require.ErrorIs(t, err, progress.ErrPeerLost, "seed %d", seed+1)
				}
			}
		}
	}
}

// TestConcurrentSchedule plays the schedules of the real processes among goroutines of this one: what the race detector sees.
func TestConcurrentSchedule(t *testing.T) {
	for _, n := range []int{2, 4} {
		seed := uint64(time.Now().UnixNano())
		p2ptest.Run(t, n, func(w *p2p.World) {
			for i, raw := range []bool{true, false} {
				s := &schedule{w: w, seed: seed + uint64(i), useRaw: raw, big: raw}
				if err := s.run(t.Context(), 20); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
	}
}
