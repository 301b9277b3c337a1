package diagnose

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// TestJoining: of ranks that are in Init what rank 0 waits for is told, and nothing is certain.
func TestJoining(t *testing.T) {
	at := func(rank int, host, waits string) inspect.State {
		return inspect.State{Version: inspect.Version, Job: "a", Rank: rank, Size: 4, Host: host, Phase: inspect.PhaseJoining, Joins: waits, Still: 12_000,
			Calls: []inspect.Call{{Name: "p2p.Init", Place: inspect.Place{At: "main.go:7 main.main", N: 1}}}}
	}
	look := inspect.Look{States: []inspect.State{at(2, "b", "for rank 0"), at(0, "a", "for all ranks to join; still missing: ranks 1, 3 of 4")}}
	verdicts := Diagnose(look, look)
	var b strings.Builder
	require.NoError(t, Write(&b, verdicts, 80))
	require.Equal(t, `NOT JOINED, now: ranks 0, 2, for 12 s
  Ranks 0, 2 are in Init at main.go:7 main.main. Rank 0 waits for all ranks to
  join; still missing: ranks 1, 3 of 4.
  Hosts: rank 0 on a, rank 2 on b.
  What to do: See why the others have not come: whether they were started, what
    they say, and whom rank 0 has turned away.
  Not certain: the others may still come.
`, b.String())
	require.False(t, verdicts[0].Class.Deadlock())
}

// TestHosts: a verdict names the hosts of its ranks where there are several, and those of ranks
// that do not answer too.
func TestHosts(t *testing.T) {
	states := []inspect.State{{Rank: 0, Host: "a"}, {Rank: 1, Host: "a"}, {Rank: 2, Host: "b"}}
	j := &job{absent: []inspect.Absent{{Rank: 3, Host: "c"}, {Rank: 4}}}
	for i := range states {
		j.members = append(j.members, member{State: &states[i]})
	}
	v := j.located([]Verdict{{Ranks: []int{3, 1, 0, 4, 2}}})
	require.Equal(t, "rank 3 on c, ranks 0, 1 on a, rank 2 on b", hostsText(&v[0]))
	j.members, j.absent = j.members[:2], nil
	require.Empty(t, j.located([]Verdict{{Ranks: []int{1}}})[0].Hosts)
	many := Verdict{Hosts: map[int]string{}}
	for r := range hostsMost + 2 {
		many.Ranks, many.Hosts[r] = append(many.Ranks, r), string(rune('a'+r))
	}
	require.True(t, strings.HasSuffix(hostsText(&many), "rank 7 on h, and 2 more"), hostsText(&many))
}
