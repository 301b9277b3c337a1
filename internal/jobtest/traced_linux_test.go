package jobtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/internal/trace/timeline"
	"github.com/tagmatch/tagmatch/internal/trace/tracetest"
	"github.com/tagmatch/tagmatch/internal/trace/tracing"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["traced"] = tracedRole
	programs["tracer"] = tracerProgram
}

// TestTraced traces a job of 3 ranks.
func TestTraced(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		job{n: 3, role: "traced", device: device}.succeed(t)
		job{n: 3, role: "traced", device: device, env: []string{"TAGMATCH_TRANSPORT=rc"}}.succeed(t)
	})
}

const tracedMessages = 200 // to each other rank, and from it

// tracedSizes are eager ones, and some that are not, of which a device matches the last.
var tracedSizes = []int{0, 8, 1000, 20_000, 100_000, 2 << 20}

// tracedRole: rank 0 traces all ranks, which exchange messages: those of each pair of ranks have
// tags of their own, and lengths that go with the tags.
func tracedRole(ctx context.Context, w *p2p.World) error {
	pid := uint64(os.Getpid())
	pids, err := exchange(ctx, w, 1, []uint64{pid, pid, pid})
	if err != nil {
		return err
	}
	var recording *tracing.Tracing
	if w.Rank() == 0 {
		n, err := doorOf(int(pids[1])) // one is enough
		if err != nil {
			return err
		}
		if recording, err = tracing.Begin(ctx, []doors.Name{n}, time.Minute, 1<<14); err != nil {
			return err
		}
		if _, err := tracing.Begin(ctx, []doors.Name{n}, time.Minute, 1<<14); err == nil {
			return errors.New("a job is traced twice")
		}
	}
	if err := w.Comm().Barrier(ctx); err != nil {
		return err
	}
	for i := range tracedMessages {
		if err := exchangeTraced(ctx, w, i); err != nil {
			return err
		}
	}
	if err := w.Comm().Barrier(ctx); err != nil || w.Rank() != 0 {
		return errors.Join(err, w.Comm().Barrier(ctx)) // no rank leaves before
	}
	ranks, err := recording.End(ctx)
	if err == nil {
		err = judgeTraced(timeline.New(ranks))
	}
	return errors.Join(err, w.Comm().Barrier(ctx))
}

// exchangeTraced sends message i to each other rank. Every third one is received late.
func exchangeTraced(ctx context.Context, w *p2p.World, i int) error {
	size := tracedSizes[i%len(tracedSizes)] + i
	var sends, receives []p2p.Request
	send := func() {
		for r := range w.Size() {
			if r != w.Rank() {
				sends = append(sends, w.Comm().Isend(r, p2p.Tag(i), make([]byte, size)))
			}
		}
	}
	receive := func() {
		for r := range w.Size() {
			if r != w.Rank() {
				receives = append(receives, w.Comm().Irecv(r, p2p.Tag(i), make([]byte, size)))
			}
		}
	}
	if i%3 == 0 {
		send()
		receive()
	} else {
		receive()
		send()
	}
	return p2p.WaitAll(ctx, append(sends, receives...), nil)
}

func judgeTraced(line *timeline.Timeline) error {
	seen := map[[3]int]bool{}
	for _, m := range line.Messages {
		if !m.Out.Known || m.Out.Comm != "World" {
			continue
		}
		i := int(m.Out.Tag)
		times := []int64{1, m.Posted, m.Sent, m.Arrived, m.Matched, m.Received}
		if !m.Arrow || m.Out != m.In || int(m.Out.Bytes) != tracedSizes[i%len(tracedSizes)]+i || !slices.IsSorted(times) {
			return fmt.Errorf("a message is not as it was sent: %+v", *m)
		}
		seen[[3]int{m.From, m.To, i}] = true
	}
	if want := 3 * 2 * tracedMessages; len(seen) != want {
		return fmt.Errorf("there are arrows of %d messages, and %d were sent", len(seen), want)
	}
	for _, r := range line.Ranks {
		if r.Lost != 0 || len(r.Events) != r.Records || len(r.Events) <= trace.MostInPart {
			return fmt.Errorf("rank %d has %d records of %d, and %d were lost", r.Rank, len(r.Events), r.Records, r.Lost)
		}
	}
	var file bytes.Buffer
	if err := line.Write(&file, line.About()); err != nil {
		return err
	}
	_, err := tracetest.Check(file.Bytes())
	return err
}

