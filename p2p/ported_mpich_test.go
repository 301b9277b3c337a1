package p2p_test

import (
	"encoding/binary"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedMPICH has what MPICH's test/mpi/pt2pt checks of sending and receiving.
func TestPortedMPICH(t *testing.T) {
	portedRows(t, 4, p2p.Config{},
		portedRow{"sendself", ranks(sendself)},
		portedRow{"isendself", ranks(isendself)},
		portedRow{"sendrecv1", onEveryComm(sendrecv1)},
		portedRow{"sendrecv3", sendrecv3},
		portedRow{"sendall", ranks(sendall)},
		portedRow{"anyall", ranks(anyall)},
		portedRow{"recv_any", ranks(recvAny)},
		portedRow{"eagerdt", eagerdt},
		portedRow{"bsend1", ranks(bsend1)},
		portedRow{"bsend2", ranks(bsend2)},
		portedRow{"bsendpending", bsendpending},
		portedRow{"isendirecv", onEveryComm(isendirecv)},
		portedRow{"many_isend", ranks(manyIsend)},
		portedRow{"large_tag", ranks(largeTag)},
	)
}

func TestPortedMPICHFlood(t *testing.T) {
	portedRows(t, 8, p2p.Config{}, portedRow{"sendflood", ranks(sendflood)})
}

// sendself: a rank sends to itself, the receive is posted before.
func sendself(t *testing.T, w *p2p.World) {
	c := w.Comm()
	for i, size := range []int{0, 1, 16, 8 << 10, 128 << 10} {
		for _, by := range senders() {
			buf, message := fresh(size+3), pattern(size, w.Rank()+i)
			r := c.Irecv(w.Rank(), 0, buf)
			by.send(t, c, w.Rank(), 0, message)
			requireReceived(t, message, buf, wait(t, r), w.Rank(), 0)
		}
	}
}

// isendself: a message of no bytes to oneself, into a buffer and into none; the send is completed
// last.
func isendself(t *testing.T, w *p2p.World) {
	c := w.Comm()
	for _, buf := range [][]byte{fresh(4), nil} {
		s := c.Isend(w.Rank(), 0, buf[:0])
		st, err := c.Recv(background, p2p.AnySource, p2p.AnyTag, buf)
		require.NoError(t, err)
		requireReceived(t, nil, buf, st, w.Rank(), 0)
		wait(t, s)
	}
}

// sendrecv1: a message to the rank before, from two sources, by each kind of send, received from
// that rank and from any; only as many bytes of the receive buffer change as were sent.
func sendrecv1(t *testing.T, c *p2p.Comm) {
	for source := range 2 {
		dest := (source + c.Size() - 1) % c.Size()
		for i, size := range []int{0, 1, 7, 64, 65530, 300_000} {
			for _, by := range senders() {
				message, from := pattern(size, source+i), source
				if i%2 != 0 {
					from = p2p.AnySource
				}
				if c.Rank() == source {
					by.send(t, c, dest, 0, message)
				}
				if c.Rank() == dest {
					buf := fresh(size + 100)
					st, err := c.Recv(background, from, 0, buf)
					require.NoError(t, err)
					requireReceived(t, message, buf, st, source, 0)
				}
			}
			meetAll(t, c.World()) // what comes from any source next is of the next sender
		}
	}
}

// sendrecv3: two ranks send each other all they have before they receive. In the second round one
// of them stays out of the library until the other has posted its sends, which thus do not wait.
func sendrecv3(t *testing.T, ws []*p2p.World) {
	posted := make(chan struct{})
	onRanks(t, ws[:2], func(w *p2p.World) {
		headToHead(t, w, func() {})
		headToHead(t, w, func() {
			if w.Rank() == 0 {
				close(posted)
			} else {
				<-posted
			}
		})
	})
}

func headToHead(t *testing.T, w *p2p.World, posted func()) {
	c, partner := w.Comm(), 1-w.Rank()
	_, err := c.Sendrecv(background, partner, 10, nil, partner, 10, nil)
	require.NoError(t, err)
	var sends []p2p.Request
	tests := []struct{ size, messages int }{{400, 100}, {4_000, 10}, {40_000, rounds(10)}, {400_000, max(rounds(4), 2)}}
	for tag, test := range tests {
		for i := range test.messages {
			sends = append(sends, c.Isend(partner, p2p.Tag(tag), pattern(test.size, w.Rank()+2*i)))
		}
	}
	posted()
	for tag, test := range tests {
		for i := range test.messages {
			buf := fresh(test.size)
			st, err := c.Recv(background, partner, p2p.Tag(tag), buf)
			require.NoError(t, err)
			requireReceived(t, pattern(test.size, partner+2*i), buf, st, partner, p2p.Tag(tag))
		}
	}
	require.NoError(t, p2p.WaitAll(background, sends, nil))
}

// sendall: all ranks send to all others by Send, into receives that are posted before.
func sendall(t *testing.T, w *p2p.World) {
	c := w.Comm()
	for size := 4; size <= 64<<10; size *= 2 {
		for run := range rounds(10) {
			reqs, bufs := make([]p2p.Request, w.Size()), make([][]byte, w.Size())
			meetAll(t, w)
			for peer := range reqs {
				if bufs[peer] = fresh(size); peer != w.Rank() {
					reqs[peer] = c.Irecv(peer, p2p.AnyTag, bufs[peer])
				}
			}
			for peer := range reqs {
				if peer != w.Rank() {
					require.NoError(t, c.Send(background, peer, 0, pattern(size, w.Rank()+run)))
				}
			}
			for peer, r := range reqs {
				if st := wait(t, r); peer != w.Rank() {
					requireReceived(t, pattern(size, peer+run), bufs[peer], st, peer, 0)
				}
			}
		}
	}
}

// sendflood: many ranks send to one, which receives from each in turn and answers each.
func sendflood(t *testing.T, w *p2p.World) {
	c, tag := w.Comm(), p2p.Tag(999)
	buf := make([]byte, 16)
	exchange := func(i, peer int, first bool) {
		message := binary.LittleEndian.AppendUint32(nil, uint32(i))
		if first {
			require.NoError(t, c.Send(background, peer, tag, append(message, make([]byte, 8)...)))
			return
		}
		st, err := c.Recv(background, peer, tag, buf)
		require.NoError(t, err)
		require.Equal(t, p2p.Status{Source: peer, Tag: tag, Len: 12}, st)
		require.Equal(t, message, buf[:4])
	}
	for i := range rounds(2000) {
		for _, send := range []bool{w.Rank() != 0, w.Rank() == 0} {
			if w.Rank() != 0 {
				exchange(i, 0, send)
				continue
			}
			for peer := 1; peer < w.Size(); peer++ {
				exchange(i, peer, send)
			}
		}
	}
}

// anyall: receives from any source with any tag, each as long as the message that must match it,
// get their messages in the order of sending, whatever waits for them.
func anyall(t *testing.T, w *p2p.World) {
	const messages = 30
	c := w.Comm()
	message := func(i int) []byte { return pattern(4*(messages-i), i) }
	if w.Rank() != 1 {
		meetAll(t, w)
		for i := range messages {
			if w.Rank() == 0 {
				require.NoError(t, c.Send(background, 1, 3, message(i)))
			}
		}
		return
	}
	var reqs []p2p.Request
	var bufs [][]byte
	for i := range messages {
		bufs = append(bufs, fresh(len(message(i))))
		reqs = append(reqs, c.Irecv(p2p.AnySource, p2p.AnyTag, bufs[i]))
	}
	meetAll(t, w)
	check := func(i int, st p2p.Status, err error) {
		require.NoError(t, err)
		requireReceived(t, message(i), bufs[i], st, 0, 3)
	}
	for i := messages - 1; i >= 20; i-- { // the newest first
		check(i, wait(t, reqs[i]), nil)
		reqs[i] = p2p.Request{}
	}
	for range 7 {
		i, st, err := p2p.WaitAny(background, reqs)
		check(i, st, err)
	}
	out := make([]p2p.Completion, messages)
	n, err := p2p.WaitSome(background, reqs, out[:5])
	require.NoError(t, err)
	for _, done := range out[:n] {
		check(int(done.Data), done.Status, done.Err)
	}
	left := slices.Clone(reqs)
	require.NoError(t, p2p.WaitAll(background, reqs, out))
	for i := range left {
		if left[i] != (p2p.Request{}) {
			check(i, out[i].Status, out[i].Err)
		}
	}
}

// testAny tests reqs in turn until one has ended, and consumes that one.
func testAny(t *testing.T, reqs []p2p.Request) (int, p2p.Status) {
	for {
		for i, r := range reqs {
			if r == (p2p.Request{}) {
				continue
			}
			st, done, err := r.Test()
			require.NoError(t, err)
			if done {
				reqs[i] = p2p.Request{}
				return i, st
			}
		}
		runtime.Gosched() // there may be one processor for all ranks
	}
}

// recvAny: the source is right where any was asked for, by Recv, and by Irecv and Wait (irecv_any).
func recvAny(t *testing.T, w *p2p.World) {
	c := w.Comm()
	message := pattern(16, 1)
	for tag := range p2p.Tag(20) {
		switch buf := fresh(16); {
		case w.Rank() == 1:
			require.NoError(t, c.Send(background, 0, tag, message))
		case w.Rank() == 0 && tag < 10:
			st, err := c.Recv(background, p2p.AnySource, tag, buf)
			require.NoError(t, err)
			requireReceived(t, message, buf, st, 1, tag)
		case w.Rank() == 0:
			requireReceived(t, message, buf, wait(t, c.Irecv(p2p.AnySource, tag, buf)), 1, tag)
		}
	}
}

// eagerdt: many eager messages are here before the first receive is posted.
func eagerdt(t *testing.T, ws []*p2p.World) {
	const messages, size = 30, 1200
	source, dest := ws[0], ws[len(ws)-1]
	var sends []p2p.Request
	for i := range messages {
		message := pattern(size, i)
		parts := [][]byte{message[:4], message[4:700], nil, message[700:]}
		sends = append(sends, source.Comm().IsendVec(dest.Rank(), p2p.Tag(i), parts))
	}
	arrived(t, dest, source)
	require.Equal(t, messages, dest.Metrics().UnexpectedNow)
	for i := range messages {
		buf := fresh(size)
		st, err := dest.Comm().Recv(background, 0, p2p.Tag(i), buf)
		require.NoError(t, err)
		requireReceived(t, pattern(size, i), buf, st, 0, p2p.Tag(i))
	}
	require.NoError(t, p2p.WaitAll(background, sends, nil))
}

// bsend1: messages of odd lengths to oneself by Send, which returns although no receive is posted.
// The buffer is used again at once.
func bsend1(t *testing.T, w *p2p.World) {
	c := w.Comm()
	sizes := []int{7, 16, 17}
	out := make([]byte, 17)
	for i, size := range sizes {
		copy(out, pattern(size, i))
		require.NoError(t, c.Send(background, w.Rank(), 1, out[:size]))
		clear(out)
	}
	for i, size := range sizes {
		buf := fresh(64)
		st, err := c.Recv(background, w.Rank(), 1, buf)
		require.NoError(t, err)
		requireReceived(t, pattern(size, i), buf, st, w.Rank(), 1)
	}
}

// bsend2: all ranks, the receiver too, send from one buffer under ten tags before anything is
// received. MPICH's bsend3 is the same with persistent requests.
func bsend2(t *testing.T, w *p2p.World) {
	c, out := w.Comm(), make([]byte, 40)
	for j := range 10 {
		copy(out, pattern(len(out), w.Rank()+10*j))
		require.NoError(t, c.Send(background, 0, p2p.Tag(27+j), out))
	}
	for peer := range w.Size() {
		for j := range 10 {
			if w.Rank() == 0 {
				buf := fresh(40)
				st, err := c.Recv(background, peer, p2p.Tag(27+j), buf)
				require.NoError(t, err)
				requireReceived(t, pattern(40, peer+10*j), buf, st, peer, p2p.Tag(27+j))
			}
		}
	}
}

// bsendpending: three messages above the eager limit are pending while sender and receiver do
// something else, and arrive in order when they are received late.
func bsendpending(t *testing.T, ws []*p2p.World) {
	const size = 128 << 10
	source, dest := ws[0], ws[len(ws)-1]
	var sends []p2p.Request
	for i := range 3 {
		sends = append(sends, source.Comm().Isend(dest.Rank(), 0, pattern(size, i)))
	}
	arrived(t, dest, source)
	for _, s := range sends {
		_, done, err := s.Test()
		require.NoError(t, err)
		require.False(t, done, "a rendezvous that nobody receives")
	}
	for i := range 3 {
		buf := fresh(size)
		st, err := dest.Comm().Recv(background, source.Rank(), 0, buf)
		require.NoError(t, err)
		requireReceived(t, pattern(size, i), buf, st, source.Rank(), 0)
	}
	require.NoError(t, p2p.WaitAll(background, sends, nil))
}

// isendirecv: each rank receives from all and sends to all, itself included, all at once, and
// completes that in each way there is.
func isendirecv(t *testing.T, c *p2p.Comm) {
	const size = 80
	for _, complete := range completers() {
		n := c.Size()
		reqs, bufs := make([]p2p.Request, 2*n), make([][]byte, n)
		for peer := range n {
			bufs[peer] = fresh(size)
			reqs[peer] = c.Irecv(peer, 0, bufs[peer])
		}
		for peer := range n {
			reqs[n+peer] = c.Isend(peer, 0, pattern(size, c.Rank()+n*peer))
		}
		out := complete(t, c, reqs)
		for peer, buf := range bufs {
			requireReceived(t, pattern(size, peer+n*c.Rank()), buf, out[peer].Status, peer, 0)
		}
	}
}

// completers are ways to complete requests of c, all of which succeed.
func completers() []func(t *testing.T, c *p2p.Comm, reqs []p2p.Request) []p2p.Completion {
	return []func(t *testing.T, c *p2p.Comm, reqs []p2p.Request) []p2p.Completion{
		byWaitAll, byWait, byTest, byPeek, byWaitAny, byTestAny, byTestAll, byWaitSome, byTestSome, byQueue,
	}
}

func byWaitAll(t *testing.T, _ *p2p.Comm, reqs []p2p.Request) []p2p.Completion {
	out := make([]p2p.Completion, len(reqs))
	require.NoError(t, p2p.WaitAll(background, reqs, out))
	return out
}

// byWait waits in the opposite order, for a channel first.
func byWait(t *testing.T, _ *p2p.Comm, reqs []p2p.Request) []p2p.Completion {
	out := make([]p2p.Completion, len(reqs))
	for i, r := range slices.Backward(reqs) {
		<-r.Done()
		out[i].Status = wait(t, r)
	}
	return out
}

func byTest(t *testing.T, _ *p2p.Comm, reqs []p2p.Request) []p2p.Completion {
	out := make([]p2p.Completion, len(reqs))
	for range reqs {
		i, st := testAny(t, reqs)
		out[i].Status = st
	}
	return out
}

// manyIsend (many_isend): each rank sends to all at once and receives one by one from any.
func manyIsend(t *testing.T, w *p2p.World) {
	const size = 16 << 10
	c := w.Comm()
	for round := range 5 {
		meetAll(t, w)
		sends := make([]p2p.Request, w.Size())
		for peer := range sends {
			sends[peer] = c.Isend(peer, 0, pattern(size, w.Rank()+round))
		}
		var seen []int
		for range w.Size() {
			buf := fresh(size)
			st, err := c.Recv(background, p2p.AnySource, p2p.AnyTag, buf)
			require.NoError(t, err)
			requireReceived(t, pattern(size, st.Source+round), buf, st, st.Source, 0)
			seen = append(seen, st.Source)
		}
		slices.Sort(seen)
		require.Equal(t, []int{0, 1, 2, 3}, seen)
		require.NoError(t, p2p.WaitAll(background, sends, nil))
	}
}

// largeTag (large_tag): the largest tags, of a Comm and of a World's own calls.
func largeTag(t *testing.T, w *p2p.World) {
	c := w.Comm()
	for i := range 5 {
		tag, raw := p2p.MaxCommTag-p2p.Tag(i), p2p.MaxTag-p2p.Tag(i)
		message, buf := pattern(64, i), fresh(64)
		switch w.Rank() {
		case 0:
			require.NoError(t, c.Send(background, 1, tag, message))
			require.NoError(t, w.Send(background, 1, raw, message))
		case 1:
			st, err := c.Recv(background, 0, tag, buf)
			require.NoError(t, err)
			requireReceived(t, message, buf, st, 0, tag)
			buf = fresh(64)
			st, err = w.Recv(background, raw, p2p.MaskExact, buf)
			require.NoError(t, err)
			requireReceived(t, message, buf, st, 0, raw)
		}
	}
}
