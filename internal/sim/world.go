package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/progress/progresstest"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/mux"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/transport/tmsrq/tmsrqtest"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// world is the ranks of a plan.
type world struct {
	plan     *Plan
	wrap     func(rank int, open opener) opener // nil, or a test's bug
	fabric   *soft.Fabric
	near     []*soft.Fabric // of the two hosts, with Params.Mux
	ranks    []*rank
	comms    []*comm         // the present ones, by number in the plan
	opened   []*comm         // all, by their number
	cut      map[[2]int]bool // pairs, lower rank first, whose connection the plan broke
	known    map[[2]int]*acquaintance
	cov      Coverage
	patience time.Duration // see closePatience
	refused  int           // requests that spies refused
	log      io.Writer     // nil: silent
	trace    uint64        // hash of all events
}

type rank struct {
	id      int
	engine  *progress.Engine
	fabrics []*soft.Fabric
	devices []*soft.Device        // one on each fabric
	paths   []transport.Transport // one on each device
	ops     []*op                 // in the order of posting
	active  []*op                 // of ops: unfinished
	held    []taken               // messages that matched probes have taken
	dropped []progress.Status     // of those that were lost or withdrawn before they were discarded
	sent    []int                 // messages so far, by destination
	posted  uint64                // receives that found no unexpected message
	acked   map[*comm][]int       // losses that the rank has acknowledged in a Comm; nil: in none
	dead    bool
	errs    errorLog

	contexts contexts.Contexts
	comms    map[int]*comm // by context: the last one
	lost     Members       // ranks that are lost here

	gate    *gate
	posts   int  // receives
	aborts  bool // the rank has called Abort
	stopped bool // its engine was stopped by an Abort
	// By mask: messages that receives compared in vain, beyond the free number.
	scans map[uint64]int
	asked bool  // a probe may have posted something since the last poll
	early error // of a Flush that returned too early, or a probe that was wrong
}

// errorLog records what an engine logs as an error, which is always a failure.
type errorLog struct{ first error }

