package benchkit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/tagmatch/tagmatch/p2p"
)

// Result is one line of output. Latency is half a round trip; MB is 10^6 bytes.
type Result struct {
	Test       string   `json:"test"`
	Device     string   `json:"device"`
	Transport  string   `json:"transport"`
	Ranks      int      `json:"ranks,omitempty"` // star: of the job; latencies are of whole loops
	Size       int      `json:"size"`
	Iters      int      `json:"iters"`
	AvgUs      float64  `json:"avg_us"`
	P50Us      float64  `json:"p50_us"`
	P99Us      float64  `json:"p99_us"`
	MBs        float64  `json:"mb_s"`
	MsgS       float64  `json:"msg_s"`
	Window     int      `json:"window,omitempty"`
	CPUPerGB   float64  `json:"cpu_s_per_gb,omitempty"` // processor seconds of both ranks
	Progress   string   `json:"progress,omitempty"`     // overlap: "goroutine" or "manual"
	Async      bool     `json:"async,omitempty"`        // the device works by itself
	AsyncCPUs  string   `json:"async_cpus,omitempty"`   // "own" (those of the rank) or "others"
	ComputeUs  float64  `json:"compute_us,omitempty"`
	ExtraUs    float64  `json:"extra_us,omitempty"` // the transfer's addition to ComputeUs, median
	OverlapPct *float64 `json:"overlap_pct,omitempty"`
	Offload    *Offload `json:"offload,omitempty"` // tmsrq: on the first rank, during the test
	Flood      *Flood   `json:"flood,omitempty"`
}

// Offload is p2p.Offload, during a test.
type Offload struct {
	Offloaded   uint64 `json:"offloaded"`
	Promoted    uint64 `json:"promoted"`
	Matched     uint64 `json:"matched"`
	KeptSmall   uint64 `json:"kept_small"`
	KeptOverlap uint64 `json:"kept_overlap"`
	KeptPath    uint64 `json:"kept_path"`
	KeptFull    uint64 `json:"kept_full"`
	KeptOff     uint64 `json:"kept_off"`
	Rests       uint64 `json:"rests"`
	Dels        uint64 `json:"dels"`
	DelsLost    uint64 `json:"dels_lost"`
	Drops       uint64 `json:"drops"`
	Syncs       uint64 `json:"syncs"`
	Dormant     int    `json:"dormant"`
	// Messages up to 64 B, 1 KiB, 16 KiB, 256 KiB, 4 MiB, and longer ones.
	Unexpected [6]uint64 `json:"unexpected_by_size"`
}

// offload is the difference of two metrics; nil where the device does not match.
func offload(before, now *p2p.Metrics) *Offload {
	if now.Transport != "tmsrq" {
		return nil
	}
	a, b := &before.Offload, &now.Offload
	o := &Offload{
		Offloaded: b.Offloaded - a.Offloaded, Promoted: b.Promoted - a.Promoted, Matched: b.Matched - a.Matched,
		KeptSmall: b.KeptSmall - a.KeptSmall, KeptOverlap: b.KeptOverlap - a.KeptOverlap, KeptFull: b.KeptFull - a.KeptFull,
		KeptPath: b.KeptPath - a.KeptPath, KeptOff: b.KeptOff - a.KeptOff, Rests: b.Rests - a.Rests, Dels: b.Dels - a.Dels, DelsLost: b.DelsLost - a.DelsLost,
		Drops: b.Drops - a.Drops, Syncs: b.Syncs - a.Syncs, Dormant: b.Dormant,
	}
	for i := range o.Unexpected {
		o.Unexpected[i] = now.UnexpectedBySize[i] - before.UnexpectedBySize[i]
	}
	return o
}

// reporter writes results as a table or as JSON lines.
type reporter struct {
	out    io.Writer
	json   bool
	window bool // streams have no percentiles, latencies no processor time
	header bool
}

func (p *reporter) print(r *Result) error {
	if p.json {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "%s\n", line)
		return err
	}
	if !p.header {
		p.header = true
		p.head(r)
	}
	if r.OverlapPct != nil {
		p.overlap(r)
	} else if r.Flood != nil {
		p.flood(r)
	} else if p.window {
		fmt.Fprintf(p.out, "%10s %10d %12.1f %12.4f %12.3f\n", sizeName(r.Size), r.Iters, r.MBs, r.MsgS/1e6, r.CPUPerGB)
	} else if r.Ranks > 0 {
		fmt.Fprintf(p.out, "%10s %10d %10d %10.3f %10.3f %10.3f\n", sizeName(r.Size), r.Ranks, r.Iters, r.AvgUs, r.P50Us, r.P99Us)
	} else {
		fmt.Fprintf(p.out, "%10s %10d %10.3f %10.3f %10.3f %12.1f\n", sizeName(r.Size), r.Iters, r.AvgUs, r.P50Us, r.P99Us, r.MBs)
	}
	return nil
}

func (p *reporter) overlap(r *Result) {
	fmt.Fprintf(p.out, "%10s %8s %10s %10s %6s %8d %12.1f %12.1f %12.1f %8.1f %%\n", sizeName(r.Size), r.Device, r.Transport, r.Progress, cmp.Or(r.AsyncCPUs, "off"),
		r.Iters, r.P50Us, r.ComputeUs, r.ExtraUs, *r.OverlapPct)
}

func (p *reporter) head(r *Result) {
	if r.OverlapPct != nil {
		fmt.Fprintf(p.out, "# medians in us: a transfer that is waited for, a computation, and what the transfer adds to it\n")
		fmt.Fprintf(p.out, "%10s %8s %10s %10s %6s %8s %12s %12s %12s %10s\n", "size", "device", "transport", "progress", "async",
			"rounds", "transfer", "compute", "extra", "overlap")
		return
	}
	if r.Flood != nil {
		p.floodHead(r.Flood)
		return
	}
	fmt.Fprintf(p.out, "# device %s, transport %s", r.Device, r.Transport)
	if p.window {
		fmt.Fprintf(p.out, ", %d messages under way; MB are 10^6 bytes, cpu s/GB are processor seconds of both ranks\n", r.Window)
		fmt.Fprintf(p.out, "%10s %10s %12s %12s %12s\n", "size", "messages", "MB/s", "M msg/s", "cpu s/GB")
		return
	}
	if r.Ranks > 0 {
		fmt.Fprintf(p.out, "; us a loop: rank 0 has a message of each other rank and has answered them\n")
		fmt.Fprintf(p.out, "%10s %10s %10s %10s %10s %10s\n", "size", "ranks", "loops", "avg", "p50", "p99")
		return
	}
	fmt.Fprintf(p.out, "; half round trip in us; MB are 10^6 bytes\n")
	fmt.Fprintf(p.out, "%10s %10s %10s %10s %10s %12s\n", "size", "round trips", "avg", "p50", "p99", "MB/s")
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
