package jobtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// trial is a job of the matrix, as the test sees it.
type trial struct {
	cell     cell
	seed     uint64
	dir      string   // of the rendezvous
	net      *network // nil: the ranks are on this host
	ranks    []*rankProcess
	reports  []chan report       // of each rank, closed at the end of its output
	said     []map[string]report // by rank and word
	injected time.Time
	late     bool // a rank does not report
}

// outcome of a trial, as the log has it.
type trialOutcome struct {
	Cell   string
	Seed   uint64
	Failed bool
	Lost   [matrixRanks][]int
	// After is the time from the fault until a rank that has lost another one knew it, and its
	// operations had ended.
	After [matrixRanks]time.Duration
}

// playTrial plays a trial. Where t has failed it returns what is known of it; where the trial was
// skipped, or its ranks were not started, it was not played.
func playTrial(t *testing.T, c cell, seed uint64) (out trialOutcome, played bool) {
	out = trialOutcome{Cell: c.String(), Seed: seed}
	ok := t.Run("trial", func(t *testing.T) {
		j := &trial{cell: c, seed: seed}
		j.start(t)
		played = true
		j.play(t, &out)
	})
	out.Failed = !ok
	return out, played
}

// start starts the ranks.
func (j *trial) start(t *testing.T) {
	j.dir = t.TempDir()
	if j.cell.fault.network && j.cell.fault.outcome != reset {
		j.net = newNetwork(t, matrixRanks)
	}
	for r := range matrixRanks {
		args := []string{os.Args[0]}
		if j.net != nil {
			args = []string{"ip", "netns", "exec", j.net.ns(r), os.Args[0]}
		}
		p := &rankProcess{rank: r, cmd: exec.Command(args[0], args[1:]...)}
		p.cmd.Env = append(os.Environ(),
			roleVar+"=matrix", cellVar+"="+j.cell.String(), seedVar+"="+strconv.FormatUint(j.seed, 10),
			"RANK="+strconv.Itoa(r), "WORLD_SIZE="+strconv.Itoa(matrixRanks), "TAGMATCH_STORE="+j.dir, "TAGMATCH_JOB_ID=matrix",
			"TAGMATCH_DEVICE="+j.cell.device, "TAGMATCH_TRANSPORT="+j.cell.transport, "TAGMATCH_OFFLOAD_MIN=-1",
			fmt.Sprint("TAGMATCH_PEER_TIMEOUT=", matrixPeerTimeout), fmt.Sprint("TAGMATCH_JOIN_TIMEOUT=", j.cell.joinTimeout()))
		if j.cell.phase == heldUp {
			p.cmd.Env = append(p.cmd.Env, "TAGMATCH_UNEXPECTED_LIMIT=65536")
		}
		p.start(t)
		j.ranks = append(j.ranks, p)
		j.reports = append(j.reports, make(chan report, 100))
		j.said = append(j.said, map[string]report{})
		go j.read(p, j.reports[r])
	}
	t.Cleanup(func() {
		if t.Failed() {
			j.explain(t)
		}
	})
}

// read reads the reports of a rank.
func (j *trial) read(p *rankProcess, to chan<- report) {
	defer close(to)
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			return
		}
		var r report
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			r.Problems = []string{"it prints " + line}
		}
		to <- r
	}
}

// explain ends each rank that still runs. Where one is late they print their goroutines.
func (j *trial) explain(t *testing.T) {
	how := syscall.SIGKILL
	if j.late {
		how = syscall.SIGQUIT
	}
	for _, p := range j.ranks {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Signal(how)
		_ = p.cmd.Wait()
		t.Logf("seed %d: rank %d: %s", j.seed, p.rank, &p.err)
	}
}

func (j *trial) tell(t *testing.T, rank int, word string) {
	t.Helper()
	_, err := j.ranks[rank].in.Write([]byte(word + "\n"))
	require.NoError(t, err, "seed %d: rank %d: %q", j.seed, rank, word)
}

func (j *trial) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, j.ranks[victim].cmd.Process.Signal(s))
}

// await waits until ranks have reported a word.
func (j *trial) await(t *testing.T, word string, ranks []int, limit time.Duration) {
	t.Helper()
	late := time.After(limit)
	for _, rank := range ranks {
		for j.said[rank][word].Say == "" {
			select {
			case r, ok := <-j.reports[rank]:
				require.True(t, ok, "seed %d: rank %d ended instead of reporting %q", j.seed, rank, word)
				require.Empty(t, r.Problems, "seed %d", j.seed)
				j.said[rank][r.Say] = r
			case <-late:
				j.late = true
				require.Fail(t, "late", "seed %d: rank %d does not report %q within %v", j.seed, rank, word, limit)
			}
		}
	}
}

// there limits how long ranks take for what is no matter of the fault.
const there = time.Minute

// play plays the trial.
func (j *trial) play(t *testing.T, out *trialOutcome) {
	c := j.cell
	all := []int{server, victim, partner}
	if c.phase == joining {
		all = []int{victim}
	}
	j.await(t, "there", all, there)
	all = []int{server, victim, partner}
	if c.phase == connecting && !c.fault.shortage {
		j.tellAll(t, all, "go")
	}
	time.Sleep(time.Duration(rand.New(rand.NewPCG(j.seed, 1)).IntN(20_000)) * time.Microsecond)
	j.injected = time.Now()
	c.fault.inject(t, j)
	if c.phase == connecting && c.fault.shortage {
		j.injected = time.Now() // it had no effect yet
		j.tellAll(t, all, "go")
	}
	living := all
	if c.fault.outcome == ended {
		living = []int{server, partner}
	}
	for _, rank := range living {
		if c.phase == leaving || len(c.loses(rank)) == 0 {
			j.tell(t, rank, "over")
		}
	}
	for _, rank := range living {
		limit := there
		if len(c.loses(rank)) != 0 {
			limit = time.Until(j.injected.Add(c.bound() + slack))
		}
		j.await(t, "ended", []int{rank}, limit)
		r := j.said[rank]["ended"]
		if out.Lost[rank] = r.Lost; len(r.Lost) != 0 {
			out.After[rank] = time.Unix(0, r.At).Sub(j.injected)
		}
	}
	for _, step := range [][2]string{{"on", "done"}, {"leave", "left"}} {
		j.tellAll(t, living, step[0])
		j.await(t, step[1], living, there)
	}
	j.end(t)
}

func (j *trial) tellAll(t *testing.T, ranks []int, word string) {
	t.Helper()
	for _, rank := range ranks {
		j.tell(t, rank, word)
	}
}

// end waits for the end of the processes, which leave no file.
func (j *trial) end(t *testing.T) {
	for _, p := range j.ranks {
		for range j.reports[p.rank] { // to the end of its output
		}
		if err := p.cmd.Wait(); p.rank != victim || j.cell.fault.outcome != ended {
			require.NoError(t, err, "seed %d: rank %d", j.seed, p.rank)
		}
	}
	left, err := os.ReadDir(j.dir)
	require.NoError(t, err)
	require.Empty(t, left, "seed %d: the rendezvous leaves a file", j.seed)
}
