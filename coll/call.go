package coll

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/tagmatch/tagmatch/coll/internal/kernel"
	"github.com/tagmatch/tagmatch/p2p"
)

// call is one operation on one rank: what was asked for, and what it needs for that. One goroutine
// at a time uses it. All its messages have its tag. So those from one rank to another are matched
// in their order: each algorithm begins them in the same order at both ends.
type call struct {
	asked
	scratch      []byte
	recvs, sends line
}

// asked is what was asked for, and what has become of it so far.
type asked struct {
	g    *Group
	ctx  context.Context
	kind kind
	tag  p2p.Tag
	err  error // of the arguments, or why the Group is broken

	root    int
	element int // bytes
	typ     reflect.Type
	op      operation
	in, out []byte                       // what this rank gives, and gets; only in where an operation is in place
	pieces  [][]byte                     // what a V call gives, by rank
	team    team                         // whose part of the operation runs
	alloc   func(from, bytes int) []byte // makes room for what a V call gets from a rank
	stuck   error                        // why isend could not wait for room
}

// operation is an Op without its type.
type operation struct {
	name        string
	commutative bool
	combine     kernel.Func
}

func (c *call) rank() int { return c.team.rank }
func (c *call) size() int { return c.team.size }

// combine makes dst a op b, where a is of lower ranks than b. dst may be a or b, and where it is b
// what is in a is lost.
func (c *call) combine(dst, a, b []byte) { c.op.combine(dst, a, b) }

// release drops what belongs to the program.
func (c *call) release() {
	c.recvs.reset()
	c.sends.reset()
	c.asked = asked{}
}

// room is n bytes of memory until the end of the call, aligned for any element. Each call of room
// gives the same memory.
func (c *call) room(n int) []byte {
	if len(c.scratch) < n {
		c.scratch = make([]byte, max(n, 256))
	}
	return c.scratch[:n]
}

// send sends b to rank to, and returns when b is free.
func (c *call) send(to int, b []byte) error {
	return c.g.comm.Send(c.ctx, c.team.member(to), c.tag, b)
}

// recv fills b with the next message of rank from.
func (c *call) recv(from int, b []byte) error {
	from = c.team.member(from)
	st, err := c.g.comm.Recv(c.ctx, from, c.tag, b)
	return received(from, len(b), st, err)
}

// exchange sends out to rank to, and fills in with the next message of rank from.
func (c *call) exchange(to int, out []byte, from int, in []byte) error {
	from = c.team.member(from)
	st, err := c.g.comm.Sendrecv(c.ctx, c.team.member(to), c.tag, out, from, c.tag, in)
	return received(from, len(in), st, err)
}

// received checks that a message of rank from fills n bytes. It is small enough to be inlined.
func received(from, n int, st p2p.Status, err error) error {
	if err == nil && st.Len == int64(n) {
		return nil
	}
	return notReceived(from, n, st, err)
}

func notReceived(from, n int, st p2p.Status, err error) error {
	if err == nil || errors.Is(err, p2p.ErrTruncated) {
		return invalidf("rank %d sends %d bytes where %d are due: lengths must be equal on all ranks", from, st.Len, n)
	}
	return err
}

// isend and irecv begin what waitSends and waitRecvs wait for; the buffers are in use until then.
// An algorithm posts its receives first: where Config.SendLimit allows no more sends, isend waits
// until the other ranks have heard of some. An error of that is found by the next wait.
func (c *call) isend(to int, b []byte) {
	for !c.tryIsend(to, b) {
		c.awaitRoom()
	}
}

// awaitRoom waits for room, but not for long: World.Room does not hear that the Group is broken, as
// the next send does.
func (c *call) awaitRoom() {
	ctx, end := context.WithTimeout(c.ctx, 10*time.Millisecond)
	defer end()
	c.stuck = c.g.comm.World().Room(ctx)
	if c.ctx.Err() == nil && errors.Is(c.stuck, context.DeadlineExceeded) {
		c.stuck = nil
	}
}

// tryIsend is isend that begins nothing, and returns false, where there is no room.
func (c *call) tryIsend(to int, b []byte) bool {
	if c.stuck != nil {
		return true
	}
	r := c.g.comm.Isend(c.team.member(to), c.tag, b)
	if _, done, err := r.Peek(); done && errors.Is(err, p2p.ErrFull) {
		_, _ = r.Wait(c.ctx) // it has ended
		return false
	}
	c.sends.add(begun{r, -1, -1})
	return true
}

func (c *call) irecv(from int, b []byte) {
	from = c.team.member(from)
	c.recvs.add(begun{c.g.comm.Irecv(from, c.tag, b), from, len(b)})
}

// waitSends waits for the n oldest sends under way, or for all where there are fewer. After an
// error no request is under way.
func (c *call) waitSends(n int) error { return c.wait(&c.sends, n) }

// waitRecvs is waitSends for receives.
func (c *call) waitRecvs(n int) error { return c.wait(&c.recvs, n) }

// waitAll waits for all requests under way.
func (c *call) waitAll() error {
	if err := c.waitRecvs(c.recvs.len()); err != nil {
		return err
	}
	return c.waitSends(c.sends.len())
}

func (c *call) wait(l *line, n int) error {
	if c.stuck != nil {
		return c.giveUp(c.stuck)
	}
	for ; n > 0 && l.len() > 0; n-- {
		b := l.take()
		if err := b.wait(c.ctx); err != nil {
			return c.giveUp(err, b)
		}
	}
	return nil
}

// giveUp ends all requests under way, and others, after it has told the other members: these wait
// for this rank no longer, nor it for them, unless one is stopped that has begun to read from here.
func (c *call) giveUp(err error, others ...begun) error {
	err = c.g.breakUp(c.kind, err)
	for _, l := range []*line{&c.recvs, &c.sends} {
		others = append(others, l.underWay()...)
		l.reset()
	}
	for _, b := range others {
		b.request.Cancel()
	}
	for _, b := range others {
		_ = b.wait(context.Background())
	}
	return err
}

// line is requests under way, in the order of their begin.
type line struct {
	begun []begun
	taken int // how many of begun are under way no more
}

// begun is a request. A receive has the rank and the bytes that are due from it; of a send they
// are -1.
type begun struct {
	request   p2p.Request
	from, due int
}

func (l *line) len() int          { return len(l.begun) - l.taken }
func (l *line) underWay() []begun { return l.begun[l.taken:] }

// add begins with the room of those that were taken.
func (l *line) add(b begun) {
	if len(l.begun) == cap(l.begun) && l.taken > len(l.begun)/2 {
		n := copy(l.begun, l.underWay())
		clear(l.begun[n:])
		l.begun, l.taken = l.begun[:n], 0
	}
	l.begun = append(l.begun, b)
}

// take returns the oldest request, which is the caller's to wait for.
func (l *line) take() begun {
	b := l.begun[l.taken]
	l.begun[l.taken] = begun{}
	if l.taken++; l.len() == 0 {
		l.begun, l.taken = l.begun[:0], 0
	}
	return b
}

// reset drops what the line refers to.
func (l *line) reset() {
	clear(l.begun)
	l.begun, l.taken = l.begun[:0], 0
}

// wait waits for the request. Where ctx ends first the request goes on.
func (b begun) wait(ctx context.Context) error {
	st, err := b.request.Wait(ctx)
	if b.due < 0 {
		return err
	}
	return received(b.from, b.due, st, err)
}
