package judge

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/bench/internal/peers"
)

// Row is one line of the comparison.
type Row struct {
	Name, About string
	// Must and Aim are marks for the ratio of ours to the best reference, or, where there is none,
	// for ours: at most for what is better low, at least for what is better high. 0: no mark.
	Must, Aim float64

	also   map[string]float64 // marks for the ratio to each of these peers, beside Must
	metric string             // the figure of ours, of peers and of base
	ours   command
	base   *command      // the reference, if it is another start of bench
	job    *peers.Job    // what peers measure
	peers  []string      // which of them; where there is a base, they are measured for the record
	sample time.Duration // what a sample takes; 0: as for other rows
	// unprobed figures do not depend on how fast the processors are at the moment: all samples
	// count.
	unprobed bool
}

// String is the row for a list of rows: name, mark, references and what it is about.
func (r *Row) String() string {
	beside := "no reference"
	switch {
	case r.base != nil:
		beside = r.base.name
	case r.job != nil:
		beside = strings.Join(r.peers, ", ")
	}
	return fmt.Sprintf("%-22s %-14s %-21s %s", r.Name, r.mark(), beside, r.About)
}

// mark is what the ratio must reach, and the aim in parentheses.
func (r *Row) mark() string {
	sign := "<="
	if r.higher() {
		sign = ">="
	}
	text := "none"
	if r.Must != 0 {
		text = fmt.Sprintf("%s %.4g", sign, r.Must)
	}
	if r.Aim != 0 {
		text += fmt.Sprintf(" (%.4g)", r.Aim)
	}
	return text
}

// command is a start of bench.
type command struct {
	name  string   // of a base
	args  []string // test and flags
	line  string   // what is in the line that has the figure; "": the last one
	fixed bool     // the test chooses how many messages
}

// higher reports whether more is better.
func (r *Row) higher() bool {
	return !strings.HasSuffix(r.metric, "_us") && !slices.Contains([]string{cpuPct, overFutex, cycles}, r.metric)
}

// Metrics that are better low, beside times.
const (
	cpuPct    = "cpu_pct"
	overFutex = "over_futex"
	cycles    = "gc"
)

// reached reports whether the ratio is as good as the mark.
func (r *Row) reached(ratio, mark float64) bool {
	if r.higher() {
		return ratio >= mark
	}
	return ratio <= mark
}

// unit of the row's figures, and by what they are multiplied for reading.
func (r *Row) unit() (string, float64) {
	switch {
	case strings.HasSuffix(r.metric, "_us"):
		return "us", 1
	case r.metric == "mb_s":
		return "GB/s", 1e-3
	case r.metric == "msg_s":
		return "M/s", 1e-6
	case strings.HasSuffix(r.metric, "_pct"):
		return "%", 1
	}
	return "", 1
}

// metrics by test, for jobs that peers measure too.
var metrics = map[string]string{"lat": "mid_us", "rate": "msg_s", "bw": "mb_s", "depth": "mid_us", "threads": "avg_us", "coll": "call_us"}

// against is a row that ours and peers measure.
func against(name, about string, j peers.Job, must, aim float64, names []string) Row {
	return Row{Name: name, About: about, Must: must, Aim: aim, metric: metrics[j.Test], ours: command{args: ours(j)}, peers: names, job: &j}
}

// ours are the arguments of bench for a job.
func ours(j peers.Job) []string {
	args := []string{j.Test, "-device", j.Device, "-sizes", strconv.Itoa(j.Size)}
	switch j.Test {
	case "rate", "bw":
		args = append(args, "-window", strconv.Itoa(j.Window))
		if j.Cold {
			args = append(args, "-cold")
		}
		if j.Sliding {
			args = append(args, "-sliding")
		}
	case "depth":
		args = append(args, "-kind", j.Kind, "-depths", strconv.Itoa(j.Depth))
	case "coll":
		args = append(args, "-op", j.Op, "-n", strconv.Itoa(j.Ranks))
	case "threads":
		args = append(args, "-goroutines", strconv.Itoa(j.Threads))
	}
	return args
}

// Takes reports whether a peer of this name may take part in the row.
func (r *Row) Takes(name string) bool { return slices.Contains(r.peers, name) }

// compares reports whether a peer takes part in the row.
func (r *Row) compares(p peers.Peer) bool {
	return r.job != nil && r.Takes(p.Name()) && p.Can(*r.job)
}
