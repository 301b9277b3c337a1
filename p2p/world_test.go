package p2p_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

func TestMain(m *testing.M) {
	testlevel.MuchGarbage()
	if softtest.NICsByEnvironment() {
		notOnNICs.SkipTests()
	}
	goleak.VerifyTestMain(m)
}

var background = context.Background()

func TestRing(t *testing.T) {
	onWirings(t, 4, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		next, prev := (w.Rank()+1)%w.Size(), (w.Rank()+w.Size()-1)%w.Size()
		for _, size := range []int{0, 1, 8, 4 << 10, 100 << 10, 3 << 20} {
			out := bytes.Repeat([]byte{byte(w.Rank()), byte(size)}, size/2+1)[:size]
			in := make([]byte, size+5)
			r := w.Irecv(7, p2p.MaskExact, in)
			require.NoError(t, w.Send(background, next, 7, out))
			st, err := r.Wait(background)
			require.NoError(t, err)
			require.Equal(t, p2p.Status{Source: prev, Tag: 7, Len: int64(size)}, st)
			require.Equal(t, bytes.Repeat([]byte{byte(prev), byte(size)}, size/2+1)[:size], in[:size])
		}
		require.Equal(t, w.Rank(), w.LocalRank())
		require.Equal(t, 4, w.LocalSize())
		require.Empty(t, w.Failed())
	})
}

func TestRawAndCommDoNotMeet(t *testing.T) {
	p2ptest.Run(t, 2, func(w *p2p.World) {
		c, peer := w.Comm(), 1-w.Rank()
		require.Same(t, c, w.Comm())
		require.NoError(t, c.Send(background, peer, 5, []byte("comm")))
		require.NoError(t, w.Send(background, peer, 5, []byte("raw")))
		buf := make([]byte, 8)
		st, err := w.Recv(background, 0, p2p.MaskAny, buf) // receives any raw message, and only those
		require.NoError(t, err)
		require.Equal(t, p2p.Status{Source: peer, Tag: 5, Len: 3}, st)
		require.Equal(t, "raw", string(buf[:3]))
		st, err = c.Recv(background, p2p.AnySource, p2p.AnyTag, buf)
		require.NoError(t, err)
		require.Equal(t, p2p.Status{Source: peer, Tag: 5, Len: 4}, st)
	})
}

func TestCommMatching(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		c := w.Comm()
		if w.Rank() != 0 {
			for _, tag := range []p2p.Tag{p2p.MaxCommTag, 1, 2} {
				require.NoError(t, c.Send(background, 0, tag, []byte{byte(w.Rank())}))
			}
			return
		}
		buf := make([]byte, 1)
		want := func(src int, tag p2p.Tag, wantSource int, wantTag p2p.Tag) {
			st, err := c.Recv(background, src, tag, buf)
			require.NoError(t, err)
			require.Equal(t, wantTag, st.Tag)
			require.Equal(t, int(buf[0]), st.Source)
			if wantSource >= 0 {
				require.Equal(t, wantSource, st.Source)
			}
		}
		want(2, p2p.AnyTag, 2, p2p.MaxCommTag)
		want(1, 2, 1, 2)
		want(p2p.AnySource, p2p.MaxCommTag, 1, p2p.MaxCommTag)
		want(1, p2p.AnyTag, 1, 1)
		want(p2p.AnySource, p2p.AnyTag, 2, 1)
		want(p2p.AnySource, p2p.AnyTag, 2, 2)
	})
}

func TestTruncated(t *testing.T) {
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		for _, size := range []int{16, 1 << 20} {
			message := bytes.Repeat([]byte("abcdefgh"), size/8)
			if w.Rank() == 0 {
				require.NoError(t, w.Send(background, 1, 7, message))
				require.NoError(t, w.Comm().Send(background, 1, 7, message))
				continue
			}
			buf := make([]byte, 8)
			st, err := w.Recv(background, 7, p2p.MaskExact, buf)
			require.EqualError(t, err, fmt.Sprintf("p2p: recv from any, tag 0x7: message longer than the buffer: %d bytes into 8", size))
			require.ErrorIs(t, err, p2p.ErrTruncated)
			require.Equal(t, p2p.Status{Source: 0, Tag: 7, Len: int64(size)}, st)
			require.Equal(t, "abcdefgh", string(buf))
			_, err = w.Comm().Irecv(0, 7, buf).Wait(background)
			require.EqualError(t, err, fmt.Sprintf("p2p: recv from 0, tag 0x7: message longer than the buffer: %d bytes into 8", size))
		}
	})
}

