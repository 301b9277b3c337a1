package p2p_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestCancelRaces has sends and receives of all kinds end, by their contexts or by Cancel, at any
// moment of an exchange, between ranks and within one, and checks that
//   - the message is received once after success, not at all after a cancel, and at most once after
//     ErrMaybeDelivered (which takes a receiver that does not answer: see
//     TestDeadlineAgainstIdleRank), and whole: what its sender writes to the buffer afterwards
//     nobody gets,
//   - a receive that has ended without the message leaves it to the next one, and nothing is
//     written to its buffer any more.
func TestCancelRaces(t *testing.T) {
	seed := rand.Uint64()
	cfg := p2p.Config{EagerLimit: 1000, OffloadMin: offloaded.OffloadMin}
	onWirings(t, 2, cfg, func(t *testing.T, w *p2p.World) {
		var outcomes [2][len(raceOutcomes)]int
		together(t, 4, func(i int) {
			defer closeIfFailed(t, w)
			// Two links: with the other rank, and of this rank with itself.
			peer, link := 1-w.Rank(), p2p.Tag(0)
			if i >= 2 {
				peer, link = w.Rank(), 8
			}
			r := &racer{t: t, rng: rand.New(rand.NewPCG(seed, uint64(4*w.Rank()+i))), c: w.Comm(), peer: peer, link: link}
			for round := range rounds(200) {
				r.size = raceSizes[round%len(raceSizes)]
				if i%2 == 0 {
					r.sendRound()
				} else {
					r.receiveRound(&outcomes[i/2])
				}
			}
		})
		if testlevel.CI() {
			for i := range outcomes {
				require.NotZero(t, outcomes[i][raceReceived], "seed %d: no message was faster than its cancel", seed)
				require.NotZero(t, outcomes[i][raceCancelled], "seed %d: no cancel was faster than its message", seed)
			}
		}
		t.Logf("seed %d: %v from the other rank, %v from itself: %v", seed, outcomes[0], outcomes[1], raceOutcomes)
	})
}

// raceOutcomes are those of a send.
var raceOutcomes = [...]string{"received", "cancelled", "withdrawn"}

const (
	raceReceived = iota
	raceCancelled
	raceWithdrawn
)

// The tags of a link: the receiver says that a round begins, then comes the message, or not, then
// what became of its send; the end of the round comes behind the message, with its tag.
const (
	raceBegin = iota
	raceMessage
	raceOutcome
)

// racer is one end of a link.
type racer struct {
	t    *testing.T
	rng  *rand.Rand
	c    *p2p.Comm
	peer int
	link p2p.Tag
	size int // of the message of this round

	unread []byte // a buffer to which nothing may be written any more
	got    int    // of the messages of this round
	ended  bool   // so has this round
}

// raceSizes are those of the rounds: inline and eager messages, those that go as a rendezvous, and,
// less often as the race detector is slow with them, some of several chunks.
var raceSizes = []int{8, 900, 3000, 8, 900, 3000, 600_000}

// soon is a context that ends within the time that a message takes. (All do: the receiver may first
// wait for the outcome of the send.)
func (r *racer) soon() (context.Context, context.CancelFunc) { return soon(r.rng) }

func soon(rng *rand.Rand) (context.Context, context.CancelFunc) {
	most := []time.Duration{20 * time.Microsecond, 200 * time.Microsecond, time.Millisecond}[rng.IntN(3)]
	return context.WithTimeout(background, time.Duration(rng.Int64N(int64(most))))
}

