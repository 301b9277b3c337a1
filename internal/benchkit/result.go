package benchkit

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// Result is one line of output. Latency is half a round trip; MB is 10^6 bytes.
type Result struct {
	Test      string  `json:"test"`
	Device    string  `json:"device"`
	Transport string  `json:"transport"`
	Size      int     `json:"size"`
	Iters     int     `json:"iters"`
	AvgUs     float64 `json:"avg_us"`
	P50Us     float64 `json:"p50_us"`
	P99Us     float64 `json:"p99_us"`
	MBs       float64 `json:"mb_s"`
	MsgS      float64 `json:"msg_s"`
	Window    int     `json:"window,omitempty"`
	CPUPerGB  float64 `json:"cpu_s_per_gb,omitempty"` // processor seconds of both ranks for 10^9 bytes
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
	if p.window {
		fmt.Fprintf(p.out, "%10s %10d %12.1f %12.4f %12.3f\n", sizeName(r.Size), r.Iters, r.MBs, r.MsgS/1e6, r.CPUPerGB)
	} else {
		fmt.Fprintf(p.out, "%10s %10d %10.3f %10.3f %10.3f %12.1f\n", sizeName(r.Size), r.Iters, r.AvgUs, r.P50Us, r.P99Us, r.MBs)
	}
	return nil
}

func (p *reporter) head(r *Result) {
	fmt.Fprintf(p.out, "# device %s, transport %s", r.Device, r.Transport)
	if p.window {
		fmt.Fprintf(p.out, ", %d messages under way; MB are 10^6 bytes, cpu s/GB are processor seconds of both ranks\n", r.Window)
		fmt.Fprintf(p.out, "%10s %10s %12s %12s %12s\n", "size", "messages", "MB/s", "M msg/s", "cpu s/GB")
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
