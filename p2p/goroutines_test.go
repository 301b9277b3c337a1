package p2p_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestGoroutines has 1 to 1,024 goroutines at each of two ranks exchange messages at once, in every
// way: each with its counterpart under a tag of its own, then all of them under one tag, where
// those that probe must not take each other's message.
func TestGoroutines(t *testing.T) {
	goroutines := []int{1, 8, 64, 1024}
	if !testlevel.CI() { // the race detector is slow with many
		goroutines = []int{1, 40}
	}
	onWirings(t, 2, p2p.Config{EagerLimit: 1000}, func(t *testing.T, w *p2p.World) {
		for _, n := range goroutines {
			crowd(t, w, n)
			crowdOfProbes(t, w, n)
		}
		requireSettled(t, w)
	})
}

// windowSizes are of the messages that a goroutine has under way at once under one tag. The last
// goes as a rendezvous.
var windowSizes = []int{8, 900, 0, 3000}

// crowd has n goroutines exchange windows of messages with their counterparts. Neighbours do so in
// different ways; where there are many of them each does so in two ways only.
func crowd(t *testing.T, w *p2p.World, n int) {
	steps := len(crowdWays)
	if n > steps {
		steps = 2
	}
	inThreads(t, w, n, func(id int) {
		g := &crowdMember{t: t, w: w, peer: 1 - w.Rank(), tag: p2p.Tag(id)}
		for step := range steps {
			way := crowdWays[(id+step)%len(crowdWays)]
			out, in := g.window(w.Rank(), step), g.window(g.peer, step)
			bufs := make([][]byte, len(in))
			for i := range in {
				bufs[i] = fresh(len(in[i]))
			}
			var got []p2p.Status
			switch {
			case way.both != nil:
				got = way.both(g, out, bufs)
			case w.Rank() == 0:
				way.send(g, out)
				got = way.receive(g, bufs)
			default:
				got = way.receive(g, bufs)
				way.send(g, out)
			}
			for i := range in {
				requireReceived(t, in[i], bufs[i], got[i], g.peer, g.tag)
			}
		}
	})
}

// crowdOfProbes has n goroutines at rank 1 take what as many at rank 0 send under one tag.
func crowdOfProbes(t *testing.T, w *p2p.World, n int) {
	for _, size := range []int{8, 3000} {
		probeExchange(t, w, make([]p2p.Tag, n), senderNamed("isend"), mprobeOnce, size, max(24/n, 2))
	}
}

// crowdMember is a goroutine of a crowd. Its counterpart has the same tag.
type crowdMember struct {
	t    *testing.T
	w    *p2p.World
	peer int
	tag  p2p.Tag
}

// window is what this goroutine of rank sends in a step.
func (g *crowdMember) window(rank, step int) (messages [][]byte) {
	for i, size := range windowSizes {
		m := pattern(size, i)
		copy(m, fmt.Sprintf("%4x%2x%2x", g.tag, step, rank*len(windowSizes)+i))
		messages = append(messages, m)
	}
	return messages
}

// crowdWays are the ways to exchange a window: one after the other, or both directions at once.
var crowdWays = []struct {
	send    func(g *crowdMember, messages [][]byte)
	receive func(g *crowdMember, bufs [][]byte) []p2p.Status
	both    func(g *crowdMember, messages, bufs [][]byte) []p2p.Status
}{
	{send: by("send"), receive: (*crowdMember).recv},
	{send: by("isend"), receive: irecvBy(byWaitAll)},
	{send: by("ssend"), receive: irecvBy(byWaitSome)},
	{send: by("issend"), receive: (*crowdMember).mprobe},
	{send: (*crowdMember).isendQueue, receive: irecvBy(byQueue)},
	{both: (*crowdMember).sendrecv},
}

func by(name string) func(g *crowdMember, messages [][]byte) {
	return func(g *crowdMember, messages [][]byte) {
		senderNamed(name).send(g.t, g.w.Comm(), g.peer, g.tag, messages...)
	}
}

func (g *crowdMember) isendQueue(messages [][]byte) {
	var reqs []p2p.Request
	for _, m := range messages {
		reqs = append(reqs, g.w.Comm().Isend(g.peer, g.tag, m))
	}
	byQueue(g.t, g.w.Comm(), reqs)
}

func (g *crowdMember) recv(bufs [][]byte) (got []p2p.Status) {
	for _, buf := range bufs {
		st, err := g.w.Comm().Recv(background, g.peer, g.tag, buf)
		require.NoError(g.t, err)
		got = append(got, st)
	}
	return got
}

func irecvBy(complete func(*testing.T, *p2p.Comm, []p2p.Request) []p2p.Completion) func(*crowdMember, [][]byte) []p2p.Status {
	return func(g *crowdMember, bufs [][]byte) (got []p2p.Status) {
		var reqs []p2p.Request
		for _, buf := range bufs {
			reqs = append(reqs, g.w.Comm().Irecv(g.peer, g.tag, buf))
		}
		for _, c := range complete(g.t, g.w.Comm(), reqs) {
			got = append(got, c.Status)
		}
		return got
	}
}

func (g *crowdMember) mprobe(bufs [][]byte) (got []p2p.Status) {
	for _, buf := range bufs {
		m, err := g.w.Comm().Mprobe(background, p2p.AnySource, g.tag)
		require.NoError(g.t, err)
		st, err := m.Recv(background, buf)
		require.NoError(g.t, err)
		got = append(got, st)
	}
	return got
}

func (g *crowdMember) sendrecv(messages, bufs [][]byte) (got []p2p.Status) {
	for i, m := range messages {
		st, err := g.w.Comm().Sendrecv(background, g.peer, g.tag, m, g.peer, g.tag, bufs[i])
		require.NoError(g.t, err)
		got = append(got, st)
	}
	return got
}
