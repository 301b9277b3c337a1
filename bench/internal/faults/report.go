package faults

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
)

// How much the medians of the last quarter of the jobs may be above those of the first.
const (
	driverGrowth = 4 << 20  // bytes
	rankGrowth   = 48 << 20 // bytes: how much is unexpected in a round is random
)

// fewest is how many jobs it takes to see that something grows.
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
		if r.Stop != "" {
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

// verdict prints the summary.
func verdict(p *benchkit.Table, list []result, wrong []string) error {
	s := summarize(list, wrong)
	if p.JSON {
		return p.Print(&s)
	}
	verdict := "nothing was wrong"
	if len(wrong) > 0 {
		verdict = "WRONG: " + strings.Join(wrong, "\nWRONG: ")
	}
	_, err := fmt.Fprintf(p.Out, "# of %d ranks %v; %d stops, no loss by them; survivors compared %d messages, %.3f GB\n"+
		"# noticed by all after %.1f ms (median), %.1f ms (longest); all that depended on the rank had ended after %.1f ms at most\n# %s\n",
		len(list), s.Deaths, s.Stops, s.Messages, float64(s.Bytes)/1e9, s.NoticedMs, s.LongestMs, s.LongestOverMs, verdict)
	return err
}