func TestProcNull(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		c := w.Comm()
		require.NoError(t, c.Send(background, p2p.ProcNull, 1, []byte("gone")))
		st, err := c.Recv(background, p2p.ProcNull, 1, nil)
		require.NoError(t, err)
		require.Equal(t, p2p.Status{Source: p2p.ProcNull, Tag: p2p.AnyTag}, st)
		for _, r := range []p2p.Request{c.Isend(p2p.ProcNull, 1, nil), c.Irecv(p2p.ProcNull, p2p.AnyTag, nil), {}} {
			<-r.Done()
			r.Cancel()
			st, err := r.Wait(background)
			require.NoError(t, err)
			require.Equal(t, p2p.ProcNull, st.Source)
			_, done, err := r.Test()
			require.True(t, done)
			if r == (p2p.Request{}) {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, p2p.ErrInactive)
			}
		}
	})
}

func TestWrongArguments(t *testing.T) {
	p2ptest.Run(t, 2, func(w *p2p.World) {
		c := w.Comm()
		var none context.Context
		recv := func(_ p2p.Status, err error) error { return err }
		wait := func(r p2p.Request) error { return recv(r.Wait(background)) }
		for text, err := range map[string]error{
			"p2p: send to 2, tag 0x1: invalid argument: rank 2 is out of range: destinations go from 0 to 1": w.Send(background, 2, 1, nil),
			"p2p: send to -1, tag 0x1: invalid argument: rank -1 is out of range: destinations go from 0 to 1, or ProcNull": wait(
				c.Isend(-1, 1, nil)),
			"p2p: recv from 9, tag 0x1: invalid argument: rank 9 is out of range: sources go from 0 to 1, or AnySource or ProcNull": wait(
				c.Irecv(9, 1, nil)),
			"p2p: send to 1, tag 0x8000000000000000: invalid argument: bit 63 of a tag belongs to the library: " +
				"tags of a World's own calls go from 0 to 0x7fffffffffffffff": w.Send(background, 1, 1<<63, nil),
			"p2p: recv from any, tag 0x8000000000000001: invalid argument: bit 63 of a tag belongs to the library: " +
				"tags of a World's own calls go from 0 to 0x7fffffffffffffff": wait(w.Irecv(1<<63|1, p2p.MaskAny, nil)),
			"p2p: send to 1, tag 0x100000000: invalid argument: tag 0x100000000 is out of range: tags of a Comm go from 0 to 0xffffffff": c.Send(
				background, 1, 1<<32, nil),
		} {
			require.EqualError(t, err, text)
			require.ErrorIs(t, err, p2p.ErrInvalid)
			var op *p2p.OpError
			require.ErrorAs(t, err, &op)
		}
		for _, err := range []error{
			w.Send(none, 0, 1, nil), c.Send(none, 0, 1, nil), recv(w.Recv(none, 1, p2p.MaskExact, nil)), recv(c.Recv(none, 0, 1, nil)),
			p2p.WaitAll(none, nil, nil), w.Shutdown(none), recv(p2p.Request{}.Wait(none)),
			p2p.WaitAll(background, make([]p2p.Request, 2), make([]p2p.Completion, 1)),
		} {
			require.ErrorIs(t, err, p2p.ErrInvalid)
		}
		// The zero Request has no operation that an error could name.
		nothing := p2p.Status{Source: p2p.ProcNull, Tag: p2p.AnyTag}
		st, err := p2p.Request{}.Wait(none)
		require.EqualError(t, err, "p2p: invalid argument: the context is nil: use context.Background where nothing should end the call")
		require.Equal(t, nothing, st)
		require.EqualError(t, p2p.WaitAll(none, make([]p2p.Request, 1), nil), err.Error())
		st, done, err := p2p.Request{}.Test()
		require.True(t, done)
		require.NoError(t, err)
		require.Equal(t, nothing, st)
		r := c.Irecv(0, 7, nil)
		require.EqualError(t, recv(r.Wait(none)), "p2p: recv from 0, tag 0x7: invalid argument: the context is nil: use context.Background where nothing should end the call")
		r.Cancel()
		require.ErrorIs(t, wait(r), p2p.ErrCanceled)

		_, err = p2p.Init(none, p2p.Config{})
		require.ErrorIs(t, err, p2p.ErrInvalid)
	})
}

