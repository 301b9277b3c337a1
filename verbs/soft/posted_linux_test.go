package soft_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// TestChainIsFlushed: what a PostSend has sent leaves though nobody polls, also where a later
// request of the chain is refused.
func TestChainIsFlushed(t *testing.T) {
	devs := tcpOpener(t, 2)
	p := newPair(t, devs[0], devs[1])
	var wc [4]verbs.WC
	post := func(next *verbs.SendWR) {
		_, err := p.srq.PostSRQRecv(&verbs.RecvWR{})
		require.NoError(t, err)
		bad, err := p.q1.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Next: next})
		require.Equal(t, next != nil, err != nil)
		require.Same(t, next, bad)
	}
	arrives := func(poll func()) {
		for end := time.Now().Add(testlevel.Patience(10 * time.Second)); must(verbstest.Poll(p.cq, wc[:])) == 0; poll() {
			require.True(t, time.Now().Before(end), "nothing arrives")
		}
	}
	post(nil)
	arrives(func() { must(verbstest.Poll(p.sendCQ, wc[:])) }) // they are connected
	for _, next := range []*verbs.SendWR{nil, {Opcode: verbs.WRSend, Flags: verbs.SendInline, SGList: tooMany}} {
		require.NoError(t, p.sendCQ.Arm(false))
		must(verbstest.Poll(p.sendCQ, wc[:]))
		post(next)
		arrives(func() {})
	}
}
