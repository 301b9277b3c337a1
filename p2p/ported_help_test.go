package p2p_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// The tests in ported_*_test.go check what tests of MPICH (test/mpi) and UCX (test/gtest/ucp) check
// and carry their names; docs/ported-tests.md lists them. None of their code is here.

// portedRow is one of them: fn gets the Worlds of all ranks.
type portedRow struct {
	name string // upstream
	fn   func(t *testing.T, ws []*p2p.World)
}

// portedRows runs rows in their order on n ranks, with both transports over every wire. Each row
// has to leave the Worlds as it found them, or the rows after it are not run.
func portedRows(t *testing.T, n int, cfg p2p.Config, rows ...portedRow) {
	worldsOnWirings(t, n, cfg, func(t *testing.T, ws []*p2p.World) {
		for _, row := range rows {
			if !t.Run(row.name, func(t *testing.T) {
				row.fn(t, ws)
				onRanks(t, ws, func(w *p2p.World) { requireSettled(t, w) })
			}) {
				return
			}
		}
	})
}

// closeIfFailed lets ranks notice that another one of their test has failed.
func closeIfFailed(t *testing.T, ws ...*p2p.World) {
	if t.Failed() {
		for _, w := range ws {
			w.Close()
		}
	}
}

// ranks is a row that calls fn on every rank, each in its own goroutine.
func ranks(fn func(t *testing.T, w *p2p.World)) func(t *testing.T, ws []*p2p.World) {
	return func(t *testing.T, ws []*p2p.World) {
		onRanks(t, ws, func(w *p2p.World) { fn(t, w) })
	}
}

func onRanks(t *testing.T, ws []*p2p.World, fn func(w *p2p.World)) {
	together(t, len(ws), func(i int) {
		defer closeIfFailed(t, ws[i])
		fn(ws[i])
	})
}

// together calls fn in n goroutines at once.
func together(t *testing.T, n int, fn func(i int)) {
	t.Helper()
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			fn(i)
		})
	}
	close(start)
	all.Wait()
}

// meetAll returns once all ranks have called it. It uses raw tags, which wildcards of a Comm do not
// match.
func meetAll(t *testing.T, w *p2p.World) {
	t.Helper()
	const tags = p2p.Tag(0xba) << 54
	for d := 1; d < w.Size(); d *= 2 {
		round := tags | p2p.Tag(d)<<32
		r := w.Irecv(round|p2p.Tag((w.Rank()+w.Size()-d)%w.Size()), p2p.MaskExact, nil)
		require.NoError(t, w.Send(background, (w.Rank()+d)%w.Size(), round|p2p.Tag(w.Rank()), nil))
		wait(t, r)
	}
}

// arrived returns once all that from has sent to w has arrived there. It uses the Comm, which raw
// wildcards do not match.
func arrived(t *testing.T, w, from *p2p.World) {
	t.Helper()
	arrivedBy(t, w, from, p2p.MaxCommTag)
}

// arrivedBy is arrived with a tag that no other goroutine uses.
func arrivedBy(t *testing.T, w, from *p2p.World, tag p2p.Tag) {
	t.Helper()
	require.NoError(t, from.Comm().Send(background, w.Rank(), tag, nil))
	_, err := w.Comm().Recv(background, from.Rank(), tag, nil)
	require.NoError(t, err)
}

// requireSettled fails if anything is under way or was not received.
func requireSettled(t *testing.T, w *p2p.World) {
	t.Helper()
	meetAll(t, w)
	m := w.Metrics()
	require.Zero(t, m.PostedNow, "posted receives of rank %d", w.Rank())
	require.Zero(t, m.UnexpectedNow, "unexpected messages at rank %d", w.Rank())
	require.Zero(t, m.QueuedBytes, "queued sends of rank %d", w.Rank())
}

// wait waits for a request that has to succeed.
func wait(t *testing.T, r p2p.Request) p2p.Status {
	t.Helper()
	st, err := r.Wait(background)
	require.NoError(t, err)
	return st
}

// requireCanceled waits for a request that has to end with ErrCanceled.
func requireCanceled(t *testing.T, r p2p.Request) {
	t.Helper()
	_, err := r.Wait(background)
	require.ErrorIs(t, err, p2p.ErrCanceled)
}

