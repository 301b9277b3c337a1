package coll

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"

	"github.com/tagmatch/tagmatch/p2p"
)

// Group is the ranks of a Comm for collective calls, with a context of its own: its messages meet
// no others. New and Shrink make Groups; the zero value is not one.
//
// All members make the same calls on a Group in the same order, which is that of their beginnings:
// calls of several goroutines, or started ones, may be under way at once if the program orders
// where they begin.
type Group struct {
	_      noCopy
	comm   *p2p.Comm
	layout layout
	near   bool // all members have seen shared memory only; all know the same
	rules  rules

	mu     sync.Mutex
	number p2p.Tag  // of the next operation, which is the tag of its messages; guarded by mu
	broken *failure // of the first operation that failed; guarded by mu
	told   bool     // the other members have been told that it is broken; guarded by mu
	under  int      // operations under way; guarded by mu
	idle   []*call  // for the next operations; guarded by mu
	begun  uint64   // operations so far; guarded by mu
	last   kind     // of the last one; guarded by mu
}

// noCopy has vet find copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// New makes a Group of the ranks of c. It is collective over c as Comm.Split, which it calls, and
// has that call's errors. Where TAGMATCH_COLL differs between ranks all get an error.
func New(ctx context.Context, c *p2p.Comm) (*Group, error) {
	if c == nil {
		return nil, invalidf("new: the Comm is nil")
	}
	rules, wrong := readRules()
	g, err := newGroup(ctx, c, rules, shareMemory(c)) // where the rules are wrong, the others hear of it
	if wrong != nil {
		_ = g.Close()
		return nil, wrapf("new: %w", wrong)
	}
	return g, err
}

// newGroup compares the rules, and what members know of their memory, by the call that makes the
// Group's Comm: messages on that one could fail where another member has come further, and has
// broken the Group.
func newGroup(ctx context.Context, c *p2p.Comm, rules rules, near bool) (*Group, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(rules.text))
	color, alike := int(h.Sum32()>>2), 1<<30 // with the bit those who have seen shared memory only
	if !near {
		alike = 0
	}
	own, err := c.Split(ctx, color|alike, 0)
	if err == nil && own.Size() < c.Size() {
		own.Close()
		near = false
		own, err = c.Split(ctx, color, 0)
	}
	if err != nil {
		return nil, wrapf("new: %w", err)
	}
	for rank := range c.Size() {
		if own.RankOf(c.WorldRank(rank)) == p2p.ProcNull {
			own.Close()
			return nil, wrapf("new: %w", invalidf("the environments differ: here %s=%s, rank %d has another one", Environment, rules.text, rank))
		}
	}
	return groupOf(own, rules, near), nil
}

// shareMemory reports whether nothing but memory carries this rank's messages to the ranks of c.
func shareMemory(c *p2p.Comm) bool {
	wires := c.World().Metrics().Wires
	for rank := range c.Size() {
		to := c.WorldRank(rank)
		if wire := wires[to]; to != c.World().Rank() && wire != "shm" && wire != "loop" {
			return false
		}
	}
	return true
}

func groupOf(c *p2p.Comm, r rules, near bool) *Group {
	hostOf := func(rank int) int { return c.World().HostOf(c.WorldRank(rank)) }
	g := &Group{comm: c, layout: newLayout(c.Rank(), c.Size(), hostOf), near: near, rules: r}
	c.Collectives(g.say)
	return g
}

// say is told who looks into this rank.
func (g *Group) say() p2p.Collective {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p2p.Collective{Name: "coll." + callNames[g.last], Number: g.begun, Waiting: g.under > 0}
}

// Shrink makes a Group of the members that live, for a program that goes on after a loss: all of
// them call it, and get the same members, in the order of g, and the smallest of their values, such
// as the last step that each has finished. It ends what is under way on g, on all members: one that
// has come through an operation ends it for the others who are still in it. Where these would have
// to do it again, for ever, call Barrier before, as examples/ddp does. g is of no use after it but
// for Close. Further losses meanwhile are part of it, that of rank 0 too; a member that is lost too
// late is a member still, which the next operation finds. Its errors are those of p2p.Comm.Shrink.
func (g *Group) Shrink(ctx context.Context, value int64) (*Group, int64, error) {
	if ctx == nil {
		return nil, 0, wrapf("shrink: %w", errNoContext)
	}
	_ = g.breakUp(shrink, errShrunk)
	c, least, err := g.comm.Shrink(ctx, value)
	if err != nil {
		return nil, 0, wrapf("shrink: %w", err)
	}
	return groupOf(c, g.rules, g.near), least, nil
}

