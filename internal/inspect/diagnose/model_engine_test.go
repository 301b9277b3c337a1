package diagnose

import (
	"slices"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// advance lets a thread do the next thing. A rank ends with its first thread.
func (w *model) advance(r, t int) {
	n := &w.nodes[r]
	defer func() { n.gone = n.gone || t == 0 && n.threads[0].step() == nil }()
	th := &n.threads[t]
	s := th.step()
	switch {
	case s.kind == doCompute || s.kind == doJoin:
		th.at++
	case s.kind == doExit:
		n.gone = true
	case th.stage == outside:
		th.stage = entered
	case th.stage == entered:
		th.stage = waiting
		w.begin(r, t, *s)
	case th.stage == waiting:
		th.stage = ended
		n.moved++
	default:
		th.stage, th.at = outside, th.at+1
		if s.kind == doShutdown {
			n.shut, n.closed, n.gone = false, true, true
		}
		th.own = nil
		if s.kind == doWaitAll {
			th.pending = nil
		}
	}
}

// begin begins a step that is a call.
func (w *model) begin(r, t int, s step) {
	n := &w.nodes[r]
	th := &n.threads[t]
	n.moved++
	switch s.kind {
	case doSend:
		th.own = append(th.own, w.post(r, op{step: s, thread: t}))
	case doIsend:
		th.pending = append(th.pending, w.post(r, op{step: s, thread: t}))
	case doRecv:
		th.own = append(th.own, w.post(r, op{step: s, thread: t, recv: true}))
	case doIrecv:
		th.pending = append(th.pending, w.post(r, op{step: s, thread: t, recv: true}))
	case doBarrier:
		n.barriers++
	case doScan:
		n.scans++
		if r > 0 {
			in := step{kind: doRecv, peer: r - 1, tag: int(n.scans)}
			th.own = append(th.own, w.post(r, op{step: in, thread: t, recv: true, scan: true}))
		}
		if r+1 < len(w.nodes) {
			out := step{kind: doSend, peer: r + 1, tag: int(n.scans)}
			th.own = append(th.own, w.post(r, op{step: out, thread: t, scan: true}))
		}
	case doShutdown:
		n.shut = true
	}
	if s.kind == doIsend || s.kind == doIrecv {
		th.stage = ended
	}
}

// post begins a send or a receive.
func (w *model) post(r int, o op) int {
	n := &w.nodes[r]
	id := len(n.ops)
	n.ops = append(n.ops, o)
	if !o.recv {
		if n.links[o.step.peer].lost {
			n.ops[id].state = opEnded
			return id
		}
		n.queue[o.step.peer] = append(n.queue[o.step.peer], id)
		w.drain(r, o.step.peer)
		return id
	}
	n.ops[id].state = opPosted
	for k, p := range n.unexpected {
		if w.accepts(r, id, p) {
			n.unexpected = slices.Delete(slices.Clone(n.unexpected), k, k+1)
			w.match(r, id, p)
			return id
		}
	}
	if o.step.peer >= 0 && n.links[o.step.peer].lost {
		n.ops[id].state = opEnded
		return id
	}
	n.posted = append(n.posted, id)
	for p := range n.links {
		if n.links[p].holds() && (o.step.peer == p || o.step.peer == inspect.Any) {
			w.want(r, p, id)
		}
	}
	return id
}

// want tells a peer that is held up of a receive.
func (w *model) want(r, p, id int) {
	o := &w.nodes[r].ops[id]
	l := &w.nodes[r].links[p]
	l.asked++
	l.wire = append(l.wire, packet{kind: pktWant, src: r, tag: o.step.tag, comm: o.step.comm(o.scan)})
}

func (w *model) accepts(r, id int, p packet) bool {
	o := &w.nodes[r].ops[id]
	return (o.step.peer == inspect.Any || o.step.peer == p.src) && taken(o.step.tag, o.step.comm(o.scan), p)
}

func taken(tag, comm int, p packet) bool { return comm == p.comm && (tag == anyTag || tag == p.tag) }

func (w *model) packetOf(r, id int) packet {
	o := &w.nodes[r].ops[id]
	return packet{kind: pktMessage, src: r, op: id, tag: o.step.tag, comm: o.step.comm(o.scan), big: o.step.large}
}

// drain sends what credit or a WANT allows, in order.
func (w *model) drain(r, dst int) {
	n := &w.nodes[r]
	l := &n.links[dst]
	for len(n.queue[dst]) != 0 && (l.connected || r == dst) {
		if r != dst && l.sent >= l.allowed && !w.permitted(r, dst) {
			if !l.held() {
				l.tellEpisode(r)
			}
			return
		}
		id := n.queue[dst][0]
		n.queue[dst] = n.queue[dst][1:]
		p := w.packetOf(r, id)
		if k := slices.IndexFunc(l.wants, func(v packet) bool { return taken(v.tag, v.comm, p) }); k >= 0 {
			l.wants = slices.Delete(slices.Clone(l.wants), k, k+1)
		}
		l.sent++
		l.wire = append(l.wire, p)
		if p.big {
			n.ops[id].state = opRequested
		} else {
			w.end(r, id)
		}
	}
	if l.held() && len(n.queue[dst]) == 0 {
		l.wants = nil
		l.tellEpisode(r)
	}
}

// tellEpisode begins or ends that sends are held up.
func (l *link) tellEpisode(src int) {
	l.episode++
	l.wire = append(l.wire, packet{kind: pktHeld, src: src, op: int(l.episode)})
}

// permitted reports whether a WANT is for something in the queue.
func (w *model) permitted(r, dst int) bool {
	for _, v := range w.nodes[r].links[dst].wants {
		for _, id := range w.nodes[r].queue[dst] {
			if taken(v.tag, v.comm, w.packetOf(r, id)) {
				return true
			}
		}
	}
	return false
}

func (w *model) end(r, id int) {
	n := &w.nodes[r]
	n.ops[id].state = opEnded
	n.moved++
	n.posted = slices.DeleteFunc(slices.Clone(n.posted), func(o int) bool { return o == id })
}

// match gives a message to a receive.
func (w *model) match(r, id int, p packet) {
	n := &w.nodes[r]
	n.posted = slices.DeleteFunc(slices.Clone(n.posted), func(o int) bool { return o == id })
	w.consume(r, p.src)
	w.end(r, id)
	if p.big {
		n.links[p.src].wire = append(n.links[p.src].wire, packet{kind: pktFin, src: r, op: p.op})
	}
}

// consume gives credit back; what the peer has sent beyond its credit is made up for first. Now and
// then the memory goes to another one that is held up.
func (w *model) consume(r, src int) {
	links := w.nodes[r].links
	l := &links[src]
	l.consumed++
	l.granted = max(l.granted, l.consumed+window)
	for p := range links {
		if p != src && links[p].holds() && l.consumed%2 == 0 {
			links[p].granted++
			return
		}
	}
}

func (w *model) arrive(r int, p packet) {
	n := &w.nodes[r]
	l := &n.links[p.src]
	switch p.kind {
	case pktMessage:
		n.moved++
		l.came++
		for _, id := range n.posted {
			if w.accepts(r, id, p) {
				w.match(r, id, p)
				return
			}
		}
		n.unexpected = append(n.unexpected, p)
	case pktFin:
		w.end(r, p.op)
	case pktHeld:
		if l.seen = uint32(p.op); !l.holds() {
			return
		}
		if !l.grown && l.consumed%2 == 1 {
			l.grown = true
			l.granted++
		}
		for _, id := range n.posted {
			if peer := n.ops[id].step.peer; peer == p.src || peer == inspect.Any {
				w.want(r, p.src, id)
			}
		}
	case pktWant:
		l.heard++
		if l.held() {
			l.wants = append(l.wants, p)
		}
	}
}

// lose ends all that depends on a rank. The programs of the model acknowledge losses at once.
func (w *model) lose(r, lost int) {
	n := &w.nodes[r]
	n.links[lost].lost = true
	n.moved++
	n.queue[lost] = nil
	for id := range n.ops {
		o := &n.ops[id]
		any := o.recv && o.step.peer == inspect.Any
		if o.state != opEnded && (o.step.peer == lost || any) {
			w.end(r, id)
		}
	}
	n.unexpected = slices.DeleteFunc(slices.Clone(n.unexpected), func(p packet) bool { return p.src == lost && p.big })
}