func TestContexts(t *testing.T) {
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		ended, cancel := context.WithCancel(background)
		cancel()
		require.ErrorIs(t, w.Send(ended, 0, 1, nil), context.Canceled)
		short, cancel := context.WithTimeout(background, 20*time.Millisecond)
		defer cancel()
		_, err := w.Recv(short, 1, p2p.MaskExact, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var op *p2p.OpError
		require.ErrorAs(t, err, &op)

		// The context bounds only the waiting.
		buf := make([]byte, 8)
		r := w.Irecv(2, p2p.MaskExact, buf)
		_, err = r.Wait(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, p2p.WaitAll(short, []p2p.Request{r}, nil), context.DeadlineExceeded)
		require.NoError(t, w.Send(background, 1-w.Rank(), 5, nil))
		_, err = w.Recv(background, 5, p2p.MaskExact, nil) // the peer has cancelled by now
		require.NoError(t, err)
		require.NoError(t, w.Send(background, 1-w.Rank(), 2, []byte("here")))
		st, err := r.Wait(background)
		require.NoError(t, err)
		require.Equal(t, "here", string(buf[:st.Len]))

		// A large send that is not received can be cancelled.
		if w.Rank() == 0 {
			short, cancel := context.WithTimeout(background, 20*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, w.Send(short, 1, 3, make([]byte, 1<<20)), context.DeadlineExceeded)
			require.NoError(t, w.Send(background, 1, 4, nil))
			return
		}
		_, err = w.Recv(background, 4, p2p.MaskExact, nil) // answers the WITHDRAW meanwhile
		require.NoError(t, err)
	})
}

func TestRequests(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		buf := make([]byte, 8)
		r := w.Irecv(1, p2p.MaskExact, buf)
		_, done, err := r.Test()
		require.False(t, done)
		require.NoError(t, err)
		r.Cancel()
		<-r.Done()
		_, err = r.Wait(background)
		require.ErrorIs(t, err, p2p.ErrCanceled)
		for range 2 { // stale
			_, err = r.Wait(background)
			require.ErrorIs(t, err, p2p.ErrInactive)
			_, done, err = r.Test()
			require.True(t, done)
			require.ErrorIs(t, err, p2p.ErrInactive)
			r.Cancel()
		}

		reqs := []p2p.Request{w.Irecv(1, p2p.MaskExact, buf[:1]), {}, w.Isend(0, 1, []byte("xy")), w.Isend(5, 1, nil)}
		<-reqs[0].Done() // while others have not ended, WaitAll tells of the refused send alone
		out := make([]p2p.Completion, len(reqs))
		err = p2p.WaitAll(background, reqs, out)
		require.ErrorIs(t, err, p2p.ErrTruncated)
		require.Equal(t, make([]p2p.Request, len(reqs)), reqs)
		require.ErrorIs(t, out[0].Err, p2p.ErrTruncated)
		require.Equal(t, int64(2), out[0].Status.Len)
		require.NoError(t, out[2].Err)
		require.Equal(t, uint64(2), out[2].Data)
		require.ErrorIs(t, out[3].Err, p2p.ErrInvalid)
		require.NoError(t, p2p.WaitAll(background, reqs, nil))
	})
}

// TestStatusOfFailed: an operation that moved nothing must not look as if it had a message from
// rank 0.
func TestStatusOfFailed(t *testing.T) {
	nothing := p2p.Status{Source: p2p.ProcNull, Tag: p2p.AnyTag}
	p2ptest.Run(t, 1, func(w *p2p.World) {
		ended, cancel := context.WithCancel(background)
		cancel()
		c, buf := w.Comm(), make([]byte, 2)
		r := c.Irecv(0, 1, buf)
		st, done, err := r.Test()
		require.False(t, done)
		require.NoError(t, err)
		require.Equal(t, nothing, st)
		st, err = r.Wait(ended)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, nothing, st)
		r.Cancel()
		st, err = r.Wait(background)
		require.ErrorIs(t, err, p2p.ErrCanceled)
		require.Equal(t, nothing, st)
		st, _, err = r.Test() // stale
		require.ErrorIs(t, err, p2p.ErrInactive)
		require.Equal(t, nothing, st)
		for _, recv := range []func() (p2p.Status, error){
			func() (p2p.Status, error) { return c.Recv(ended, 0, 1, buf) },
			func() (p2p.Status, error) { return w.Recv(ended, 1, p2p.MaskExact, buf) },
			func() (p2p.Status, error) { return c.Irecv(7, 1, buf).Wait(background) },
			func() (p2p.Status, error) { return w.Isend(7, 1, buf).Wait(background) },
		} {
			st, err := recv()
			require.Error(t, err)
			require.Equal(t, nothing, st)
		}

		// A truncated message did arrive.
		require.NoError(t, c.Send(background, 0, 1, make([]byte, 5)))
		st, err = c.Recv(background, p2p.AnySource, p2p.AnyTag, buf)
		require.ErrorIs(t, err, p2p.ErrTruncated)
		require.Equal(t, p2p.Status{Source: 0, Tag: 1, Len: 5}, st)

		r = c.Irecv(0, 1, buf)
		require.NoError(t, w.Close())
		st, done, err = r.Test()
		require.True(t, done)
		require.ErrorIs(t, err, p2p.ErrClosed)
		require.Equal(t, nothing, st)
	})
}