// Rank is this process's rank in the Group, which is that in its Comm.
func (g *Group) Rank() int { return g.comm.Rank() }

// Size is the number of members.
func (g *Group) Size() int { return g.comm.Size() }

// Close gives the Group's context back, once all members have called it. It is local: call it when
// all operations have ended. Where one is under way on this member, it ends on all, with an error.
func (g *Group) Close() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	g.idle = nil
	under := g.under
	g.mu.Unlock()
	if under > 0 {
		_ = g.breakUp(closing, errClosing)
	}
	if err := g.comm.Close(); err != nil {
		return wrapf("close: %w", err)
	}
	return nil
}

// most idle calls that a Group keeps, and most scratch memory of them, bytes.
const (
	mostIdle    = 8
	mostScratch = 16 << 20
)

// begin takes the place of the next operation, in the order of these calls.
func (g *Group) begin(ctx context.Context, k kind) *call {
	g.mu.Lock()
	var c *call
	if n := len(g.idle); n > 0 {
		c = g.idle[n-1]
		g.idle = g.idle[:n-1]
	} else {
		c = new(call)
	}
	c.g, c.ctx, c.kind, c.tag = g, ctx, k, g.number
	c.team.rank, c.team.size = g.Rank(), g.Size()
	g.number = (g.number + 1) & p2p.MaxCommTag
	g.under++
	g.begun++
	g.last = k
	broken := g.broken
	g.mu.Unlock()
	if broken != nil {
		c.err = fmt.Errorf("%w: %s", p2p.ErrRevoked, broken.text())
	}
	return c
}

// end gives c back. An error breaks the Group, on all members.
func (g *Group) end(c *call, err error) error {
	if err != nil {
		err = g.breakUp(c.kind, err)
	}
	c.release()
	g.mu.Lock()
	if g.under--; len(g.idle) < mostIdle {
		g.keepScratch(c)
		g.idle = append(g.idle, c)
	}
	g.mu.Unlock()
	return err
}

// keepScratch drops c's memory where idle calls would keep too much.
func (g *Group) keepScratch(c *call) {
	if len(c.scratch) <= mostScratch/mostIdle {
		return
	}
	kept := len(c.scratch)
	for _, other := range g.idle {
		kept += len(other.scratch)
	}
	if kept > mostScratch {
		c.scratch = nil
	}
}

// breakUp ends the Group's operations, on all members, because one of this kind has failed here. It
// returns what the operation's caller gets. Where calls differ all members find it alike, and are
// told when another operation comes to that end.
func (g *Group) breakUp(k kind, err error) error {
	if own, ok := err.(*failure); ok {
		return own // done before
	}
	own, alike := &failure{k, err}, errors.As(err, new(*differError))
	g.mu.Lock()
	if g.broken == nil {
		g.broken = own
	}
	first, tell := g.broken, !g.told && !alike
	g.told = g.told || tell
	g.mu.Unlock()
	if tell {
		_ = g.comm.Revoke(first.text()) // fails after Close, which has told them
	}
	return own
}

// failure is why an operation failed.
type failure struct {
	kind kind
	err  error
}

func (f *failure) Error() string { return "coll: " + f.text() }
func (f *failure) text() string  { return f.kind.String() + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// kind is a kind of operation.
type kind uint8

const (
	barrier kind = iota
	bcast
	reduce
	allReduce
	reduceScatter
	scan
	exScan
	gather
	scatter
	allGather
	allToAll
	gatherV
	scatterV
	allGatherV
	allToAllV
	kinds  // of operations
	shrink // and these break a Group
	closing
)

// What ends operations that no operation has failed.
var (
	errShrunk  = errors.New("a member makes a Group of those that live")
	errClosing = errors.New("a member closes the Group while operations are under way")
)

var errNoContext = invalidf("the context is nil: use context.Background where nothing should end the call")

func (k kind) String() string {
	return [...]string{
		"barrier", "bcast", "reduce", "allreduce", "reducescatter", "scan", "exscan", "gather", "scatter", "allgather", "alltoall",
		"gatherv", "scatterv", "allgatherv", "alltoallv", "", "shrink", "close",
	}[k]
}

// callNames are those of the functions, for who looks into a rank.
var callNames = [kinds]string{"Barrier", "Bcast", "Reduce", "AllReduce", "ReduceScatter", "Scan", "ExScan", "Gather", "Scatter", "AllGather", "AllToAll",
	"GatherV", "ScatterV", "AllGatherV", "AllToAllV"}

// invalidf is a p2p.ErrInvalid with its facts.
func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", p2p.ErrInvalid, fmt.Sprintf(format, args...))
}

func wrapf(format string, args ...any) error { return fmt.Errorf("coll: "+format, args...) }
