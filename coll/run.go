package coll

import (
	"cmp"
	"context"
	"reflect"
)

// newCall begins an operation on elements of type T.
func newCall[T any](ctx context.Context, g *Group, k kind) *call {
	c := g.begin(ctx, k)
	size, err := elementSize[T]()
	if c.element = size; c.err == nil {
		c.err = err
	}
	c.typ = reflect.TypeFor[T]()
	return c
}

// newCombination begins an operation that combines x by op.
func newCombination[T any](ctx context.Context, g *Group, k kind, op Op[T], x []T) *call {
	c := newCall[T](ctx, g, k)
	c.in, c.op = bytesOf(x), op.op
	if op.op.combine == nil {
		c.refuse("the Op is a zero value, or a Func of nil")
	}
	return c
}

// refuse makes wrong arguments the error of c, where it has none.
func (c *call) refuse(format string, args ...any) {
	if c.err == nil {
		c.err = invalidf(format, args...)
	}
}

// from sets the root.
func (c *call) from(root int) {
	if c.root = root; uint(root) >= uint(c.size()) {
		c.refuse("root %d is out of range: members go from 0 to %d", root, c.size()-1)
	}
}

// blocksOf checks that a vector of all elements has a block of each for all members.
func (c *call) blocksOf(all, each int) {
	if all != each*c.size() {
		c.refuse("all has %d elements and mine %d: for %d members it must have %d", all, each, c.size(), each*c.size())
	}
}

// run does an operation.
func (g *Group) run(c *call) error {
	if c.ctx == nil {
		c.err = cmp.Or(c.err, errNoContext)
	}
	err := c.err
	if err == nil {
		err = c.ctx.Err()
	}
	if err == nil && g.rules.check {
		err = c.compare()
	}
	if err == nil {
		err = c.work()
	}
	return g.end(c, err)
}

// work is the operation itself. A Group of one has nobody to send to.
func (c *call) work() error {
	switch {
	case c.size() > 1:
		return c.algorithm()(c)
	case c.alloc == nil:
		copy(c.out, c.in)
	case c.pieces == nil:
		c.keep(c.in)
	default:
		c.keep(c.pieces[0])
	}
	return nil
}

// start does the operation on a goroutine of its own. run, which does Group.run, is a function
// literal of the exported function: so the goroutine's stack names that one, as `tagmatch dump`
// shows it.
func start(c *call, run func(*call) error) *Pending {
	p := &Pending{done: make(chan struct{})}
	go func() {
		p.err = run(c)
		close(p.done)
	}()
	return p
}

// Pending is an operation that was started. It goes on while the program computes; its vectors are
// the Group's until it is done. It ends, as a blocking call does, with an error of any member, and
// with Close of the Group.
type Pending struct {
	done chan struct{}
	err  error // once done is closed
}

// Done is closed when the operation has ended.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the operation and returns its error; it may be called again. ctx bounds
// only the waiting: if it ends first Wait returns its error, and the operation goes on.
func (p *Pending) Wait(ctx context.Context) error {
	if ctx == nil {
		return wrapf("wait: %w", errNoContext)
	}
	select {
	case <-p.done:
		return p.err
	default:
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