// traceSeen is what a program on one host has recorded of the job there, on all hosts.
type traceSeen struct {
	Hosts  []string // by rank
	Arrows map[string]int
	Clocks []timeline.Clock
}

// tracerProgram traces the only job that has doors here, and prints what it has seen.
func tracerProgram(ctx context.Context) error {
	names, err := doors.Find()
	if err != nil {
		return err
	}
	recording, err := tracing.Begin(ctx, names, time.Minute, 1<<16)
	if err != nil {
		return err
	}
	time.Sleep(time.Second)
	ranks, err := recording.End(ctx)
	if err != nil {
		return err
	}
	line := timeline.New(ranks)
	seen := traceSeen{Arrows: map[string]int{}, Clocks: line.Clocks}
	for _, r := range ranks {
		seen.Hosts = append(seen.Hosts, r.Host)
	}
	for _, m := range line.Messages {
		if m.Arrow && m.Posted <= m.Sent && m.Sent <= m.Arrived && m.Arrived <= m.Received {
			seen.Arrows[fmt.Sprintf("%d to %d", m.From, m.To)]++
		}
	}
	return json.NewEncoder(os.Stdout).Encode(seen)
}

// TestTraceAcrossHosts traces a job on three hosts from the last one. Messages go round, and their
// arrows go forward in time.
func TestTraceAcrossHosts(t *testing.T) {
	w := newNetwork(t, 3)
	w.what = "is traced across hosts"
	w.startOnHosts("broken", faultVar+"=slowRank")
	w.lookUntil(2, func(l looked) bool {
		return len(l.States) == w.n*perHost && !slices.ContainsFunc(l.States, func(s inspect.State) bool { return s.Phase != inspect.PhaseRunning })
	})
	out, err := w.onHost(2, "tracer").Output()
	require.NoError(t, err)
	var seen traceSeen
	require.NoError(t, json.Unmarshal(out, &seen))
	require.Equal(t, []string{"host0", "host0", "host1", "host1", "host2", "host2"}, seen.Hosts)
	require.Len(t, seen.Arrows, 6, "from each rank to the next")
	for i, c := range seen.Clocks { // which is in truth the same one
		require.Equal(t, fmt.Sprint("host", i), c.Host)
		require.True(t, c.Within >= 0 && max(c.Offset, -c.Offset) <= c.Within+1, c)
	}
	w.kill()
}

// TestTracedWhileStopped: where a rank is stopped none records, and the next trace is not told that
// one does. A rank that is killed meanwhile is left out, and named.
func TestTracedWhileStopped(t *testing.T) {
	const n, last = 4, 3
	j := newStarted(t, n)
	started := j.ring("traced")
	names := doorsOf(t, j.mark)
	victim := started[last].cmd.Process
	require.NoError(t, victim.Signal(syscall.SIGSTOP))
	for doors.Process(victim.Pid) != doors.Stopped {
		time.Sleep(time.Millisecond)
	}
	_, err := tracing.Begin(t.Context(), names, time.Minute, 1000)
	require.EqualError(t, err, "rank 3: "+doors.Stopped)
	require.NoError(t, victim.Signal(syscall.SIGCONT))

	var recording *tracing.Tracing
	for end := time.Now().Add(testlevel.Patience(30 * time.Second)); ; { // it has still to answer what it was asked
		if recording, err = tracing.Begin(t.Context(), names, time.Minute, 1000); err == nil {
			break
		}
		require.False(t, time.Now().After(end), err)
	}
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, victim.Kill())
	require.Error(t, started[last].cmd.Wait())
	ranks, err := recording.End(t.Context())
	require.EqualError(t, err, "rank 3: "+doors.Gone)
	require.Len(t, ranks, last)
	for _, r := range ranks {
		require.Len(t, r.Events, r.Records)
	}
	endRing(t, "traced", started[:last])
}
