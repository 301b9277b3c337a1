package soft_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// TestManyDirectReads: a request that takes a packet is executed after more reads than a send queue
// holds, none of which has taken one.
func TestManyDirectReads(t *testing.T) {
	p := newSHMPair(t)
	theirs, mine := []byte("12345678"), make([]byte, 8)
	remote := must(p.sendPD.RegMR(theirs, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead))
	local := must(p.pd.RegMR(mine, verbs.AccessLocalWrite))
	wr := verbs.SendWR{SGList: []verbs.SGE{{Data: mine, LKey: local.LKey()}}, RemoteAddr: remote.Addr(), RKey: remote.RKey(),
		Flags: verbs.SendSignaled}
	var wc [16]verbs.WC
	do := func(op verbs.SendOpcode, n int) {
		wr.Opcode = op
		for posted, done := 0, 0; done < n; {
			for posted < n && posted-done < 16 {
				_ = must(p.q2.PostSend(&wr))
				posted++
			}
			got := must(verbstest.Poll(p.cq, wc[:]))
			for _, c := range wc[:got] {
				require.Equal(t, verbs.WCSuccess, c.Status)
			}
			done += got
			_ = must(verbstest.Poll(p.sendCQ, wc[:]))
		}
	}
	do(verbs.WRRDMARead, 1<<16+100)
	require.Equal(t, theirs, mine)
	copy(mine, "abcdefgh")
	do(verbs.WRRDMAWrite, 1)
	require.Equal(t, mine, theirs)
	require.NoError(t, remote.Dereg())
	require.NoError(t, local.Dereg())
}
