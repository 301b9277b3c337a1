package p2p

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// Collective is a kind of calls that all ranks of a Comm make in the same order, as those who look
// into a rank see it (`tagmatch dump`): where a rank has begun fewer than the others, these wait
// for it.
type Collective struct {
	Name    string // of the call that was begun last, with its package: "coll.AllReduce"
	Number  uint64 // of calls that were begun so far, that one included
	Waiting bool   // calls are under way
}

// Collectives has those who look into this rank see the collective calls that a library makes on c,
// as package coll does. Each look calls say, from any goroutine, until c is closed; it must not
// call this package, nor wait for messages. There is one such function for a Comm: the last that
// was given.
func (c *Comm) Collectives(say func() Collective) {
	c.others.Store(&say)
	c.w.gatherings.add(c)
}

// own is what is known of the Comm's own collective calls.
type own struct {
	last  atomic.Uint64 // number of calls <<8 | kind of the last; written by the holder of calls.turn
	under atomic.Bool   // likewise
}

// begin takes down that a call begins.
func (o *own) begin(kind callKind) {
	o.last.Store((o.last.Load()>>8+1)<<8 | uint64(kind))
	o.under.Store(true)
}

func (o *own) say() Collective {
	last := o.last.Load()
	return Collective{callNames[byte(last)], last >> 8, o.under.Load()}
}

var callNames = [...]string{callDup: "Dup", callSplit: "Split", callBarrier: "Barrier"}

// gatherings is the Comms on which collective calls were made.
type gatherings struct {
	mu sync.Mutex
	m  map[*Comm]bool // guarded by mu
}

func (g *gatherings) add(c *Comm) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m == nil {
		g.m = map[*Comm]bool{}
	}
	if !c.closed.Load() {
		g.m[c] = true
	}
}

func (g *gatherings) remove(c *Comm) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.m, c)
}

// comms lists the Comms, by their contexts.
func (g *gatherings) comms() (list []*Comm) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.m {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *Comm) int { return cmp.Compare(a.base, b.base) })
	return list
}

const (
	mostMeetings = 100
	mostMembers  = 1 << 10 // that are listed of a Comm
)

// meetingsNow lists the collective calls that this rank is in, and those that it was in last; whole
// reports whether there are no others.
func (w *World) meetingsNow() (list []inspect.Meeting, whole bool) {
	if w.leaving.Load() {
		list = append(list, inspect.Meeting{Name: inspect.MeetingShutdown, Number: 1, Waiting: true, Size: w.size})
	}
	add := func(c *Comm, m Collective) {
		if m.Number == 0 {
			return
		}
		list = append(list, inspect.Meeting{Name: m.Name, Comm: inspect.KeyOf(c.base, uint64(MaskExact)).Comm, Number: m.Number, Waiting: m.Waiting,
			Size: c.size, Members: c.listed()})
	}
	for _, c := range w.gatherings.comms() {
		add(c, c.own.say())
		if say := c.others.Load(); say != nil {
			add(c, (*say)())
		}
	}
	slices.SortStableFunc(list, func(a, b inspect.Meeting) int {
		switch {
		case a.Waiting == b.Waiting:
			return 0
		case a.Waiting:
			return -1
		}
		return 1
	})
	return list[:min(len(list), mostMeetings)], len(list) <= mostMeetings
}

// listed is the members of c, where these are not all ranks, nor too many.
func (c *Comm) listed() []int {
	return listed(members{c.group, c.size})
}
