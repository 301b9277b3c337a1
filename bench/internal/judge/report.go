package judge

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Report writes results as they come, as text or as JSON, an object a line.
type Report struct {
	Out  io.Writer
	JSON bool
}

// columns are the row, figures of ours tuned and with default settings, the best reference, ratios
// of both to it, where the first one may lie, mark and verdict.
const columns = "%-22s %12s %12s  %-9s %6s %7s %15s %16s %-6s"

// Host is the first line.
func (p *Report) Host(h Host) error {
	if p.JSON {
		return p.line(h)
	}
	names := ""
	for _, name := range []string{"ucx", "openmpi", "mpich", "gloo"} {
		if v, ok := h.Peers[name]; ok {
			names += ", " + name + " " + v
		}
	}
	_, err := fmt.Fprintf(p.Out, "# %s, %s, %d processors of which %d and %d are used; %s%s\n"+
		"# ratio: ours over the best reference, and in which range 90 %% of ratios of resampled medians lie; mark: what it must reach, and the aim\n"+
		"# default: the same with default settings, where -twice has it measured; the mark is for what is tuned\n"+
		columns+" %s\n",
		h.Processor, h.Kernel, h.CPUs, h.Pinned[0], h.Pinned[1], h.Go, names,
		"row", "ours", "default", "best", "ratio", "default", "90 %", "mark (aim)", "", "each: figure (ratio)")
	return err
}

func (p *Report) line(v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(p.Out, "%s\n", text)
	}
	return err
}

// Row is one row.
func (p *Report) Row(res Result) error {
	if p.JSON {
		return p.line(res)
	}
	unit, scale := res.row.unit()
	b := &strings.Builder{}
	figure := func(v float64) string { return fmt.Sprintf("%.3f %-4s", v*scale, unit) }
	switch {
	case res.Verdict == Missing && res.Ratio == 0:
		fmt.Fprintf(b, "%-22s %12s", res.Row, "not measured")
	case res.Ours.Accepted == 0:
		fmt.Fprintf(b, "%-22s no samples of one quiet phase: %s", res.Row, res.overall())
	default:
		plain, ratio := "-", "-"
		if f := res.plain(); f != nil {
			plain = figure(f.Median)
			if res.Best != "" && res.row.base == nil { // a base has the settings of ours
				ratio = fmt.Sprintf("%.2f", res.Ratio*f.Median/res.Ours.Median)
			}
		}
		fmt.Fprintf(b, columns, res.Row, figure(res.Ours.Median), plain, orDash(res.Best), fmt.Sprintf("%.2f", res.Ratio), ratio,
			fmt.Sprintf("%.2f to %.2f", res.RatioLow, res.RatioHigh), res.row.mark(), res.verdict())
		p.details(b, &res, scale)
	}
	for _, e := range res.Errors {
		fmt.Fprintf(b, "\n    %s", strings.ReplaceAll(e, "\n", "\n    "))
	}
	_, err := fmt.Fprintln(p.Out, b)
	return err
}

// details are the references and what the figures stand on.
func (p *Report) details(b *strings.Builder, res *Result, scale float64) {
	rejected, outside := res.Ours.Rejected, res.Ours.Outside
	accepted := fmt.Sprint(res.Ours.Accepted)
	for _, f := range res.References {
		if f.Name != Default {
			fmt.Fprintf(b, " %s %.3f (%.2f)", f.Name, f.Median*scale, f.Ratio)
		}
		accepted += fmt.Sprintf("+%d", f.Accepted)
		rejected, outside = rejected+f.Rejected, outside+f.Outside
	}
	fmt.Fprintf(b, "; samples %s", accepted)
	if !res.row.unprobed {
		fmt.Fprintf(b, ", %d dropped, %d in another phase than hop %.0f-%.0f ns", rejected, outside, res.HopNs[0], res.HopNs[1])
	}
	if res.Ours.CPUPerGB == 0 || res.Metric != metrics["bw"] {
		return
	}
	fmt.Fprintf(b, "; cpu s/GB ours %.3f", res.Ours.CPUPerGB)
	for _, f := range res.References {
		fmt.Fprintf(b, ", %s %.3f", f.Name, f.CPUPerGB)
	}
}

func (res *Result) verdict() string {
	if res.AimReached {
		return res.Verdict + "+"
	}
	return res.Verdict
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
