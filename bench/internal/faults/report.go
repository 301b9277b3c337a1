package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// How much the medians of the last quarter of the jobs may be above those of the first.
const (
	driverGrowth = 4 << 20  // bytes
	rankGrowth   = 48 << 20 // bytes: how much is unexpected in a round is random
)

// fewest is how many jobs tell whether anything grows.
const fewest = 20

// series are what must not grow from job to job.
var series = []struct {
	name   string
	value  func(r *result) int64
	growth int64
	bytes  bool
}{
	{"memory of a survivor", func(r *result) int64 { return r.Resident }, rankGrowth, true},
	{"descriptors of a survivor", func(r *result) int64 { return int64(r.Descriptors) }, 0, false},
	{"memory of the driver", func(r *result) int64 { return r.DriverResident }, driverGrowth, true},
	{"descriptors of the driver", func(r *result) int64 { return int64(r.DriverDescriptors) }, 0, false},
}

// ends are the medians of the first and the last quarter.
func ends(list []result, value func(r *result) int64) (first, last int64) {
	n := max(1, len(list)/4)
	return median(list[:n], value), median(list[len(list)-n:], value)
}

func median(list []result, value func(r *result) int64) int64 {
	var values []int64
	for i := range list {
		values = append(values, value(&list[i]))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// judge lists what was wrong. Faults of the last job are all that can be wrong with one.
func judge(list []result) (wrong []string) {
	if len(list) == 0 {
		return []string{"no rank has died: the time is too short"}
	}
	if last := &list[len(list)-1]; last.Wrong != "" {
		wrong = append(wrong, fmt.Sprintf("job %d, of which rank %d %s: %s", last.Job, last.Rank, last.How, last.Wrong))
	}
	if len(list) < fewest {
		return wrong
	}
	for _, s := range series {
		first, last := ends(list, s.value)
		if last > first+s.growth {
			wrong = append(wrong, fmt.Sprintf("%s has grown from %s to %s", s.name, amount(first, s.bytes), amount(last, s.bytes)))
		}
	}
	return wrong
}

func amount(n int64, bytes bool) string {
	if !bytes {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// printer writes results as a table or as JSON lines.
type printer struct {
	out  io.Writer
	json bool
}

const rowFormat = "%5v %8v %8v %8v %6v %9v %11v %11v %7v %10v %8v %5v %8v %5v\n"

func (p *printer) head(o *Options) error {
	if p.json {
		return nil
	}
	_, err := fmt.Fprintf(p.out, "# %d ranks, seed %d, a death every %v; times in ms, memory in MiB: the most of a survivor, then of this process\n"+rowFormat,
		o.Job.N, o.Seed, o.Every, "job", "at s", "stopped", "for ms", "rank", "has", "noticed", "all ended", "rounds", "messages", "memory", "fds", "memory", "fds")
	return err
}

func (p *printer) job(r *result) error {
	if p.json {
		return p.line(r)
	}
	stopped, stopMs := "-", "-"
	if r.Stopped != nil {
		stopped, stopMs = fmt.Sprint(*r.Stopped), fmt.Sprintf("%.0f", r.StopMs)
	}
	mib := func(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<20)) }
	ms := func(t float64) string { return fmt.Sprintf("%.1f", t) }
	_, err := fmt.Fprintf(p.out, rowFormat, r.Job, fmt.Sprintf("%.0f", r.Seconds), stopped, stopMs, r.Rank, r.How, ms(r.NoticedMs), ms(r.OverMs),
		r.Rounds, r.Messages, mib(r.Resident), r.Descriptors, mib(r.DriverResident), r.DriverDescriptors)
	return err
}

// summary is the last line.
type summary struct {
	Deaths        map[string]int `json:"deaths"` // by their kind
	Stops         int            `json:"stops"`
	Messages      uint64         `json:"messages"`
	Bytes         uint64         `json:"bytes"`
	NoticedMs     float64        `json:"noticed_ms"` // median
	LongestMs     float64        `json:"longest_ms"`
	LongestOverMs float64        `json:"longest_over_ms"`
	Wrong         []string       `json:"wrong"`
}

func summarize(list []result, wrong []string) summary {
	s := summary{Deaths: map[string]int{}, Wrong: wrong}
	for i := range list {
		r := &list[i]
		s.Deaths[r.How]++
		if r.Stopped != nil {
			s.Stops++
		}
		s.Messages += r.Messages
		s.Bytes += r.Bytes
		s.LongestMs, s.LongestOverMs = max(s.LongestMs, r.NoticedMs), max(s.LongestOverMs, r.OverMs)
	}
	if len(list) > 0 {
		s.NoticedMs = float64(median(list, func(r *result) int64 { return int64(r.NoticedMs * 1e3) })) / 1e3
	}
	return s
}

func (p *printer) verdict(list []result, wrong []string) error {
	s := summarize(list, wrong)
	if p.json {
		return p.line(&s)
	}
	var ways []string
	for how, n := range s.Deaths {
		ways = append(ways, fmt.Sprintf("%d %s", n, how))
	}
	slices.Sort(ways)
	fmt.Fprintf(p.out, "# of %d ranks %s; %d stops, no loss by them; survivors compared %d messages, %.3f GB\n", len(list), strings.Join(ways, ", "), s.Stops, s.Messages, float64(s.Bytes)/1e9)
	fmt.Fprintf(p.out, "# noticed by all after %.1f ms (median), %.1f ms (longest); all that depended on the rank had ended after %.1f ms at most\n", s.NoticedMs, s.LongestMs, s.LongestOverMs)
	for _, c := range series {
		if len(list) >= fewest {
			first, last := ends(list, c.value)
			fmt.Fprintf(p.out, "# %s, medians of the first and the last quarter: %s and %s\n", c.name, amount(first, c.bytes), amount(last, c.bytes))
		}
	}
	verdict := "nothing was wrong"
	if len(wrong) > 0 {
		verdict = "WRONG: " + strings.Join(wrong, "\nWRONG: ")
	}
	_, err := fmt.Fprintf(p.out, "# %s\n", verdict)
	return err
}

func (p *printer) line(v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(p.out, "%s\n", text)
	}
	return err
}
