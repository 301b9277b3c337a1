package jobtest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/diagnose"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/ports/portstest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// started are processes on this host that are ranks of one job.
type started struct {
	t    *testing.T
	size int
	port int
	mark string
}

func newStarted(t *testing.T, size int) *started {
	return &started{t, size, portstest.Free(t, 1)[0], fmt.Sprintf("JOBTEST_LOOK=%d.%d", os.Getpid(), time.Now().UnixNano())}
}

// rank starts one of them.
func (j *started) rank(rank int, role string) *rankProcess {
	p := &rankProcess{rank: rank, cmd: exec.CommandContext(j.t.Context(), os.Args[0])}
	p.cmd.Env = append(os.Environ(), j.mark, roleVar+"="+role, "RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(j.size), "MASTER_ADDR=127.0.0.1",
		"MASTER_PORT="+strconv.Itoa(j.port), "TAGMATCH_SECRET="+strings.Repeat("c7", 32))
	return p.start(j.t)
}

// ring starts all ranks of ringWithoutRole, and waits until they are ready.
func (j *started) ring(what string) (ranks []*rankProcess) {
	for r := range j.size {
		ranks = append(ranks, j.rank(r, "ringwithout"))
	}
	for _, p := range ranks {
		p.hear(j.t, what, "ready")
	}
	return ranks
}

// endRing ends the ranks of ringWithoutRole that are in the ring, without the last one.
func endRing(t *testing.T, what string, ranks []*rankProcess) {
	for _, p := range ranks {
		_, _ = p.in.Write([]byte("end\n"))
	}
	for _, p := range ranks {
		p.hear(t, what, "well")
		require.NoError(t, p.cmd.Wait(), "rank %d: %s", p.rank, &p.err)
	}
}

// TestLookedIntoWhileJoining looks at ranks that wait in Init for others, which then come.
func TestLookedIntoWhileJoining(t *testing.T) {
	j := newStarted(t, 4)
	ranks := []*rankProcess{j.rank(0, "ringwithout"), j.rank(2, "ringwithout")}
	const zero = "for all ranks to join; still missing: ranks 1, 3 of 4"
	let := fmt.Sprintf("for all ranks to join; rank 0 at MASTER_ADDR:MASTER_PORT=127.0.0.1:%d knows which are missing", j.port)
	for end := time.Now().Add(testlevel.Patience(30 * time.Second)); ; time.Sleep(time.Millisecond) {
		s := doors.Jobs(t.Context(), doorsOf(t, j.mark))
		if len(s) == 2 && strings.HasSuffix(s[0].Joins, zero) && s[1].Joins == let {
			require.Equal(t, []string{inspect.PhaseJoining, inspect.PhaseJoining}, []string{s[0].Phase, s[1].Phase})
			require.Equal(t, s[0].Job, s[1].Job)
			v := diagnose.Diagnose(doors.Look(s), doors.Look(s))
			require.Len(t, v, 1)
			require.Equal(t, diagnose.NotJoined, v[0].Class)
			require.Equal(t, []int{0, 2}, v[0].Ranks)
			require.Contains(t, v[0].What, zero)
			require.Contains(t, v[0].Where, "jobtest.playRole")
			break
		}
		require.False(t, time.Now().After(end), "%+v", s)
	}
	ranks = append(ranks, j.rank(1, "ringwithout"), j.rank(3, "ringwithout"))
	for _, p := range ranks {
		p.hear(t, "looked into while joining", "ready")
	}
	names := doorsOf(t, j.mark)
	require.Len(t, names, 4)
	require.False(t, slices.ContainsFunc(doors.Jobs(t.Context(), names), func(s inspect.State) bool { return s.Phase != inspect.PhaseRunning }))
	for _, p := range ranks {
		_, err := p.in.Write([]byte("end\n"))
		require.NoError(t, err)
	}
	for _, p := range ranks {
		if p.rank != 3 { // it says nothing
			p.hear(t, "looked into while joining", "well")
		}
		require.NoError(t, p.cmd.Wait(), "rank %d: %s", p.rank, &p.err)
	}
}
