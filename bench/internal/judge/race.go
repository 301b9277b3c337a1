package judge

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/bench/internal/hop"
	"github.com/tagmatch/tagmatch/bench/internal/peers"
)

// Judge measures rows.
type Judge struct {
	Rounds int           // samples of each contestant
	Sample time.Duration // what a sample takes, roughly
	Peers  []peers.Peer
	CPUs   [2]int
	Self   Program  // ours, tuned as docs/performance.md advises, which the marks are for
	Plain  *Program // nil, or ours with the settings of who sets nothing, for the record

	probe func([2]int) (time.Duration, error) // nil: hop.Probe
}

// Program is bench with its settings: what is run, and what is added to its environment.
type Program struct{ Path, Env string }

// Default is the name of the plain program in a result.
const Default = "default"

// most is how many rounds are made for each that is asked for before noise is accepted as a fact.
const most = 3

// patience is how long one sample may take.
const patience = time.Minute

// contestant is one of those that are compared in a row.
type contestant struct {
	name    string
	measure func(ctx context.Context, iters int) (peers.Sample, error)
	command func(iters int) string
	metric  string
	shown   bool // for the record: the verdict is not about it
	iters   int  // 0: fixed
	samples []Sample
	err     error // why it takes no part any more
}

// Measure makes rounds until each contestant has enough samples in one phase of the hop.
func (j *Judge) Measure(ctx context.Context, r Row) Result {
	list := j.contestants(r)
	for _, c := range list {
		j.calibrate(ctx, r, c)
	}
	var err error
	for round := 0; err == nil && list[0].err == nil && ctx.Err() == nil && round < most*j.Rounds; round++ {
		if _, n := common(samplesOf(list)); round >= j.Rounds && n >= j.Rounds {
			break
		}
		err = j.round(ctx, r, list, round)
	}
	if list[0].err == nil {
		list[0].err = err
	}
	if err := ctx.Err(); err != nil {
		list[0].err = err // what ended because of it is nobody's fault
	}
	return newResult(r, list)
}

// samplesOf those that are judged.
func samplesOf(list []*contestant) [][]Sample {
	var all [][]Sample
	for _, c := range list {
		if c.err == nil && c.name != Default {
			all = append(all, c.samples)
		}
	}
	return all
}

// contestants of a row, ours first.
func (j *Judge) contestants(r Row) []*contestant {
	list := []*contestant{start("ours", r, r.ours, j.Self)}
	if r.base != nil {
		list = append(list, start(r.base.name, r, *r.base, j.Self))
	}
	if j.Plain != nil {
		plain := start(Default, r, r.ours, *j.Plain)
		plain.shown = true
		list = append(list, plain)
	}
	for _, p := range j.Peers {
		if r.compares(p) {
			list = append(list, &contestant{name: p.Name(), metric: r.metric, iters: first(r),
				measure: func(ctx context.Context, iters int) (peers.Sample, error) { return p.Run(ctx, *r.job, iters, j.CPUs) },
				command: func(iters int) string { return p.Command(*r.job, iters, j.CPUs) }, shown: r.base != nil})
		}
	}
	return list
}

func start(name string, r Row, s command, p Program) *contestant {
	c := &contestant{name: name, metric: r.metric, iters: first(r),
		measure: func(ctx context.Context, iters int) (peers.Sample, error) {
			return s.run(ctx, p, iters)
		},
		command: func(iters int) string {
			return strings.TrimSpace(p.Env + " " + strings.Join(s.words("bench", iters), " "))
		}}
	if s.fixed {
		c.iters = 0
	}
	return c
}

// calibrate finds how many messages make a sample; it also has everything loaded that is started.
func (j *Judge) calibrate(ctx context.Context, r Row, c *contestant) {
	if c.iters == 0 {
		return
	}
	s, err := j.once(ctx, c)
	if err != nil {
		c.err = err
		return
	}
	c.iters = iterations(c.metric, s, cmp.Or(r.sample, j.Sample))
}

// round takes a sample of each contestant. Round by round another one begins.
func (j *Judge) round(ctx context.Context, r Row, list []*contestant, round int) error {
	before, err := j.hop(r)
	for i := range list {
		c := list[(i+round)%len(list)]
		if err != nil {
			return err
		}
		if c.err != nil {
			continue
		}
		s, failed := j.once(ctx, c)
		var after time.Duration
		if after, err = j.hop(r); err != nil {
			return err
		}
		if failed != nil {
			c.err = failed
		} else {
			c.samples = append(c.samples, newSample(s[c.metric], s["cpu_s_per_gb"], before, after))
		}
		before = after
	}
	return err
}

// hop is the probe's figure, 0 for rows that need none: those hops agree and are of one phase.
func (j *Judge) hop(r Row) (time.Duration, error) {
	if r.unprobed {
		return 0, nil
	}
	if j.probe != nil {
		return j.probe(j.CPUs)
	}
	return hop.Probe(j.CPUs)
}

// once is one measurement with the contestant's number of messages.
func (j *Judge) once(ctx context.Context, c *contestant) (peers.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := c.measure(ctx, c.iters)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	if _, ok := s[c.metric]; !ok {
		return nil, fmt.Errorf("%s: there is no %s in what %s printed", c.name, c.metric, c.command(c.iters))
	}
	return s, nil
}

// first is the number of messages of the first, discarded measurement.
func first(r Row) int {
	switch {
	case r.metric == metrics["coll"] && r.job.Ranks > 2:
		return 2 * fewestCalls // with more ranks than processors MPICH takes tenths of a second each
	case r.metric == metrics["coll"]:
		return max(2*fewestCalls, min(200, 16<<20/max(r.job.Size, 1)))
	case r.metric == "mb_s":
		return 2 * window
	case r.metric == "msg_s" || r.metric == cycles || r.metric == metrics["threads"]:
		return 20_000
	}
	return 200
}

const fewestIters, fewestCalls, mostIters = 20, 5, 500_000_000

// iterations is how many messages take as long as a sample is to take.
func iterations(metric string, s peers.Sample, sample time.Duration) int {
	n, least := 0.0, float64(fewestIters)
	switch metric {
	case "mb_s", "msg_s", cycles:
		n, least = sample.Seconds()*s["msg_s"], 2*window
	case metrics["coll"]:
		n, least = sample.Seconds()/(1e-6*s[metric]), fewestCalls
	default: // rounds are made twice, with and without reading the clock each time
		n = sample.Seconds() / (4e-6 * s[metric])
	}
	return int(min(max(n, least), mostIters))
}
