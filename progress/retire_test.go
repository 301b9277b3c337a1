package progress

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// The contexts of these tests are the upper half of the tag.
const testContexts = uint64(0xffffffff) << 32

func inContext(context, tag uint64) uint64 { return context<<32 | tag }

// heard is what one rank's Contexts are told.
type heard struct {
	said []string
	do   func(c Callback, body string)
	idle func(c Callback)
}

func (h *heard) Notice(c Callback, src int, body []byte) error {
	h.said = append(h.said, fmt.Sprintf("%d: %s", src, body))
	if h.do != nil {
		h.do(c, string(body))
	}
	if string(body) == "wrong" {
		return errors.New("it is wrong")
	}
	return nil
}

func (h *heard) Idle(c Callback, context uint64) {
	h.said = append(h.said, fmt.Sprintf("idle %d", context>>32))
	if h.idle != nil {
		h.idle(c)
	}
}

func (h *heard) Gone(c Callback, rank int) {
	h.said = append(h.said, fmt.Sprintf("gone %d: %v", rank, c.Lost(rank)))
}

func (h *heard) require(t *testing.T, said ...string) {
	t.Helper()
	require.Equal(t, said, h.said)
	h.said = nil
}

// withContexts is a cluster whose ranks have Contexts.
func withContexts(t *testing.T, n int, opts fakeOpts) (*cluster, []*heard) {
	c := newCluster(t, n, Config{Manual: true, ContextMask: testContexts}, opts)
	var list []*heard
	for _, e := range c.e {
		h := new(heard)
		e.contexts.owner = h
		list = append(list, h)
	}
	return c, list
}

var errRetired = errors.New("retired")

// The receives of a context end, in software and in the device; those of others stay.
func TestRetireEndsReceives(t *testing.T) {
	for _, tags := range []int{0, 2} {
		c, h := withContexts(t, 2, fakeOpts{tags: tags})
		e := c.e[1]
		var ends []Request
		for range 2 {
			ends = append(ends, e.Irecv(0, inContext(1, 7), exact, nil), e.Irecv(AnySource, inContext(1, 0), testContexts, nil))
		}
		stay := []Request{e.Irecv(0, inContext(2, 7), exact, nil), e.Irecv(AnySource, 7, 7, nil)}
		e.Retire(1<<32, errRetired)
		c.step()
		for _, r := range ends {
			_, err := ended(t, r)
			require.Equal(t, errRetired, err)
		}
		open(t, stay...)
		h[1].require(t, "idle 1")
		h[0].require(t)
	}
}

// Messages of a retired context are discarded, those that are there and those that come: their
// senders have their memory, and their sends end. After Reuse they are kept.
func TestRetireDiscards(t *testing.T) {
	for _, tags := range []int{0, 2} {
		c, h := withContexts(t, 2, fakeOpts{tags: tags})
		s, e := c.e[0], c.e[1]
		send := func() []Request {
			var reqs []Request
			for _, size := range []int{0, 8, 1000} {
				reqs = append(reqs, s.Isend(1, inContext(1, 3), fill(size, 1)))
			}
			return append(reqs, s.Issend(1, inContext(1, 4), nil))
		}
		here := send()
		other := s.Isend(1, inContext(2, 3), fill(1000, 1))
		c.step()
		require.Equal(t, 5, e.Metrics().UnexpectedNow)
		e.Retire(1<<32, errRetired)
		h[1].require(t, "idle 1")
		require.Equal(t, 1, e.Metrics().UnexpectedNow)
		c.step()
		succeeded(t, here...)
		late := send()
		c.step()
		succeeded(t, late...)
		require.Equal(t, 1, e.Metrics().UnexpectedNow)
		c.balanced()
		h[1].do = func(c Callback, _ string) { c.Reuse(1 << 32) }
		(*callback)(s).Notice(1, []byte("again"))
		c.step()
		h[1].require(t, "0: again")
		kept := send()
		c.step()
		succeeded(t, kept[:2]...)
		require.Equal(t, 5, e.Metrics().UnexpectedNow)
		require.Equal(t, fill(1000, 1), c.take(0, 1, inContext(2, 3)))
		succeeded(t, other)
		for _, size := range []int{0, 8, 1000} {
			require.Equal(t, fill(size, 1), c.take(0, 1, inContext(1, 3)))
		}
		require.Empty(t, c.take(0, 1, inContext(1, 4)))
		c.balanced()
	}
}

