package sim

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// ErrUnsteady is part of Shrink's error if a plan does not fail again as before.
var ErrUnsteady = errors.New("a plan that does not always do the same")

// Shrink makes a failing plan smaller while it fails in the same way: first its steps, then its
// parameters, repeatedly until nothing can be removed or ctx is over. run plays a plan and returns
// its error, err is the error of p. If p does not fail again, or differently, it stays as it is,
// and ErrUnsteady is added to err.
func Shrink(ctx context.Context, p *Plan, err error, run func(*Plan) error) (*Plan, error) {
	again := run(p)
	switch {
	case ctx.Err() != nil:
		return p, err
	case again == nil:
		return p, fmt.Errorf("%w\n%w: it did not fail when played again", err, ErrUnsteady)
	case KindOf(again) != KindOf(err):
		return p, fmt.Errorf("%w\n%w: it failed otherwise when played again: %w", err, ErrUnsteady, again)
	}
	s := &shrinker{plan: p, err: again, kind: KindOf(err), run: run, ctx: ctx}
	for again := true; again && s.time(); {
		again = s.steps()
		again = s.params() || again
		again = s.details() || again
	}
	return s.plan, s.err
}

type shrinker struct {
	plan *Plan // the smallest that fails
	err  error // how
	kind string
	run  func(*Plan) error
	ctx  context.Context
}

func (s *shrinker) time() bool { return s.ctx.Err() == nil }

// try keeps a candidate that fails in the same way.
func (s *shrinker) try(p *Plan) bool {
	if !s.time() {
		return false
	}
	err := s.run(p)
	if err == nil || KindOf(err) != s.kind {
		return false
	}
	s.plan, s.err = p, err
	return true
}

// steps removes steps: halves, then quarters, down to single ones.
func (s *shrinker) steps() (smaller bool) {
	for n := max(len(s.plan.Steps)/2, 1); n > 0; n /= 2 {
		for at := 0; at < len(s.plan.Steps); {
			end := min(at+n, len(s.plan.Steps))
			p := *s.plan
			p.Steps = append(append([]Step(nil), p.Steps[:at]...), p.Steps[end:]...)
			if s.try(&p) {
				smaller = true
			} else {
				at = end
			}
		}
	}
	return smaller
}

// params sets each parameter to its simplest value, or nearer to it.
func (s *shrinker) params() (smaller bool) {
	for _, simplify := range simpler {
		p := *s.plan
		simplify(&p.Params)
		if !reflect.DeepEqual(p.Params, s.plan.Params) && s.try(&p) {
			smaller = true
		}
	}
	return smaller
}

var simpler = []func(q *Params){
	func(q *Params) { q.Ranks = 2 },
	func(q *Params) { q.Ranks = max(q.Ranks/2, 2) },
	func(q *Params) { q.Ranks = max(q.Ranks-1, 2) },
	func(q *Params) { q.Mux = false },
	func(q *Params) { q.MaxRead = 0 },
	func(q *Params) { q.SendLimit = 0 },
	func(q *Params) { q.Comms = nil },
	func(q *Params) { q.Comms = q.Comms[:min(len(q.Comms), 1)] },
	func(q *Params) { q.CloseMid = false },
	func(q *Params) { q.Transport, q.Tags, q.TM = "rc", 0, softtest.TM{} },
	func(q *Params) { q.Tags = min(q.Tags, 1) },
	func(q *Params) { q.Tags = min(q.Tags, 7) },
	func(q *Params) { q.TM = softtest.TM{} },
	func(q *Params) { q.TM.MTU = 0 },
	func(q *Params) { q.TM.MaxOps = 0 },
	func(q *Params) { q.TM.QuirkSyncReq = false },
	func(q *Params) { q.TM.RecvUnexpected = false },
	func(q *Params) { q.TM.LiveGoDormant = false },
	func(q *Params) { q.TM.RNRWhenEmpty = false },
	func(q *Params) { q.TM.TwoIncomplete = false },
	func(q *Params) { q.TM.InitialCount = 0 },
	func(q *Params) { q.TM.DelayOps = 0 },
	func(q *Params) { q.TM.DelayOps /= 2 },
	func(q *Params) { q.TM.DelayData = 0 },
	func(q *Params) { q.TM.DelayData /= 2 },
	func(q *Params) { q.TM.DelayFIN = 0 },
	func(q *Params) { q.TM.DelayFIN /= 2 },
	func(q *Params) { q.TM.DropSync = 0 },
	func(q *Params) { q.TM.KillQPAt = 0 },
	func(q *Params) { q.TM.KillQPAt = min(q.TM.KillQPAt, 1) },
	func(q *Params) { q.TM.KillQPPart = 0 },
	func(q *Params) { q.TM.RNREvery = 0 },
	func(q *Params) { q.Fabric.MaxDelay = 0 },
	func(q *Params) { q.Fabric.MaxDelay /= 2 },
	func(q *Params) { q.Fabric.MaxBurst = 0 },
	func(q *Params) { q.Fabric.MaxRefuse = 0 },
	func(q *Params) { q.Fabric.MaxRefuse /= 2 },
	func(q *Params) { q.Fabric.Queue = 64 },
	func(q *Params) { q.Fabric.MaxPayload = 4 << 10 },
	func(q *Params) { q.Fabric.Stepped = false },
	func(q *Params) { q.Fabric.Direct = false },
	func(q *Params) { q.MaxEager = 64 },
	func(q *Params) { q.OffloadMin = -1 },
	func(q *Params) { q.Vectors = false },
	func(q *Params) { q.UnexpectedLimit = 64 << 20 },
	func(q *Params) { q.SRQDepth = 16 },
	func(q *Params) { q.SendDepth = 16 },
	func(q *Params) { q.MaxInline = 0 },
	func(q *Params) { q.Refuse = 0 },
	func(q *Params) { q.Refuse /= 2 },
	func(q *Params) { q.RefuseOps = 0 },
	func(q *Params) { q.RefuseOps /= 2 },
}

// details simplifies single steps.
func (s *shrinker) details() (smaller bool) {
	for i := range s.plan.Steps {
		for _, simplify := range plainer {
			p := *s.plan
			p.Steps = append([]Step(nil), p.Steps...)
			simplify(&p.Steps[i], p.Params.Ranks)
			if p.Steps[i] != s.plan.Steps[i] && s.try(&p) {
				smaller = true
			}
		}
	}
	return smaller
}

var plainer = []func(s *Step, ranks int){
	func(s *Step, ranks int) { s.Rank, s.Peer = s.Rank%ranks, s.Peer%ranks },
	func(s *Step, _ int) { s.Tag = 0 },
	func(s *Step, _ int) { s.Raw = false },
	func(s *Step, _ int) { s.Comm = 0 },
	func(s *Step, _ int) { s.Mask = MaskExact },
	func(s *Step, _ int) { s.Call = false },
	func(s *Step, _ int) { s.Size = min(s.Size, 1) },
	func(s *Step, _ int) { s.Size = min(s.Size, 16) },
	func(s *Step, _ int) { s.Size = min(s.Size, 256) },
	func(s *Step, _ int) { s.N = min(s.N, 1) },
	func(s *Step, _ int) { s.N /= 2 },
	func(s *Step, _ int) {
		if s.Do == OpSsend {
			s.Do = OpSend
		}
	},
}