// sendRound sends a message, or tries to, and tells what came of it.
func (r *racer) sendRound() {
	_, err := r.c.Recv(background, r.peer, r.link+raceBegin, nil)
	require.NoError(r.t, err)
	buf := pattern(r.size, 1)
	ctx, cancel := r.soon()
	defer cancel()
	err = raceSends[r.rng.IntN(len(raceSends))](r, ctx, buf)
	copy(buf, fresh(r.size))
	outcome := byte(raceReceived)
	switch {
	case errors.Is(err, p2p.ErrMaybeDelivered):
		outcome = raceWithdrawn
	case err != nil:
		require.True(r.t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, p2p.ErrCanceled), err)
		outcome = raceCancelled
	}
	require.NoError(r.t, r.c.Send(background, r.peer, r.link+raceOutcome, []byte{outcome}))
	require.NoError(r.t, r.c.Send(background, r.peer, r.link+raceMessage, nil))
}

// raceSends are the ways to send.
var raceSends = []func(r *racer, ctx context.Context, buf []byte) error{
	func(r *racer, ctx context.Context, buf []byte) error {
		return r.c.Send(ctx, r.peer, r.link+raceMessage, buf)
	},
	func(r *racer, ctx context.Context, buf []byte) error {
		return r.c.Ssend(ctx, r.peer, r.link+raceMessage, buf)
	},
	func(r *racer, ctx context.Context, buf []byte) error {
		_, err := r.c.Sendrecv(ctx, r.peer, r.link+raceMessage, buf, p2p.ProcNull, 0, nil)
		return err
	},
	func(r *racer, ctx context.Context, buf []byte) error {
		return second(r.cancelled(ctx, r.c.Isend(r.peer, r.link+raceMessage, buf)))
	},
	func(r *racer, ctx context.Context, buf []byte) error {
		return second(r.cancelled(ctx, r.c.Issend(r.peer, r.link+raceMessage, buf)))
	},
	func(r *racer, ctx context.Context, buf []byte) error {
		parts := [][]byte{buf[:3], nil, buf[3:]}
		req := r.c.IsendVec(r.peer, r.link+raceMessage, parts)
		clear(parts)
		return second(r.cancelled(ctx, req))
	},
	func(r *racer, ctx context.Context, buf []byte) error {
		return second(r.cancelled(ctx, r.c.SsendInit(r.peer, r.link+raceMessage, buf).Start()))
	},
}

// cancelled waits for a request, and cancels it when ctx ends.
func (r *racer) cancelled(ctx context.Context, req p2p.Request) (p2p.Status, error) {
	st, err := req.Wait(ctx)
	if err == nil || err != ctx.Err() {
		return st, err
	}
	require.Equal(r.t, nothing, st)
	req.Cancel()
	return req.Wait(background)
}

// receiveRound tries to receive the message of a round, gets what the try has left, and compares it
// with what the sender says.
func (r *racer) receiveRound(outcomes *[len(raceOutcomes)]int) {
	r.got, r.ended = 0, false
	require.NoError(r.t, r.c.Send(background, r.peer, r.link+raceBegin, nil))
	if r.rng.IntN(4) != 0 {
		r.tryReceive()
	}
	var said [1]byte
	_, err := r.c.Recv(background, r.peer, r.link+raceOutcome, said[:])
	require.NoError(r.t, err)
	for !r.ended {
		buf := fresh(r.size)
		st, err := r.c.Recv(background, r.peer, r.link+raceMessage, buf)
		require.NoError(r.t, err)
		r.received(buf, st)
	}
	switch outcomes[said[0]]++; said[0] {
	case raceReceived:
		require.Equal(r.t, 1, r.got)
	case raceCancelled:
		require.Equal(r.t, 0, r.got)
	case raceWithdrawn:
		require.LessOrEqual(r.t, r.got, 1)
	}
	requireBytes(r.t, fresh(len(r.unread)), r.unread)
}

// received takes down a message, or the end of the round.
func (r *racer) received(buf []byte, st p2p.Status) {
	require.False(r.t, r.ended, "a message behind the end of its round")
	require.Equal(r.t, r.peer, st.Source)
	require.Equal(r.t, r.link+raceMessage, st.Tag)
	if st.Len == 0 {
		r.ended = true
		return
	}
	require.EqualValues(r.t, r.size, st.Len)
	requireBytes(r.t, pattern(r.size, 1), buf)
	r.got++
}