// A context is idle when what was begun in it has ended: sends that wait for credit or room, whose
// receiver has not answered, receives that read.
func TestRetireWaits(t *testing.T) {
	for _, tags := range []int{0, 4} {
		c, h := withContexts(t, 2, fakeOpts{tags: tags, revoke: true})
		s, e := c.e[0], c.e[1]
		c.net.nodes[1].hold(true)
		in := make([]byte, 1000)
		recv, send := e.Irecv(0, inContext(1, 1), exact, in), s.Isend(1, inContext(1, 1), fill(1000, 3))
		c.step()
		s.Retire(1<<32, errRetired)
		e.Retire(1<<32, errRetired)
		c.step()
		h[0].require(t)
		h[1].require(t)
		open(t, recv, send)
		c.net.nodes[1].hold(false)
		c.step()
		h[0].require(t, "idle 1")
		h[1].require(t, "idle 1")
		succeeded(t, recv, send)
		require.Equal(t, fill(1000, 3), in)
	}

	c := tight(t, 2, fakeOpts{})
	h := new(heard)
	c.e[0].contexts.owner, c.e[0].contexts.mask = h, testContexts
	held := c.holdUp(0, 1)
	queued := c.e[0].Isend(1, inContext(1, 5), nil)
	given := c.e[0].Isend(1, inContext(1, 6), nil)
	given.Notify(c.e[0].NewQueue(1), data(1))
	c.e[0].Retire(1<<32, errRetired)
	c.step()
	h.require(t)
	open(t, held, queued)
	queued.Cancel()
	c.step()
	h.require(t) // who is to be told its end does not matter
	given.Cancel()
	c.step()
	h.require(t, "idle 1")
}

// A Flush that ends with the last send of a retired context waits for what is said of that.
func TestRetireBeforeFlush(t *testing.T) {
	c, h := withContexts(t, 2, fakeOpts{room: 1})
	h[0].idle = func(c Callback) {
		c.Notice(1, []byte("first"))
		c.Notice(1, []byte("second")) // has no room
	}
	s := c.e[0].Issend(1, inContext(1, 5), nil)
	c.e[1].Poll()
	c.e[0].Retire(1<<32, errRetired)
	ctx := &patience{Context: bg, second: func() {
		c.e[1].Irecv(0, inContext(1, 5), exact, nil)
		c.e[1].Poll()
	}}
	require.Equal(t, context.DeadlineExceeded, c.e[0].Flush(ctx))
	succeeded(t, s)
	h[0].require(t, "idle 1")
	c.step()
	h[1].require(t, "0: first", "0: second")
	require.NoError(t, c.e[0].Flush(bg))
}

// What a matched probe waits for that is not of one context alone is not discarded.
func TestRetireTaken(t *testing.T) {
	for _, size := range []int{8, 1000} {
		c, _ := withContexts(t, 2, fakeOpts{})
		c.e[1].Retire(1<<32, errRetired)
		m := &Message{e: c.e[1]}
		probe := c.probe(1, AnySource, 3, 0xff, m)
		s := c.e[0].Isend(1, inContext(1, 3), fill(size, 1))
		c.step()
		succeeded(t, probe)
		buf := make([]byte, size)
		c.got(m.Irecv(buf), buf, size, 1)
		c.step()
		succeeded(t, s)
	}
}

// A receive that loses its message after its context was retired ends as those that waited. So does
// one that is posted later.
func TestRetireWithdrawn(t *testing.T) {
	c, h := withContexts(t, 2, fakeOpts{revoke: true})
	c.net.nodes[1].holdRds = true
	r := c.e[1].Irecv(0, inContext(1, 5), exact, make([]byte, 1000))
	s := c.e[0].Isend(1, inContext(1, 5), fill(1000, 1))
	c.step()
	c.e[1].Retire(1<<32, errRetired)
	_, err := s.Finish(&patience{Context: bg}) // rank 1 does not answer
	require.ErrorIs(t, err, ErrMaybeDelivered)
	c.net.nodes[1].holdRds = false
	c.step()
	h[1].require(t, "idle 1")
	_, err = ended(t, r)
	require.Equal(t, errRetired, err)
	_, err = ended(t, c.e[1].Irecv(0, inContext(1, 5), exact, nil))
	require.Equal(t, errRetired, err)
	h[1].do = func(c Callback, _ string) { c.Reuse(1 << 32) }
	(*callback)(c.e[0]).Notice(1, []byte("again"))
	c.step()
	open(t, c.e[1].Irecv(0, inContext(1, 5), exact, nil))
}

