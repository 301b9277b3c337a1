package launch

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/launch/link"
)

// TestSurvivors: who was lost, and the code of a job that went on without.
func TestSurvivors(t *testing.T) {
	type ending struct {
		state link.State
		code  int // above 1000: of a signal
		host  string
	}
	const killed = 1000 + 128 + 9
	well := ending{state: link.Closed}
	tests := []struct {
		name  string
		ranks []ending
		code  int
		want  string // the last line
	}{
		{"nobody", []ending{well, {state: link.Finished}, {}}, 0, ""},
		{"killed", []ending{well, {state: link.Joined, code: killed}, well}, 0, "rank 1 lost, 2 of 3 ended well"},
		{"killed before it has joined, and after Close", []ending{{code: killed}, {state: link.Closed, code: killed}, well}, 0, "ranks 0, 1 lost, 1 of 3 ended well"},
		{"exit", []ending{well, {state: link.Joined, code: 3}, well}, 0, "rank 1 lost, 2 of 3 ended well"},
		{"exit while it joins", []ending{well, {state: link.Joining, code: 3}, well}, 0, "rank 1 lost, 2 of 3 ended well"},
		{"exit with code 0", []ending{well, {state: link.Joined}, well}, 0, "rank 1 lost, 2 of 3 ended well"},
		{"a survivor fails", []ending{{state: link.Closed, code: 4}, {state: link.Joined, code: killed}, well}, 4, "rank 1 lost, rank 0 failed, 1 of 3 ended well"},
		{"the first failure was a loss", []ending{{state: link.Joined, code: killed}, {state: link.Closed, code: 4}, well}, 137, "rank 0 lost, rank 1 failed, 1 of 3 ended well"},
		{"after the end of all", []ending{{state: link.Finished, code: 4}, {state: link.Finished}, {state: link.Finished}}, 4, "rank 0 failed, 2 of 3 ended well"},
		{"code 255 is no signal", []ending{{state: link.Closed, code: 255}, well, well}, 255, "rank 0 failed, 2 of 3 ended well"},
		{"no rank of a job", []ending{{code: 6}, {}, {}}, 6, "rank 0 failed, 2 of 3 ended well"},
		{"all", []ending{{state: link.Joined}, {state: link.Joined, code: 5}, {state: link.Joined, code: killed}}, 5, "ranks 0-2 lost, 0 of 3 ended well"},
		{"all, with code 0", []ending{{state: link.Joined}, {state: link.Joined}, {state: link.Joined}}, 1, "ranks 0-2 lost, 0 of 3 ended well"},
		{"on another host", []ending{{host: "a"}, {code: 137, host: "b"}, {code: 255, host: "b"}}, 0, "ranks 1, 2 lost, 1 of 3 ended well"},
		{"a failure on another host", []ending{{host: "a"}, {code: 128, host: "b"}, {code: 137, host: "b"}}, 128, "rank 2 on b lost, rank 1 on b failed, 1 of 3 ended well"},
	}
	passed := make(chan struct{})
	close(passed)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			s := newSupervisor(&job{opt: &Options{Stderr: &out, KeepGoing: true}})
			s.left, s.unpassed = len(tt.ranks), len(tt.ranks)
			for n, e := range tt.ranks {
				s.ranks = append(s.ranks, &rank{n: n, host: e.host, passed: passed, running: true, state: e.state})
			}
			for n, e := range tt.ranks {
				s.happened(event{rank: n, kind: rankEnded})
				s.happened(event{rank: n, kind: rankGone, code: e.code % 1000, killed: e.code > 1000, reason: "ended"})
				s.happened(event{rank: n, kind: rankPassed})
			}
			require.Equal(t, tt.code, s.code)
			if s.said != nil {
				<-s.said
			}
			lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
			if tt.want != "" {
				tt.want = "tagmatch: " + tt.want
			}
			require.Equal(t, tt.want, string(lines[len(lines)-1]))
		})
	}
}

// TestSurvivorLosesOutput: what could not be passed on is a failure, also of a rank that ended
// well.
func TestSurvivorLosesOutput(t *testing.T) {
	var out bytes.Buffer
	s := newSupervisor(&job{opt: &Options{Stderr: &out, KeepGoing: true}})
	s.left, s.unpassed = 2, 2
	passed := make(chan struct{})
	close(passed)
	for n := range 2 {
		s.ranks = append(s.ranks, &rank{n: n, passed: passed, running: true, state: link.Finished})
		s.happened(event{rank: n, kind: rankGone})
	}
	s.happened(event{rank: 0, kind: rankPassed, reason: "disk full"})
	s.happened(event{rank: 1, kind: rankPassed})
	<-s.said
	require.Equal(t, 1, s.code)
	require.Equal(t, "tagmatch: rank 0 has lost output: disk full\ntagmatch: rank 0 failed, 1 of 2 ended well\n", out.String())
}
