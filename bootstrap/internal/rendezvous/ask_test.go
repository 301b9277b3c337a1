package rendezvous

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// askAll asks all ranks, and returns what they say by rank. It may end before all have replied.
func askAll(ctx context.Context, e *Endpoint, question string, enough int) (said map[int]string, err error) {
	said = map[int]string{}
	err = e.Ask(ctx, question, func(r Reply) bool {
		said[r.Rank] = string(r.Body) + r.Why
		return len(said) < enough
	})
	return said, err
}

// echoing has ranks answer with the question and their number.
func echoing(list []*Endpoint) {
	for r, e := range list {
		e.Answer(func(q string) []byte { return fmt.Appendf(nil, "%s %d", q, r) })
	}
}

// TestAsk: any rank asks all, several at a time, before a fence and after it, and a rank that has
// left is told of.
func TestAsk(t *testing.T) {
	for name, start := range map[string]func() []*Endpoint{
		"over TCP": func() []*Endpoint { return startJob(t, 9, given(1), "") },
		"TLS":      func() []*Endpoint { return startJob(t, 3, given(1), "secret") },
		"local":    func() []*Endpoint { return NewLocal(4) },
	} {
		t.Run(name, func(t *testing.T) {
			list, ctx := start(), ranktest.Timeout(t)
			defer closeAll(t, list)
			said, err := askAll(ctx, list[1], "q", len(list)+1)
			require.NoError(t, err)
			require.Equal(t, WhyDeaf, said[0])
			echoing(list)
			ranktest.Each(t, len(list), func(r int) error {
				for i := range 10 {
					said, err := askAll(ctx, list[r], fmt.Sprint("q", r, i), len(list)+1)
					if err != nil || len(said) != len(list) || said[1] != fmt.Sprintf("q%d %d %d", r, i, 1) && said[1] != WhyUnheard {
						return fmt.Errorf("%v, %w", said, err)
					}
				}
				return list[r].Fence(ctx)
			})
			require.NoError(t, list[2].Close())
			require.Eventually(t, func() bool {
				said, err = askAll(ctx, list[1], "q", len(list)+1)
				return err == nil && said[2] == WhyLeft
			}, testlevel.Patience(30*time.Second), time.Millisecond)
			require.Equal(t, "q 1", said[1])
			_, err = askAll(ctx, list[2], "q", 1)
			require.ErrorIs(t, err, ErrClosed)
			_, err = askAll(ctx, list[0], strings.Repeat("q", MaxQuestion+1), 1)
			require.ErrorIs(t, err, ErrConfig)
		})
	}
}

// TestAskOfOneThatHangs: a rank that does not reply is asked no more after some questions, and all
// others are. It replies to those when it can.
func TestAskOfOneThatHangs(t *testing.T) {
	list, ctx := startJob(t, 3, given(1), ""), ranktest.Timeout(t)
	echoing(list)
	release, served := make(chan struct{}), atomic.Int32{}
	goOn := sync.OnceFunc(func() { close(release) })
	defer goOn()
	list[2].Answer(func(string) []byte {
		<-release
		served.Add(1)
		return nil
	})
	for _, asker := range []int{1, 0} { // what one asks does not keep the other from asking
		for range mostOfOne {
			said, err := askAll(ctx, list[asker], "q", 2)
			require.NoError(t, err)
			require.NotContains(t, said, 2)
		}
		for range 1000 {
			said, err := askAll(ctx, list[asker], "q", 4)
			require.NoError(t, err)
			require.Equal(t, map[int]string{0: "q 0", 1: "q 1", 2: WhyUnheard}, said)
		}
	}
	goOn()
	require.Eventually(t, func() bool {
		said, err := askAll(ctx, list[0], "q", 4)
		return err == nil && said[2] == ""
	}, testlevel.Patience(30*time.Second), time.Millisecond)
	require.Greater(t, int(served.Load()), mostAsked)
}

// TestAskWithoutPause: of its time a rank spends no more than half on what it is asked.
func TestAskWithoutPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, made := NewLocal(2), 0
		defer closeAll(t, list)
		const takes, long = 10 * time.Millisecond, time.Second
		list[1].Answer(func(string) []byte {
			time.Sleep(takes)
			made++
			return nil
		})
		for began := time.Now(); time.Since(began) < long; {
			_, err := askAll(t.Context(), list[0], "q", 3)
			require.NoError(t, err)
		}
		require.InDelta(t, long/takes/2, made, 1)
	})
}

