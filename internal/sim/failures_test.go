package sim

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// A failing is a mistake that one check must detect, and that TestBugs does not cause: a bug or,
// where it would have to be in the engine, its effect.
type failing struct {
	kind, says string
	midway     bool // closed after the last step
	bug        bug
	steps      []Step
	settled    func(w *world) // what happens after the steps,
	checked    func(w *world) // after the world has come to rest,
	closed     func(w *world) // and after it was closed
}

// play is world.run, with the mistake between its parts.
func (f *failing) play(w *world) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	if err := w.open(); err != nil {
		return err
	}
	for i := range f.steps {
		w.step(&f.steps[i])
	}
	parts := []struct {
		spoil func(*world)
		do    func() error
	}{{f.settled, w.settle}, {f.checked, w.check}, {nil, w.close}, {f.closed, w.closed}}
	for i, part := range parts {
		if part.spoil != nil {
			part.spoil(w)
		}
		if i < 2 && f.midway {
			continue
		}
		if err := part.do(); err != nil {
			return err
		}
	}
	return nil
}

// plain is a world with default parameters.
func plain() *Plan {
	p := &Plan{Params: Params{Ranks: 2, Transport: "tmsrq", Tags: 7, MaxEager: 256, OffloadMin: -1, UnexpectedLimit: 64 << 20, SRQDepth: 16, SendDepth: 16}}
	p.Params.Fabric.MaxPayload, p.Params.Fabric.Queue, p.Params.Fabric.Step = 4<<10, 64, time.Microsecond
	return p
}

func sends(size int) Step   { return Step{Do: OpSend, Rank: 0, Peer: 1, Size: size} }
func gets(size int) Step    { return Step{Do: OpRecv, Rank: 1, Peer: 0, Size: size} }
func polls(rank int) Step   { return Step{Do: OpPoll, Rank: rank, N: 20} }
func breaks() Step          { return Step{Do: OpBreak, Rank: 0, Peer: 1} }
func message() []Step       { return []Step{gets(100), sends(8)} }
func (w *world) first() *op { return w.ranks[1].ops[0] }

// takenBack has rank 1 receive, in software, a message that rank 0 has back while it is read.
func takenBack() []Step {
	return []Step{{Do: OpRecv, Rank: 1, Peer: 0, Tag: 7, Raw: true, Size: 2000},
		{Do: OpSend, Rank: 0, Peer: 1, Tag: 7, Raw: true, Size: 1000, Call: true}, {Do: OpPoll, Rank: 1, N: 1}, {Do: OpExpire, Rank: 0}}
}

// besideReturned is spoil in a world where a receive of rank 1 went back to its place, and nothing
// in another.
func besideReturned(spoil func(w *world)) func(w *world) {
	return func(w *world) {
		if w.ranks[1].returned() {
			spoil(w)
		}
	}
}

// waits adds an operation that never ends.
func waits(w *world, peer int) {
	w.ranks[1].add(&op{pattern: pattern{peer: peer}}, make(chan struct{}))
}

// fails breaks the connections between rank a and others, unknown to the plan.
func fails(a int, others ...int) func(w *world) {
	return func(w *world) {
		for _, b := range others {
			softtest.Break(w.fabric, w.ranks[a].devices[0], w.ranks[b].devices[0])
		}
		_ = w.rest()
	}
}

// spoilt gives another outcome to rank 1's first operation.
func spoilt(err error) func(w *world) { return func(w *world) { w.first().err = err } }

// touched changes a byte of the buffer of rank 1's first operation, as if before its end.
func touched(at int) func(w *world) {
	return func(w *world) {
		o := w.first()
		o.mem[guard+at] ^= 1
		o.sum = xxhash.Sum64(o.mem)
	}
}

var errOdd = errors.New("an errOdd")

