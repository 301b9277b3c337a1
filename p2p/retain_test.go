package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// left is what the program has given to the library, or got of it, and refers to no more. All of it
// is to be collected.
type left struct {
	mu   sync.Mutex
	what []leaving
}

type leaving struct {
	what string
	gone func() bool
}

// leaves adds what p points to. It must not be smaller than 16 bytes: smaller objects are collected
// together.
func leaves[T any](l *left, what string, p *T) *T {
	object := weak.Make(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.what = append(l.what, leaving{what, func() bool { return object.Value() == nil }})
	return p
}

// collected is how long the garbage collector may take until all is gone: of a goroutine that was
// preempted anywhere it takes each word on the stack for a pointer.
const collected = 20 * time.Second

// check fails if something is still there. The goroutines that had it have ended.
func (l *left) check(t *testing.T) {
	t.Helper()
	for start := time.Now(); len(l.what) != 0; time.Sleep(time.Millisecond) {
		runtime.GC()
		var there []leaving
		for _, o := range l.what {
			if !o.gone() {
				there = append(there, o)
			}
		}
		l.what = there
		if len(there) != 0 && time.Since(start) > collected {
			var names strings.Builder
			for _, o := range there {
				names.WriteString("\n" + o.what)
			}
			require.Fail(t, "the library keeps", names.String())
		}
	}
}

// leaver is one side of an exchange of one message, which gives all to the library that it has.
type leaver struct {
	t    *testing.T
	left *left
	name string
	w    *p2p.World
	c    *p2p.Comm
	peer int
	tag  p2p.Tag
	size int

	inner error // of failed, the last time
}

// buf is a buffer of n bytes.
func (r *leaver) buf(n int) []byte {
	b := make([]byte, max(n, 16))
	leaves(r.left, r.name+": buffer", &b[0])
	return b[:n]
}

// programContext is one whose end the library hears of.
type programContext struct {
	context.Context
	_ [64]byte
}

func (r *leaver) ctx() context.Context {
	ctx, cancel := context.WithCancel(background)
	r.t.Cleanup(cancel)
	return leaves(r.left, r.name+": context", &programContext{Context: ctx})
}

// brief is a context that ends soon.
func (r *leaver) brief() context.Context {
	ctx, cancel := context.WithTimeout(background, 5*time.Millisecond)
	r.t.Cleanup(cancel)
	return leaves(r.left, r.name+": context", &programContext{Context: ctx})
}

// failed takes the error of an operation, which target names.
func (r *leaver) failed(err, target error) {
	op := r.opError(err, target)
	if peer, ok := errors.AsType[*p2p.PeerError](err); ok {
		_ = leaves(r.left, r.name+": *PeerError", peer)
	}
	if target == p2p.ErrTruncated && op.Err != r.inner { // a request may tell it more than once
		r.inner = op.Err
		r.left.finalize(r.name+": the engine's error", op.Err)
	}
}

// opError is failed where what the *OpError wraps is also the outcome of operations that were not
// reported.
func (r *leaver) opError(err, target error) *p2p.OpError {
	require.ErrorIs(r.t, err, target, r.name)
	var op *p2p.OpError
	require.ErrorAs(r.t, err, &op, r.name)
	return leaves(r.left, r.name+": *OpError", op)
}

// finalize is leaves for an object of a type that has no name here.
func (l *left) finalize(what string, object error) {
	var gone atomic.Bool
	runtime.SetFinalizer(object, func(error) { gone.Store(true) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.what = append(l.what, leaving{what, gone.Load})
}

func (r *leaver) ok(err error) { require.NoError(r.t, err, r.name) }

func (r *leaver) message(m *p2p.Message, err error) *p2p.Message {
	r.ok(err)
	leaves(r.left, r.name+": Message", m)
	leaves(r.left, r.name+": Message of the engine", p2p.InnerMessage(m))
	return m
}

// parts are three buffers of size bytes in all.
func (r *leaver) parts() [][]byte {
	return [][]byte{r.buf(r.size / 3), r.buf(r.size / 3), r.buf(r.size - 2*(r.size/3))}
}

// A way is a kind of call that sends, or receives, one message.
type way struct {
	name string
	do   func(r *leaver)
}

// completions are the ways to complete a request; err is what it is to end with.
var completions = []struct {
	name string
	do   func(r *leaver, q p2p.Request, err error)
}{
	{"Wait", func(r *leaver, q p2p.Request, err error) {
		_, got := q.Wait(r.ctx())
		r.is(got, err)
	}},
	{"Done, Peek, Wait", func(r *leaver, q p2p.Request, err error) {
		<-q.Done()
		_, done, got := q.Peek()
		require.True(r.t, done)
		r.is(got, err)
		_, got = q.Wait(r.ctx())
		r.is(got, err)
	}},
	{"Test", func(r *leaver, q p2p.Request, err error) {
		for {
			if _, done, got := q.Test(); done {
				r.is(got, err)
				return
			}
		}
	}},
	{"WaitAll", func(r *leaver, q p2p.Request, err error) {
		out := make([]p2p.Completion, 1)
		got := p2p.WaitAll(r.ctx(), []p2p.Request{q}, out)
		r.is(got, err)
		r.is(out[0].Err, err)
	}},
	{"WaitAny", func(r *leaver, q p2p.Request, err error) {
		_, _, got := p2p.WaitAny(r.ctx(), []p2p.Request{q, {}})
		r.is(got, err)
	}},
	{"WaitSome", func(r *leaver, q p2p.Request, err error) {
		out := make([]p2p.Completion, 2)
		n, got := p2p.WaitSome(r.ctx(), []p2p.Request{q, {}}, out)
		r.ok(got)
		require.Equal(r.t, 1, n)
		r.is(out[0].Err, err)
	}},
	{"TestAll", func(r *leaver, q p2p.Request, err error) {
		for {
			if done, got := p2p.TestAll([]p2p.Request{q}, nil); done {
				r.is(got, err)
				return
			}
		}
	}},
	{"TestSome", func(r *leaver, q p2p.Request, err error) {
		out := make([]p2p.Completion, 1)
		for {
			if n, _ := p2p.TestSome([]p2p.Request{q}, out); n == 1 {
				r.is(out[0].Err, err)
				return
			}
		}
	}},
	{"Queue.Wait", func(r *leaver, q p2p.Request, err error) {
		queue := r.w.NewQueue(1)
		defer queue.Close()
		q.Notify(queue, 7)
		out := make([]p2p.Completion, 2)
		_, got := queue.Wait(r.ctx(), out)
		r.ok(got)
		r.is(out[0].Err, err)
	}},
	{"Queue.Poll", func(r *leaver, q p2p.Request, err error) {
		queue := r.w.NewQueue(1)
		q.Notify(queue, 7)
		out := make([]p2p.Completion, 2)
		for queue.Poll(out) == 0 {
		}
		r.is(out[0].Err, err)
		r.ok(queue.Close())
	}},
	{"a Queue that is closed", func(r *leaver, q p2p.Request, err error) {
		queue := r.w.NewQueue(1)
		q.Notify(queue, 7)
		<-q.Done()
		r.ok(queue.Close())
	}},
	{"Free", func(r *leaver, q p2p.Request, err error) { q.Free() }},
	{"Free after the end", func(r *leaver, q p2p.Request, err error) {
		<-q.Done()
		q.Free()
	}},
}

// is checks the outcome of an operation.
func (r *leaver) is(got, want error) {
	if want == nil {
		r.ok(got)
	} else {
		r.failed(got, want)
	}
}

// byAll are the ways of a nonblocking call, with each completion.
func byAll(name string, err error, post func(r *leaver) p2p.Request) (ws []way) {
	for _, c := range completions {
		ws = append(ws, way{name + " by " + c.name, func(r *leaver) { c.do(r, post(r), err) }})
	}
	return ws
}

// byOne are the ways of further nonblocking calls, by the first completion.
func byOne(name string, err error, post func(r *leaver) p2p.Request) way {
	return byAll(name, err, post)[0]
}

var sendWays = append(byAll("Isend", nil, func(r *leaver) p2p.Request { return r.c.Isend(r.peer, r.tag, r.buf(r.size)) }),
	way{"Send", func(r *leaver) { r.ok(r.c.Send(r.ctx(), r.peer, r.tag, r.buf(r.size))) }},
	way{"Ssend", func(r *leaver) { r.ok(r.c.Ssend(r.ctx(), r.peer, r.tag, r.buf(r.size))) }},
	way{"Sendrecv to nobody", func(r *leaver) {
		_, err := r.c.Sendrecv(r.ctx(), r.peer, r.tag, r.buf(r.size), p2p.ProcNull, r.tag, nil)
		r.ok(err)
	}},
	byOne("Issend", nil, func(r *leaver) p2p.Request { return r.c.Issend(r.peer, r.tag, r.buf(r.size)) }),
	byOne("IsendVec", nil, func(r *leaver) p2p.Request { return r.c.IsendVec(r.peer, r.tag, r.parts()) }),
	byOne("IssendVec", nil, func(r *leaver) p2p.Request { return r.c.IssendVec(r.peer, r.tag, r.parts()) }),
	byOne("SendInit", nil, func(r *leaver) p2p.Request { return r.c.SendInit(r.peer, r.tag, r.buf(r.size)).Start() }),
	way{"IsendAll", func(r *leaver) {
		qs := r.c.IsendAll(nil, []p2p.Transfer{{Rank: r.peer, Tag: r.tag, Buf: r.buf(r.size)}, {Rank: r.peer, Tag: 1 << 20, Buf: r.buf(16)}})
		r.ok(p2p.WaitAll(r.ctx(), qs, nil))
	}},
)

// truncated are receives into too short a buffer.
func (r *leaver) short() []byte { return r.buf(r.size / 2) }

var receiveWays = append(append(
	byAll("Irecv", nil, func(r *leaver) p2p.Request { return r.c.Irecv(r.peer, r.tag, r.buf(r.size)) }),
	byAll("Irecv, truncated", p2p.ErrTruncated, func(r *leaver) p2p.Request { return r.c.Irecv(r.peer, r.tag, r.short()) })...),
	way{"Recv", func(r *leaver) {
		_, err := r.c.Recv(r.ctx(), p2p.AnySource, r.tag, r.buf(r.size))
		r.ok(err)
	}},
	way{"Recv, truncated", func(r *leaver) {
		_, err := r.c.Recv(r.ctx(), r.peer, r.tag, r.short())
		r.failed(err, p2p.ErrTruncated)
	}},
	way{"RecvAlloc", func(r *leaver) {
		b, _, err := r.c.RecvAlloc(r.ctx(), r.peer, r.tag, 0)
		r.ok(err)
		leaves(r.left, r.name+": slice", &b[0])
	}},
	way{"Probe, Recv", func(r *leaver) {
		_, err := r.c.Probe(r.ctx(), r.peer, r.tag)
		r.ok(err)
		_, err = r.c.Recv(r.ctx(), r.peer, r.tag, r.buf(r.size))
		r.ok(err)
	}},
	way{"Mprobe, Recv", func(r *leaver) {
		_, err := r.message(r.c.Mprobe(r.ctx(), r.peer, r.tag)).Recv(r.ctx(), r.buf(r.size))
		r.ok(err)
	}},
	way{"Mprobe, Recv, truncated", func(r *leaver) {
		_, err := r.message(r.c.Mprobe(r.ctx(), r.peer, r.tag)).Recv(r.ctx(), r.short())
		r.failed(err, p2p.ErrTruncated)
	}},
	way{"Improbe, Discard", func(r *leaver) {
		for {
			if m, ok, err := r.c.Improbe(r.peer, r.tag); ok || err != nil {
				r.message(m, err).Discard()
				return
			}
		}
	}},
	byOne("Mprobe, Irecv", nil, func(r *leaver) p2p.Request {
		return r.message(r.c.Mprobe(r.ctx(), r.peer, r.tag)).Irecv(r.buf(r.size))
	}),
	byOne("IrecvVec", nil, func(r *leaver) p2p.Request { return r.c.IrecvVec(r.peer, r.tag, r.parts()) }),
	byOne("IrecvVec, truncated", p2p.ErrTruncated, func(r *leaver) p2p.Request {
		return r.c.IrecvVec(r.peer, r.tag, [][]byte{r.buf(r.size / 3), r.buf(r.size / 3)})
	}),
	byOne("Irecv from any", nil, func(r *leaver) p2p.Request { return r.c.Irecv(p2p.AnySource, r.tag, r.buf(r.size+100)) }),
	byOne("RecvInit", nil, func(r *leaver) p2p.Request { return r.c.RecvInit(r.peer, r.tag, r.buf(r.size)).Start() }),
	way{"IrecvAll", func(r *leaver) {
		qs := r.c.IrecvAll(nil, []p2p.Transfer{{Rank: r.peer, Tag: r.tag, Buf: r.buf(r.size)}})
		r.ok(p2p.WaitAll(r.ctx(), qs, nil))
	}},
)

// lonelyWays are calls that end without a message.
var lonelyWays = append(append(append(
	byAll("Irecv, cancelled", p2p.ErrCanceled, func(r *leaver) p2p.Request {
		return cancelled(r.c.Irecv(r.peer, r.tag, r.buf(r.size)))
	}),
	byAll("Isend, cancelled", p2p.ErrCanceled, func(r *leaver) p2p.Request {
		return cancelled(r.c.Issend(r.peer, r.tag, r.buf(r.size)))
	})...),
	byAll("Isend to nobody", p2p.ErrInvalid, func(r *leaver) p2p.Request { return r.c.Isend(99, r.tag, r.buf(r.size)) })...),
	byOne("IrecvVec, cancelled", p2p.ErrCanceled, func(r *leaver) p2p.Request { return cancelled(r.c.IrecvVec(r.peer, r.tag, r.parts())) }),
	byOne("Irecv from any, cancelled", p2p.ErrCanceled, func(r *leaver) p2p.Request {
		return cancelled(r.c.Irecv(p2p.AnySource, r.tag, r.buf(r.size)))
	}),
	way{"Send whose context ends", func(r *leaver) {
		r.failed(r.c.Ssend(r.brief(), r.peer, r.tag, r.buf(r.size)), context.DeadlineExceeded)
	}},
	way{"Recv whose context ends", func(r *leaver) {
		_, err := r.c.Recv(r.brief(), r.peer, r.tag, r.buf(r.size))
		r.failed(err, context.DeadlineExceeded)
	}},
	way{"RecvAlloc whose context ends", func(r *leaver) {
		_, _, err := r.c.RecvAlloc(r.brief(), r.peer, r.tag, 0)
		r.failed(err, context.DeadlineExceeded)
	}},
	way{"Mprobe whose context ends", func(r *leaver) {
		_, err := r.c.Mprobe(r.brief(), r.peer, r.tag)
		r.failed(err, context.DeadlineExceeded)
	}},
	way{"Probe whose context ends", func(r *leaver) {
		_, err := r.c.Probe(r.brief(), r.peer, r.tag)
		r.failed(err, context.DeadlineExceeded)
	}},
	way{"Wait whose context ends", func(r *leaver) {
		q := r.c.Irecv(r.peer, r.tag, r.buf(r.size))
		_, err := q.Wait(r.brief())
		require.ErrorIs(r.t, err, context.DeadlineExceeded)
		_, err = cancelled(q).Wait(r.ctx())
		r.failed(err, p2p.ErrCanceled)
	}},
)

func cancelled(q p2p.Request) p2p.Request {
	q.Cancel()
	return q
}

// keptSizes are eager messages, short and long, and rendezvous: read, shared between both ends,
// pushed by a device that works by itself.
var keptSizes = []int{24, 20 << 10, 100 << 10, 1<<20 + 1}

// TestKeepsNothing: once a completion was reported, the library refers neither to buffer, context,
// error or Message of the operation, whatever kind of call it was.
func TestKeepsNothing(t *testing.T) {
	for _, async := range []p2p.AsyncMode{p2p.AsyncOff, p2p.AsyncOn} {
		t.Run(fmt.Sprintf("async %d", async), func(t *testing.T) {
			worldsOnWirings(t, 2, p2p.Config{Async: async}, func(t *testing.T, ws []*p2p.World) {
				for _, size := range keptSizes {
					var l left
					for k := range max(len(sendWays), len(receiveWays)) {
						for from := range ws {
							exchangeAndLeave(t, &l, ws, from, size, sendWays[k%len(sendWays)], receiveWays[k%len(receiveWays)])
						}
					}
					for k, way := range lonelyWays {
						together(t, 2, func(i int) { way.do(newLeaver(t, &l, ws, i, size, p2p.Tag(k), way.name)) })
					}
					l.check(t)
				}
			})
		})
	}
}

// exchangeAndLeave has ws[from] send a message to the other World.
func exchangeAndLeave(t *testing.T, l *left, ws []*p2p.World, from, size int, send, receive way) {
	tag := p2p.Tag(1000 + from)
	together(t, 2, func(i int) {
		defer closeIfFailed(t, ws...)
		if i == from {
			send.do(newLeaver(t, l, ws, i, size, tag, send.name))
			return
		}
		receive.do(newLeaver(t, l, ws, i, size, tag, receive.name))
		if send.name == "IsendAll" {
			_, err := ws[i].Comm().Recv(background, from, 1<<20, make([]byte, 16))
			require.NoError(t, err)
		}
	})
}

func newLeaver(t *testing.T, l *left, ws []*p2p.World, i, size int, tag p2p.Tag, name string) *leaver {
	return &leaver{t: t, left: l, name: fmt.Sprintf("%s of %d bytes at rank %d", name, size, i), w: ws[i], c: ws[i].Comm(),
		peer: 1 - i, tag: tag, size: size}
}
