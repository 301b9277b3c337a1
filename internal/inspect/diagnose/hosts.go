package diagnose

import (
	"fmt"
	"strings"

	"github.com/tagmatch/tagmatch/internal/ranks"
)

// hostsMost is how many hosts of a verdict are told.
const hostsMost = 8

// located says in verdicts on which hosts their ranks are, where the job is on several.
func (j *job) located(verdicts []Verdict) []Verdict {
	at, names := map[int]string{}, map[string]bool{}
	note := func(rank int, host string) {
		if host != "" {
			at[rank], names[host] = host, true
		}
	}
	for _, m := range j.members {
		note(m.Rank, m.Host)
	}
	for _, a := range j.absent {
		note(a.Rank, a.Host)
	}
	if len(names) < 2 {
		return verdicts
	}
	for i := range verdicts {
		v := &verdicts[i]
		v.Hosts = map[int]string{}
		for _, r := range v.Ranks {
			if host, known := at[r]; known {
				v.Hosts[r] = host
			}
		}
	}
	return verdicts
}

// hostsText says which ranks of a verdict are on which host, in their order.
func hostsText(v *Verdict) string {
	by := map[string][]int{}
	var names, parts []string
	for _, r := range v.Ranks {
		if host, known := v.Hosts[r]; known {
			if by[host] == nil {
				names = append(names, host)
			}
			by[host] = append(by[host], r)
		}
	}
	for n, name := range names {
		if n == hostsMost {
			parts = append(parts, fmt.Sprintf("and %d more", len(names)-n))
			break
		}
		parts = append(parts, ranks.List(by[name])+" on "+name)
	}
	return strings.Join(parts, ", ")
}
