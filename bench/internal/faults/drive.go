package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
	"github.com/tagmatch/tagmatch/internal/launch"
)

// Options of Drive.
type Options struct {
	Job   launch.Options // of each job, without its output
	Every time.Duration  // between the ends of two ranks
	For   time.Duration  // after which no job begins
	Seed  uint64
	JSON  bool
}

// Drive starts jobs until the time is over, or one has not gone well, prints a line of each and
// then a verdict. The code is 1 where anything was wrong.
func Drive(o Options, out io.Writer) (code int, err error) {
	if _, err := self(); err != nil {
		return 1, fmt.Errorf("what a process takes is found in /proc, which is Linux's: %w", err)
	}
	p := &benchkit.Table{Out: out, JSON: o.JSON,
		About: fmt.Sprintf("%d ranks, seed %d, a death every %v; times in ms, memory in MiB: the most of a survivor, then of this process", o.Job.N, o.Seed, o.Every)}
	next := sequence(o.Seed, o.Job.N)
	start := time.Now()
	due := start.Add(o.Every)
	var results []result
	for !due.After(start.Add(o.For)) {
		f := next()
		r, code, err := play(&o, f, due)
		if err != nil || code != 0 {
			return max(code, 1), err
		}
		r.Job, r.Seconds = len(results)+1, time.Since(start).Seconds()
		results = append(results, r)
		if err := p.Print(&r); err != nil {
			return 1, err
		}
		if r.Wrong != "" {
			break
		}
		if due = due.Add(o.Every); time.Until(due) < o.Every/2 {
			due = time.Now().Add(o.Every) // the last one took long
		}
	}
	wrong := judge(results)
	if err := verdict(p, results, wrong); err != nil {
		return 1, err
	}
	return len(wrong), nil
}

// result is what came of a job.
type result struct {
	Job     int     `json:"job" col:"job"`
	Seconds float64 `json:"s" col:"at s"`          // since the start of the first
	Stop    string  `json:"stopped" col:"stopped"` // which rank was, for how long; "": none
	Rank    int     `json:"rank" col:"rank"`       // that died
	How     string  `json:"how" col:"how"`
	// The longest of all survivors: until it knew, and until all operations with that rank had
	// ended.
	NoticedMs float64 `json:"noticed_ms" col:"noticed"`
	OverMs    float64 `json:"over_ms" col:"all ended"`
	Rounds    int     `json:"rounds" col:"rounds"` // the most of a survivor
	Messages  uint64  `json:"messages" col:"messages"`
	Bytes     uint64  `json:"bytes"`
	// The most of a survivor, and of the driver behind it.
	Resident          int64  `json:"resident" col:"memory"`
	Descriptors       int    `json:"descriptors" col:"fds"`
	DriverResident    int64  `json:"driver_resident" col:"own memory"`
	DriverDescriptors int    `json:"driver_descriptors" col:"own fds"`
	Wrong             string `json:"wrong,omitempty"`
}

// Limits of a job, which a busy host does not reach.
const (
	joinLimit = 2 * time.Minute // until all ranks are ready
	endLimit  = time.Minute     // from the death on
	dumpLimit = 10 * time.Second
)

// play plays a job whose rank dies when it is due. The code is that of a job which was interrupted.
func play(o *Options, f fault, due time.Time) (result, int, error) {
	r := result{Rank: f.rank, How: ways[f.how].name}
	j := newJob(o.Job)
	begun := time.Now()
	died, err := j.hurt(f, begun, due, &r)
	if err == nil {
		err = j.await(time.Now().Add(endLimit))
	}
	if err != nil {
		j.dump(f.rank)
	}
	code := j.end()
	if code > 128 && err == nil && died.IsZero() {
		return r, code, nil
	}
	wrong := []error{err, j.err}
	if code != 0 {
		wrong = append(wrong, fmt.Errorf("the job ended with code %d", code))
	}
	if err == nil {
		wrong = append(wrong, j.tally(f, died, &r))
	}
	wrong = append(wrong, left())
	if err := errors.Join(wrong...); err != nil {
		r.Wrong = err.Error() + "\n" + j.said()
	}
	debug.FreeOSMemory() // which is not a leak
	now, err := self()
	r.DriverResident, r.DriverDescriptors = now.resident, now.descriptors
	return r, 0, err
}

// hurt stops a rank for a while, and then has one die. It returns when that was.
func (j *job) hurt(f fault, begun, due time.Time, r *result) (died time.Time, err error) {
	if err := j.ready(); err != nil {
		return died, err
	}
	share := func(s float64) time.Duration { return time.Duration(s * float64(due.Sub(begun))) }
	if at := begun.Add(share(f.stopAt)); f.stopped >= 0 {
		if err := j.until(at); err != nil {
			return died, err
		}
		r.Stop = fmt.Sprintf("%d for %v", f.stopped, share(f.stopFor).Round(time.Millisecond))
		if err := j.stop(f.stopped, time.Now().Add(share(f.stopFor))); err != nil {
			return died, err
		}
	}
	if err := j.until(due); err != nil {
		return died, err
	}
	died = time.Now()
	return died, j.signal(f.rank, ways[f.how].signal)
}

// left is an error if some process of a job is there after it. What else a rank has, such as
// abstract sockets and shared memory, has no name in a file system, and ends with the last process.
func left() error {
	switch pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); {
	case errors.Is(err, syscall.ECHILD):
		return nil
	case pid > 0:
		return fmt.Errorf("left behind: process %d, which had ended", pid)
	}
	return errors.New("left behind: a process that runs")
}

// tally counts what the survivors have said.
func (j *job) tally(f fault, died time.Time, r *result) error {
	over := j.survivors()
	slices.SortFunc(over, func(a, b Survivor) int { return cmp.Compare(a.Rank, b.Rank) })
	var told []int
	for _, s := range over {
		told = append(told, s.Rank)
		if s.Lost != f.rank {
			return fmt.Errorf("rank %d has lost rank %d, and rank %d was the one that %s", s.Rank, s.Lost, f.rank, r.How)
		}
		if s.At.Before(died) {
			return fmt.Errorf("rank %d lost rank %d %v before that %s", s.Rank, s.Lost, died.Sub(s.At), r.How)
		}
		r.NoticedMs = max(r.NoticedMs, s.At.Sub(died).Seconds()*1e3)
		r.OverMs = max(r.OverMs, s.Over.Sub(died).Seconds()*1e3)
		r.Rounds = max(r.Rounds, s.Rounds)
		r.Messages += s.Messages
		r.Bytes += s.Bytes
		r.Resident, r.Descriptors = max(r.Resident, s.Resident), max(r.Descriptors, s.Descriptors)
	}
	var want []int
	for rank := range j.opt.N {
		if rank != f.rank {
			want = append(want, rank)
		}
	}
	if !slices.Equal(told, want) {
		return fmt.Errorf("ranks %v have told what they saw, want ranks %v", told, want)
	}
	return nil
}

// errEnded tells that a job has ended where it should have gone on.
var errEnded = errors.New("the job ended before its time")

// run is the job's process tree, from its start to its end.
func (j *job) run(ctx context.Context) {
	defer close(j.ended)
	j.code, j.err = launch.Run(ctx, j.opt)
}
