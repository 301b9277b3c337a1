package p2p_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedMPICHThreads has what MPICH's test/mpi/threads/pt2pt checks, with goroutines as its
// threads.
func TestPortedMPICHThreads(t *testing.T) {
	portedRows(t, 2, p2p.Config{},
		portedRow{"threads", ranks(threads)},
		portedRow{"threaded_sr", ranks(threadedSR)},
		portedRow{"alltoall", ranks(alltoall)},
		portedRow{"multisend", ranks(multisend)},
		portedRow{"sendselfth", ranks(sendselfth)},
		portedRow{"mt_sendrecv", mtSendrecv("send", false)},
		portedRow{"mt_sendirecv", mtSendrecv("send", true)},
		portedRow{"mt_isendrecv", mtSendrecv("isend", false)},
		portedRow{"mt_isendirecv", mtSendrecv("isend", true)},
		portedRow{"mt_ssendrecv", mtSendrecv("ssend", false)},
		portedRow{"mt_issendrecv", mtSendrecv("issend", false)},
		portedRow{"mt_issendirecv", mtSendrecv("issend", true)},
	)
}

// inThreads calls fn in n goroutines at once. One that fails ends the World, so that others do not
// wait for it.
func inThreads(t *testing.T, w *p2p.World, n int, fn func(id int)) {
	together(t, n, func(id int) {
		defer closeIfFailed(t, w)
		fn(id)
	})
	if t.Failed() {
		t.FailNow()
	}
}

// threads: up to four goroutines send windows of messages to as many, all with one tag: with
// ProcNull, by blocking calls, and by nonblocking ones.
func threads(t *testing.T, w *p2p.World) {
	const window = 16
	peer := 1 - w.Rank()
	for n := 1; n <= 4; n++ {
		for _, size := range []int{0, 1, 64, 1024} {
			for _, kind := range []int{p2p.ProcNull, 0, 1} {
				meetAll(t, w)
				inThreads(t, w, n, func(int) {
					for range rounds(4) {
						switch {
						case kind == p2p.ProcNull:
							exchangeWindow(t, w, p2p.ProcNull, window, size, false)
						default:
							exchangeWindow(t, w, peer, window, size, kind == 1)
						}
					}
				})
			}
		}
	}
}

// exchangeWindow sends from rank 0 to rank 1.
func exchangeWindow(t *testing.T, w *p2p.World, peer, window, size int, nonblocking bool) {
	c, message := w.Comm(), pattern(size, size)
	want := p2p.Status{Source: peer, Tag: 0, Len: int64(size)}
	if peer == p2p.ProcNull {
		want = nothing
	}
	bufs, reqs, out := make([][]byte, window), make([]p2p.Request, window), make([]p2p.Completion, window)
	for i := range window {
		bufs[i] = fresh(size)
		var err error
		switch {
		case nonblocking && w.Rank() == 0:
			reqs[i] = c.Isend(peer, 0, message)
		case nonblocking:
			reqs[i] = c.Irecv(peer, 0, bufs[i])
		case w.Rank() == 0:
			err = c.Send(background, peer, 0, message)
		default:
			out[i].Status, err = c.Recv(background, peer, 0, bufs[i])
		}
		require.NoError(t, err)
	}
	if nonblocking {
		require.NoError(t, p2p.WaitAll(background, reqs, out))
	}
	for i := range window {
		if w.Rank() == 1 {
			require.Equal(t, want, out[i].Status)
			if peer != p2p.ProcNull {
				requireBytes(t, message, bufs[i])
			}
		}
	}
}

// threadedSR (threaded_sr): both ranks send a rendezvous to each other by Send from one goroutine
// and receive in another.
func threadedSR(t *testing.T, w *p2p.World) {
	const size = 1 << 20
	peer := 1 - w.Rank()
	inThreads(t, w, 2, func(id int) {
		if id == 0 {
			require.NoError(t, w.Comm().Send(background, peer, 0, pattern(size, w.Rank())))
			return
		}
		buf := fresh(size)
		st, err := w.Comm().Recv(background, peer, 0, buf)
		require.NoError(t, err)
		requireReceived(t, pattern(size, peer), buf, st, peer, 0)
	})
}

// alltoall: a goroutine of each rank listens to all ranks, its own included, while another one
// sends to all; then all meet and begin again.
func alltoall(t *testing.T, w *p2p.World) {
	const request = 111
	c := w.Comm()
	for i := range rounds(100) {
		inThreads(t, w, 2, func(id int) {
			if id == 0 {
				for peer := range w.Size() {
					require.NoError(t, c.Send(background, peer, request, []byte{byte(i)}))
				}
				return
			}
			var from []int
			for range w.Size() {
				buf := make([]byte, 4)
				st, err := c.Recv(background, p2p.AnySource, request, buf)
				require.NoError(t, err)
				require.Equal(t, byte(i), buf[0])
				from = append(from, st.Source)
			}
			slices.Sort(from)
			require.Equal(t, []int{0, 1}, from)
		})
		meetAll(t, w)
	}
}

