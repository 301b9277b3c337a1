package soft_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
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
	case <-time.After(testlevel.Patience(10 * time.Second)):
		p.channel.Wake()
		t.Fatal("nobody was woken")
	}
	require.Equal(t, 1, must(verbstest.Poll(p.cq, wc[:])))
}

// tooMany is a list of more elements than any queue takes.
var tooMany = make([]verbs.SGE, 100)

// TestReceiveWakes: a receive wakes who sleeps beside a message that waits for it, also where one
// behind it in the chain is refused.
func TestReceiveWakes(t *testing.T) {
	for _, next := range []*verbs.RecvWR{nil, {SGList: tooMany}} {
		p := newSelfPair(t)
		_, err := p.q1.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline})
		require.NoError(t, err)
		var wc [4]verbs.WC
		require.Zero(t, must(verbstest.Poll(p.cq, wc[:])))
		require.NoError(t, p.cq.Arm(false))
		require.Zero(t, must(verbstest.Poll(p.cq, wc[:])))
		bad, err := p.srq.PostSRQRecv(&verbs.RecvWR{Next: next})
		require.Equal(t, next != nil, err != nil)
		require.Same(t, next, bad)
		late := time.AfterFunc(testlevel.Patience(10*time.Second), p.channel.Wake)
		require.NoError(t, p.channel.Wait())
		require.True(t, late.Stop(), "nothing has woken it")
		require.Equal(t, 1, must(verbstest.Poll(p.cq, wc[:])))
	}
}
