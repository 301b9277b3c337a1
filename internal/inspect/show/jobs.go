package show

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// Stuck reports whether a rank of a job is known to wait for good.
type Stuck func(job string, rank int) bool

// Jobs lists the ranks of jobs, whose states are sorted by job and rank, a line each.
func Jobs(w io.Writer, states []inspect.State, stuck Stuck) error {
	var b strings.Builder
	for job := range byJob(states) {
		fmt.Fprintln(&b, Title(job))
		fmt.Fprintf(&b, "%6s %8s  %-10s %s\n", "rank", "pid", "host", "state")
		for i := range job {
			s := &job[i]
			fmt.Fprintln(&b, cut(fmt.Sprintf("%6d %8d  %-10s %s", s.Rank, s.PID, s.Host, Summary(s, stuck(s.Job, s.Rank)))))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// byJob gives the states of each job.
func byJob(states []inspect.State) func(func([]inspect.State) bool) {
	return func(yield func([]inspect.State) bool) {
		for len(states) > 0 {
			n := slices.IndexFunc(states, func(s inspect.State) bool { return s.Job != states[0].Job })
			if n < 0 {
				n = len(states)
			}
			if !yield(states[:n]) {
				return
			}
			states = states[n:]
		}
	}
}

// Title is a line about a job.
func Title(states []inspect.State) string {
	line := "job " + states[0].Job
	i := slices.IndexFunc(states, func(s inspect.State) bool { return s.Silent == "" })
	if i < 0 {
		return cut(fmt.Sprintf("%s: %s, of which none answers", line, count(len(states), "rank")))
	}
	s := &states[i]
	if s.Phase == inspect.PhaseJoining {
		return cut(fmt.Sprintf("%s: %s, %d of %d ranks, joining%s", line, s.Program, len(states), s.Size, onHosts(states)))
	}
	return cut(fmt.Sprintf("%s: %s, %d of %d ranks%s, started %s ago, by %s over %s", line, s.Program, len(states), s.Size,
		onHosts(states), span(s.At.Sub(s.Started).Round(time.Millisecond)), s.Transport, s.Device))
}

// onHosts says on how many hosts ranks are, where these are several.
func onHosts(states []inspect.State) string {
	n := len(hosts(states))
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" on %d hosts", n)
}

// hosts is the names of hosts, as far as they are known.
func hosts(states []inspect.State) (list []string) {
	for i := range states {
		if h := states[i].Host; h != "" && !slices.Contains(list, h) {
			list = append(list, h)
		}
	}
	return list
}

// Ranks writes what the ranks of a job do. Those that are alike are told of together. Of each some
// lines of a kind are shown, cut off at 80 columns; in full all lines are, as they are.
func Ranks(w io.Writer, states []inspect.State, stuck Stuck, full bool) error {
	type group struct {
		ranks []int
		hosts []string // where there are several in all
		first *inspect.State
		lines []string
	}
	var groups []*group
	several := len(hosts(states)) > 1
	known := map[string]*group{}
	for i := range states {
		s := &states[i]
		lines := of(s, full)
		k := strings.Join(append(lines, s.Phase, Summary(s, stuck(s.Job, s.Rank))), "\n")
		g := known[k]
		if g == nil {
			g = &group{first: s, lines: lines}
			known[k] = g
			groups = append(groups, g)
		}
		g.ranks = append(g.ranks, s.Rank)
		if several && s.Host != "" && !slices.Contains(g.hosts, s.Host) {
			g.hosts = append(g.hosts, s.Host)
		}
	}
	var b strings.Builder
	for _, g := range groups {
		fmt.Fprintln(&b, heading(g.ranks, g.first, stuck(g.first.Job, g.first.Rank), g.hosts))
		for _, line := range g.lines {
			fmt.Fprintln(&b, line)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