// multisend: two goroutines of each rank send and receive many empty messages under the same tags.
func multisend(t *testing.T, w *p2p.World) {
	c, peer := w.Comm(), 1-w.Rank()
	inThreads(t, w, 2, func(int) {
		for tag := range p2p.Tag(10) {
			for _, send := range []bool{w.Rank() == 1, w.Rank() == 0} {
				for range 16 {
					if send {
						require.NoError(t, c.Send(background, peer, tag, nil))
						continue
					}
					st, err := c.Recv(background, peer, tag, nil)
					require.NoError(t, err)
					require.Equal(t, p2p.Status{Source: peer, Tag: tag}, st)
				}
			}
		}
	})
}

// sendselfth: a goroutine sends to its own rank, and another one receives.
func sendselfth(t *testing.T, w *p2p.World) {
	c := w.Comm()
	inThreads(t, w, 2, func(id int) {
		message := pattern(100, w.Rank())
		if id == 0 {
			require.NoError(t, c.Send(background, w.Rank(), 0, message))
			return
		}
		buf := fresh(100)
		st, err := c.Recv(background, w.Rank(), 0, buf)
		require.NoError(t, err)
		requireReceived(t, message, buf, st, w.Rank(), 0)
	})
}

// mtSendrecv is the family mt_*: four goroutines of rank 0 send many messages each to four of rank
// 1, under one tag, where each message must be received once and those of one goroutine that one
// goroutine receives are in order, under a tag for each, and in a Comm for each; also with large
// messages (mt_*_huge).
func mtSendrecv(by string, nonblocking bool) func(t *testing.T, ws []*p2p.World) {
	return ranks(func(t *testing.T, w *p2p.World) {
		all := w.Comm()
		shared, own := []*p2p.Comm{all, all, all, all}, make([]*p2p.Comm, 4)
		for i := range own {
			var err error
			own[i], err = all.Dup(background)
			require.NoError(t, err)
			defer func() { require.NoError(t, own[i].Close()) }()
		}
		for _, test := range []struct{ size, messages int }{{8, rounds(100)}, {16 << 10, rounds(20)}, {100_000, rounds(10)}} {
			mtExchange(t, w, shared, make([]p2p.Tag, 4), senderNamed(by), nonblocking, test.size, test.messages)
			mtExchange(t, w, shared, []p2p.Tag{0, 1, 2, 3}, senderNamed(by), nonblocking, test.size, test.messages)
			mtExchange(t, w, own, make([]p2p.Tag, 4), senderNamed(by), nonblocking, test.size, test.messages)
		}
	})
}

// mtExchange has a goroutine for each of comms and tags at both ranks.
func mtExchange(t *testing.T, w *p2p.World, comms []*p2p.Comm, tags []p2p.Tag, by sender, nonblocking bool, size, messages int) {
	got := make([][]int, len(comms))
	inThreads(t, w, len(comms), func(id int) {
		if w.Rank() == 1 {
			got[id] = receiveNumbered(t, comms[id], tags[id], size, messages, nonblocking)
			return
		}
		var list [][]byte
		for i := range messages {
			list = append(list, numbered(size, id*messages+i))
		}
		by.send(t, comms[id], 1, tags[id], list...)
	})
	if w.Rank() == 1 {
		requireOnce(t, got, messages, comms[0] != comms[1] || tags[0] != tags[1])
	}
	meetAll(t, w)
}

// numbered is a message whose first bytes are its number.
func numbered(size, number int) []byte {
	m := pattern(size, number)
	binary.LittleEndian.PutUint64(m, uint64(number))
	return m
}

func receiveNumbered(t *testing.T, c *p2p.Comm, tag p2p.Tag, size, messages int, nonblocking bool) (got []int) {
	bufs := make([][]byte, messages)
	var reqs []p2p.Request
	for i := range bufs {
		bufs[i] = fresh(size)
		if nonblocking {
			reqs = append(reqs, c.Irecv(0, tag, bufs[i]))
			continue
		}
		st, err := c.Recv(background, 0, tag, bufs[i])
		require.NoError(t, err)
		require.Equal(t, p2p.Status{Source: 0, Tag: tag, Len: int64(size)}, st)
	}
	require.NoError(t, p2p.WaitAll(background, reqs, nil))
	for _, buf := range bufs {
		number := int(binary.LittleEndian.Uint64(buf))
		requireBytes(t, numbered(size, number), buf)
		got = append(got, number)
	}
	return got
}

// requireOnce checks that each message was received once and that each goroutine got those of
// another one in order; where tags tell them apart, those of its own counterpart only.
func requireOnce(t *testing.T, got [][]int, messages int, apart bool) {
	t.Helper()
	var all []int
	for id, list := range got {
		last := map[int]int{}
		for _, number := range list {
			from := number / messages
			if apart {
				require.Equal(t, id, from)
			}
			before, ok := last[from]
			require.True(t, !ok || before < number, "%d after %d", number, before)
			last[from] = number
		}
		all = append(all, list...)
	}
	slices.Sort(all)
	for i, number := range all {
		require.Equal(t, i, number)
	}
	require.Len(t, all, messages*len(got))
}
