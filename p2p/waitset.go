package p2p

import (
	"context"

	"github.com/tagmatch/tagmatch/progress"
)

// WaitAll waits for all of reqs, and then consumes all of them. If ctx ends first it returns ctx's
// error and consumes none: operations go on, and the next WaitAll tells their outcomes. Otherwise
// its error is that of the lowest failing index; out, unless nil, must be as long as reqs and gets
// the outcome of each.
//
// A call that was refused, for wrong arguments (ErrInvalid, ErrClosed) or as too many sends were
// queued (ErrFull), has begun nothing, and what the others wait for may never come without it. So
// where one of reqs is of such a call, and others have not ended, WaitAll returns its error at once
// and consumes none, as after the end of ctx. Test tells which were refused, and consumes them.
//
// Requests of several Worlds are waited for one after the other: in ProgressManual the other Worlds
// make no progress meanwhile. See Requests in the package comment for inactive ones. Two calls must
// not use a slice at once; the same requests in two slices they may.
func WaitAll(ctx context.Context, reqs []Request, out []Completion) error {
	if ctx == nil {
		return errNoContext
	}
	if err := checkOut(reqs, out); err != nil {
		return err
	}
	looked := false
	for i := range reqs {
		r := reqs[i].r
		if r.Over() {
			continue
		}
		if !looked {
			if err := refused(reqs); err != nil {
				return err
			}
			looked = true // what is refused is so from its call on
		}
		if err := r.Await(ctx); err != nil {
			return err
		}
	}
	return takeAll(reqs, out)
}

// refused returns the error of the first of reqs whose call was refused.
func refused(reqs []Request) error {
	if !progress.Refusals() {
		return nil
	}
	var t progress.Taker
	defer t.Done()
	for i := range reqs {
		if err := t.Refused(reqs[i].r); err != nil {
			return reqs[i].fault(err)
		}
	}
	return nil
}

// checkOut refuses outcomes that do not fit the requests.
func checkOut(reqs []Request, out []Completion) error {
	if out != nil && len(out) != len(reqs) {
		return invalidf("out has %d elements for %d requests: give nil or as many as requests", len(out), len(reqs))
	}
	return nil
}

// WaitAny waits for one of reqs, consumes it and returns its index, status and error: that with the
// lowest index, where several have ended. The index is -1 where none was consumed: with ctx's
// error, with ErrInvalid where the requests are not all of one World, or, without an error, where
// all are inactive. Each call looks at all of reqs: for thousands use a Queue.
func WaitAny(ctx context.Context, reqs []Request) (int, Status, error) {
	for {
		eng, err := oneWorld(ctx, reqs)
		if err != nil {
			return -1, nothing, err
		}
		i, st, active, err := takeAny(reqs)
		if i >= 0 || !active {
			return i, st, err
		}
		if err := awaitAny(ctx, eng, reqs); err != nil {
			return -1, nothing, err
		}
	}
}

// WaitSome waits for at least one of reqs, and consumes those that have ended, by index, at most as
// many as out has room for; the others are left to the next call. It returns how many, 0 where all
// are inactive. Completion.Data is the index in reqs, and Completion.Err the error of that request.
// WaitSome's own error is ctx's, or ErrInvalid where the requests are not all of one World or out
// is empty; nothing was consumed then.
func WaitSome(ctx context.Context, reqs []Request, out []Completion) (int, error) {
	if len(out) == 0 {
		return 0, invalidf("out is empty: there is no room for a completion")
	}
	for {
		eng, err := oneWorld(ctx, reqs)
		if err != nil {
			return 0, err
		}
		n, active := takeSome(reqs, out)
		if n != 0 || !active {
			return n, nil
		}
		if err := awaitAny(ctx, eng, reqs); err != nil {
			return 0, err
		}
	}
}

// TestAll makes progress and reports whether all of reqs have ended. If so it consumes them, with
// the outcomes of WaitAll; else it consumes none, and out is left alone. Then its error is that of
// a call that was refused, as WaitAll's.
func TestAll(reqs []Request, out []Completion) (bool, error) {
	if err := checkOut(reqs, out); err != nil {
		return false, err
	}
	if !allOver(reqs) {
		makeProgress(reqs)
		if !allOver(reqs) {
			return false, refused(reqs)
		}
	}
	return true, takeAll(reqs, out)
}

