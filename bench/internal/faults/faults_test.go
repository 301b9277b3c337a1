package faults

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/cmdtest"
	"github.com/tagmatch/tagmatch/internal/launch"
)

func TestMain(m *testing.M) { cmdtest.Main(m, func() { os.Exit(3) }) }

// TestSequence: a seed decides who dies, and how, and who is stopped before.
func TestSequence(t *testing.T) {
	const ranks = 4
	a, b, other := sequence(7, ranks), sequence(7, ranks), sequence(8, ranks)
	same := true
	seen := map[[2]int]bool{}
	stopped := map[int]bool{}
	for range 500 {
		f := a()
		require.Equal(t, f, b())
		same = same && f == other()
		require.Less(t, f.stopAt+f.stopFor, 1.0)
		seen[[2]int{f.rank, f.how}], stopped[f.stopped] = true, true
	}
	require.False(t, same)
	require.Len(t, seen, ranks*len(ways))
	require.Len(t, stopped, ranks+1)
}

// told is a job of three ranks that has ended, of which rank 1 died at that time.
func told(died time.Time, change func(s []Survivor)) error {
	at := died.Add(time.Second)
	over := []Survivor{{Rank: 2, Lost: 1, At: at, Over: at}, {Rank: 0, Lost: 1, At: at, Over: at.Add(time.Second)}}
	change(over)
	j := &job{opt: launch.Options{N: 3}}
	for _, s := range over {
		if s.Rank >= 0 {
			j.out.over = append(j.out.over, s)
		}
	}
	r := result{How: "killed"}
	err := j.tally(fault{rank: 1}, died, &r)
	if err == nil && (r.NoticedMs != 1000 || r.OverMs != 2000) {
		panic(r)
	}
	return err
}

// TestTally: all survivors must name the rank that died, after it did.
func TestTally(t *testing.T) {
	now := time.Now()
	require.NoError(t, told(now, func([]Survivor) {}))
	require.EqualError(t, told(now, func(s []Survivor) { s[0].Lost = 0 }), "rank 2 has lost rank 0, and rank 1 was the one that killed")
	require.EqualError(t, told(now, func(s []Survivor) { s[1].At = now.Add(-time.Minute) }), "rank 0 lost rank 1 1m0s before that killed")
	require.EqualError(t, told(now, func(s []Survivor) { s[1].Rank = -1 }), "ranks [2] have told what they saw, want ranks [0 2]")
}

// TestEndsBeforeItsTime: a job whose ranks end by themselves is not well, and what they said is
// shown.
func TestEndsBeforeItsTime(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	t.Setenv("TAGMATCH_TEST_AS_COMMAND", "1")
	var out bytes.Buffer
	code, err := Drive(Options{Job: launch.Options{N: 2, Command: []string{exe}, NoPrefix: true, KeepGoing: true}, Every: time.Minute, For: time.Hour, Seed: 1}, &out)
	require.NoError(t, err)
	require.Equal(t, 1, code)
	require.Contains(t, out.String(), errEnded.Error())
	require.Contains(t, out.String(), "the job ended with code 3")
	require.Contains(t, out.String(), "exited with code 3")
}

// TestLeft: a process that is there is found, and not once it has gone.
func TestLeft(t *testing.T) {
	require.NoError(t, left())
	child := exec.Command("sleep", "600")
	require.NoError(t, child.Start())
	require.EqualError(t, left(), "left behind: a process that runs")
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	require.NoError(t, left())
}

// TestJudge: what grows from job to job is found, and what is random is not.
func TestJudge(t *testing.T) {
	list := func(change func(i int, r *result)) []result {
		var all []result
		for i := range 40 {
			r := result{Job: i + 1, Resident: 50<<20 + int64(i%2)<<20, Descriptors: 30, DriverResident: 10 << 20, DriverDescriptors: 8}
			change(i, &r)
			all = append(all, r)
		}
		return all
	}
	require.Empty(t, judge(list(func(int, *result) {})))
	require.Equal(t, []string{"no rank has died: the time is too short"}, judge(nil))
	require.Equal(t, []string{"memory of a survivor has grown from 61.0 MiB to 121.0 MiB"},
		judge(list(func(i int, r *result) { r.Resident += int64(2*i) << 20 })))
	require.Equal(t, []string{"descriptors of a survivor has grown from 30 to 31"}, judge(list(func(i int, r *result) { r.Descriptors += i / 30 })))
	require.Equal(t, []string{"memory of the driver has grown from 11.2 MiB to 18.8 MiB"},
		judge(list(func(i int, r *result) { r.DriverResident += int64(i) << 18 })))
	require.Equal(t, []string{"descriptors of the driver has grown from 8 to 9"}, judge(list(func(i int, r *result) { r.DriverDescriptors += i / 30 })))
	wrong := list(func(int, *result) {})[:3]
	wrong[2].Wrong = "left behind: a socket"
	wrong[2].How = "exited"
	require.Equal(t, []string{"job 3, of which rank 0 exited: left behind: a socket"}, judge(wrong))
}
