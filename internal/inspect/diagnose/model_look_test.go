package diagnose

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// engineState is what a rank says of its engine.
func (w *model) engineState(r int, s *inspect.State) {
	n := &w.nodes[r]
	s.Version, s.Job, s.Rank, s.Size, s.Started = inspect.Version, "model", r, len(w.nodes), time.Unix(1, 0)
	s.Moved, s.Phase = n.moved, inspect.PhaseRunning
	if n.shut {
		s.Phase = inspect.PhaseShutdown
	}
	w.engineWaits(n, s)
	for id, o := range n.ops {
		key := inspect.Key{Comm: commNames[o.step.comm(o.scan)], Tag: uint64(o.step.tag), Any: o.step.tag == anyTag}
		awaited := 0
		if w.awaited(n, id) {
			awaited = 1
		}
		switch {
		case o.state == opEnded:
		case o.recv:
			s.Receives = append(s.Receives, inspect.Receive{Key: key, Peer: o.step.peer, N: 1, Awaited: awaited, Where: "software"})
		default:
			stage := inspect.StageRequested
			if l := &n.links[o.step.peer]; o.state == opQueued && l.held() {
				stage = inspect.StageHeld
			} else if o.state == opQueued {
				stage = inspect.StageRoom
			}
			s.Sends = append(s.Sends, inspect.Send{Key: key, Peer: o.step.peer, Bytes: uint64(id), N: 1, Awaited: awaited, Stage: stage})
		}
	}
	for _, p := range n.unexpected {
		s.Messages = append(s.Messages, inspect.Message{Key: inspect.Key{Comm: commNames[p.comm], Tag: uint64(p.tag)},
			Peer: p.src, Bytes: uint64(p.op), N: 1, Eager: !p.big})
	}
	for p := range n.links {
		l := &n.links[p]
		s.Peers = append(s.Peers, inspect.Peer{Rank: p, Connected: l.connected, Episode: l.episode, Seen: l.seen, Sent: l.sent, Came: l.came,
			Allowed: l.allowed, Granted: l.granted, Asked: l.asked, Heard: l.heard})
		if l.lost {
			if s.Failed == nil {
				s.Failed = map[int]string{}
			}
			s.Failed[p] = "its process has ended"
		}
	}
}

// engineWaits fills in who waits: that a barrier is over a rank hears by messages that the model
// has not.
func (w *model) engineWaits(n *node, s *inspect.State) {
	inBarrier, inScan := false, false
	for t := range n.threads {
		th := &n.threads[t]
		st := th.step()
		if st == nil || th.stage != waiting {
			continue
		}
		inBarrier, inScan = inBarrier || st.kind == doBarrier, inScan || st.kind == doScan
		done := !slices.ContainsFunc(th.waits(), func(o int) bool { return n.ops[o].state != opEnded })
		if st.kind != doBarrier && st.kind != doShutdown && done {
			continue
		}
		s.Waiting++
		if st.timed {
			s.Timed++
		}
	}
	if n.barriers != 0 {
		s.Meetings = append(s.Meetings, inspect.Meeting{Name: "Barrier", Comm: inspect.CommWorld, Number: n.barriers, Waiting: inBarrier})
	}
	if n.scans != 0 {
		s.Meetings = append(s.Meetings, inspect.Meeting{Name: "coll.Scan", Comm: commNames[2], Number: n.scans, Waiting: inScan})
	}
}

func (w *model) awaited(n *node, id int) bool {
	for t := range n.threads {
		th := &n.threads[t]
		if th.step() != nil && th.stage == waiting && slices.Contains(th.waits(), id) {
			return true
		}
	}
	return false
}

var stepNames = [...]string{doSend: "Comm.Send", doRecv: "Comm.Recv", doIsend: "Comm.Isend", doIrecv: "Comm.Irecv", doWaitAll: "WaitAll",
	doBarrier: "Comm.Barrier", doScan: "coll.Scan", doShutdown: "World.Shutdown"}

// stacks is what a rank says of its goroutines.
func (w *model) stacks(r int, s *inspect.State) {
	n := &w.nodes[r]
	for t := range n.threads {
		th := &n.threads[t]
		st := th.step()
		if st == nil {
			continue
		}
		p := inspect.Place{At: fmt.Sprintf("main.go:%d", 10*t+th.at), N: 1, State: "running"}
		switch {
		case st.kind == doJoin:
			p.State = "sync.WaitGroup.Wait"
			s.Outside = append(s.Outside, p)
		case st.kind == doCompute && st.parked:
			p.State = "chan receive"
			s.Outside = append(s.Outside, p)
		case th.stage == outside || st.kind == doCompute || st.kind == doSpin || st.kind == doExit:
			s.Outside = append(s.Outside, p)
		default:
			s.Calls = append(s.Calls, inspect.Call{Name: stepNames[st.kind], Place: p})
		}
	}
}

// run lets n things happen, and reports whether something can happen still.
func (w *model) run(rnd *rand.Rand, n int) bool {
	for range n {
		all := w.moves()
		if len(all) == 0 {
			return false
		}
		m := all[rnd.IntN(len(all))]
		for range 8 {
			if w.slow[m.kind] {
				m = all[rnd.IntN(len(all))]
			}
		}
		w.do(m)
	}
	return true
}

// look has each rank say what it does at a moment of its own, its goroutines at another moment than
// its engine.
func (w *model) look(rnd *rand.Rand, busy int) inspect.Look {
	states := make([]inspect.State, len(w.nodes))
	var l inspect.Look
	for _, r := range rnd.Perm(len(w.nodes)) {
		w.run(rnd, rnd.IntN(busy+1))
		if w.nodes[r].gone {
			l.Absent = append(l.Absent, inspect.Absent{Rank: r, Why: inspect.WhyGone})
			continue
		}
		w.partsOf(r, &states[r], rnd, busy)
		l.States = append(l.States, states[r])
	}
	return l
}

// partsOf is one state: of a rank that ends meanwhile it has what was said before.
func (w *model) partsOf(r int, s *inspect.State, rnd *rand.Rand, busy int) {
	parts := []func(int, *inspect.State){w.engineState, w.stacks}
	if rnd.IntN(2) == 0 {
		slices.Reverse(parts)
	}
	parts[0](r, s)
	if rnd.IntN(3) == 0 {
		w.run(rnd, rnd.IntN(busy+1))
	}
	parts[1](r, s)
}

// looks is two of them. Contrary to what Diagnose asks for, the second may begin at one rank before
// the first is over at another: what is certain is so all the same.
func (w *model) looks(rnd *rand.Rand, busy int) (now, before inspect.Look) {
	if busy == 0 || rnd.IntN(4) != 0 {
		before = w.look(rnd, busy)
		w.run(rnd, rnd.IntN(2*busy+1))
		return w.look(rnd, busy), before
	}
	first := map[int]*inspect.State{}
	for _, r := range append(rnd.Perm(len(w.nodes)), rnd.Perm(len(w.nodes))...) {
		w.run(rnd, rnd.IntN(busy+1))
		var s inspect.State
		switch earlier := first[r]; {
		case w.nodes[r].gone:
			now.Absent = append(now.Absent, inspect.Absent{Rank: r, Why: inspect.WhyGone})
		case earlier == nil:
			w.partsOf(r, &s, rnd, busy)
			first[r] = &s
			before.States = append(before.States, s)
		default:
			w.partsOf(r, &s, rnd, busy)
			now.States = append(now.States, s)
		}
	}
	return now, before
}
