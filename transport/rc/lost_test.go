package rc

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// endSink is a Sink that records ends of reads and peers.
type endSink struct {
	lostSink
	reads []error
}

func (s *endSink) Eager(int, uint32, uint64, []byte) {}
func (s *endSink) ReadDone(_ uint64, err error)      { s.reads = append(s.reads, err) }

// selfSender is a transport connected to itself, on a device with almost no inline size.
func selfSender(t *testing.T) (*Transport, *endSink) {
	dev, err := soft.Open(soft.Config{Fabric: soft.NewFabric(soft.FabricOptions{}), MaxInline: 64})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	s := &endSink{}
	tr, err := New(Config{Device: dev, Size: 1, MaxEager: 256}, s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tr.Close()) })
	require.NoError(t, tr.Connect(0, tr.Address()))
	return tr, s
}

// wantLost polls until the loss is reported, and checks that all buffers were returned.
func wantLost(t *testing.T, tr *Transport, s *endSink, buffers int) {
	t.Helper()
	for range 300 {
		_, err := tr.Poll()
		require.NoError(t, err)
	}
	require.Equal(t, []int{0}, s.lost)
	require.Len(t, tr.bounce.free, buffers)
	require.Zero(t, tr.peers[0].reads)
	require.Len(t, tr.freeRd, len(tr.reads))
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
	tr.Violation(0, errNotConnected)
	wantLost(t, tr, s, buffers)
	require.Len(t, s.reads, 1)
}

// refuser is a queue pair that refuses every request.
type refuser struct {
	verbs.QP
	err error
}

func (q *refuser) PostSend(wr *verbs.SendWR) (*verbs.SendWR, error) { return wr, q.err }

// TestRefused: a refused request holds no resources, and may be retried if it was refused for want
// of room.
func TestRefused(t *testing.T) {
	for name, try := range map[string]func(tr *Transport) error{
		"inline": func(tr *Transport) error { return tr.SendEager(0, 1, 2, make([]byte, 8)) },
		"bounce": func(tr *Transport) error { return tr.SendEager(0, 1, 2, make([]byte, 200)) },
		"read":   func(tr *Transport) error { return tr.Read(0, make([]byte, 8), 0, 0, 1) },
	} {
		for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EINVAL} {
			t.Run(name+" "+errno.Error(), func(t *testing.T) {
				tr, s := selfSender(t)
				buffers := len(tr.bounce.free)
				// There may be no room until it completes.
				require.NoError(t, tr.SendEager(0, 1, 2, make([]byte, 200)))
				qp := tr.peers[0].qp
				tr.peers[0].qp = &refuser{QP: qp, err: &verbs.Error{Op: "post_send", Errno: errno}}
				err := try(tr)
				require.Error(t, err)
				require.Equal(t, errno == syscall.ENOMEM, err == transport.ErrAgain, "%v", err)
				tr.peers[0].qp = qp
				tr.Violation(0, errNotConnected)
				wantLost(t, tr, s, buffers)
				require.Empty(t, s.reads)
			})
		}
	}
}