// failings by name of the check, or of what it detects.
var failings = map[string]*failing{
	"a connection that fails":      {kind: "loss", says: "nobody has cut", settled: fails(0, 1)},
	"a connection that fails late": {kind: "loss", says: "nobody has cut", checked: fails(0, 1)},
	"waits for a lost rank":        {kind: "hanging", says: "still waits", steps: []Step{breaks()}, settled: func(w *world) { waits(w, 0) }},
	"waits for anybody": {kind: "hanging", says: "still waits", steps: []Step{breaks()},
		settled: func(w *world) { waits(w, progress.AnySource) }},
	"waits for a rank of a Comm": {kind: "hanging", says: "still waits", steps: []Step{breaks()}, settled: func(w *world) {
		w.ranks[1].add(&op{pattern: pattern{peer: progress.AnySource - 1, comm: &comm{members: 1 << 0}}}, make(chan struct{}))
	}},
	"waits after the close": {kind: "unfinished", says: "after its engine was closed", closed: func(w *world) { waits(w, 0) }},

	"write after the close":    {kind: "late write", steps: message(), closed: func(w *world) { w.first().mem[guard] ^= 1 }},
	"write before the buffer":  {kind: "overrun", says: "around", steps: message(), checked: touched(-guard)},
	"write behind the message": {kind: "overrun", says: "behind the message", steps: message(), checked: touched(50)},
	"write beside a receive that went back": {kind: "overrun", says: "behind the message", steps: append(message(), takenBack()...),
		checked: besideReturned(touched(50))},
	"write of a cancelled receive": {kind: "overrun", says: "of a cancelled receive", steps: []Step{gets(100)}, checked: touched(50)},

	"error of a close":     {kind: "error", says: "an errOdd", steps: message(), closed: spoilt(errOdd)},
	"error":                {kind: "error", says: "an errOdd", steps: message(), checked: spoilt(errOdd)},
	"error without a loss": {kind: "error", says: "rank 0 lost", steps: message(), checked: spoilt(&progress.PeerError{Ranks: []int{0}})},
	"loss of no rank":      {kind: "error", says: "names no rank", steps: []Step{gets(8), breaks()}, checked: spoilt(&progress.PeerError{})},
	"loss of another rank": {kind: "error", says: "not the one", steps: []Step{gets(8), breaks()}, checked: spoilt(&progress.PeerError{Ranks: []int{1}})},
	"loss that was acknowledged": {kind: "error", says: "not the one", steps: []Step{gets(8), breaks()}, checked: func(w *world) {
		o := w.first()
		o.peer, o.comm, o.err = progress.AnySource-1, &comm{members: 1<<0 | 1<<1}, &progress.PeerError{Ranks: []int{0}}
		o.acked = []int{0}
	}},
	"context that has not ended": {kind: "error", says: "deadline exceeded", steps: message(), checked: func(w *world) {
		o := w.ranks[0].ops[0]
		o.call, o.err = true, (&deadline{over: true}).Err()
	}},
	"log": {kind: "log", says: "reports an error: smoke rank=1", closed: func(w *world) {
		log := slog.New(&w.ranks[1].errs)
		log.Warn("heat")
		log.Error("an abort", "why", progress.ErrAborted)
		log.Error("smoke", "rank", 1)
		log.Error("fire")
	}},

	"content of a world closed midway": {kind: "content", midway: true, steps: append(message(), polls(0), polls(1), polls(0), polls(1)),
		closed: func(w *world) { w.ranks[0].ops[0].content[0] ^= 1 }},
	"truncated without need": {kind: "content", says: "truncated", steps: message(), checked: spoilt(progress.ErrTruncated)},
	"not truncated":          {kind: "content", says: "truncated", steps: []Step{gets(4), sends(8)}, checked: spoilt(nil)},
	"message of nobody":      {kind: "content", says: "of nobody", steps: message(), checked: func(w *world) { w.first().st.Source = 2 }},
	"withdrawn by nobody": {kind: "error", steps: message(), checked: func(w *world) {
		w.first().takes, w.first().err = true, progress.ErrInactive
	}},
	"left in the queue": {kind: "unfinished", says: "that wildcard receives do not get", steps: []Step{sends(8)}, bug: bug{
		eager: func(s *badSink, m mail) { s.again = []mail{m} },
		poll: func(s *badSink) {
			for _, m := range s.again {
				s.deliver(m)
			}
		}}},

	"flush before a send has ended": {kind: "flush", says: "has ended before: operation 0", steps: []Step{sends(1000)}, settled: func(w *world) {
		r := w.ranks[0]
		w.flushed(r, &op{index: len(r.ops)})
	}},
	"flush before everything has left": {kind: "flush", says: "before everything has left", bug: bug{drained: true},
		steps: []Step{sends(8), {Do: OpFlush}}},
	"abort that is none":             {kind: "abort", says: "goes on", settled: func(w *world) { w.ranks[0].aborts = true }},
	"abort that leaves an operation": {kind: "abort", says: "still waits", steps: []Step{{Do: OpAbort, Rank: 1}}, settled: func(w *world) { waits(w, 0) }},
	"abort that is not heard":        {kind: "abort", says: "rank 1 has not heard", bug: bug{deafens: true}, steps: []Step{{Do: OpAbort, Rank: 0}}},

	"something is left":            {kind: "metrics", says: "something is left", checked: func(w *world) { w.ranks[1].engine.Irecv(0, 1, 1, nil) }},
	"engine that cannot be closed": {kind: "leak", says: "an errOdd", bug: bug{close: errOdd}},
	"without rest":                 {kind: "unrest", bug: bug{poll: func(s *badSink) { s.late = [][]byte{nil} }}},
	"order of a loss": {kind: "loss order", bug: bug{early: true},
		steps: append(message(), polls(0), polls(1), polls(0), polls(1), breaks())},
}

