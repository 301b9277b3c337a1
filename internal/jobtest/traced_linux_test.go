package jobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/internal/trace/timeline"
	"github.com/tagmatch/tagmatch/internal/trace/tracetest"
	"github.com/tagmatch/tagmatch/internal/trace/tracing"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() { roles["traced"] = tracedRole }

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
	var names []doors.Name
	if w.Rank() == 0 {
		for _, pid := range pids {
			n, err := doorOf(int(pid))
			if err != nil {
				return err
			}
			names = append(names, n)
		}
		if err := tracing.Begin(ctx, names, time.Minute, 1<<14); err != nil {
			return err
		}
		if err := tracing.Begin(ctx, names, time.Minute, 1<<14); err == nil {
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
	ranks, err := tracing.End(ctx, names)
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
		if r.Lost != 0 || len(r.Events) != r.Records || len(r.Events) <= trace.MostInPart/100 {
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