// A receive that a deadline ends while it reads does not leave its message in a retired context.
func TestRetireAbandoned(t *testing.T) {
	c, h := withContexts(t, 2, fakeOpts{revoke: true})
	c.net.nodes[1].hold(true)
	send := c.e[0].Isend(1, inContext(1, 1), fill(1000, 3))
	recv := c.e[1].Irecv(0, inContext(1, 1), exact, make([]byte, 1000))
	c.step()
	c.e[1].Retire(1<<32, errRetired)
	h[1].require(t)
	requireAbandoned(t, recv)
	c.step()
	h[1].require(t, "idle 1")
	succeeded(t, send)
	require.Zero(t, c.e[1].Metrics().UnexpectedNow)
	c.net.nodes[1].hold(false)
	c.step()
}

// Notices and messages keep their order, also where the transport has no room for some.
func TestNoticeOrder(t *testing.T) {
	c, h := withContexts(t, 2, fakeOpts{room: 2})
	require.False(t, (*callback)(c.e[0]).Reached(1))
	h[1].do = func(_ Callback, body string) {
		require.Equal(t, fmt.Sprint(c.e[1].unexp.Len()), body)
	}
	for i := range 9 {
		r := c.e[0].Isend(1, 1, nil)
		for !r.op.Ended() {
			c.e[1].Poll()
			c.e[0].Poll()
		}
		succeeded(t, r)
		(*callback)(c.e[0]).Notice(1, fmt.Append(nil, i+1))
	}
	c.step()
	require.Len(t, h[1].said, 9)
	require.True(t, (*callback)(c.e[0]).Reached(1))
	require.False(t, (*callback)(c.e[1]).Reached(0))
}

// After the end of its engine nothing is called.
func TestCallAfterClose(t *testing.T) {
	c, _ := withContexts(t, 2, fakeOpts{})
	called := 0
	call := func() error { return c.e[0].Call(func(Callback) { called++ }) }
	require.NoError(t, call())
	require.NoError(t, c.e[0].Close(ErrClosed))
	require.Equal(t, ErrClosed, call())
	require.Equal(t, 1, called)
}

// Of answers about the same only one waits for room, however often a rank asks that does not read.
func TestAnswersAreBounded(t *testing.T) {
	c, h := withContexts(t, 2, fakeOpts{room: 1})
	answer := func(body string) (ok bool) {
		require.NoError(t, c.e[0].Call(func(e Callback) { ok = e.Answer(1, []byte(body)) }))
		return ok
	}
	require.True(t, answer("one, sent"))
	require.True(t, answer("one, waits"), "the one before has gone")
	for range 3 {
		require.False(t, answer("one, too many"))
	}
	require.True(t, answer("other"))
	require.False(t, answer("other"))
	require.Len(t, c.e[0].peers[1].ctrls, 2)
	c.step()
	h[1].require(t, "0: one, sent", "0: one, waits", "0: other")
	require.True(t, answer("one, again"))
}

// A wrong notice, and one to a rank without contexts, break the protocol. The loss of a rank is
// told once, and nothing after the end.
func TestNoticeErrors(t *testing.T) {
	c, h := withContexts(t, 3, fakeOpts{})
	(*callback)(c.e[1]).Notice(0, []byte("wrong"))
	c.step()
	h[0].require(t, "1: wrong", "gone 1: true")
	require.Equal(t, []int{1}, c.e[0].Failed())
	require.ErrorIs(t, c.e[0].Send(bg, 1, 1, nil), ErrProtocol)
	(*callback)(c.e[0]).Notice(1, []byte("to nobody"))
	c.net.kill(2)
	c.step()
	h[0].require(t, "gone 2: true")

	bare := manual(t, 2, fakeOpts{})
	bare.callback(0, func(s transport.Sink) { s.Ctrl(1, ctrl{kind: ctrlNotice}.encode()) })
	require.ErrorIs(t, bare.e[0].Send(bg, 1, 1, nil), ErrProtocol)

	c, h = withContexts(t, 2, fakeOpts{})
	r := c.e[0].Issend(1, inContext(1, 1), nil)
	c.e[0].Retire(1<<32, errRetired)
	c.e[0].Abort(context.Canceled)
	c.e[0].Retire(2<<32, errRetired)
	_, err := ended(t, r)
	require.Equal(t, context.Canceled, err)
	c.callback(0, func(s transport.Sink) { s.Ctrl(1, ctrl{kind: ctrlNotice}.encode()) })
	h[0].require(t)
}