func (f *failing) plan() *Plan {
	p := plain()
	p.Params.CloseMid = f.midway
	return p
}

// TestFailings checks that every check of a world detects its mistake, and nothing without the
// mistake.
func TestFailings(t *testing.T) {
	for name, f := range failings {
		t.Run(name, func(t *testing.T) {
			w := newWorld(f.plan())
			w.wrap = func(_ int, open opener) opener { return f.bug.into(open) }
			err := f.play(w)
			require.Error(t, err)
			// An invariants build may detect it sooner.
			if !strings.HasPrefix(KindOf(err), "invariant ") {
				require.Equal(t, f.kind, KindOf(err), "%v", err)
				require.ErrorContains(t, err, f.says)
			}

			sound := &failing{midway: f.midway, steps: f.steps}
			require.NoError(t, sound.play(newWorld(f.plan())))
		})
	}
}

// TestMetrics checks that wrong counters are detected.
func TestMetrics(t *testing.T) {
	w := newWorld(plain())
	require.NoError(t, (&failing{steps: append(message(), gets(100))}).play(w))
	r := w.ranks[1]
	good := r.engine.Metrics()
	require.NoError(t, w.checkMetrics(r, &good))
	for name, spoil := range map[string]func(m *progress.Metrics){
		"matched": func(m *progress.Metrics) { m.Offload.Matched++ },
		"forced":  func(m *progress.Metrics) { m.Offload.ForcedDels++ },
		"dels":    func(m *progress.Metrics) { m.Offload.Dels++ },
		"offloaded": func(m *progress.Metrics) {
			m.Offload.Offloaded, m.Offload.ForcedDels = m.Offload.Offloaded+1, m.Offload.ForcedDels+1
		},
		"kept":     func(m *progress.Metrics) { m.Offload.KeptFull++ },
		"promoted": func(m *progress.Metrics) { m.Offload.Promoted++ },
		"left":     func(m *progress.Metrics) { m.QueuedBytes++ },
	} {
		m := good
		spoil(&m)
		require.Equal(t, "metrics", KindOf(w.checkMetrics(r, &m)), name)
	}
	// One more than was posted is right if a receive went back; one less never.
	good.Returned = 1
	for kept, right := range map[uint64]bool{good.Offload.KeptFull - 1: false, good.Offload.KeptFull + 1: true, good.Offload.KeptFull + 2: false} {
		m := good
		m.Offload.KeptFull = kept
		require.Equal(t, right, w.checkMetrics(r, &m) == nil)
	}
}

// TestLosses checks that a run may have as many failed connections as the plan has faults, one in
// each of four devices, and no more.
func TestLosses(t *testing.T) {
	for _, late := range [][]int{{2}, {2, 3}} {
		p := plain()
		p.Params.Ranks, p.Params.TM.KillQPAt = 4, 1000 // more messages than there are
		w := newWorld(p)
		err := (&failing{settled: fails(0, 1, 2, 3), checked: fails(1, late...)}).play(w)
		require.EqualValues(t, 3+len(late), w.cov[KilledQPs])
		if len(late) == 1 {
			require.NoError(t, err)
		} else {
			require.Equal(t, "loss", KindOf(err), "%v", err)
		}
	}
}