// takeAll consumes requests that have all ended.
func takeAll(reqs []Request, out []Completion) (first error) {
	var t progress.Taker
	defer t.Done()
	if out == nil {
		return dropAll(reqs, &t)
	}
	for i := range reqs {
		out[i].Data = uint64(i)
		out[i].Status, _, out[i].Err = reqs[i].take(&t)
		if first == nil {
			first = out[i].Err
		}
	}
	return first
}

// dropAll is takeAll for a caller that wants no status.
func dropAll(reqs []Request, t *progress.Taker) (first error) {
	for i := range reqs {
		r := &reqs[i]
		if t.Drop(r.r) {
			*r = Request{}
		} else if _, _, err := r.take(t); first == nil {
			first = err
		}
	}
	return first
}

// TestAny makes progress and reports whether one of reqs has ended. If so it consumes it and
// returns what WaitAny does. Where all are inactive done is true and the index -1.
func TestAny(reqs []Request) (i int, st Status, done bool, err error) {
	i, st, active, err := takeAny(reqs)
	if i < 0 && active {
		makeProgress(reqs)
		i, st, active, err = takeAny(reqs)
	}
	return i, st, i >= 0 || !active, err
}

// TestSome makes progress, consumes those of reqs that have ended, as WaitSome does, and returns
// how many, perhaps none. active reports whether others are left: when it is false, all of reqs
// have been reported. An out without room reports nothing, however often it is called:
// WaitSome, which would wait for ever, refuses it.
func TestSome(reqs []Request, out []Completion) (n int, active bool) {
	n, active = takeSome(reqs, out)
	if n == 0 && active {
		makeProgress(reqs)
		n, active = takeSome(reqs, out)
	}
	return n, active
}

// take consumes a request that has ended. One that another call has consumed, or given away, is
// only set to Request{}.
func (r *Request) take(t *progress.Taker) (st Status, ended bool, err error) {
	if r.r.Zero() {
		return nothing, false, nil
	}
	est, over, taken, err := t.Take(r.r)
	if !over {
		return nothing, false, nil
	}
	was := *r
	*r = Request{}
	if !taken {
		return nothing, false, nil
	}
	st, err = was.outcome(est, err)
	return st, true, err
}

// takeAny consumes the first request that has ended; i is -1 where none has. active reports
// whether there are others.
func takeAny(reqs []Request) (i int, st Status, active bool, err error) {
	var t progress.Taker
	defer t.Done()
	for i := range reqs {
		if st, ended, err := reqs[i].take(&t); ended {
			return i, st, true, err
		}
		active = active || !reqs[i].r.Zero()
	}
	return -1, nothing, active, nil
}

// takeSome consumes requests that have ended, as many as fit into out. active reports whether
// others have an outcome to give, now or later.
func takeSome(reqs []Request, out []Completion) (n int, active bool) {
	var t progress.Taker
	defer t.Done()
	for i := range reqs {
		if n < len(out) {
			if st, ended, err := reqs[i].take(&t); ended {
				out[n] = Completion{Data: uint64(i), Status: st, Err: err}
				n++
			}
		}
		active = active || reqs[i].r.Active()
	}
	return n, active
}

// allOver reports whether all of reqs have ended or are inactive.
func allOver(reqs []Request) bool {
	for i := range reqs {
		if !reqs[i].r.Over() {
			return false
		}
	}
	return true
}

// oneWorld returns the engine that all active requests are of: nil where none is under way.
func oneWorld(ctx context.Context, reqs []Request) (*progress.Engine, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	eng, err := progress.OneEngine(len(reqs), func(i int) progress.Request { return reqs[i].r })
	if err != nil {
		return nil, wrapf("%w", err)
	}
	return eng, nil
}

// awaitAny waits until one of reqs has ended, or was consumed by another call.
func awaitAny(ctx context.Context, eng *progress.Engine, reqs []Request) error {
	if eng == nil {
		return nil // they were consumed meanwhile
	}
	return eng.AwaitAny(ctx, len(reqs), func(i int) progress.Request { return reqs[i].r })
}

func makeProgress(reqs []Request) {
	progress.Progress(len(reqs), func(i int) progress.Request { return reqs[i].r })
}
