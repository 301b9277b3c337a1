package soft_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// TestSelfWakes: the first message that a device sends to itself wakes who sleeps for it.
func TestSelfWakes(t *testing.T) {
	p := newSelfPair(t)
	_, err := p.srq.PostSRQRecv(&verbs.RecvWR{})
	require.NoError(t, err)
	require.NoError(t, p.cq.Arm(false))
	var wc [4]verbs.WC
	require.Zero(t, must(verbstest.Poll(p.cq, wc[:])))
	woken := make(chan error, 1)
	go func() { woken <- p.channel.Wait() }()
	time.Sleep(time.Millisecond) // mostly it sleeps by now
	_, err = p.q1.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline})
	require.NoError(t, err)
	select {
	case err := <-woken:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		p.channel.Wake()
		t.Fatal("nobody was woken")
	}
	require.Equal(t, 1, must(verbstest.Poll(p.cq, wc[:])))
}