// TestQuestionsArePaced: rank 0 takes the questions of a rank one after the other, with a rest that
// is as long as there are ranks to pass them on to.
func TestQuestionsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := NewLocal(50)
		defer closeAll(t, list)
		near, far := net.Pipe()
		var reads sync.WaitGroup
		reads.Go(func() { newRemote(newFramer(near), nil, 0).read(t.Context(), 1, hubOf(list[0])) })
		began, asks := time.Now(), newFramer(far)
		const questions = 1000
		for i := range uint32(questions) {
			require.NoError(t, asks.write(&askMsg{number: i}))
		}
		require.NoError(t, asks.write(&byeMsg{}))
		reads.Wait()
		require.GreaterOrEqual(t, time.Since(began), questions*50*restPerRank)
	})
}

// TestAskWithoutRankZero: where rank 0 takes no questions a rank asks no more than a few, and gets
// the rest when rank 0 goes on.
func TestAskWithoutRankZero(t *testing.T) {
	list, ctx := startJob(t, 2, given(1), ""), ranktest.Timeout(t)
	echoing(list)
	h := hubOf(list[0])
	over, cancel := context.WithCancel(ctx)
	cancel()
	h.mu.Lock()
	goOn := sync.OnceFunc(h.mu.Unlock)
	defer goOn()
	for range mostAsked {
		_, err := askAll(over, list[1], "q", 3)
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err := askAll(ctx, list[1], "q", 3)
	require.ErrorIs(t, err, ErrPeerLost)
	goOn()
	require.Eventually(t, func() bool {
		said, err := askAll(ctx, list[1], "q", 3)
		return err == nil && said[0] == "q 0" && said[1] == "q 1"
	}, testlevel.Patience(30*time.Second), time.Millisecond)
}

// TestRepliesAreBounded: of replies that nobody takes rank 0 keeps some, and no answer is longer
// than it may be.
func TestRepliesAreBounded(t *testing.T) {
	m := newRemote(nil, nil, 0)
	for range 2 * mostReplies / MaxReply {
		m.deliver(&replyMsg{body: make([]byte, MaxReply)})
	}
	require.Less(t, len(m.queue), mostReplies/MaxReply)
	m.deliver(&goneMsg{})
	require.IsType(t, &goneMsg{}, m.queue[len(m.queue)-1])

	list := NewLocal(1)
	defer closeAll(t, list)
	list[0].Answer(func(string) []byte { return make([]byte, MaxReply+1) })
	said, err := askAll(t.Context(), list[0], "q", 1)
	require.NoError(t, err)
	require.Equal(t, "has more to say than fits into a reply", said[0])
}

// TestRepliesToNothing: a rank that replies where it was not asked has broken the protocol, and one
// reply too many is not heard, nor takes the place of another rank's.
func TestRepliesToNothing(t *testing.T) {
	list := NewLocal(2)
	defer closeAll(t, list)
	require.ErrorIs(t, list[1].up.send(&replyMsg{}), ErrProtocol)
	h := hubOf(list[0])
	h.seats[1].owes = []owed{{0, 1}, {0, 1}, {0, 1}}
	for _, other := range []*replyMsg{{rank: 2, number: 1}, {rank: 1, number: 1}, {rank: 0, number: 2}} {
		require.ErrorIs(t, list[1].up.send(other), ErrProtocol)
	}
	_, q, err := list[0].asking.begin(2)
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, list[1].up.send(&replyMsg{rank: 0, number: 1, body: []byte("x")}))
	}
	require.ErrorIs(t, list[1].up.send(&replyMsg{rank: 0, number: 1}), ErrProtocol)
	replies, more, err := list[0].asking.take(q)
	require.NoError(t, err)
	require.Len(t, replies, 1)
	require.True(t, more, "rank 0 may still reply")
}

// TestCloseWhileAsked: a rank that closes leaves no goroutine, its own questions end, and the
// others go on.
func TestCloseWhileAsked(t *testing.T) {
	list, ctx := startJob(t, 4, given(1), ""), ranktest.Timeout(t)
	echoing(list)
	hang := make(chan struct{})
	defer close(hang)
	list[2].Answer(func(string) []byte {
		<-hang
		return nil
	})
	own, replies := make(chan error, 1), make(chan struct{}, 4)
	go func() {
		own <- list[3].Ask(ctx, "q", func(Reply) bool {
			replies <- struct{}{}
			return true
		})
	}()
	for range 3 { // of all but rank 2
		<-replies
	}
	var asks sync.WaitGroup
	stop := make(chan struct{})
	for r := range 3 {
		asks.Go(func() {
			for {
				if _, err := askAll(ctx, list[r], "q", 2); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	require.NoError(t, list[3].Close())
	require.ErrorIs(t, <-own, ErrClosed)
	close(stop)
	asks.Wait()
}