// requireUnmatched requires that a receive still waits, and cancels it.
func requireUnmatched(t *testing.T, r p2p.Request) {
	t.Helper()
	_, done, err := r.Test()
	require.NoError(t, err)
	require.False(t, done)
	r.Cancel()
	requireCanceled(t, r)
}

// pattern returns n bytes that differ by seed and position: its period is a prime, so that bytes of
// another place in the message are noticed.
func pattern(n, seed int) []byte {
	block := make([]byte, 251)
	for i := range block {
		block[i] = byte(i + 31*seed)
	}
	return bytes.Repeat(block, n/len(block)+1)[:n]
}

// requireBytes is require.Equal for buffers that are too long to print.
func requireBytes(t *testing.T, want, got []byte) {
	t.Helper()
	if bytes.Equal(want, got) {
		return
	}
	require.Len(t, got, len(want))
	for i := range want {
		if want[i] != got[i] {
			require.FailNowf(t, "bytes differ", "byte %d of %d is %#x, not %#x", i, len(want), got[i], want[i])
		}
	}
}

// requireReceived checks what a receive into buf has got: message, and nothing behind it. Before
// the receive, buf was filled by fresh.
func requireReceived(t *testing.T, message, buf []byte, st p2p.Status, source int, tag p2p.Tag) {
	t.Helper()
	require.Equal(t, p2p.Status{Source: source, Tag: tag, Len: int64(len(message))}, st)
	requireBytes(t, message, buf[:len(message)])
	rest := buf[len(message):]
	require.Equal(t, len(rest), bytes.Count(rest, []byte{untouched}), "bytes behind the message")
}

const untouched = 0xa5

// fresh returns a receive buffer.
func fresh(n int) []byte { return bytes.Repeat([]byte{untouched}, n) }

// nothing is the status where there is no message: of ProcNull, and of an inactive request.
var nothing = p2p.Status{Source: p2p.ProcNull, Tag: p2p.AnyTag}

// rounds is n, or less below level ci.
func rounds(n int) int {
	if !testlevel.CI() {
		return max(n/10, 1)
	}
	return n
}

// sender is a way to send, by the name that MPICH's tests give it: by a call that blocks, or by one
// that posts.
type sender struct {
	name  string
	block func(c *p2p.Comm, ctx context.Context, dst int, tag p2p.Tag, buf []byte) error
	post  func(c *p2p.Comm, dst int, tag p2p.Tag, buf []byte) p2p.Request
}

func senders() []sender {
	return []sender{
		{name: "send", block: (*p2p.Comm).Send},
		{name: "isend", post: (*p2p.Comm).Isend},
		{name: "ssend", block: (*p2p.Comm).Ssend},
		{name: "issend", post: (*p2p.Comm).Issend},
	}
}

func senderNamed(name string) sender {
	all := senders()
	return all[slices.IndexFunc(all, func(s sender) bool { return s.name == name })]
}

// send sends messages, which are all under way at once where the call does not block, and returns
// when all have completed.
func (s sender) send(t *testing.T, c *p2p.Comm, dst int, tag p2p.Tag, messages ...[]byte) {
	t.Helper()
	var posted []p2p.Request
	for _, m := range messages {
		if s.post != nil {
			posted = append(posted, s.post(c, dst, tag, m))
			continue
		}
		require.NoError(t, s.block(c, background, dst, tag, m), s.name)
	}
	require.NoError(t, p2p.WaitAll(background, posted, nil), s.name)
}

// TestPortedHelpers: what the ported tests count on fails where it has to.
func TestPortedHelpers(t *testing.T) {
	assert.NotEqual(t, pattern(100, 1), pattern(100, 2))
	long := pattern(1<<20, 3)
	assert.NotEqual(t, long[:256<<10], long[256<<10:512<<10])
	worldsOnWirings(t, 3, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		r := ws[0].Irecv(2, p2p.MaskExact, nil)
		assert.Equal(t, 1, ws[0].Metrics().PostedNow)
		assert.NoError(t, ws[1].Send(background, 2, 3, nil))
		arrived(t, ws[2], ws[1])
		assert.Equal(t, 1, ws[2].Metrics().UnexpectedNow)
		r.Cancel()
		requireCanceled(t, r)
		_, err := ws[2].Recv(background, 3, p2p.MaskExact, nil)
		assert.NoError(t, err)
		onRanks(t, ws, func(w *p2p.World) { requireSettled(t, w) })
	})
}
