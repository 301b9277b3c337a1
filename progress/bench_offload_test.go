package progress

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// loopTags is loopTransport with a tag list that costs next to nothing. What it holds is live;
// every so often a message comes in unexpected all the same, as if the list had been behind.
type loopTags struct {
	*loopTransport
	entries []loopEntry
	turn    int
	deleted []uint64
}

type loopEntry struct {
	id, tag, mask uint64
	buf           []byte
}

func (l *loopTags) TagList() transport.TagList { return l }
func (l *loopTags) Capacity() int              { return 4 }
func (l *loopTags) Covers(int) bool            { return true }
func (l *loopTags) Free() int                  { return 4 - len(l.entries) }
func (l *loopTags) Sync(uint32) error          { return nil }

func (l *loopTags) Add(id uint64, tag, mask uint64, buf []byte, _ uint32) error {
	l.entries = append(l.entries, loopEntry{id, tag, mask, buf})
	return nil
}

func (l *loopTags) ForceDel(id uint64, _ uint32) error {
	for i := range l.entries {
		if l.entries[i].id == id {
			l.entries = append(l.entries[:i], l.entries[i+1:]...)
			return nil
		}
	}
	return transport.ErrAgain
}

func (l *loopTags) Del(id uint64, handled uint32) error {
	l.deleted = append(l.deleted, id)
	return l.ForceDel(id, handled)
}

func (l *loopTags) Poll() (int, error) {
	n := len(l.deleted)
	for _, id := range l.deleted {
		l.sink.Deleted(id, true)
	}
	l.deleted = l.deleted[:0]
	if l.head == l.tail {
		return n, nil
	}
	i := l.head % uint32(len(l.ring))
	msg := l.ring[i][:l.lens[i]]
	for k, en := range l.entries {
		if l.turn++; (l.tags[i]^en.tag)&en.mask == 0 && l.turn%4 != 0 {
			l.head++
			l.entries = append(l.entries[:k], l.entries[k+1:]...)
			l.sink.Matched(en.id, 0, 0, l.tags[i])
			l.sink.Delivered(en.id, uint64(copy(en.buf, msg)), nil)
			return n + 1, nil
		}
	}
	m, err := l.loopTransport.Poll()
	return n + m, err
}

func newLoopTags(t testing.TB) *Engine {
	l := &loopTags{loopTransport: &loopTransport{fakeNode: *newFakeNet(1, fakeOpts{maxEager: 64}).nodes[0]}}
	e, err := New(Config{Size: 1, Manual: true, seed: 1}, func(s transport.Sink) (transport.Transport, error) {
		l.sink = s
		return l, nil
	})
	require.NoError(t, err)
	require.NoError(t, e.Connect(0, e.Address()))
	l.meet(e, 0)
	t.Cleanup(func() { require.NoError(t, e.Close(nil)) })
	return e
}

// deviceReceives posts more receives than the list holds, cancels one, and sends to the others.
func deviceReceives(ctx context.Context, e *Engine, buf []byte) error {
	var reqs [8]Request
	for i := range reqs {
		reqs[i] = e.Irecv(0, uint64(i), exact, buf)
	}
	reqs[1].Cancel()
	for i := range reqs {
		if i != 1 {
			if err := e.Send(ctx, 0, uint64(i), buf); err != nil {
				return err
			}
		}
	}
	for i := range reqs {
		if _, err := reqs[i].Wait(ctx); err != nil && i != 1 {
			return err
		}
	}
	return nil
}

func TestNoAllocationOffloaded(t *testing.T) {
	e := newLoopTags(t)
	buf := make([]byte, 8)
	requireNoAllocation(t, 3000, "", func() error { return deviceReceives(bg, e, buf) })
	m := e.Metrics().Offload
	for _, n := range []uint64{m.Matched, m.ForcedDels, m.Promoted, m.Dels, m.KeptFull} {
		require.Positive(t, n, "%+v", m)
	}
}

func BenchmarkOffloaded(b *testing.B) {
	e := newLoopTags(b)
	buf := make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		if err := paths["nonblocking"](bg, e, buf); err != nil {
			b.Fatal(err)
		}
	}
}
