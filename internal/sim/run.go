package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// Outcome is the result of a run without failure.
type Outcome struct {
	Coverage Coverage
	Trace    uint64 // hash of all events: equal for equal runs
}

// Failure is a failure of a run.
type Failure struct {
	Kind  string // equal for the same mistake, as far as possible
	Err   error
	Stack []byte // of a panic
}

func (f *Failure) Error() string {
	if f.Stack != nil {
		return fmt.Sprintf("%v\n%s", f.Err, f.Stack)
	}
	return fmt.Sprintf("%s: %v", f.Kind, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

func fail(kind, format string, args ...any) error {
	return &Failure{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// KindOf is the kind of a failure.
func KindOf(err error) string {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.Kind
	}
	return "other"
}

// Replay is the command that plays something again, with the checks of this build. what are the
// flags that select it.
func Replay(what string) string {
	build := ""
	if invariant.Enabled {
		build = "-tags invariants "
	}
	return "go run " + build + "./internal/sim/cmd/sim -v " + what
}

// Run plays a plan. Unless log is nil, each step and its effects are written to it.
func Run(p *Plan, log io.Writer) (*Outcome, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	w := newWorld(p)
	w.log = log
	return w.run()
}

func (w *world) run() (out *Outcome, err error) {
	defer func() {
		if v := recover(); v != nil { // the world is abandoned: its locks may be held
			out, err = nil, panicked(v)
		}
	}()
	if err = w.play(); err == nil {
		err = w.close()
	} else {
		w.discard() // the first failure counts
	}
	if err == nil {
		err = w.closed()
	}
	if err != nil {
		w.say("%v", err)
		return nil, err
	}
	return &Outcome{Coverage: w.cov, Trace: w.trace}, nil
}

func (w *world) play() error {
	if err := w.open(); err != nil {
		return fail("open", "%w", err)
	}
	for i := range w.plan.Steps {
		s := &w.plan.Steps[i]
		w.say("%3d %s", i, s)
		w.step(s)
	}
	if w.plan.Params.CloseMid {
		w.cov[ClosedMid]++
		return nil
	}
	if err := w.settle(); err != nil {
		return err
	}
	return w.check()
}

// step executes one step; a dead rank does nothing.
func (w *world) step(s *Step) {
	r, peer := w.ranks[s.Rank%w.size()], w.ranks[s.Peer%w.size()]
	c, ok := w.commOf(s, r, peer)
	if r.dead || !ok {
		return
	}
	p := w.pattern(r, s, peer, c)
	switch s.Do {
	case OpSend, OpSsend:
		w.send(r, p, s)
	case OpRecv:
		w.receive(r, p, s.Size, s.Call)
	case OpProbe:
		w.probe(r, p, s.Size, s.Call)
	case OpTake:
		w.take(r, p, s.Size, s.Call)
	case OpUse, OpDrop:
		if n := len(r.held); n > 0 {
			w.use(r, s.N%n, s.Do == OpDrop)
		}
	case OpCancel:
		if n := len(r.active); n > 0 {
			r.cancel(r.active[s.N%n])
		}
	case OpPoll:
		w.poll(r, s.N)
	case OpFlush:
		w.flush(r)
	case OpExpire:
		w.expire(r)
	case OpAbort:
		w.abort(r)
	case OpStep:
		w.works(r, s.N)
	case OpBreak:
		w.breakLink(r, peer)
	case OpKill:
		w.kill(r)
	case OpLose:
		w.lose(r, peer)
	case OpClose:
		w.closeComm(r, c)
	case OpOpen:
		w.reopen((s.Comm - 1) % len(w.comms))
	case OpAck:
		r.ack(c, s.N)
	}
	w.harvest(r)
}

// ack lets receives from any source, of a Comm or of none, continue without the lost ranks, or
// without the n-th of them.
func (r *rank) ack(c *comm, n int) {
	failed, src := r.engine.Failed(), progress.AnySource
	if c != nil {
		src = c.source[r.id]
	}
	if n > 0 && len(failed) > 0 {
		i := (n - 1) % len(failed)
		failed = failed[i : i+1]
	}
	r.engine.AckFailures(src, failed...)
	r.acked[c] = append(slices.Clone(r.acked[c]), failed...) // operations have the old ones
}

// works lets the devices of a rank work without their program.
func (w *world) works(r *rank, n int) {
	for range n {
		for _, d := range r.devices {
			softtest.Step(d)
		}
	}
}

// breakLink breaks what connects two ranks, if there is anything.
func (w *world) breakLink(a, b *rank) {
	if a == b || b.dead {
		return
	}
	broken := false
	for i, d := range a.devices { // only one of them connects the two
		if a.fabrics[i] == b.fabrics[i] {
			broken = softtest.Break(a.fabrics[i], d, b.devices[i]) || broken
		}
	}
	if broken && !w.cut[pair(a.id, b.id)] {
		w.cut[pair(a.id, b.id)] = true
		w.cov[BrokenLinks]++
	}
}

// kill ends a rank, unless it is the last.
func (w *world) kill(r *rank) {
	alive := 0
	for _, p := range w.ranks {
		if !p.dead {
			alive++
		}
	}
	if alive == 1 {
		return
	}
	r.dead = true
	w.cov[KilledRanks]++
	for i, d := range r.devices {
		softtest.Kill(r.fabrics[i], d)
	}
}

// send starts a send of s.Size bytes.
func (w *world) send(r *rank, p pattern, s *Step) {
	to := p.peer
	o := &op{pattern: p, send: true, sync: s.Do == OpSsend, seq: r.sent[to]}
	r.sent[to]++
	o.write(r.id, s.Size)
	if s.Call && r.gate.call == nil {
		call := r.engine.Send
		if o.sync {
			call = r.engine.Ssend
		}
		w.start(r, o, func(ctx context.Context) (st progress.Status, err error) { return st, call(ctx, to, o.tag, o.buf) })
		return
	}
	switch parts := w.parts(o, o.seq); {
	case parts != nil && o.sync:
		o.req = r.engine.IssendVec(to, o.tag, parts)
	case parts != nil:
		o.req = r.engine.IsendVec(to, o.tag, parts)
	case o.sync:
		o.req = r.engine.Issend(to, o.tag, o.buf)
	default:
		w.sendMany(r, o, s.Size)
		return
	}
	r.add(o, o.req.Done())
}

// parts cuts the buffer of an operation of some number; nil: it is one of a single buffer.
func (w *world) parts(o *op, number int) (parts [][]byte) {
	if !w.plan.Params.Vectors || number%2 == 0 {
		return nil
	}
	for rest, i := o.buf, number; len(rest) != 0; i++ {
		n := min(partSizes[i%len(partSizes)], len(rest))
		parts, rest = append(parts, rest[:n]), rest[n:]
	}
	o.parts = len(parts) > 1
	return append(parts, nil)
}

// partSizes are the sizes of parts, one after the other.
var partSizes = []int{8, 8, 8, 40, 0, 1, 8, 300, 2000, 8, 17}

// sendMany posts o, and more like it where it is short, as one batch.
func (w *world) sendMany(r *rank, o *op, size int) {
	ops := []*op{o}
	if size < manyBelow && o.seq < manyUntil {
		for range size % mostMany {
			more := &op{pattern: o.pattern, send: true, seq: r.sent[o.peer]}
			r.sent[o.peer]++
			more.write(r.id, size)
			ops = append(ops, more)
		}
		w.cov[Batches]++
	}
	p := r.engine.Poster()
	for _, o := range ops {
		p.Isend(o.peer, o.tag, o.buf, 0, &o.req)
	}
	p.Done()
	for _, o := range ops {
		r.add(o, o.req.Done())
	}
}

// Sends of fewer bytes than manyBelow are posted as batches of up to mostMany, as long as their
// destination was sent fewer than manyUntil: histories that can be checked are not longer.
const (
	manyBelow = 100
	mostMany  = 4
	manyUntil = 12
)

func (w *world) receive(r *rank, p pattern, size int, calls bool) { w.post(r, p, size, calls) }

// post posts a receive, and reports whether it has found an unexpected message.
func (w *world) post(r *rank, p pattern, size int, calls bool) (o *op, found bool) {
	o = &op{pattern: p, order: r.posts}
	r.posts++
	o.newBuffer(size)
	before := r.engine.Metrics().UnexpectedNow
	if calls && r.gate.call == nil {
		w.start(r, o, func(ctx context.Context) (progress.Status, error) {
			return r.engine.Recv(ctx, p.peer, p.tag, p.mask, o.buf)
		})
	} else {
		if parts := w.parts(o, o.order); parts != nil {
			o.req = r.engine.IrecvVec(p.peer, p.tag, p.mask, parts)
		} else {
			o.req = r.engine.Irecv(p.peer, p.tag, p.mask, o.buf)
		}
		r.add(o, o.req.Done())
	}
	found = !o.pending() || r.engine.Metrics().UnexpectedNow != before
	if !found {
		r.posted++
	}
	w.looked(r, p.mask, before, found)
	return o, found
}

// Costs of an index of unexpected messages (package matching): a scan of up to scanFree messages is
// free, and an index is built once scans have cost buildCost times the number of messages.
const (
	scanFree  = 16
	buildCost = 8
)

// looked records that a receive compared n unexpected messages, and counts an index that this must
// have led to.
func (w *world) looked(r *rank, mask uint64, n int, found bool) {
	switch {
	case n <= scanFree || mask == 0 || mask == ^uint64(0):
	case !found:
		r.scans[mask] += n - scanFree
	case r.scans[mask] >= buildCost*n:
		w.cov[IndexUsed]++
	}
}

// flush calls Flush, unless its rank is in another call.
func (w *world) flush(r *rank) {
	if r.gate.call != nil {
		return
	}
	o := &op{flush: true, pattern: pattern{peer: r.id}}
	o.newBuffer(0)
	w.start(r, o, func(ctx context.Context) (st progress.Status, err error) { return st, r.engine.Flush(ctx) })
}

// abort ends the job, with the rank in the reason.
func (w *world) abort(r *rank) {
	r.aborts = true
	w.cov[Aborts]++
	r.engine.Abort(fmt.Errorf("%w: rank %d has had enough", progress.ErrAborted, r.id))
}

func (r *rank) add(o *op, ended <-chan struct{}) {
	o.ended, o.acked = ended, r.acked[o.comm]
	o.index = len(r.ops)
	r.ops = append(r.ops, o)
	r.active = append(r.active, o)
}

// end takes the outcome of an operation.
func (w *world) end(r *rank, o *op) {
	o.end()
	o.until, o.over = r.posts, len(r.ops)
	if o.flush && o.err == nil {
		w.flushed(r, o)
	}
}

// pending reports whether the operation has not ended.
func (o *op) pending() bool {
	select {
	case <-o.ended:
		return false
	default:
		return true
	}
}

// harvest takes the outcomes of the operations that have ended.
func (w *world) harvest(r *rank) {
	keep := r.active[:0]
	for _, o := range r.active {
		if o.pending() {
			keep = append(keep, o)
			continue
		}
		w.end(r, o)
		w.note(r.id, o.index, int(o.st.Len), int(o.st.Tag), o.st.Source)
		w.say("    rank %d: %s", r.id, o)
	}
	clear(r.active[len(keep):])
	r.active = keep
}
