package links

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/check"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// endSink is a Sink that records ends of reads and peers.
type endSink struct {
	lostSink
	reads []error
}

func (s *endSink) ReadDone(_ uint64, err error) { s.reads = append(s.reads, err) }

// endpoint is the least transport there can be: it discards what it receives.
type endpoint struct {
	Links
	received int // completions of receives
	unsaid   int // so many requests that are flushed next have no completion, as those that had ended
}

// openDevice opens a device with almost no inline size.
func openDevice(t *testing.T) verbs.Device {
	dev, err := soft.Open(soft.Config{Fabric: soft.NewFabric(), MaxInline: 64})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// self opens an endpoint that is connected to itself.
func self(t *testing.T, dev verbs.Device, sink transport.Sink) *endpoint {
	e := unmet(t, dev, sink)
	require.Equal(t, transport.ErrAgain, e.SendFin(0, 1), "the first message begins a connection")
	e.poll(t)
	require.True(t, e.Drained())
	return e
}

// unmet opens a transport that is not connected to itself yet.
func unmet(t *testing.T, dev verbs.Device, sink transport.Sink) *endpoint {
	c := Config{Mode: "test", Device: dev, Size: 1, MaxEager: 256}
	require.NoError(t, c.Fill())
	e := &endpoint{}
	sink, inv := check.New(sink, dev, 1)
	require.NoError(t, Open(&e.Links, c, sink, inv))
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.NoError(t, e.Connect(0, e.Address()))
	return e
}

func (e *endpoint) poll(t *testing.T) {
	t.Helper()
	defer e.inv.Polls()()
	require.NoError(t, e.Begin())
	n, _ := e.Drain(e)
	_, err := e.End(n, n < pollBatch)
	require.NoError(t, err)
}

func (e *endpoint) Complete(wc *verbs.WC) bool {
	if !IsRecv(wc.WRID) {
		if wc.Status == verbs.WCWRFlushErr && e.unsaid > 0 {
			e.unsaid--
			return false
		}
		e.Sent(wc)
		return false
	}
	e.received++
	e.Received(wc)
	return e.Return(wc)
}

func selfSender(t *testing.T) (*endpoint, *endSink) {
	s := &endSink{}
	return self(t, openDevice(t), s), s
}

// wantLost polls until the loss is reported, and checks that all buffers were returned.
func wantLost(t *testing.T, tr *endpoint, s *endSink, buffers int) {
	t.Helper()
	for range 300 {
		tr.poll(t)
	}
	require.Equal(t, []int{0}, s.lost)
	require.Len(t, tr.bounce.free, buffers)
	require.Zero(t, tr.peers[0].reads)
	require.Len(t, tr.reads.free, len(tr.reads.slots))
}

// TestLostGivesBack: outstanding requests to a lost peer return their buffers, which all peers
// share.
func TestLostGivesBack(t *testing.T) {
	tr, s := selfSender(t)
	buffers := len(tr.bounce.free)
	require.NoError(t, tr.Read(0, make([]byte, 8), 0, 0, 1))
	n := 0
	for ; tr.SendEager(0, 1, 2, make([]byte, 200)) == nil; n++ {
	}
	require.Equal(t, buffers, n)
	require.Empty(t, tr.bounce.free)
	tr.ProtocolError(0, errNotConnected)
	wantLost(t, tr, s, buffers)
	require.Len(t, s.reads, 1)
}

// refuser is a queue pair that takes some requests of each chain and refuses those behind.
type refuser struct {
	verbs.QP
	takes int
	err   error
}

func (q *refuser) PostSend(wr *verbs.SendWR) (*verbs.SendWR, error) {
	for range q.takes {
		first := *wr
		if first.Next = nil; wr.Next == nil {
			return q.QP.PostSend(&first)
		}
		if bad, err := q.QP.PostSend(&first); err != nil {
			return bad, err
		}
		wr = wr.Next
	}
	return wr, q.err
}

// TestRefusedInChain: what a chain has sent before a request that is refused was sent, and once.
func TestRefusedInChain(t *testing.T) {
	for _, takes := range []int{1, 2} {
		tr, s := selfSender(t)
		require.NoError(t, tr.SendEager(0, 1, 2, make([]byte, 200))) // there may be no room until it completes
		qp := tr.peers[0].qp
		tr.peers[0].qp = &refuser{QP: qp, takes: takes, err: &verbs.Error{Op: "post_send", Errno: syscall.ENOMEM}}
		require.Equal(t, takes, tr.SendEagers(0, 1, make([]transport.Eager, 3)))
		tr.peers[0].qp = qp
		require.Equal(t, 3-takes, tr.SendEagers(0, 1, make([]transport.Eager, 3-takes)))
		for range 300 {
			tr.poll(t)
		}
		require.Equal(t, 4, tr.received)
		require.Empty(t, s.lost)
	}
}

// TestRefused: a refused request holds no resources, and ends the link unless it was refused for
// want of room.
func TestRefused(t *testing.T) {
	for name, try := range map[string]func(tr *endpoint) error{
		"inline": func(tr *endpoint) error { return tr.SendEager(0, 1, 2, make([]byte, 8)) },
		"chain": func(tr *endpoint) error {
			require.Zero(t, tr.SendEagers(0, 1, make([]transport.Eager, 3)))
			return tr.SendEager(0, 1, 2, nil)
		},
		"bounce": func(tr *endpoint) error { return tr.SendEager(0, 1, 2, make([]byte, 200)) },
		"read":   func(tr *endpoint) error { return tr.Read(0, make([]byte, 8), 0, 0, 1) },
	} {
		for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EINVAL} {
			t.Run(name+" "+errno.Error(), func(t *testing.T) {
				tr, s := selfSender(t)
				buffers := len(tr.bounce.free)
				// There may be no room until it completes.
				require.NoError(t, tr.SendEager(0, 1, 2, make([]byte, 200)))
				qp := tr.peers[0].qp
				tr.peers[0].qp = &refuser{QP: qp, err: &verbs.Error{Op: "post_send", Errno: errno}}
				require.Equal(t, transport.ErrAgain, try(tr), "the loss is to be reported first")
				require.Equal(t, errno != syscall.ENOMEM, tr.LinkErr(0) != nil)
				tr.peers[0].qp = qp
				tr.ProtocolError(0, errNotConnected)
				wantLost(t, tr, s, buffers)
				require.Empty(t, s.reads)
			})
		}
	}
}

// TestKeepsNoPayload: what was sent inline is the caller's again, alone, in a chain or behind a
// header of another kind.
func TestKeepsNoPayload(t *testing.T) {
	tr, _ := selfSender(t)
	require.NoError(t, tr.SendEager(0, 1, 2, make([]byte, 8)))
	require.Equal(t, 2, tr.SendEagers(0, 1, []transport.Eager{{Payload: make([]byte, 8)}, {Payload: make([]byte, 8)}}))
	require.NoError(t, tr.SendCtrl(0, make([]byte, 8)))
	require.Nil(t, tr.eagerS[1].Data)
	require.Nil(t, tr.smallS[1].Data)
	for i := range tr.chain.sges {
		require.Nil(t, tr.chain.sges[i][1].Data)
	}
}
