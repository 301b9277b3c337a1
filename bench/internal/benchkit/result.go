package benchkit

import (
	"strconv"

	"github.com/tagmatch/tagmatch/p2p"
)

// Result is one line of output. Latency is half a round trip; MB is 10^6 bytes.
type Result struct {
	Test       string   `json:"test"`
	Device     string   `json:"device"`
	Transport  string   `json:"transport"`
	Ranks      int      `json:"ranks,omitempty"` // of the job; a latency of alltoall is of whole rounds
	Size       int      `json:"size"`
	Iters      int      `json:"iters"`
	AvgUs      float64  `json:"avg_us"`
	MidUs      float64  `json:"mid_us,omitempty"` // median of the averages of 100 parts, without a clock
	P50Us      float64  `json:"p50_us"`
	P99Us      float64  `json:"p99_us"`
	MBs        float64  `json:"mb_s"`
	MsgS       float64  `json:"msg_s"`
	Window     int      `json:"window,omitempty"`
	Depth      int      `json:"depth,omitempty"`
	Kind       string   `json:"kind,omitempty"`         // depth: of the queued entries
	Goroutines int      `json:"goroutines,omitempty"`   // of each rank, in pairs; msg_s and mb_s are of all
	Waiter     string   `json:"waiter,omitempty"`       // echo: beside the server in its process
	Over       float64  `json:"over_first,omitempty"`   // over the first result that differs in one number only
	CPUPerGB   float64  `json:"cpu_s_per_gb,omitempty"` // processor seconds of both ranks
	Progress   string   `json:"progress,omitempty"`     // overlap: "goroutine" or "manual"
	Async      bool     `json:"async,omitempty"`        // the device works by itself
	ComputeUs  float64  `json:"compute_us,omitempty"`
	ExtraUs    float64  `json:"extra_us,omitempty"` // the transfer's addition to ComputeUs, median
	OverlapPct *float64 `json:"overlap_pct,omitempty"`
	Offload    *Offload `json:"offload,omitempty"` // tmsrq: on the first rank, during the test
	Flood      *Flood   `json:"flood,omitempty"`
	*Wakes              // idle
	*Soak               // soak
	*Vec                // vec
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
