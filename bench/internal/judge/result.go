package judge

import (
	"fmt"
	"slices"
)

// Verdicts of a row.
const (
	Pass    = "pass"
	Fail    = "FAIL"
	None    = "-"     // there is no mark
	Noisy   = "noisy" // too few quiet samples in one phase
	Missing = "error" // something was not measured
)

// Result is what a row came to, as -json has it.
type Result struct {
	Test    string  `json:"test"` // "compare"
	Row     string  `json:"row"`
	About   string  `json:"about"`
	What    string  `json:"what"` // the test of bench
	Device  string  `json:"device,omitempty"`
	Size    int     `json:"size,omitempty"`
	Cold    bool    `json:"cold,omitempty"`
	Sliding bool    `json:"sliding,omitempty"`
	Depth   int     `json:"depth,omitempty"`
	Kind    string  `json:"kind,omitempty"`
	Metric  string  `json:"metric"`
	Higher  bool    `json:"higher_is_better"`
	Must    float64 `json:"must,omitempty"`
	Aim     float64 `json:"aim,omitempty"`

	HopNs      [2]float64 `json:"hop_ns"` // the phase: from, to
	Ours       Figure     `json:"ours"`
	References []Figure   `json:"references"`
	Best       string     `json:"best,omitempty"`  // of the references
	Ratio      float64    `json:"ratio,omitempty"` // ours to the best; without references ours
	RatioLow   float64    `json:"ratio_low,omitempty"`
	RatioHigh  float64    `json:"ratio_high,omitempty"`
	Verdict    string     `json:"verdict"`
	AimReached bool       `json:"aim_reached,omitempty"`
	Errors     []string   `json:"errors,omitempty"`

	row        Row
	unmeasured bool // ours or a reference, but for default settings
}

// Figure is what a contestant came to: of the samples in the phase.
type Figure struct {
	Name     string   `json:"name"`
	Median   float64  `json:"median"`
	Q1       float64  `json:"q1"`
	Q3       float64  `json:"q3"`
	CPUPerGB float64  `json:"cpu_s_per_gb,omitempty"`
	Ratio    float64  `json:"ratio,omitempty"`   // ours to this
	Shown    bool     `json:"shown,omitempty"`   // for the record: the verdict is not about it
	Accepted int      `json:"accepted"`          // samples in the phase
	Rejected int      `json:"rejected"`          // those whose probes disagree
	Outside  int      `json:"outside,omitempty"` // quiet ones of another phase
	Samples  []Sample `json:"samples"`
	Command  string   `json:"command"`
}

func newFigure(c *contestant, p phase) Figure {
	in := p.of(c.samples)
	v := values(in)
	f := Figure{Name: c.name, Median: quantile(v, 0.5), Q1: quantile(v, 0.25), Q3: quantile(v, 0.75), Accepted: len(in),
		Shown: c.shown, Samples: c.samples, Command: c.command(c.iters)}
	var cpu []float64
	for _, s := range in {
		cpu = append(cpu, s.CPUPerGB)
	}
	f.CPUPerGB = median(cpu)
	for _, s := range c.samples {
		if !s.quiet() {
			f.Rejected++
		} else if !p.has(s) {
			f.Outside++
		}
	}
	return f
}

// newResult judges what was measured; the first of the list is ours.
func newResult(r Row, list []*contestant) Result {
	res := Result{Test: "compare", Row: r.Name, About: r.About, What: r.ours.args[0], Metric: r.metric, Higher: r.higher(), Must: r.Must, Aim: r.Aim,
		Verdict: Missing, References: []Figure{}, row: r}
	if j := r.job; j != nil {
		res.Device, res.Size, res.Cold, res.Sliding, res.Depth, res.Kind = j.Device, j.Size, j.Cold, j.Sliding, j.Depth, j.Kind
	}
	for _, c := range list {
		if c.err != nil {
			res.Errors = append(res.Errors, c.err.Error())
			res.unmeasured = res.unmeasured || c.name != Default
		}
	}
	if list[0].err != nil {
		return res
	}
	p, n := common(samplesOf(list))
	res.HopNs = [2]float64{p.low, p.high}
	res.Ours = newFigure(list[0], p)
	for _, c := range list[1:] {
		if c.err == nil {
			f := newFigure(c, p)
			if f.Median > 0 {
				f.Ratio = res.Ours.Median / f.Median
			}
			res.References = append(res.References, f)
		}
	}
	judged := slices.ContainsFunc(list[1:], func(c *contestant) bool { return !c.shown })
	if r.job != nil && !judged {
		res.row.Must, res.row.Aim, res.Must, res.Aim = 0, 0, 0, 0 // whom they speak of takes no part
	}
	res.compare(p, n, judged || r.job != nil)
	return res
}

// compare sets the ratio and the verdict. n is the smallest number of samples.
func (res *Result) compare(p phase, n int, references bool) {
	best, ok := res.best()
	if ours := values(p.of(res.Ours.Samples)); ok {
		res.Best, res.Ratio = best.Name, best.Ratio
		res.RatioLow, res.RatioHigh = interval(ours, values(p.of(best.Samples)))
	} else if !references {
		res.Ratio, res.RatioLow, res.RatioHigh = res.Ours.Median, res.Ours.Q1, res.Ours.Q3
	}
	switch {
	case res.unmeasured:
		res.Verdict = Missing // it may be the best
	case n < fewest:
		res.Verdict = Noisy
	case res.Must == 0:
		res.Verdict = None
	case res.row.reached(res.Ratio, res.Must) && !slices.ContainsFunc(res.References, res.row.falls):
		res.Verdict = Pass
	default:
		res.Verdict = Fail
	}
	res.AimReached = n >= fewest && res.Aim != 0 && res.row.reached(res.Ratio, res.Aim)
}

// falls reports whether the ratio to this peer is not as good as it has a mark for.
func (r *Row) falls(f Figure) bool {
	mark, ok := r.also[f.Name]
	return ok && f.Accepted > 0 && !r.reached(f.Ratio, mark)
}

// plain is the figure of default settings, nil if there is none.
func (res *Result) plain() *Figure {
	for i, f := range res.References {
		if f.Name == Default && f.Accepted > 0 {
			return &res.References[i]
		}
	}
	return nil
}

// best of the references in the phase that the verdict is about.
func (res *Result) best() (best Figure, ok bool) {
	for _, f := range res.References {
		if f.Shown || f.Accepted == 0 {
			continue
		}
		if !ok || res.Higher == (f.Median > best.Median) {
			best, ok = f, true
		}
	}
	return best, ok
}

// overall is the ratio of all samples, quiet or not: what there is to say of a row that is noisy.
func (res *Result) overall() string {
	if len(res.References) == 0 {
		return fmt.Sprintf("all %d samples: median %.3g", len(res.Ours.Samples), median(values(res.Ours.Samples)))
	}
	ratios := ""
	for _, f := range res.References {
		ratios += fmt.Sprintf(" %s %.2f", f.Name, median(values(res.Ours.Samples))/median(values(f.Samples)))
	}
	return fmt.Sprintf("of all %d samples the ratios are%s", len(res.Ours.Samples), ratios)
}
