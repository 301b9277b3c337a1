package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/tagmatch/tagmatch/progress"
)

// A receive by a matched probe is a receive in terms of internal/matchmodel, posted when the probe
// was. Other probes change nothing, and are left out.

// taken is a message that a rank has taken by a matched probe, and its receive, which is not posted
// yet.
type taken struct {
	o *op
	m *progress.Message
}

// probe looks for a message. If it does not block it posts a receive, which must find the same:
// what it has said is checked once that has ended.
func (w *world) probe(r *rank, p pattern, size int, calls bool) {
	if calls && r.gate.call == nil {
		o := &op{look: true, pattern: p, order: r.posts}
		o.newBuffer(0)
		w.start(r, o, func(ctx context.Context) (progress.Status, error) { return r.engine.Probe(ctx, p.peer, p.tag, p.mask) })
		return
	}
	st, ok, err := r.engine.Iprobe(p.peer, p.tag, p.mask)
	w.polled(r)
	o, found := w.post(r, p, size, false)
	switch {
	case err != nil:
		return
	case ok:
		w.cov[Looked]++
		o.probed = &st
	}
	if ok != found && r.early == nil {
		r.early = fail("probe", "rank %d: a probe has found a message: %v, and then a receive: %v: %s", r.id, ok, found, o)
	}
}

// polled follows a poll inside of another call: a probe may have asked for a message afterwards, or
// given back the credit of a request that it has taken, and a loss is told to others. No Flush that
// the poll has ended has to wait for that.
func (w *world) polled(r *rank) {
	w.harvest(r)
	if c := r.gate.call; c != nil && c.o.flush { // a premature return can be seen only at once
		r.asked = true
		w.resume(r, 0)
		r.asked = false
	}
}

// take takes a message by a matched probe, for later, or receives it if it blocks.
func (w *world) take(r *rank, p pattern, size int, calls bool) {
	o := &op{takes: true, pattern: p, order: r.posts}
	if calls && r.gate.call == nil {
		r.posts++
		o.newBuffer(max(size, 1)) // as a limit 0 would be none
		w.start(r, o, func(ctx context.Context) (progress.Status, error) {
			got, st, err := r.engine.RecvAlloc(ctx, p.peer, p.tag, p.mask, int64(len(o.buf)))
			copy(o.buf, got)
			return st, err
		})
		return
	}
	m, ok, _ := r.engine.Improbe(p.peer, p.tag, p.mask)
	w.polled(r)
	if !ok {
		return
	}
	w.cov[Taken]++
	r.posts++
	o.newBuffer(size)
	r.held = append(r.held, taken{o, m})
}

// use receives a message that was taken, or discards it.
func (w *world) use(r *rank, i int, discard bool) {
	o, m := r.held[i].o, r.held[i].m
	r.held = slices.Delete(r.held, i, i+1)
	if !discard {
		o.req = m.Irecv(o.buf)
		r.add(o, o.req.Done())
		return
	}
	before := r.engine.Metrics()
	m.Discard()
	after := r.engine.Metrics()
	if after.EagerReceived+after.RndvReceived == before.EagerReceived+before.RndvReceived {
		r.dropped = append(r.dropped, m.Status()) // it was lost or withdrawn before
		return
	}
	w.cov[Discarded]++
	ended := make(chan struct{})
	close(ended)
	o.call = true // has no request
	o.newBuffer(0)
	if o.st = m.Status(); o.st.Len > 0 {
		o.err = progress.ErrTruncated
	}
	r.add(o, ended)
}

// checkLook finds a probe that waits beside a message.
func (w *world) checkLook(r *rank, o *op) error {
	st, ok, err := r.engine.Iprobe(o.peer, o.tag, o.mask)
	if ok || err != nil && !errors.Is(err, progress.ErrPeerLost) {
		return fail("hanging", "rank %d: a probe waits, and another finds %+v, error %v: %s", r.id, st, err, o)
	}
	return nil
}

// sent reports whether somebody has sent what a probe has found.
func (w *world) sent(r *rank, o *op) bool {
	if o.st.Source < 0 || o.st.Source >= w.size() || (o.st.Tag^o.tag)&o.mask != 0 {
		return false
	}
	return slices.ContainsFunc(w.ranks[o.st.Source].ops, func(s *op) bool {
		return s.send && s.peer == r.id && s.tag == o.st.Tag && int64(len(s.content)) == o.st.Len
	})
}

// probes turns some receives into probes, and has the messages that these take used later. It has
// random numbers of its own: other plans stay what they were without it.
func (g *generator) probes(rng *rand.Rand) {
	chance := func(p float64) bool { return rng.Float64() < p }
	if g.thrashes || !chance(0.3) {
		return
	}
	often := []float64{0.2, 0.5, 0.9}[rng.IntN(3)]
	var steps []Step
	for _, s := range g.p.Steps {
		if s.Do == OpRecv && chance(often) {
			s.Do = []Op{OpProbe, OpTake, OpTake}[rng.IntN(3)]
			if chance(0.5) { // it had better come late, to find something
				steps = append(steps, Step{Do: OpStep, Rank: s.Rank, N: 4}, Step{Do: OpPoll, Rank: s.Rank, N: 1})
			}
			s.Call = s.Call || chance(0.3)
		}
		steps = append(steps, s)
		if chance(0.2) {
			steps = append(steps, Step{Do: []Op{OpUse, OpUse, OpDrop}[rng.IntN(3)], Rank: s.Rank, N: rng.IntN(4)})
		}
	}
	g.p.Steps = steps
}
