package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// figure is the outcome of one job.
type figure struct {
	Test     string    `json:"test"` // "compare"
	What     string    `json:"what"` // "lat" or "bw"
	Device   string    `json:"device"`
	Size     int       `json:"size"`
	Iters    int       `json:"iters"`
	Unit     string    `json:"unit"`
	Ours     float64   `json:"ours"` // median of the quiet rounds, as are the next two
	UCX      float64   `json:"ucx"`
	Ratio    float64   `json:"ratio"` // of the quiet rounds' ratios
	Ratios   []float64 `json:"ratios"`
	Rejected int       `json:"rejected"`        // rounds that were not quiet
	Noisy    []float64 `json:"noisy,omitempty"` // ratios of these
	HopNs    float64   `json:"hop_ns"`
	OursCPU  float64   `json:"cpu_s_per_gb,omitempty"`
	UCXCPU   float64   `json:"ucx_cpu_s_per_gb,omitempty"`
	Mark     float64   `json:"mark,omitempty"`
	Pass     *bool     `json:"pass,omitempty"` // nil: there is no mark

	ours, ucx []sample
	hops      []float64
}

// marks are the ratios that are asked for: at most for latencies, at least for bandwidths.
var marks = map[string]float64{
	"shm lat 8":      1.5,
	"shm bw 1048576": 1.0,
	"tcp lat 8":      2.0,
}

func newFigure(j job) *figure {
	f := &figure{Test: "compare", What: j.test, Device: j.device, Size: j.size, Iters: j.iters, Unit: "us", Ratios: []float64{},
		Mark: marks[fmt.Sprintf("%s %s %d", j.device, j.test, j.size)]}
	if j.test == "bw" {
		f.Unit = "MB/s"
	}
	return f
}

// quiet is by how much the probes around a round may differ.
const quiet = 1.10

// add takes a round, unless the machine changed meanwhile.
func (f *figure) add(ours, ucx sample, hops ...time.Duration) {
	if float64(slices.Max(hops)) > quiet*float64(slices.Min(hops)) {
		f.Rejected++
		f.Noisy = append(f.Noisy, f.value(ours)/f.value(ucx))
		return
	}
	f.ours, f.ucx = append(f.ours, ours), append(f.ucx, ucx)
	f.Ratios = append(f.Ratios, f.value(ours)/f.value(ucx))
	for _, h := range hops {
		f.hops = append(f.hops, float64(h))
	}
}

func (f *figure) value(s sample) float64 {
	if f.What == "bw" {
		return s.MBs
	}
	return s.LatUs
}

// finish computes the medians and the verdict.
func (f *figure) finish() {
	f.Ours, f.UCX = medianOf(f.ours, f.value), medianOf(f.ucx, f.value)
	cpu := func(s sample) float64 { return s.CPUPerGB }
	f.OursCPU, f.UCXCPU = medianOf(f.ours, cpu), medianOf(f.ucx, cpu)
	f.Ratio, f.HopNs = median(f.Ratios), median(f.hops)
	if f.Mark == 0 || len(f.Ratios) == 0 {
		return
	}
	pass := f.Ratio <= f.Mark
	if f.What == "bw" {
		pass = f.Ratio >= f.Mark
	}
	f.Pass = &pass
}

func medianOf(list []sample, value func(sample) float64) float64 {
	var values []float64
	for _, s := range list {
		values = append(values, value(s))
	}
	return median(values)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func (f *figure) print(out io.Writer, asJSON bool) error {
	if asJSON {
		line, err := json.Marshal(f)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", line)
		return err
	}
	if len(f.Ratios) == 0 {
		_, err := fmt.Fprintf(out, "%s %-3s %8d B: no quiet round among %d: measure again on a machine with less noise; ratios %.2f to %.2f, median %.2f\n",
			f.Device, f.What, f.Size, f.Rejected, slices.Min(f.Noisy), slices.Max(f.Noisy), median(f.Noisy))
		return err
	}
	fmt.Fprintf(out, "%s %-3s %8d B: ours %.3f, UCX %.3f %s, ratio %.2f", f.Device, f.What, f.Size, f.Ours, f.UCX, f.Unit, f.Ratio)
	if f.Pass != nil {
		fmt.Fprintf(out, " %s", f.verdict())
	}
	fmt.Fprintf(out, "\n    ratios")
	for _, r := range f.Ratios {
		fmt.Fprintf(out, " %.2f", r)
	}
	fmt.Fprintf(out, "; %d rounds rejected; hop %.0f ns", f.Rejected, f.HopNs)
	if f.OursCPU > 0 {
		fmt.Fprintf(out, "; cpu s/GB ours %.3f, UCX %.3f", f.OursCPU, f.UCXCPU)
	}
	_, err := fmt.Fprintln(out)
	return err
}

func (f *figure) verdict() string {
	sign := "at most"
	if f.What == "bw" {
		sign = "at least"
	}
	if *f.Pass {
		return fmt.Sprintf("PASS (mark: %s %.2f)", sign, f.Mark)
	}
	return fmt.Sprintf("FAIL (mark: %s %.2f)", sign, f.Mark)
}