// TestTotals checks that a message that only one of the two ranks counts is detected.
func TestTotals(t *testing.T) {
	for _, size := range []int{8, 1000} {
		w := newWorld(plain())
		require.NoError(t, (&failing{steps: []Step{gets(1000), sends(size)}}).play(w))
		require.NoError(t, w.checkTotals())
		for i, whole := range []*rank{w.ranks[0], w.ranks[1]} {
			w.ranks = []*rank{whole}
			require.Equal(t, "metrics", KindOf(w.checkTotals()), "rank %d alone", i)
		}
	}
}

// TestLostBeforeLoss checks that a missing message of a lost rank is detected if a later one was
// received, unless a receive that the loss has ended may have had it.
func TestLostBeforeLoss(t *testing.T) {
	for name, c := range map[string]struct {
		kind  string
		drops bool
		end   Step
		recvs []uint64
	}{
		"dropped, broken":           {"lost message", true, breaks(), []uint64{2}},
		"dropped, killed":           {"lost message", true, Step{Do: OpKill}, []uint64{2}},
		"received":                  {"", false, breaks(), []uint64{1, 2}},
		"dropped, a receive failed": {"", true, breaks(), []uint64{2, 1}},
		"dropped, another failed":   {"lost message", true, breaks(), []uint64{2, 3}},
	} {
		f := &failing{}
		for _, tag := range c.recvs {
			f.steps = append(f.steps, Step{Do: OpRecv, Rank: 1, Tag: tag, Size: 100})
		}
		f.steps = append(f.steps, polls(1), Step{Do: OpSend, Peer: 1, Tag: 1, Size: 8}, Step{Do: OpSend, Peer: 1, Tag: 2, Size: 8},
			polls(0), polls(1), polls(0), polls(1), c.end)
		if c.drops {
			f.bug.eager = func(s *badSink, m mail) {
				if m.tag&numberBits != 1 {
					s.deliver(m)
				}
			}
		}
		p := plain()
		p.Params.Tags = 0 // a device would match before the sink can drop anything
		w := newWorld(p)
		w.wrap = func(_ int, open opener) opener { return f.bug.into(open) }
		err := f.play(w)
		if c.kind == "" {
			require.NoError(t, err, name)
			continue
		}
		require.Equal(t, c.kind, KindOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, "and before that a message", name)
	}
}

// waiting returns a world whose rank 0 is in a call that waits for a message, and calls then
// afterwards.
func waiting(t *testing.T, prepare func(r *rank), then func()) *world {
	w := newWorld(plain())
	require.NoError(t, w.open())
	r := w.ranks[0]
	prepare(r)
	w.start(r, &op{}, func(ctx context.Context) (progress.Status, error) {
		defer then()
		return r.engine.Recv(ctx, 1, 1, 1, nil)
	})
	require.NotNil(t, r.gate.call)
	return w
}

// TestCloseHangs checks that a close that a call blocks is detected, and a call that a close does
// not end.
func TestCloseHangs(t *testing.T) {
	const short = 20 * time.Millisecond
	w := waiting(t, func(r *rank) { r.gate.woken = nil }, func() {})
	w.patience = short
	err := w.close()
	require.Equal(t, "hanging", KindOf(err))
	require.ErrorContains(t, err, "receive of 0 bytes")
	w.patience = closePatience
	w.resume(w.ranks[0], 0) // lets the close go on
	require.NoError(t, w.close())

	goes := make(chan struct{})
	w = waiting(t, func(*rank) {}, func() { <-goes })
	w.patience = short
	require.Equal(t, "hanging", KindOf(w.close()))
	close(goes)
}

// TestCallPanics checks that the panic of a call is a failure, while it runs and while its engine
// closes.
func TestCallPanics(t *testing.T) {
	oops := func() { panic("oops") }
	w := waiting(t, func(*rank) {}, oops)
	err := w.close()
	require.True(t, strings.HasPrefix(KindOf(err), "panic"), KindOf(err))
	require.ErrorContains(t, err, "oops")

	w = waiting(t, func(*rank) {}, oops)
	defer func() {
		f, ok := recover().(*Failure)
		require.True(t, ok)
		require.True(t, strings.HasPrefix(f.Kind, "panic"), f.Kind)
		require.ErrorContains(t, f, "oops")
	}()
	w.expire(w.ranks[0])
	_ = w.rest()
	t.Error("the call has not panicked")
}

// TestOpStrings checks what failures say of operations.
func TestOpStrings(t *testing.T) {
	require.Equal(t, "operation 3, flush, tag 0x0: under way", (&op{index: 3, flush: true}).String())
}
