package rendezvous

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// nextLoss returns the next loss that a rank reports.
func nextLoss(t *testing.T, b *Endpoint) Loss {
	t.Helper()
	select {
	case l, ok := <-b.Losses():
		require.True(t, ok, "closed")
		return l
	case <-time.After(testlevel.Patience(30 * time.Second)):
		require.Fail(t, "rank was told nothing", "%d", b.Rank())
	}
	return Loss{}
}

// TestReportGivenUp: each of three ranks gives up another one. Only that one gets a report, once,
// and the job continues.
func TestReportGivenUp(t *testing.T) {
	for name, list := range map[string][]*Endpoint{"tcp": startJob(t, 4, Secret{}, ""), "local": NewLocal(4)} {
		t.Run(name, func(t *testing.T) {
			pairs := map[int]int{0: 1, 1: 2, 2: 0} // by the rank that gives up
			for from, to := range pairs {
				for _, reason := range []string{"no route", "again"} {
					require.NoError(t, list[from].ReportGivenUp(to, reason))
				}
			}
			for from, to := range pairs {
				require.Equal(t, Loss{from, "no route", true}, nextLoss(t, list[to]))
			}
			ctx := ranktest.Timeout(t)
			// A barrier: all reports so far have been passed on.
			ranktest.Each(t, 4, func(r int) error { return list[r].Fence(ctx) })
			for r := range list {
				require.Empty(t, list[r].Losses(), "rank %d", r)
			}
			require.NoError(t, list[1].Close())
			for _, r := range []int{0, 2, 3} { // rank 2 too, which rank 1 has given up
				require.Equal(t, Loss{1, "left the job", false}, nextLoss(t, list[r]))
			}
			require.NoError(t, list[0].ReportGivenUp(1, "who is gone needs no telling"))
			require.ErrorIs(t, list[0].ReportGivenUp(4, ""), ErrConfig)
			require.ErrorIs(t, list[0].ReportGivenUp(-1, ""), ErrConfig)
			require.ErrorIs(t, list[1].ReportGivenUp(0, "closed"), ErrClosed)
			closeAll(t, list)
		})
	}
}

// TestEndIsNotTold: that a rank leaves when all have reached the end of the job is told to nobody,
// as each would hear of all others; that one leaves before is.
func TestEndIsNotTold(t *testing.T) {
	for name, list := range map[string][]*Endpoint{"tcp": startJob(t, 4, Secret{}, ""), "local": NewLocal(4)} {
		t.Run(name, func(t *testing.T) {
			list[1].Leave(true)
			require.NoError(t, list[1].Close())
			require.NoError(t, list[3].ReportGivenUp(2, "no route"))
			require.Equal(t, Loss{3, "no route", true}, nextLoss(t, list[2]))
			list[2].Leave(false)
			require.NoError(t, list[2].Close())
			for _, r := range []int{0, 3} {
				require.Equal(t, Loss{2, "left the job", false}, nextLoss(t, list[r]))
			}
			closeAll(t, list)
		})
	}
}

// TestGivenUpNobody: a rank out of range breaks the protocol.
func TestGivenUpNobody(t *testing.T) {
	list := startJob(t, 3, Secret{}, "")
	require.NoError(t, list[2].up.send(&peerGivenUpMsg{rank: 3}))
	for _, r := range []int{0, 1} {
		l := nextLoss(t, list[r])
		require.Equal(t, 2, l.Rank)
		require.Contains(t, l.Reason, "PEERGIVENUP out of turn")
	}
}

// TestLossesEnd: when the connection to rank 0 is lost, or says nonsense, no more losses are
// reported, and the channel says so.
func TestLossesEnd(t *testing.T) {
	t.Run("lost", func(t *testing.T) {
		list := startJob(t, 3, Secret{}, "")
		require.NoError(t, list[2].up.(*wireLink).f.conn.Close())
		require.Equal(t, 0, nextLoss(t, list[2]).Rank)
		requireEnded(t, list[2])
		require.Equal(t, 2, nextLoss(t, list[1]).Rank)
	})
	t.Run("nonsense", func(t *testing.T) {
		list := startJob(t, 2, Secret{}, "")
		h := list[0].up.(*rootLink).hub
		h.mu.Lock()
		to := h.seats[1].member.(*remote)
		h.mu.Unlock()
		_, err := to.f.conn.Write(make([]byte, 64))
		require.NoError(t, err)
		requireEnded(t, list[1])
		require.ErrorIs(t, list[1].Fence(t.Context()), ErrProtocol)
	})
	t.Run("closed", func(t *testing.T) {
		list := startJob(t, 2, Secret{}, "")
		require.NoError(t, list[1].Close())
		require.Equal(t, 1, nextLoss(t, list[0]).Rank)
		require.NoError(t, list[0].Close())
		requireEnded(t, list[0])
	})
}

// requireEnded requires that a rank reports no more losses.
func requireEnded(t *testing.T, b *Endpoint) {
	t.Helper()
	select {
	case l, ok := <-b.Losses():
		require.False(t, ok, "%v", l)
	case <-time.After(testlevel.Patience(30 * time.Second)):
		require.Fail(t, "the channel stays open")
	}
}
