package benchkit

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Result is one line of output. Latency is half a round trip, in alltoall an exchange; MB is 10^6
// bytes.
type Result struct {
	Test       string   `json:"test"`
	What       string   `json:"what,omitempty" col:"what"` // limits; coll: the operation
	Device     string   `json:"device,omitempty" col:"device"`
	Transport  string   `json:"transport,omitempty" col:"transport"`
	Ranks      int      `json:"ranks,omitempty" col:"ranks"` // of the job
	Size       int      `json:"size" col:"size"`
	Window     int      `json:"window,omitempty" col:"window"`
	Sliding    bool     `json:"sliding,omitempty"` // the window
	Depth      int      `json:"depth,omitempty" col:"depth"`
	Kind       string   `json:"kind,omitempty" col:"kind"`             // depth: of the queued entries; coll: the algorithm
	Goroutines int      `json:"goroutines,omitempty" col:"goroutines"` // of each rank, in pairs; msg_s and mb_s are of all
	Waiter     string   `json:"waiter,omitempty" col:"waiter"`         // echo: beside the server in its process
	Progress   string   `json:"progress,omitempty" col:"progress"`     // overlap: "goroutine" or "manual"
	Async      bool     `json:"async,omitempty"`                       // the device works by itself
	Iters      int      `json:"iters" col:"messages"`
	AvgUs      float64  `json:"avg_us,omitempty" col:"avg us"`
	MidUs      float64  `json:"mid_us,omitempty"` // median of the averages of 100 parts, without a clock
	P50Us      float64  `json:"p50_us,omitempty" col:"p50 us"`
	P99Us      float64  `json:"p99_us,omitempty" col:"p99 us"`
	CallUs     float64  `json:"call_us,omitempty" col:"call us"`   // coll: median of rounds
	LeastUs    float64  `json:"least_us,omitempty" col:"least us"` // coll: of rounds
	MBs        float64  `json:"mb_s,omitempty" col:"MB/s"`
	MsgS       float64  `json:"msg_s,omitempty" col:"msg/s"`
	CPUPerGB   float64  `json:"cpu_s_per_gb,omitempty" col:"cpu s/GB"` // processor seconds of both ranks
	ComputeUs  float64  `json:"compute_us,omitempty" col:"compute us"`
	ExtraUs    float64  `json:"extra_us,omitempty" col:"extra us"` // the transfer's addition to ComputeUs, median
	OverlapPct *float64 `json:"overlap_pct,omitempty" col:"overlap %"`
	Matched    uint64   `json:"matched,omitempty"` // receives of the first rank that its device has matched
	*Flood              // flood
	*Wakes              // idle
	*Soak               // soak
	Over       float64  `json:"over_first,omitempty" col:"over first"` // see compared
}

// compared names the series of a result, and what of it is put over the first of the series; 0:
// nothing.
func (r *Result) compared() (series string, value float64) {
	series = fmt.Sprint(r.Test, " ", r.Device, " ", r.Kind, " ", r.Size)
	switch r.Test {
	case "coll":
		return fmt.Sprint(r.What, " ", r.Size), r.CallUs
	case "lat", "alltoall", "depth":
		return series, r.AvgUs
	case "echo":
		return series, r.P99Us
	case "threads", "rate":
		return series, r.MsgS
	}
	return series, 0
}

// sizeName writes a size as -sizes reads it.
func sizeName(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + "m"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + "k"
	}
	return strconv.Itoa(n)
}

// reporter writes results.
type reporter struct {
	Table
	first map[string]float64 // by series: see compared
}

// lines prints the results of a job.
func (p *reporter) lines(printed string) error {
	for line := range strings.Lines(printed) {
		var r Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return fmt.Errorf("a rank printed %q: %w", line, err)
		}
		if err := p.print(&r); err != nil {
			return err
		}
	}
	return nil
}

func (p *reporter) print(r *Result) error {
	if series, value := r.compared(); value != 0 {
		if p.first == nil {
			p.first = map[string]float64{}
		}
		if _, ok := p.first[series]; !ok {
			p.first[series] = value
		}
		r.Over = value / p.first[series]
	}
	return p.Print(r)
}
