package progress

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/internal/trace/timeline"
)

// startTrace begins to trace all ranks.
func (c *cluster) startTrace(records int) {
	for _, e := range c.e {
		_, err := e.StartTrace(trace.NewRing(records))
		require.NoError(c.t, err)
	}
}

// stopTrace ends that, and puts together what was recorded.
func (c *cluster) stopTrace() *timeline.Timeline {
	var ranks []timeline.Rank
	for i, e := range c.e {
		tr := e.StopTrace()
		checkTimes(c.t, tr.Records)
		ranks = append(ranks, timeline.Rank{Answer: trace.Answer{Rank: i, Size: len(c.e), Mono: tr.Start.Sub(traceEpoch).Nanoseconds(), Lost: tr.Lost}, Events: tr.Records})
	}
	return timeline.New(ranks)
}

var traceEpoch = time.Now()

func checkTimes(t testing.TB, list []trace.Record) {
	require.True(t, slices.IsSortedFunc(list, func(a, b trace.Record) int { return int(a.At - b.At) }), "times go back")
}

// tracedMessage is a message whose tag and length no other one has.
type tracedMessage struct {
	src, dst       int
	tag            uint64
	size           int
	sent, received Request
}

// TestTrace has three ranks exchange messages in a random order, and traces them from the middle
// on: each message that was sent since then has an arrow, and no arrow joins the ends of two.
func TestTrace(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		opts fakeOpts
	}{
		"software":   {},
		"device":     {Config{}, fakeOpts{tags: 4}},
		"left":       {Config{}, fakeOpts{tags: 4, software: true}},
		"large only": {Config{OffloadMin: 300}, fakeOpts{tags: 16}},
		"no room":    {Config{}, fakeOpts{tags: 4, room: 2}},
		"held up":    {Config{UnexpectedLimit: 8 << 10}, fakeOpts{tags: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				c.cfg.Manual = true
				playTraced(t, newCluster(t, 3, c.cfg, c.opts), seed)
			}
		})
	}
}

func playTraced(t *testing.T, c *cluster, seed uint64) {
	const messages, before = 120, 60
	rng := rand.New(rand.NewPCG(seed, 44))
	var list []*tracedMessage
	var early, late []func()
	for i := range messages {
		m := &tracedMessage{src: rng.IntN(3), dst: rng.IntN(3), tag: uint64(i), size: rng.IntN(4)*messages + i}
		list = append(list, m)
		post := c.e[m.src].Isend
		if rng.IntN(4) == 0 {
			post = c.e[m.src].Issend
		}
		send := func() { m.sent = post(m.dst, m.tag, make([]byte, m.size)) }
		receive := func() { m.received = c.e[m.dst].Irecv(m.src, m.tag, exact, make([]byte, 4*messages)) }
		if i < before {
			early = append(early, send, receive)
		} else {
			late = append(late, send, receive)
		}
	}
	play := func(todo []func()) {
		rng.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
		for _, do := range todo {
			if do(); rng.IntN(2) == 0 {
				c.e[rng.IntN(3)].Poll()
			}
		}
	}
	rng.Shuffle(len(early), func(i, j int) { early[i], early[j] = early[j], early[i] })
	play(early[before/2:])
	c.startTrace(1 << 12)
	play(append(late, early[:before/2]...))
	c.step()
	for _, m := range list {
		succeeded(t, m.sent, m.received)
	}
	checkArrows(t, c.stopTrace(), list[before:], fmt.Sprintf("seed %d", seed))
}

func checkArrows(t *testing.T, line *timeline.Timeline, sent []*tracedMessage, seed string) {
	require.Zero(t, line.Ranks[0].Lost)
	seen := map[uint64]bool{}
	for _, m := range line.Messages {
		if !m.Out.Known {
			continue // it was sent before
		}
		require.True(t, m.Arrow, "%s: %+v", seed, m)
		require.Equal(t, m.Out.Bytes, m.In.Bytes, "%s: %+v", seed, m)
		require.Equal(t, m.Out.Tag, m.In.Tag, "%s: %+v", seed, m)
		times := []int64{1, m.Posted, m.Sent, m.Arrived, m.Matched, m.Received}
		require.True(t, slices.IsSorted(times), "%s: %+v", seed, m)
		require.False(t, seen[m.Out.Tag], "%s: twice: %+v", seed, m)
		seen[m.Out.Tag] = true
	}
	for _, m := range sent {
		require.True(t, seen[m.tag], "%s: no arrow: %+v", seed, m)
	}
}

// TestTraceBeginsBetween: a trace begins when the device has matched a request and has not read it.
func TestTraceBeginsBetween(t *testing.T) {
	c := manual(t, 2, fakeOpts{tags: 4})
	node := c.net.nodes[1]
	node.holdRds, node.dev.holdData = true, true
	reqs := []Request{c.e[1].Irecv(0, 1, exact, make([]byte, 1000))}
	c.step()
	reqs = append(reqs, c.e[0].Isend(1, 1, make([]byte, 1000)))
	c.step()
	require.EqualValues(t, 1, c.e[1].Metrics().Offload.Matched)
	open(t, reqs...)
	c.startTrace(100)
	m := &tracedMessage{tag: 2}
	reqs = append(reqs, c.e[0].Isend(1, m.tag, nil))
	c.step()
	node.holdRds, node.dev.holdData = false, false
	reqs = append(reqs, c.e[1].Irecv(0, m.tag, exact, nil))
	c.step()
	succeeded(t, reqs...)
	checkArrows(t, c.stopTrace(), []*tracedMessage{m}, "")
}