func (l *errorLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

func (l *errorLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	// What an abort ends is checked elsewhere.
	if l.first == nil && !strings.Contains(text, progress.ErrAborted.Error()) {
		l.first = errors.New(text)
	}
	return nil
}

func (l *errorLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *errorLog) WithGroup(string) slog.Handler      { return l }

func newWorld(p *Plan) *world {
	opts := p.Params.Fabric
	opts.Seed = p.Seed
	w := &world{plan: p, fabric: softtest.NewFabric(opts), cut: map[[2]int]bool{}, known: map[[2]int]*acquaintance{}, patience: closePatience}
	if p.Params.Mux {
		w.near = []*soft.Fabric{softtest.NewFabric(opts), softtest.NewFabric(opts)}
	}
	return w
}

// open makes the ranks and connects them.
func (w *world) open() error {
	for id := range w.plan.Params.Ranks {
		if err := w.openRank(id); err != nil {
			return fmt.Errorf("rank %d: %w", id, err)
		}
	}
	for _, r := range w.ranks {
		for peer, p := range w.ranks {
			if err := r.engine.Connect(peer, p.engine.Address()); err != nil {
				return fmt.Errorf("rank %d: %w", r.id, err)
			}
		}
		r.engine.Start()
	}
	if !w.plan.Params.Unmet {
		if err := w.meet(); err != nil {
			return err
		}
	}
	w.openComms()
	return nil
}

// meetPolls is many more than it takes.
const meetPolls = 100_000

// meet connects all ranks to each other, so that a plan begins with its first step.
func (w *world) meet() error {
	for _, f := range append(slices.Clone(w.near), w.fabric) {
		softtest.Calm(f, true)
		defer softtest.Calm(f, false)
	}
	for _, r := range w.ranks {
		for _, path := range r.paths {
			for peer := range w.ranks {
				_ = path.Grant(peer, 0) // an error where another path leads there
			}
		}
	}
	for range meetPolls {
		met := true
		for _, r := range w.ranks {
			r.engine.Poll()
			met = met && !slices.ContainsFunc(r.paths, func(path transport.Transport) bool { return !path.Drained() })
		}
		if met {
			return nil
		}
	}
	return errors.New("the ranks do not come to be connected")
}

func (w *world) openRank(id int) error {
	q := &w.plan.Params
	r := &rank{id: id, sent: make([]int, q.Ranks), scans: map[uint64]int{}, gate: &gate{woken: make(chan struct{}, 1)}, comms: map[int]*comm{},
		acked: map[*comm][]int{}}
	r.contexts.Init(id, q.Ranks)
	r.fabrics = []*soft.Fabric{w.fabric}
	if len(w.near) > 0 {
		r.fabrics = []*soft.Fabric{w.near[id%2], w.fabric}
	}
	var paths []func(transport.Sink) (transport.Transport, error)
	for _, f := range r.fabrics {
		dev, err := soft.Open(w.device(soft.Config{Fabric: f, Rank: id, MaxInline: q.MaxInline}))
		if err != nil {
			return err
		}
		r.devices = append(r.devices, dev)
		paths = append(paths, w.path(r, dev))
	}
	cfg := progress.Config{Rank: id, Size: q.Ranks, Manual: true, UnexpectedLimit: q.UnexpectedLimit, SendLimit: q.SendLimit, OffloadMin: q.OffloadMin,
		Logger: slog.New(&r.errs), SpinLimit: -1, Contexts: &r.contexts, ContextMask: contexts.Mask,
		Lost: func(rank int, _ error) { r.lost |= 1 << rank }}
	var err error
	r.engine, err = progress.New(progresstest.With(cfg, 1, r.gate.grace), func(sink transport.Sink) (tr transport.Transport, err error) {
		if len(paths) == 1 {
			tr, err = paths[0](sink)
		} else {
			tr, err = mux.New(q.Ranks, sink, paths...)
		}
		r.gate.Transport = tr
		return r.gate, err
	})
	w.ranks = append(w.ranks, r)
	return err
}

// device is the configuration of a device, from one that has no knobs.
func (w *world) device(cfg soft.Config) soft.Config {
	c := w.plan.Params.TM
	c.Strict, c.Seed = true, w.plan.Seed
	if cfg = softtest.WithTM(cfg, c); w.plan.Params.NIC {
		cfg = softtest.NIC(cfg)
	}
	return cfg
}

// path opens a transport on a device of a rank, behind a spy and perhaps a test's bug.
func (w *world) path(r *rank, dev *soft.Device) opener {
	open := func(sink transport.Sink) (transport.Transport, error) {
		tr, err := w.transport(r.id, dev, sink)
		if err == nil {
			r.paths = append(r.paths, tr)
		}
		return tr, err
	}
	if w.wrap != nil {
		open = w.wrap(r.id, open)
	}
	return w.watched(r.id, open)
}

func (w *world) transport(id int, dev *soft.Device, sink transport.Sink) (transport.Transport, error) {
	q := &w.plan.Params
	if q.Transport == "rc" {
		return rc.New(rc.Config{Device: dev, Rank: id, Size: q.Ranks, MaxEager: q.MaxEager, SRQDepth: q.SRQDepth, SendDepth: q.SendDepth}, sink)
	}
	cfg := tmsrq.Config{Device: dev, Rank: id, Size: q.Ranks, MaxEager: q.MaxEager, SRQDepth: q.SRQDepth, SendDepth: q.SendDepth, MaxTags: q.Tags}
	if q.Tags == 0 {
		cfg.MaxTags = -1
	}
	tr, err := tmsrq.New(cfg, sink)
	if err == nil {
		tmsrqtest.CountFrom(tr, q.TM.InitialCount)
		tmsrqtest.Grace(tr, 0) // polls decide, and no clock
	}
	return tr, err
}

// close frees everything; what cannot be freed was left registered.
func (w *world) close() error {
	var errs []error
	for _, r := range w.ranks {
		if r.engine != nil {
			err := w.closeEngine(r)
			// A panic or a hang: the rank's locks may be held.
			if f, ok := errors.AsType[*Failure](err); ok {
				return f
			}
			errs = append(errs, err)
		}
		for _, d := range r.devices {
			errs = append(errs, d.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fail("leak", "closing: %w", err)
	}
	return nil
}

// discard is close for a world that has failed. A call that does not end with its context is
// abandoned, with its rank.
func (w *world) discard() {
	w.ranks = slices.DeleteFunc(w.ranks, func(r *rank) bool {
		for range 3 {
			w.expire(r)
		}
		return r.gate.call != nil
	})
	_ = w.close()
}

func (w *world) size() int { return len(w.ranks) }

func pair(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// note adds to the trace, which identifies a run.
func (w *world) note(what ...int) {
	for _, n := range what {
		w.trace = (w.trace ^ uint64(n)) * 0x100000001b3
	}
}

func (w *world) say(format string, args ...any) {
	if w.log != nil {
		fmt.Fprintf(w.log, format+"\n", args...)
	}
}