// tryReceive receives in one of the ways, under a context that may end first. The round before has
// looked at the buffer of its try, and this one looks at that of its own.
func (r *racer) tryReceive() {
	requireBytes(r.t, fresh(len(r.unread)), r.unread)
	ctx, cancel := r.soon()
	defer cancel()
	buf := fresh(r.size)
	r.unread = nil
	st, err := raceReceives[r.rng.IntN(len(raceReceives))](r, ctx, buf)
	switch {
	case err == nil && st != nothing:
		r.received(buf, st)
	case err != nil:
		require.Equal(r.t, nothing, st)
		require.True(r.t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, p2p.ErrCanceled) || errors.Is(err, p2p.ErrInactive), err)
		fallthrough
	default:
		r.unread = buf
		copy(buf, fresh(len(buf)))
	}
}

// raceReceives are the ways to receive, and a probe, which gives nothing. Not Sendrecv, which may
// have received the message where its send fails, also one to nobody.
var raceReceives = []func(r *racer, ctx context.Context, buf []byte) (p2p.Status, error){
	func(r *racer, ctx context.Context, buf []byte) (p2p.Status, error) {
		return r.c.Recv(ctx, r.peer, r.link+raceMessage, buf)
	},
	func(r *racer, ctx context.Context, buf []byte) (p2p.Status, error) {
		b, st, err := r.c.RecvAlloc(ctx, r.peer, r.link+raceMessage, 0)
		copy(buf, b)
		return st, err
	},
	func(r *racer, ctx context.Context, buf []byte) (p2p.Status, error) {
		return r.cancelled(ctx, r.c.Irecv(r.peer, r.link+raceMessage, buf))
	},
	func(r *racer, ctx context.Context, buf []byte) (p2p.Status, error) {
		parts := [][]byte{buf[:5], nil, buf[5 : r.size-1], buf[r.size-1:]}
		defer clear(parts)
		return r.cancelled(ctx, r.c.IrecvVec(r.peer, r.link+raceMessage, parts))
	},
	func(r *racer, ctx context.Context, buf []byte) (p2p.Status, error) {
		return r.cancelled(ctx, r.c.RecvInit(p2p.AnySource, r.link+raceMessage, buf).Start())
	},
	(*racer).receiveQueue,
	(*racer).receiveProbed,
	func(r *racer, ctx context.Context, _ []byte) (p2p.Status, error) {
		_, err := r.c.Probe(ctx, p2p.AnySource, r.link+raceMessage)
		return nothing, err
	},
}

func (r *racer) receiveQueue(ctx context.Context, buf []byte) (p2p.Status, error) {
	q, out := r.c.World().NewQueue(1), make([]p2p.Completion, 1)
	defer q.Close()
	r.c.Irecv(r.peer, r.link+raceMessage, buf).Notify(q, 0)
	if _, err := q.Wait(ctx, out); err != nil {
		require.Equal(r.t, ctx.Err(), err)
		q.Cancel()
		_, err = q.Wait(background, out)
		require.NoError(r.t, err)
	}
	return out[0].Status, out[0].Err
}

// receiveProbed takes the message first. Where the context has ended before its receive begins, the
// Message has it still; where it ends later the message is for the next receive.
func (r *racer) receiveProbed(ctx context.Context, buf []byte) (p2p.Status, error) {
	m, err := r.c.Mprobe(ctx, r.peer, r.link+raceMessage)
	if err != nil {
		return nothing, err
	}
	st, ended := m.Recv(ctx, buf)
	if !errors.Is(ended, context.DeadlineExceeded) {
		return st, ended
	}
	if st, err = m.Recv(background, buf); errors.Is(err, p2p.ErrInactive) {
		return st, ended
	}
	return st, err
}