// TestTraceOfWithdrawn: a receive that loses its message, and gets another at once, has not
// received the first.
func TestTraceOfWithdrawn(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true})
	c.startTrace(100)
	r, s := reads(c, make([]byte, 1000))
	next := c.e[0].Isend(1, 5, make([]byte, 8))
	c.step()
	c.withdrawn(s)
	succeeded(t, r, next)
	arrows := c.stopTrace().Messages
	arrows = slices.DeleteFunc(arrows, func(m *timeline.Message) bool { return !m.Arrow })
	require.Len(t, arrows, 1)
	require.Equal(t, timeline.End{Known: true, Tag: 5, Bytes: 8}, arrows[0].In)
	require.Equal(t, arrows[0].In, arrows[0].Out)
}

// TestTraceOverflow: the newest records are kept, and the others are counted.
func TestTraceOverflow(t *testing.T) {
	e := newLoop(t)
	require.Nil(t, e.StopTrace())
	_, err := e.StartTrace(trace.NewRing(50))
	require.NoError(t, err)
	_, err = e.StartTrace(trace.NewRing(50))
	require.ErrorIs(t, err, ErrTracing)
	for tag := range uint64(50) {
		require.NoError(t, e.Send(bg, 0, tag, []byte("x")))
		_, err := e.Recv(bg, 0, tag, exact, make([]byte, 1))
		require.NoError(t, err)
	}
	tr := e.StopTrace()
	require.Nil(t, e.StopTrace())
	require.Len(t, tr.Records, 64, "a power of two")
	require.EqualValues(t, 150-64, tr.Lost, "a message has 3 records")
	checkTimes(t, tr.Records)
	last := tr.Records[63]
	require.Equal(t, []any{trace.Received, uint64(49), uint64(1)}, []any{last.Kind, last.Tag, last.Bytes})
}

// TestTraceCalls: a call is in the trace for as long as it waits. One that finds what it would wait
// for is not.
func TestTraceCalls(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	e := c.e[0]
	c.startTrace(100)
	r := e.Irecv(1, 1, exact, nil)
	require.NoError(t, c.e[1].Send(bg, 0, 1, nil))
	c.step()
	require.NoError(t, r.await(bg), "as where it ends just before the lock is free")
	s := c.e[1].Issend(0, 2, nil)
	c.step()
	_, err := e.Recv(bg, 1, 2, exact, nil)
	require.NoError(t, err, "nothing is to be read")
	big, flushed := e.Isend(1, 3, make([]byte, 1000)), make(chan error)
	go func() { flushed <- e.Flush(bg) }()
	require.Eventually(t, func() bool { return e.Look().Flushing == 1 }, testlevel.Patience(time.Minute), time.Millisecond)
	_, err = c.e[1].Recv(bg, 0, 3, exact, make([]byte, 1000))
	require.NoError(t, err)
	require.NoError(t, <-flushed)
	require.NoError(t, e.Send(bg, 1, 4, nil))
	c.step()
	succeeded(t, r, s, big)
	line := c.stopTrace()
	calls := line.Activities[0].Calls
	require.Len(t, calls, 1)
	require.Equal(t, "Wait", calls[0].Name)
	require.NotEmpty(t, calls[0].Inner, "it has slept")
	last := line.Messages[slices.IndexFunc(line.Messages, func(m *timeline.Message) bool { return m.Out.Tag == 4 })]
	require.Less(t, calls[0].End, last.Sent)
}

// TestTraceSwitched switches the trace on and off while messages move.
func TestTraceSwitched(t *testing.T) {
	c := newCluster(t, 2, Config{}, fakeOpts{tags: 4})
	stop, records := make(chan struct{}), 0
	var moving sync.WaitGroup
	for _, size := range []int{8, 1000} {
		tag := uint64(size)
		moving.Go(func() {
			for {
				require.NoError(t, c.e[0].Send(bg, 1, tag, make([]byte, size)))
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		moving.Go(func() {
			for done := false; !done; {
				ctx, cancel := context.WithTimeout(bg, testlevel.Patience(200*time.Millisecond))
				_, err := c.e[1].Recv(ctx, 0, tag, exact, make([]byte, size))
				cancel()
				select {
				case <-stop:
					done = err != nil
				default:
				}
			}
		})
	}
	for records < 1000 {
		c.startTrace(1 << 10)
		c.e[0].Poll()
		for _, r := range c.stopTrace().Ranks {
			records += len(r.Events)
		}
	}
	close(stop)
	moving.Wait()
}

// BenchmarkTraced is BenchmarkMessage while the engine is traced, and what a look at the clock
// takes of it: "send-recv" has two, "nonblocking" three.
func BenchmarkTraced(b *testing.B) {
	for _, name := range []string{"send-recv", "unexpected", "nonblocking"} {
		b.Run(name, func(b *testing.B) {
			e := newLoop(b)
			_, err := e.StartTrace(trace.NewRing(1 << 16))
			require.NoError(b, err)
			buf := make([]byte, 8)
			b.ReportAllocs()
			for b.Loop() {
				if err := paths[name](bg, e, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("clock", func(b *testing.B) {
		t := recording{from: time.Now()}
		for b.Loop() {
			t.clock()
		}
	})
}
