package benchkit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/internal/launch"
	"github.com/tagmatch/tagmatch/p2p"
)

// Overlap measures how much of a transfer proceeds while the receiver computes. Each round times,
// after a barrier each, a transfer that the receiver waits for, a computation, and a transfer with
// that computation between posting and waiting. The computation is a fixed amount of work that
// takes four times the transfer's time: a processor that the library takes away for a while shows
// as extra time. The sender is in a blocking Send. An asynchronous device needs a processor to copy
// out of a socket. Over TCP a receiver that is pinned keeps its own for the goroutine that computes
// and its other threads share the sender's.
type Overlap struct{ Verified }

// NewOverlap has the defaults.
func NewOverlap() *Overlap {
	return &Overlap{Verified{Common: Common{Sizes: Sizes{4 << 20}, Iters: 100}}}
}

// Jobs are all combinations of the flags that are left open. Unless -async says otherwise, the
// device is asynchronous where it matches, and only there: what TAGMATCH_ASYNC says must not change
// what a line stands for.
func (v *Overlap) Jobs() (jobs []Job) {
	for _, device := range either(v.device, "auto", "shm", "tcp") {
		for _, transport := range either(v.transport, "auto", "rc", "tmsrq") {
			for _, manual := range []bool{false, true} {
				if v.manual && !manual {
					continue
				}
				args := []string{"-device", device, "-transport", transport, fmt.Sprintf("-manual=%v", manual)}
				if v.async == p2p.AsyncDefault {
					args = append(args, fmt.Sprintf("-async=%v", transport == "tmsrq"))
				}
				jobs = append(jobs, Job{Ranks: 2, Args: args})
			}
		}
	}
	return jobs
}

// Run measures a size.
func (v *Overlap) Run(s *Session, size, iters int) error {
	if s.First && v.async == p2p.AsyncOn && s.device() == "tcp" && len(v.others) > 0 {
		if err := launch.PinOthers(v.others); err != nil {
			return err
		}
	}
	r, err := newOverlap(s, size, v.Check).measure(iters)
	r.Progress, r.Async = map[bool]string{false: "goroutine", true: "manual"}[v.manual], v.async == p2p.AsyncOn
	return s.Report(r, err)
}

func (o *overlap) measure(iters int) (Result, error) {
	if err := o.verified(); err != nil {
		return Result{}, err
	}
	if err := o.calibrate(min(iters, calibrations)); err != nil {
		return Result{}, err
	}
	alone, extra, compute := make([]time.Duration, iters), make([]time.Duration, iters), make([]time.Duration, iters)
	for i := range iters {
		var total time.Duration
		var err error
		if alone[i], err = o.round(true, 0); err == nil {
			if compute[i], err = o.round(false, o.units); err == nil {
				total, err = o.round(true, o.units)
			}
		}
		if err != nil {
			return Result{}, err
		}
		extra[i] = total - compute[i] // within a round: the machine's speed varies
	}
	return o.result(alone, compute, extra), nil
}

const (
	calibrations = 20
	// computeFor is how many times as long as the transfer that is waited for the computation
	// takes. One that both processors copy, where nobody computes, takes more than twice as long by
	// one.
	computeFor = 4
)

// overlap is one rank's side; the first rank receives.
type overlap struct {
	s       *Session
	check   bool
	buf     []byte
	payload []byte // of every message
	units   int    // of work that take computeFor transfers
	sink    uint64
}

func newOverlap(s *Session, size int, check bool) *overlap {
	o := &overlap{s: s, check: check, buf: make([]byte, size), payload: make([]byte, size)}
	Fill(o.payload, 1)
	return o
}

// round is a barrier, and then a transfer, a computation, or one during the other. It returns the
// receiver's time for that.
func (o *overlap) round(transfer bool, units int) (time.Duration, error) {
	ctx := context.Background()
	var r p2p.Request
	if transfer && o.s.First {
		if o.check {
			clear(o.buf) // what the message before has left must not pass for this one
		}
		r = o.s.World.Comm().Irecv(o.s.Peer, data, o.buf)
	}
	if err := o.s.sync(); err != nil {
		return 0, err
	}
	if !o.s.First {
		if !transfer {
			return 0, nil
		}
		return 0, o.s.World.Comm().Send(ctx, o.s.Peer, data, o.buf)
	}
	start := time.Now()
	o.compute(units)
	if transfer {
		if _, err := r.Wait(ctx); err != nil {
			return 0, err
		}
	}
	took := time.Since(start)
	if transfer && o.check {
		return took, Damage(o.buf, o.payload)
	}
	return took, nil
}

// verified is a transfer whose payload is compared, as those of all rounds are with -check.
func (o *overlap) verified() error {
	defer func(check bool) { o.check = check }(o.check)
	o.check = true
	if !o.s.First {
		copy(o.buf, o.payload)
	}
	_, err := o.round(true, calibrationUnits)
	return err
}

// unitSteps make a unit of work about a microsecond.
const (
	unitSteps        = 300
	calibrationUnits = 2000
)

// compute is work without memory access, so that only a lost processor slows it down.
func (o *overlap) compute(units int) {
	x := o.sink | 1
	for range units * unitSteps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	o.sink = x
}

// calibrate finds the amount of work that takes computeFor transfers. Both ranks call it.
func (o *overlap) calibrate(rounds int) error {
	alone, work := make([]time.Duration, rounds), make([]time.Duration, rounds)
	for i := range rounds {
		var err error
		if alone[i], err = o.round(true, 0); err == nil {
			work[i], err = o.round(false, calibrationUnits)
		}
		if err != nil {
			return err
		}
	}
	if t := middle(work); t > 0 {
		o.units = int(computeFor * float64(calibrationUnits) * float64(middle(alone)) / float64(t))
	}
	return nil
}

func (o *overlap) result(alone, compute, extra []time.Duration) Result {
	var sum time.Duration
	for _, t := range alone {
		sum += t
	}
	r := o.s.Result("overlap", len(o.buf), len(alone), max(sum, 1))
	t := middle(alone)
	r.P50Us, r.P99Us = us(t), us(alone[len(alone)*99/100]) // sorted by middle
	r.ComputeUs, r.ExtraUs = us(middle(compute)), us(middle(extra))
	pct := 100 * (1 - float64(middle(extra))/float64(max(t, 1)))
	r.OverlapPct = &pct
	return r
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }

// middle is the median; it sorts.
func middle(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}