func TestCloseEndsOperations(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		r := w.Irecv(1, p2p.MaskExact, make([]byte, 8))
		require.NoError(t, w.Close())
		require.NoError(t, w.Close())
		_, err := r.Wait(background)
		_, dup := w.Comm().Dup(background)
		for text, err := range map[string]error{
			"p2p: recv from any, tag 0x1: world closed":        err,
			"p2p: dup: world closed":                           dup,
			"p2p: send to 0, tag 0x1: world closed":            w.Send(background, 0, 1, nil),
			"p2p: world closed":                                w.Room(background),
			"p2p: world closed: there is nothing to shut down": w.Shutdown(background),
		} {
			require.ErrorIs(t, err, p2p.ErrClosed)
			require.EqualError(t, err, text)
		}
		w.Abort(1, "too late")
	})
}

func TestAbort(t *testing.T) {
	for _, mode := range []p2p.ProgressMode{p2p.ProgressAuto, p2p.ProgressManual} {
		var ended atomic.Int32
		p2ptest.RunConfig(t, 3, p2p.Config{Progress: mode}, func(w *p2p.World) {
			defer w.Close()
			assert.NoError(t, w.Send(background, 1, 2, nil))
			if w.Rank() == 1 {
				for range 3 { // a barrier
					_, err := w.Recv(background, 2, p2p.MaskExact, nil)
					assert.NoError(t, err)
				}
				w.Abort(3, "the sky fell")
			}
			_, err := w.Recv(background, 1, p2p.MaskExact, nil)
			assert.ErrorIs(t, err, p2p.ErrAborted)
			assert.EqualError(t, err, "p2p: recv from any, tag 0x1: job aborted: by rank 1 with code 3: the sky fell")
			ended.Add(1)
		})
		require.EqualValues(t, 3, ended.Load())
	}
}

// TestAbortCode: no code of an abort is that of success, of which the system keeps 8 bits.
func TestAbortCode(t *testing.T) {
	for code, want := range map[int]string{0: "1", 256: "1", -256: "1", 42: "42", 257: "257"} {
		p2ptest.Run(t, 1, func(w *p2p.World) {
			defer w.Close()
			w.Abort(code, "x")
			_, err := w.Recv(background, 1, p2p.MaskExact, nil)
			require.ErrorContains(t, err, "with code "+want+": x")
		})
	}
}

func TestLostPeer(t *testing.T) {
	p2ptest.RunConfig(t, 3, p2p.Config{}, func(w *p2p.World) {
		defer w.Close()
		for peer := range 3 { // a barrier
			require.NoError(t, w.Comm().Send(background, peer, 0, nil))
		}
		for peer := range 3 {
			_, err := w.Comm().Recv(background, peer, 0, nil)
			require.NoError(t, err)
		}
		if w.Rank() == 2 {
			return // closes without Shutdown
		}
		var peer *p2p.PeerError
		_, err := w.Comm().Recv(background, 2, 1, nil)
		if !errors.As(err, &peer) {
			t.Errorf("rank %d: %v", w.Rank(), err)
			return
		}
		assert.Equal(t, []int{2}, peer.Ranks)
		assert.Equal(t, []int{2}, w.Failed())
		_, err = w.Recv(background, 9, p2p.MaskExact, nil)
		assert.ErrorIs(t, err, p2p.ErrPeerLost)
		w.AckFailures(2)
		r := w.Irecv(2, p2p.MaskExact, nil)
		assert.NoError(t, w.Send(background, 1-w.Rank(), 2, nil))
		_, err = r.Wait(background)
		assert.NoError(t, err)
		// The other survivor must have its message before this rank goes.
		assert.NoError(t, w.Send(background, 1-w.Rank(), 3, nil))
		_, err = w.Recv(background, 3, p2p.MaskExact, nil)
		assert.NoError(t, err)
	})
}
