package progress

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

var errBarred = errors.New("barred")

func bar(e *Engine, context uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	(*callback)(e).Bar(context, errBarred)
}

// barredAll requires that requests have ended as those of a barred context.
func barredAll(t *testing.T, reqs ...Request) {
	t.Helper()
	for _, r := range reqs {
		_, err := ended(t, r)
		require.Equal(t, errBarred, err)
	}
}

// Receives, and sends whose receivers answer, end; later ones are refused. What is of other
// contexts goes on, and what waited behind a send goes.
func TestBar(t *testing.T) {
	for _, tags := range []int{0, 2} {
		c, h := withContexts(t, 2, fakeOpts{tags: tags, revoke: true})
		s, e := c.e[0], c.e[1]
		recvs := []Request{e.Irecv(0, inContext(1, 7), exact, nil), e.Irecv(AnySource, inContext(1, 0), testContexts, nil)}
		stays := e.Irecv(0, inContext(2, 7), exact, nil)
		c.step()
		bar(e, 1<<32)
		c.step()
		barredAll(t, recvs...)
		succeeded(t, s.Isend(1, inContext(1, 7), nil))
		c.step()
		require.Zero(t, e.Metrics().UnexpectedNow)

		sends := []Request{s.Isend(1, inContext(3, 1), fill(1000, 1)), s.Issend(1, inContext(3, 1), nil)}
		c.step()
		bar(s, 3<<32)
		open(t, sends...)
		c.step()
		barredAll(t, sends...)
		barredAll(t, s.Issend(1, inContext(3, 1), nil), s.IsendVec(1, inContext(3, 1), [][]byte{fill(600, 1), fill(600, 1)}))
		require.Equal(t, errBarred, s.Ssend(bg, 1, inContext(3, 1), nil))
		require.Equal(t, errBarred, s.Send(bg, 1, inContext(3, 1), fill(1000, 1)))
		require.Zero(t, e.Metrics().UnexpectedNow)
		open(t, stays)
		succeeded(t, s.Isend(1, inContext(2, 7), nil))
		c.step()
		succeeded(t, stays)

		s.Retire(3<<32, errRetired)
		h[0].require(t, "idle 3")
		h[0].do = func(c Callback, _ string) { c.Reuse(3 << 32) }
		(*callback)(e).Notice(0, []byte("again"))
		c.step()
		again := s.Issend(1, inContext(3, 1), nil)
		open(t, again)
		c.balanced()
	}
}

// A receiver that was barred first has discarded the message, and says FIN: nobody has received it.
func TestBarredByReceiver(t *testing.T) {
	c, _ := withContexts(t, 2, fakeOpts{revoke: true})
	send := c.e[0].Isend(1, inContext(1, 1), fill(1000, 1))
	c.step()
	bar(c.e[1], 1<<32)
	bar(c.e[0], 1<<32)
	c.step()
	barredAll(t, send)
	c.balanced()
}

// A receive that reads ends as its sender ends: with the message, or as it is withdrawn.
func TestBarWhileReading(t *testing.T) {
	for _, withdrawn := range []bool{false, true} {
		c, _ := withContexts(t, 2, fakeOpts{revoke: true})
		c.net.nodes[1].hold(true)
		send := c.e[0].Isend(1, inContext(1, 1), fill(1000, 3))
		recv := c.e[1].Irecv(0, inContext(1, 1), exact, make([]byte, 1000))
		c.step()
		bar(c.e[1], 1<<32)
		open(t, recv)
		if withdrawn {
			send.Cancel()
			c.step()
		}
		c.net.nodes[1].hold(false)
		c.step()
		if withdrawn {
			barredAll(t, recv)
		} else {
			succeeded(t, recv, send)
		}
	}
}

// Sends that wait for credit leave their queue before those behind them go.
func TestBarQueued(t *testing.T) {
	c := tight(t, 2, fakeOpts{})
	c.e[0].contexts.owner, c.e[0].contexts.mask = new(heard), testContexts
	held := c.holdUp(0, 1)
	barred := []Request{c.e[0].Isend(1, inContext(5, 1), nil), c.e[0].Issend(1, inContext(5, 1), nil)}
	behind := c.e[0].Isend(1, inContext(6, 1), nil)
	bar(c.e[0], 5<<32)
	barredAll(t, barred...)
	c.step()
	open(t, held, behind)
}

// A Message whose bytes are at its sender is of no use any more, whichever of the two ranks hears
// first; one that is here is. Its sender is told.
func TestBarMessages(t *testing.T) {
	for _, first := range []int{0, 1} {
		c, _ := withContexts(t, 2, fakeOpts{revoke: true})
		large, small := c.e[0].Isend(1, inContext(1, 1), fill(1000, 3)), c.e[0].Isend(1, inContext(1, 2), fill(8, 3))
		c.step()
		take := func(tag uint64) *Message {
			m, err := c.e[1].Mprobe(bg, 0, inContext(1, tag), exact)
			require.NoError(t, err)
			return m
		}
		far, here := take(1), take(2)
		bar(c.e[first], 1<<32)
		c.step()
		bar(c.e[1-first], 1<<32)
		c.step()
		if first == 0 {
			barredAll(t, large)
		} else {
			succeeded(t, large)
		}
		succeeded(t, small)
		_, err := far.Recv(context.Background(), make([]byte, 1000))
		require.Equal(t, errBarred, err)
		_, err = here.Recv(context.Background(), make([]byte, 8))
		require.NoError(t, err)
		c.balanced()
	}
}
